"""Rows of a chunk as kernels take them: an array, and the positions of the rows in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import BLOCK_BYTES, Chunk, compute_dtype
from daskcluster.kernels.arrays import read_only
from daskcluster.methods.kmeans.kernels.bounds import Listed, Moved
from daskcluster.methods.kmeans.kernels.sparse_bounds import SparseListed
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows


@dataclass(frozen=True)
class Gathered:
    """Some rows of a chunk.

    Attributes
    ----------
    which : ndarray of shape (m,), int64
        Their positions in the state.
    rows : Rows, shape (>= m, d)
        Ready for the kernels, dense or CSR.
    at : ndarray of shape (m,), int64
        Their indices in `rows`.
    weights : ndarray of shape (m,), float64, or None
    start : int
        Global index of the first row of the state.
    """

    which: np.ndarray
    rows: Any
    at: np.ndarray
    weights: np.ndarray | None
    start: int

    @property
    def listed(self) -> Listed:
        """Dense rows, as kernels take them."""
        return Listed(read_only(self.rows), self.at, self.which)

    @property
    def listed_sparse(self) -> SparseListed:
        """CSR rows, as kernels take them."""
        rows = self.rows
        data, indices, indptr = map(read_only, (rows.data, rows.indices, rows.indptr))
        return SparseListed(data, indices, indptr, self.at, self.which)

    def moved(self) -> Moved:
        """Return room for all of them to move."""
        return Moved(np.empty(len(self.which), np.int64), np.empty(len(self.which), np.int32))


def gathered(
    chunk: Chunk, at: np.ndarray, *, which: np.ndarray | None = None
) -> Iterator[Gathered]:
    """Yield the rows `at` of a chunk: in place if possible, else in converted blocks.

    Parameters
    ----------
    chunk : Chunk
    at : ndarray of shape (m,), int64
    which : ndarray of shape (m,), int64, optional
        Positions of the rows in the state, if they differ from those in the chunk.
    """
    if not len(at):
        return
    rows, which = chunk.rows, at if which is None else which
    weights = None if chunk.weights is None else chunk.weights[at]
    if not chunk.normalize and _are_ready(rows):
        yield Gathered(which, rows, at, weights, chunk.start)
        return
    step = max(1, BLOCK_BYTES // max(1, _row_bytes(rows)))
    for first in range(0, len(at), step):
        part = slice(first, first + step)
        yield Gathered(
            which[part],
            chunk.choose(at[part]).computed(),
            np.arange(len(which[part])),
            None if weights is None else weights[part],
            chunk.start,
        )


def _are_ready(rows: Rows) -> bool:
    """Return True if kernels take the rows as they are."""
    if rows.dtype != compute_dtype(rows.dtype):
        return False
    if isinstance(rows, SparseRows):
        return rows.indices.dtype == INDEX_DTYPE
    return bool(rows.flags.c_contiguous)


def _row_bytes(rows: Rows) -> int:
    """Return the bytes of a row as kernels take it; of CSR rows, on average."""
    item = compute_dtype(rows.dtype).itemsize
    if isinstance(rows, SparseRows):
        return (item + INDEX_DTYPE.itemsize) * len(rows.data) // max(1, len(rows))
    return item * int(rows.shape[1])
