"""Rows of a chunk as kernels take them: an array, and the positions of the rows in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from daskcluster.chunk import BLOCK_BYTES, Chunk, compute_dtype
from daskcluster.kernels.arrays import read_only
from daskcluster.methods.kmeans.kernels.bounds import Listed, Moved


@dataclass(frozen=True)
class Gathered:
    """Some rows of a chunk.

    Attributes
    ----------
    which : ndarray of shape (m,), int64
        Their positions in the state.
    rows : ndarray of shape (>= m, d)
        Ready for the kernels.
    at : ndarray of shape (m,), int64
        Their indices in `rows`.
    weights : ndarray of shape (m,), float64, or None
    start : int
        Global index of the first row of the state.
    """

    which: np.ndarray
    rows: np.ndarray
    at: np.ndarray
    weights: np.ndarray | None
    start: int

    @property
    def listed(self) -> Listed:
        """The rows, as kernels take them."""
        return Listed(read_only(self.rows), self.at, self.which)

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
    dtype = compute_dtype(rows.dtype)
    if not chunk.normalize and rows.dtype == dtype and rows.flags.c_contiguous:
        yield Gathered(which, rows, at, weights, chunk.start)
        return
    step = max(1, BLOCK_BYTES // max(1, dtype.itemsize * rows.shape[1]))
    for first in range(0, len(at), step):
        part = slice(first, first + step)
        yield Gathered(
            which[part],
            np.asarray(replace(chunk, rows=rows[at[part]], weights=None).computed()),
            np.arange(len(which[part])),
            None if weights is None else weights[part],
            chunk.start,
        )
