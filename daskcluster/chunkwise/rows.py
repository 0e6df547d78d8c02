"""What is done with the rows of a block, dense or CSR: each function picks the kernel for them.

Blocks come from `daskcluster.chunk.Chunk.blocks`, so they are float32 or float64 and ready for the
kernels. Both kinds give the same bits where sums are exact, and the same distances up to rounding.
"""

from __future__ import annotations

import numpy as np

from daskcluster.kernels import accumulate, sparse, survey
from daskcluster.sparse_rows import Rows, SparseRows


def csr(rows: SparseRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows as the kernels of CSR rows take them."""
    return rows.data, rows.indices, rows.indptr


def find_bad(rows: Rows) -> tuple[int, bool]:
    """Return the first row with NaN or infinity (-1 if there is none), and whether it has a NaN."""
    if isinstance(rows, SparseRows):
        return sparse.first_bad_sparse(rows.data, rows.indptr)
    return survey.survey(rows, np.zeros(rows.shape[1]))


def raise_max_abs(rows: Rows, max_abs: np.ndarray) -> tuple[int, bool]:
    """Raise `max_abs` (d,), IN/OUT, to the largest |x| of each feature, if no row is bad.

    Returns
    -------
    bad_row : int
    is_nan : bool
        As `find_bad` returns them.
    """
    if not isinstance(rows, SparseRows):
        return survey.survey(rows, max_abs)
    bad, is_nan = find_bad(rows)
    if bad < 0:
        sparse.raise_max_abs(rows.data, rows.indices, max_abs)
    return bad, is_nan


def sum_rows(
    rows: Rows, labels: np.ndarray, shift: np.ndarray, sums: np.ndarray, counts: np.ndarray
) -> None:
    """Add rows to the sums of their clusters on one grid, and count them.

    Parameters
    ----------
    rows : Rows
    labels : ndarray of shape (n,), int32
    shift : ndarray of shape (d,)
    sums : ndarray of shape (k, d), float64
        IN/OUT.
    counts : ndarray of shape (k,), int64
        IN/OUT.
    """
    if isinstance(rows, SparseRows):
        sparse.add_sparse(*csr(rows), labels, shift, sums, counts)
    else:
        accumulate.accumulate(rows, labels, shift, sums, counts)


def accumulate_rows(
    rows: Rows,
    labels: np.ndarray,
    weights: np.ndarray | None,
    shifts: tuple[np.ndarray, np.ndarray],
    sums: tuple[np.ndarray, np.ndarray],
    weight_shifts: tuple[float, float],
    counts: tuple[np.ndarray, np.ndarray | None],
) -> None:
    """Add (weighted) rows to the sums of their clusters, and weights to their counts, on two grids.

    Parameters
    ----------
    rows : Rows
    labels : ndarray of shape (n,), int32
    weights : ndarray of shape (n,), float64, or None
    shifts : two ndarrays of shape (d,)
        Of the grid of w * x, and of that of what is left over.
    sums : two ndarrays of shape (k, d), float64
        IN/OUT. High and low part.
    weight_shifts : two floats
    counts : two ndarrays of shape (k,)
        IN/OUT. High and low part; without weights an int64 array and None.
    """
    if not isinstance(rows, SparseRows):
        accumulate.accumulate_weighted(
            rows, labels, weights, *shifts, *sums, *weight_shifts, *counts
        )
        return
    sparse.add_sparse_weighted(*csr(rows), labels, weights, *shifts, *sums)
    high, low = counts
    if weights is None or low is None:
        high += np.bincount(labels, minlength=len(high))
    else:
        accumulate.accumulate_values(weights, labels, *weight_shifts, high, low)
