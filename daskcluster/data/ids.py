"""Rows and their ids by number, and ids that several rows have."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from daskcluster.data.tables import import_pyarrow
from daskcluster.kernels.hashing import hash_strings
from daskcluster.sparse_rows import Rows, join_rows
from daskcluster.typing import Dataset, Range


def chosen_rows(dataset: Dataset, numbers: np.ndarray) -> Rows:
    """Return rows by their numbers, in the given order.

    Unlike ``dataset.take``, it leaves CSR rows in CSR form, with all their stored entries.

    Parameters
    ----------
    dataset : Dataset
    numbers : ndarray of shape (m,), int64
        At least one; repeats are allowed.

    Returns
    -------
    Rows of shape (m, d)

    Notes
    -----
    Cost: every storage chunk with at least one of the rows is read once.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.open import open_source
    >>> chosen_rows(open_source(np.eye(3)), np.array([2, 0, 2]))
    array([[0., 0., 1.],
           [1., 0., 0.],
           [0., 0., 1.]])
    """
    ordered, home = np.unique(numbers, return_inverse=True)
    parts = []
    for chunk in dataset.chunks(_spans(dataset, ordered)):
        first, last = np.searchsorted(ordered, [chunk.start, chunk.stop])
        parts.append(chunk.rows[ordered[first:last] - chunk.start])
    return join_rows(parts)[home]


def _spans(dataset: Dataset, ordered: np.ndarray) -> Iterator[Range]:
    """Yield the range from the first to the last requested row of each storage chunk."""
    edges = dataset.read_edges((0, dataset.n_rows))
    places = np.searchsorted(ordered, edges)
    for first, last in zip(places[:-1].tolist(), places[1:].tolist(), strict=True):
        if last > first:
            yield int(ordered[first]), int(ordered[last - 1]) + 1


def chosen_ids(dataset: Any, numbers: np.ndarray) -> Any:
    """Return the ids of at least one row, by ascending numbers; see `joined_ids`."""
    edges, parts = np.append(0, np.cumsum(dataset.chunk_sizes)), []
    for first, last in pairwise(np.unique(np.searchsorted(numbers, edges)).tolist()):
        here = numbers[first:last]
        ids = dataset.ids(int(here[0]), int(here[-1]) + 1)
        at = here - here[0]
        parts.append(ids[at] if isinstance(ids, np.ndarray) else ids.take(at))
    return joined_ids(parts)


def joined_ids(parts: Sequence[Any]) -> Any:
    """Return consecutive ids as one array: of Arrow if they are those of an id column."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    from daskcluster.data.tables import import_pyarrow

    pa = import_pyarrow()
    arrays = [piece for part in parts for piece in getattr(part, "chunks", [part])]
    return pa.chunked_array(arrays, type=parts[0].type)


_MOST_ROWS = 1 << 28
"""More rows are not checked: their hashes would take more than 2 GB."""


class DuplicateIds:
    """Counts duplicates among ids that are added block by block.

    Parameters
    ----------
    name : str
        Of the id column, for the warning.
    n_rows : int

    Notes
    -----
    Cost: 8 bytes a row, and a sort. Ids whose hashes are equal count as equal: of 10^8 different ones that
    happens once in some 4,000 runs. More than 268 million rows are not checked.
    """

    def __init__(self, name: str, n_rows: int) -> None:
        self._name = name
        self._hashes = np.empty(n_rows if n_rows <= _MOST_ROWS else 0, np.uint64)
        self._n_rows = 0

    def add(self, ids: Any) -> None:
        """Add the ids of the next rows, an Arrow array or chunked array."""
        found = hashes_of(ids)
        if len(self._hashes):
            self._hashes[self._n_rows : self._n_rows + len(found)] = found
        self._n_rows += len(found)

    def warn(self, blocks: Callable[[], Iterable[Any]]) -> None:
        """Warn if there are duplicates.

        Parameters
        ----------
        blocks : callable () -> iterable of ids
            All ids once more, to find one that is there twice.
        """
        ordered = np.sort(self._hashes)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(twice):
            return
        shown = next(
            (
                ids[int(at[0])].as_py()
                for ids in blocks()
                if len(at := np.flatnonzero(hashes_of(ids) == twice[0]))
            ),
            None,
        )
        warnings.warn(
            f"{len(twice):,} of {self._n_rows:,} rows have an id in column {self._name!r} that an earlier "
            f"row has too, e.g. {shown!r}: a join of labels by id would mix them up.",
            UserWarning,
            stacklevel=2,
        )


def hashes_of(ids: Any) -> np.ndarray:
    """Return a hash of each id of an Arrow array or chunked array, uint64 (n,)."""
    pa = import_pyarrow()
    parts = [_hashes(pa, part) for part in getattr(ids, "chunks", [ids])]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _hashes(pa: Any, ids: Any) -> np.ndarray:
    strings = ids.cast(pa.large_string()).fill_null("")
    if not len(strings):
        return np.empty(0, np.uint64)
    _, offsets, content = strings.buffers()
    starts = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    text = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    return hash_strings(text, starts)
