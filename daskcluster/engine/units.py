"""Units of rows, and how one thread gets theirs: from memory, or chunk by chunk from the store.

The same for a local thread and for a Dask worker. A unit that is read need not be read whole: a
pass that keeps state is asked, as the reader gets to a unit, which parts of it are wanted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.engine.places import Place
from daskcluster.typing import Dataset, Range


@dataclass(frozen=True)
class Unit:
    """Rows that are worked on together.

    Attributes
    ----------
    span : (start, stop)
    rows : Place or None
        Where the rows are, or will be once they were read; None where they are not kept.
    state : Place or None
        Where state stays between calls; None where it is not kept.
    """

    span: Range
    rows: Place | None = None
    state: Place | None = None

    @property
    def n_rows(self) -> int:
        return self.span[1] - self.span[0]

    @property
    def is_present(self) -> bool:
        """Its rows are in memory already."""
        return self.rows is not None and self.rows.rows() is not None


Wanted = Callable[[Unit, np.ndarray], Sequence[Range]]
"""Called with a unit and its read edges; returns the parts to read, in order, each from edge to edge."""


class UnitReader:
    """Hands over the units of one thread.

    Parameters
    ----------
    dataset : Dataset or None
        What absent units are read from; None if there are none.
    absent : iterable of Unit
        Drawn lazily, ahead of what is handed over.
    present : iterable of Unit
        Drawn lazily; spread between those that are read, so that the reader works on meanwhile.
    per_read : int
        How many present units to hand over after each one that was read.
    on_read : callable (int) -> None
        Hears the decoded bytes of every block fetched from the store.
    on_rows : callable (int) -> None
        Hears the rows that are done, those that need not be read among them.

    Attributes
    ----------
    skipped : int
        Rows that did not have to be read.
    """

    def __init__(
        self,
        dataset: Dataset | None,
        absent: Iterable[Unit],
        present: Iterable[Unit],
        *,
        per_read: int,
        on_read: Callable[[int], None],
        on_rows: Callable[[int], None],
    ) -> None:
        self._dataset = dataset
        self._absent = iter(absent)
        self._present = iter(present)
        self._per_read = per_read
        self._on_read = on_read
        self._on_rows = on_rows
        self.skipped = 0

    def whole(self) -> Iterator[tuple[Unit, list[Chunk]]]:
        """Yield every unit with all its chunks."""
        chunks: list[Chunk] = []
        for unit, chunk, is_last in self.parts():
            chunks.append(chunk)
            del chunk
            if is_last:
                yield unit, chunks
                chunks = []

    def parts(self, wanted: Wanted | None = None) -> Iterator[tuple[Unit, Chunk, bool]]:
        """Yield ``(unit, chunk, is_last)`` for the chunks of one unit after the other.

        Parameters
        ----------
        wanted : callable, optional
            Asked for every unit that has to be read and will not be resident, ahead of its chunks and
            in the thread that takes them. A unit of which it wants nothing is not handed over.
        """
        if self._dataset is not None:
            for unit, chunk, is_last in self._read(self._dataset, wanted):
                yield unit, chunk, is_last
                self._on_rows(chunk.n_rows)
                del chunk  # not kept while the next one is awaited
                if is_last:
                    yield from self._kept(self._per_read)
        yield from self._kept(None)

    def _kept(self, most: int | None) -> Iterator[tuple[Unit, Chunk, bool]]:
        for unit in islice(self._present, most):
            chunks = (unit.rows.rows() if unit.rows is not None else None) or []
            for i, chunk in enumerate(chunks, 1):
                yield unit, chunk, i == len(chunks)
                self._on_rows(chunk.n_rows)

    def _read(self, dataset: Dataset, wanted: Wanted | None) -> Iterator[tuple[Unit, Chunk, bool]]:
        ahead: deque[tuple[Unit, int]] = deque()
        kept: list[Chunk] = []
        for chunk in dataset.chunks(self._ranges(dataset, wanted, ahead), on_read=self._on_read):
            unit, stop = ahead[0]
            is_last = chunk.stop >= stop
            if unit.rows is not None:
                kept.append(chunk)
            if is_last:
                ahead.popleft()
                if unit.rows is not None:
                    unit.rows.keep_rows(kept)
                    kept = []
            yield unit, chunk, is_last
            del chunk

    def _ranges(
        self, dataset: Dataset, wanted: Wanted | None, ahead: deque[tuple[Unit, int]]
    ) -> Iterator[Range]:
        """Yield what has to be read, and note in `ahead` which unit it is of and where that ends."""
        for unit in self._absent:
            parts: Sequence[Range] = [unit.span]
            if wanted is not None and unit.rows is None and not dataset.in_memory:
                parts = wanted(unit, dataset.read_edges(unit.span))
            skipped = unit.n_rows - sum(stop - start for start, stop in parts)
            if skipped:
                self.skipped += skipped
                self._on_rows(skipped)
            if parts:
                ahead.append((unit, parts[-1][1]))
                yield from parts


def wanted_ranges(edges: np.ndarray, mask: np.ndarray | None) -> list[Range]:
    """Return the ranges between edges that hold a wanted row, adjacent ones merged.

    Parameters
    ----------
    edges : ndarray of int64, shape (n_parts + 1,)
    mask : ndarray of bool, shape (n_rows,), or None
        Which rows from ``edges[0]`` to ``edges[-1]`` are wanted; None for all.

    Raises
    ------
    ValueError
        A mask of another shape or dtype.

    Examples
    --------
    >>> import numpy as np
    >>> mask = np.array([0, 0, 0, 1, 1, 0, 0, 0], bool)
    >>> wanted_ranges(np.array([10, 12, 14, 16, 18]), mask)
    [(12, 16)]
    >>> wanted_ranges(np.array([10, 12, 14, 16, 18]), None)
    [(10, 18)]
    """
    start, stop = int(edges[0]), int(edges[-1])
    if mask is None:
        return [(start, stop)]
    if mask.shape != (stop - start,) or mask.dtype != np.bool_:
        raise ValueError(
            f"screen returned shape={mask.shape}, dtype={mask.dtype} for rows {start} to {stop - 1}; it "
            f"should return one bool for every row, shape ({stop - start},), or None for all rows."
        )
    hit = np.logical_or.reduceat(mask, edges[:-1] - start)
    turns = np.flatnonzero(np.diff(hit.astype(np.int8), prepend=0, append=0))
    bounds = edges[turns].tolist()
    return list(zip(bounds[::2], bounds[1::2], strict=True))
