"""The cache of near-boundary rows: rows whose bounds will fail next stay in memory.

Out of core a storage chunk is read for a single failing row, and with rows in random order almost every
chunk holds one. So a work item keeps a compact copy of some of its rows, within a budget, and a pass
visits these without reading.

They are chosen whenever a chunk has been read, as those of its rows whose bounds have the least left
then: rows near the border of two clusters. To keep rows *because* they have failed saves next to
nothing, since bounds are tight again after a visit, and next time others fail.
"""

from __future__ import annotations

import numpy as np

from daskcluster.chunk import Chunk

_INDEX_BYTES = 4
_WEIGHT_BYTES = 8


class RecentRows:
    """Copies of some rows of a unit, and of their weights.

    Memory is allocated with the first rows, since their dtype is known only then; work items whose rows
    are in memory anyway never have any.

    Parameters
    ----------
    n_rows : int
        Rows of the unit.
    row_bytes : int
        Bytes to spend for each of these, kept or not.

    Attributes
    ----------
    turn : object or None
        `Bounded.turn` of the last pass that reassigned the cached rows before any chunk was read.

    Examples
    --------
    >>> import numpy as np
    >>> recent = RecentRows(n_rows=4, row_bytes=6)
    >>> chunk = Chunk(np.array([[1.0], [2.0], [3.0], [4.0]], np.float32))
    >>> recent.room(chunk, 0)
    3
    >>> recent.replace(chunk, 0, np.array([1, 3]))
    >>> recent.index.tolist(), recent.rows().rows.ravel().tolist()
    ([1, 3], [2.0, 4.0])
    """

    def __init__(self, n_rows: int, row_bytes: int) -> None:
        self.turn: object = None
        self._n_rows = n_rows
        self._most_bytes = n_rows * row_bytes
        self._count = 0
        self._index = np.empty(0, np.int32)
        self._rows: Chunk | None = None

    @property
    def index(self) -> np.ndarray:
        """Places of the kept rows in their unit, int32 (m,), in no order."""
        return self._index[: self._count]

    @property
    def nbytes(self) -> int:
        rows = self._rows
        if rows is None:
            return 0
        weights = 0 if rows.weights is None else rows.weights.nbytes
        return self._index.nbytes + int(rows.rows.nbytes) + weights

    def rows(self) -> Chunk:
        """Return the kept rows, in the order of `index`; its `start` is that of the unit."""
        assert self._rows is not None
        return self._rows.slice(0, self._count)

    def room(self, chunk: Chunk, first: int) -> int:
        """Return how many rows of a chunk may be kept, in place of those that are.

        Its share, so that chunks which are read later find room as well.

        Parameters
        ----------
        chunk : Chunk
        first : int
            Place of its first row in the unit.
        """
        capacity = self._capacity(chunk)
        others = int(np.count_nonzero(~self._within(chunk, first)))
        return min(capacity * chunk.n_rows // self._n_rows, capacity - others)

    def replace(self, chunk: Chunk, first: int, which: np.ndarray) -> None:
        """Keep these rows of a chunk, and none of its others.

        Parameters
        ----------
        chunk : Chunk
        first : int
            Place of its first row in the unit.
        which : ndarray of shape (m,), int64
            Indices in the chunk, at most `room`.
        """
        kept = self._rows if self._rows is not None else self._allocate(chunk, first)
        others = np.flatnonzero(~self._within(chunk, first))
        if len(others) < self._count:
            self._put(kept, slice(0, len(others)), self.rows(), others, self.index[others])
        self._count = len(others) + len(which)
        self._put(kept, slice(len(others), self._count), chunk, which, which + first)

    def _put(
        self, kept: Chunk, places: slice, rows: Chunk, which: np.ndarray, index: np.ndarray
    ) -> None:
        self._index[places] = index
        kept.rows[places] = rows.rows[which]
        if kept.weights is not None and rows.weights is not None:
            kept.weights[places] = rows.weights[which]

    def _within(self, chunk: Chunk, first: int) -> np.ndarray:
        return (self.index >= first) & (self.index < first + chunk.n_rows)

    def _capacity(self, chunk: Chunk) -> int:
        weight = 0 if chunk.weights is None else _WEIGHT_BYTES
        row = chunk.rows.shape[1] * chunk.rows.dtype.itemsize
        return min(self._n_rows, self._most_bytes // (row + _INDEX_BYTES + weight))

    def _allocate(self, chunk: Chunk, first: int) -> Chunk:
        capacity = self._capacity(chunk)
        self._index = np.empty(capacity, np.int32)
        self._rows = Chunk(
            np.empty((capacity, chunk.rows.shape[1]), chunk.rows.dtype),
            chunk.start - first,
            None if chunk.weights is None else np.empty(capacity),
            chunk.normalize,
        )
        return self._rows
