"""Work items: ranges of rows, their cached rows and state, and how threads take and read them.

The same for a local thread and for a Dask worker. A work item that is read need not be read whole: a
pass that keeps state is asked, as the reader gets to a work item, which parts of it are wanted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.typing import Dataset, Range


class CacheSlot:
    """What stays of one work item: its rows where those are resident, and the state of one reduction.

    State carries a version, which says after which call it is valid. It is taken out while a task
    works on it, so that a task that dies half-way leaves nothing behind.

    Examples
    --------
    >>> slot = CacheSlot()
    >>> slot.keep_state("bounds", 1, "state")
    >>> slot.pop_state("bounds"), slot.pop_state("bounds")
    ((1, 'state'), (-1, None))
    """

    keeps = True
    """False: values stored here are dropped."""

    def __init__(self) -> None:
        self._rows: list[Chunk] | None = None
        self._state: tuple[str, int, Any] = ("", -1, None)
        self._lock = threading.Lock()

    def rows(self) -> list[Chunk] | None:
        """Return the resident chunks, or None."""
        return self._rows

    def keep_rows(self, chunks: Sequence[Chunk]) -> None:
        if self.keeps and self._rows is None:
            self._rows = list(chunks)

    def drop_rows(self) -> None:
        self._rows = None

    def pop_state(self, name: str) -> tuple[int, Any]:
        """Take the state of a reduction out, with its version; that of another is given up."""
        with self._lock:
            found, self._state = self._state, ("", -1, None)
        return found[1:] if found[0] == name else (-1, None)

    def peek_state(self, name: str) -> tuple[int, Any]:
        """Return the state and its version, and leave it there."""
        found = self._state
        return found[1:] if found[0] == name else (-1, None)

    def keep_state(self, name: str, version: int, state: Any) -> None:
        if self.keeps:
            self._state = (name, version, state)

    def drop_state(self) -> None:
        self._state = ("", -1, None)


@dataclass(frozen=True)
class WorkItem:
    """Rows that are worked on together.

    Attributes
    ----------
    span : (start, stop)
    rows : CacheSlot or None
        Where the rows are, or will be once they were read; None where they are not kept.
    state : CacheSlot or None
        Where state stays between calls; None where it is not kept.
    """

    span: Range
    rows: CacheSlot | None = None
    state: CacheSlot | None = None

    @property
    def n_rows(self) -> int:
        return self.span[1] - self.span[0]

    @property
    def is_present(self) -> bool:
        """Its rows are in memory already."""
        return self.rows is not None and self.rows.rows() is not None


Wanted = Callable[[WorkItem, np.ndarray], Sequence[Range]]
"""Called with a work item and its read edges; returns the parts to read, in order, from edge to edge."""


class WorkQueue:
    """The work items that threads share: each is handed to one of them, when it asks for more.

    Parameters
    ----------
    dataset : Dataset or None
        What work items are read from that are not in memory; None if there are none.
    work_items : sequence of Unit

    Attributes
    ----------
    bytes_read : int
        Decoded bytes of what was fetched from the store.
    """

    def __init__(self, dataset: Dataset | None, work_items: Sequence[WorkItem]) -> None:
        self.dataset = dataset
        self.bytes_read = 0
        self._present = deque(item for item in work_items if item.is_present)
        self._absent = deque(item for item in work_items if not item.is_present)
        self._per_read = -(-len(self._present) // max(1, len(self._absent)))
        self._lock = threading.Lock()
        self._rows = 0

    @property
    def is_single(self) -> bool:
        """At most one work item is left: a second thread would find nothing."""
        return len(self._absent) + len(self._present) <= 1

    def absent(self) -> Iterator[WorkItem]:
        """Yield work items to read, ahead of what is handed over."""
        return _drain(self._absent)

    def present(self) -> Iterator[WorkItem]:
        """Yield all work items left that are in memory."""
        return _drain(self._present)

    def between_reads(self) -> Iterator[WorkItem]:
        """Yield the work items in memory that follow one that was read, while the reader works."""
        return islice(_drain(self._present), self._per_read)

    def stop(self) -> None:
        """Let all threads end with the work items they have."""
        self._absent.clear()
        self._present.clear()

    def take_rows(self) -> int:
        """Return how many rows were done since the last call."""
        with self._lock:
            rows, self._rows = self._rows, 0
        return rows

    def add_rows(self, count: int) -> None:
        """Count rows that are done, those that need not be read among them."""
        with self._lock:
            self._rows += count

    def add_bytes(self, count: int) -> None:
        with self._lock:
            self.bytes_read += count


def _drain(work_items: deque[WorkItem]) -> Iterator[WorkItem]:
    # popleft is atomic: several threads drain one queue.
    while True:
        try:
            yield work_items.popleft()
        except IndexError:
            return


class WorkItemReader:
    """Reads for one thread the work items that it takes from a queue.

    Parameters
    ----------
    queue : WorkQueue

    Attributes
    ----------
    skipped : int
        Rows that did not have to be read.
    """

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self.skipped = 0

    def whole(self) -> Iterator[tuple[WorkItem, list[Chunk]]]:
        """Yield every work item with all its chunks."""
        chunks: list[Chunk] = []
        for item, chunk, is_last in self.parts():
            chunks.append(chunk)
            del chunk
            if is_last:
                yield item, chunks
                chunks = []

    def parts(self, wanted: Wanted | None = None) -> Iterator[tuple[WorkItem, Chunk, bool]]:
        """Yield ``(item, chunk, is_last)`` for the chunks of one work item after the other.

        Parameters
        ----------
        wanted : callable, optional
            Asked for every work item that has to be read and will not be resident, ahead of its chunks and
            in the thread that takes them. A work item of which it wants nothing is not handed over.
        """
        queue = self._queue
        if queue.dataset is not None:
            for item, chunk, is_last in self._read(queue.dataset, wanted):
                yield item, chunk, is_last
                queue.add_rows(chunk.n_rows)
                del chunk  # not kept while the next one is awaited
                if is_last:
                    yield from self._in_memory(queue.between_reads())
        yield from self._in_memory(queue.present())

    def _in_memory(self, work_items: Iterable[WorkItem]) -> Iterator[tuple[WorkItem, Chunk, bool]]:
        for item in work_items:
            chunks = (item.rows.rows() if item.rows is not None else None) or []
            for i, chunk in enumerate(chunks, 1):
                yield item, chunk, i == len(chunks)
                self._queue.add_rows(chunk.n_rows)

    def _read(
        self, dataset: Dataset, wanted: Wanted | None
    ) -> Iterator[tuple[WorkItem, Chunk, bool]]:
        ahead: deque[tuple[WorkItem, int]] = deque()
        kept: list[Chunk] = []
        for chunk in dataset.chunks(
            self._ranges(dataset, wanted, ahead), on_read=self._queue.add_bytes
        ):
            item, stop = ahead[0]
            is_last = chunk.stop >= stop
            if item.rows is not None:
                kept.append(chunk)
            if is_last:
                ahead.popleft()
                if item.rows is not None:
                    item.rows.keep_rows(kept)
                    kept = []
            yield item, chunk, is_last
            del chunk

    def _ranges(
        self, dataset: Dataset, wanted: Wanted | None, ahead: deque[tuple[WorkItem, int]]
    ) -> Iterator[Range]:
        """Yield what has to be read, and note in `ahead` which work item it is of and where that ends."""
        for item in self._queue.absent():
            parts: Sequence[Range] = [item.span]
            if wanted is not None and item.rows is None and not dataset.in_memory:
                parts = wanted(item, dataset.read_edges(item.span))
            skipped = item.n_rows - count_rows(parts)
            if skipped:
                self.skipped += skipped
                self._queue.add_rows(skipped)
            if parts:
                ahead.append((item, parts[-1][1]))
                yield from parts


def count_rows(spans: Iterable[Range]) -> int:
    """Return how many rows are in ranges."""
    return sum(stop - start for start, stop in spans)


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
            f"filter_rows returned shape={mask.shape}, dtype={mask.dtype} for rows {start} to {stop - 1}; "
            f"it should return one bool for every row, shape ({stop - start},), or None for all rows."
        )
    hit = np.logical_or.reduceat(mask, edges[:-1] - start)
    turns = np.flatnonzero(np.diff(hit.astype(np.int8), prepend=0, append=0))
    bounds = edges[turns].tolist()
    return list(zip(bounds[::2], bounds[1::2], strict=True))
