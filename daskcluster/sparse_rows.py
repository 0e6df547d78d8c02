"""Rows in CSR form: the stored values of every row and their columns."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

INDEX_DTYPE = np.dtype(np.int32)
"""Columns as the kernels take them: dense centres of more than 2^31 columns fit no memory."""


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of which only the stored values are kept (compressed sparse rows).

    Not scipy's matrix: that copies when it is sliced, chooses the dtype of its index arrays itself, and
    is an import that workers need for nothing else. The kernels want three plain arrays, a chunk wants
    views of them.

    Attributes
    ----------
    data : ndarray of shape (m,)
        Stored values, row after row.
    indices : ndarray of shape (m,), int32 or int64
        Their columns: strictly ascending within a row.
    indptr : ndarray of shape (n + 1,), int64
        Row i has the values ``indptr[i] - indptr[0]`` to ``indptr[i + 1] - indptr[0]``: a slice of rows
        keeps a view of it.
    n_features : int

    Examples
    --------
    >>> import numpy as np
    >>> rows = SparseRows(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 1]), np.array([0, 2, 2, 3]), 3)
    >>> rows.toarray()
    array([[1., 0., 2.],
           [0., 0., 0.],
           [0., 3., 0.]])
    >>> rows[1:].data, rows[1:].indptr, rows[2]
    (array([3.]), array([2, 2, 3]), array([0., 3., 0.]))
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    n_features: int

    @classmethod
    def of(cls, dense: np.ndarray) -> SparseRows:
        """Return the rows of a dense array (n, d), zeros left out."""
        row, column = np.nonzero(dense)
        counts = np.bincount(row, minlength=len(dense))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(dense[row, column], column.astype(INDEX_DTYPE), indptr, dense.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.indices.nbytes + self.indptr.nbytes

    @property
    def offsets(self) -> np.ndarray:
        """Offsets of the rows in `data`: `indptr`, starting at 0."""
        return self.indptr - self.indptr[0]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __sizeof__(self) -> int:
        return sys.getsizeof(vars(self)) + self.nbytes

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice | np.ndarray) -> SparseRows: ...
    def __getitem__(self, index: Any) -> Any:
        """Return one row as a dense array (d,), a slice as a view, or chosen rows as a copy."""
        if isinstance(index, slice):
            return self._slice(*index.indices(len(self)))
        if isinstance(index, (int, np.integer)):
            return self._choose(np.array([index])).toarray()[0]
        return self._choose(np.asarray(index))

    def _slice(self, start: int, stop: int, step: int) -> SparseRows:
        if step != 1:
            return self._choose(np.arange(start, stop, step))
        stop = max(start, stop)
        first, last = (int(self.indptr[row] - self.indptr[0]) for row in (start, stop))
        return replace(
            self,
            data=self.data[first:last],
            indices=self.indices[first:last],
            indptr=self.indptr[start : stop + 1],
        )

    def _choose(self, rows: np.ndarray) -> SparseRows:
        offsets = self.offsets
        starts, counts = offsets[:-1][rows], np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], counts)
        return replace(self, data=self.data[places], indices=self.indices[places], indptr=indptr)

    def toarray(self) -> np.ndarray:
        """Return the rows as a dense array (n, d) of the same dtype; mind the memory."""
        dense = np.zeros(self.shape, self.dtype)
        dense[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices] = self.data
        return dense

    def astype(self, dtype: Any) -> SparseRows:
        """Return the rows in another dtype, with columns as the kernels take them; views if they can be."""
        data = np.ascontiguousarray(self.data, dtype)
        return replace(self, data=data, indices=np.ascontiguousarray(self.indices, INDEX_DTYPE))

    def normalized(self) -> SparseRows:
        """Return the rows scaled to Euclidean length one; a row of zeros stays as it is.

        Each row is computed for itself and in float64: where blocks are cut does not matter.
        """
        wide, counts, offsets = self.data.astype(np.float64), np.diff(self.indptr), self.offsets
        length, filled = np.ones(len(self)), counts > 0
        if filled.any():
            length[filled] = np.sqrt(np.add.reduceat(wide * wide, offsets[:-1][filled]))
        length[length == 0.0] = 1.0
        return replace(self, data=(wide / np.repeat(length, counts)).astype(self.dtype))

    def cuts(self, block_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ``(first, last)`` row ranges of about `block_bytes`, at least a row each."""
        item = self.data.itemsize + self.indices.itemsize
        ends = self.offsets * item + np.arange(len(self) + 1) * self.indptr.itemsize
        first = 0
        while first < len(self):
            last = int(np.searchsorted(ends, ends[first] + block_bytes, side="right")) - 1
            last = max(last, first + 1)
            yield first, last
            first = last

    def owned(self) -> SparseRows:
        """Return the rows with memory of their own, if they are a view of something larger."""
        data, indices, indptr = map(_owned, (self.data, self.indices, self.indptr))
        return SparseRows(data, indices, indptr, self.n_features)


Rows = np.ndarray | SparseRows
"""Rows of a chunk: a dense array (n, d), or CSR."""


def _owned(array: np.ndarray) -> np.ndarray:
    base = array.base
    return array if base is None or getattr(base, "nbytes", 0) <= array.nbytes else array.copy()


def owned_rows(rows: Rows) -> Rows:
    """Return rows that keep no larger buffer alive than their own."""
    return rows.owned() if isinstance(rows, SparseRows) else _owned(rows)


def dense_rows(rows: Rows) -> np.ndarray:
    """Return rows as a dense array; only for the few that are wanted one by one."""
    return rows.toarray() if isinstance(rows, SparseRows) else rows


def take_rows(rows: Rows, numbers: np.ndarray) -> Rows:
    """Return a copy of rows by their numbers; a fifth of the time of indexing where they are contiguous.

    Examples
    --------
    >>> import numpy as np
    >>> take_rows(np.array([[1.0], [2.0], [3.0]]), np.array([2, 0, 2])).ravel().tolist()
    [3.0, 1.0, 3.0]
    """
    if isinstance(rows, SparseRows) or not rows.flags.c_contiguous:  # which take() would copy whole
        return rows[numbers]
    return rows.take(numbers, axis=0)


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Return rows one after the other, as one array or as CSR; parts without rows do not matter.

    Examples
    --------
    >>> import numpy as np
    >>> rows = SparseRows(np.array([1.0, 2.0]), np.array([0, 1]), np.array([0, 1, 2]), 2)
    >>> join_rows([np.empty((0, 2)), rows[1:], rows]).toarray().tolist()
    [[0.0, 2.0], [1.0, 0.0], [0.0, 2.0]]
    """
    filled = [part for part in parts if len(part)] or [parts[0]]
    if len(filled) == 1:
        return filled[0]
    sparse = [part for part in filled if isinstance(part, SparseRows)]
    if not sparse:
        return np.concatenate([part for part in filled if isinstance(part, np.ndarray)])
    counts = np.concatenate([np.diff(part.indptr) for part in sparse])
    return SparseRows(
        np.concatenate([part.data for part in sparse]),
        np.concatenate([part.indices for part in sparse]),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        sparse[0].n_features,
    )
