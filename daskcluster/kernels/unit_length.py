"""Rows scaled to Euclidean length one, for the cosine metric."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel


@kernel
def _length(x, squares):  # type: ignore[no-untyped-def]
    # Halves are added to each other: the order is one and the same for any vector registers.
    left = len(x)
    for t in range(left):
        value = np.float64(x[t])
        squares[t] = value * value
    while left > 1:
        half = (left + 1) // 2
        for t in range(left - half):
            squares[t] += squares[half + t]
        left = half
    return np.sqrt(squares[0])


@kernel
def _scale_rows(rows, scaled, lengths):  # type: ignore[no-untyped-def]
    n, d = rows.shape
    squares, wide = np.empty(d), np.empty(d)
    for i in range(n):
        row, out = rows[i], scaled[i]
        length = lengths[i]
        if length == 0.0:
            length = _length(row, squares)
            if length == 0.0:
                length = 1.0
            lengths[i] = length
        if np.isinf(length):  # squares overflow, but a direction needs no length
            largest = np.float64(np.abs(row).max())
            for t in range(d):
                wide[t] = np.float64(row[t]) / largest
            length = _length(wide, squares)
            for t in range(d):
                out[t] = wide[t] / length
        else:
            for t in range(d):
                out[t] = np.float64(row[t]) / length


def scaled_to_unit_length(rows: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """Return rows scaled to Euclidean length one; a row of zeros stays as it is.

    Parameters
    ----------
    rows : ndarray of shape (n, d), float32 or float64, C-contiguous
    lengths : ndarray of shape (n,), float64, optional
        The length of each row where it is known, and 0 where it is not, which is then found and written.
        Several threads may share it.

    Notes
    -----
    Each row is computed for itself and in float64: where blocks are cut does not matter. A row that is
    not finite becomes NaN.

    Examples
    --------
    >>> import numpy as np
    >>> scaled_to_unit_length(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 1e200]]))
    array([[0.6, 0.8],
           [0. , 0. ],
           [0. , 1. ]])
    """
    scaled = np.empty_like(rows)
    _scale_rows(read_only(rows), scaled, np.zeros(len(rows)) if lengths is None else lengths)
    return scaled
