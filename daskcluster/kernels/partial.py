"""Nearest centres of rows that lack values, by the features that a row has."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel


@kernel
def _nearest_present(rows, columns, labels):  # type: ignore[no-untyped-def]
    # `columns` is (d, k): the loop over centres is the one that compilers vectorise, without reordering
    # sums.
    k = columns.shape[1]
    distances = np.empty(k)
    for i in range(rows.shape[0]):
        distances[:] = 0.0
        for j in range(rows.shape[1]):
            x = np.float64(rows[i, j])
            if x == x:
                for c in range(k):
                    gap = x - columns[j, c]
                    distances[c] += gap * gap
        best = 0
        for c in range(1, k):
            if distances[c] < distances[best]:
                best = c
        labels[i] = best


def nearest_present(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the nearest centre of each row over the features that it has, int32 (n,).

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        float16 to float64; NaN where a row has no value.
    centres : ndarray of shape (k, d)

    Notes
    -----
    Ties go to the lowest index; a row without values is as near to all centres.

    Examples
    --------
    >>> rows = np.array([[np.nan, 9.0], [1.0, np.nan]])
    >>> nearest_present(rows, np.array([[0.0, 0.0], [5.0, 8.0]]))
    array([1, 0], dtype=int32)
    """
    labels = np.empty(len(rows), np.int32)
    columns = np.ascontiguousarray(np.asarray(centres, np.float64).T)
    wide = rows if rows.dtype.itemsize >= 4 else rows.astype(np.float32)
    _nearest_present(read_only(np.ascontiguousarray(wide)), read_only(columns), labels)
    return labels
