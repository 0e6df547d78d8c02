"""Data statistics of dense rows: extremes, NaN and infinity, sums and spread; and rows of length one.

The largest |x| of a feature is found from bit patterns: with the sign bit cleared, they order like the
numbers, with infinity and NaN above all others. So one integer maximum per value both finds the extreme and
checks the data. Only if the check fails are the rows searched for the bad one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.kernels.jit import kernel, read_only, weights_or_none
from daskcluster.kernels.row_ops import (
    PREFETCH_DISTANCE,
    add_masses,
    fetch_row,
    measure_and_add_rows,
)
from daskcluster.kernels.sum_grid import SumGrid

_STRETCH = 512
"""Narrow rows are scanned several at a time, as one row of about this many values."""

_GROUP = 8
"""Masses are added eight at a time."""

_BITS: dict[np.dtype[Any], tuple[np.dtype[Any], Any, Any]] = {
    np.dtype(np.float32): (np.dtype(np.int32), np.int32(0x7FFFFFFF), np.int32(0x7F800000)),
    np.dtype(np.float64): (
        np.dtype(np.int64),
        np.int64(0x7FFFFFFFFFFFFFFF),
        np.int64(0x7FF0000000000000),
    ),
}


@kernel
def _extremes(patterns, mask, largest):  # type: ignore[no-untyped-def]
    for i in range(patterns.shape[0]):
        for t in range(patterns.shape[1]):
            largest[t] = max(largest[t], patterns[i, t] & mask)


def _first_bad(X: np.ndarray) -> tuple[int, bool]:
    """Return the first row that is not finite, if there is one, and whether it has a NaN."""
    row = int(np.isfinite(X).all(axis=1).argmin())
    return row, bool(np.isnan(X[row]).any())


@kernel
def _look(rows, origin, weights, shift, grids, sums, largest, masses):  # type: ignore[no-untyped-def]
    n, d = rows.shape
    x, totals = rows.reshape(n * d), masses.reshape(masses.size)
    spread, weight = np.zeros(_GROUP), np.zeros(_GROUP)
    of_spread, of_weighted, of_weight = grids
    prefetch = _GROUP * max(1, PREFETCH_DISTANCE // (_GROUP * d))
    for start in range(0, n, _GROUP):
        count = min(_GROUP, n - start)
        fetch_row(x, (start + prefetch) * d, _GROUP * d)
        if count == _GROUP:
            measure_and_add_rows(4, x, start * d, origin, d, spread, 0, shift, sums, largest)
            second = (start + 4) * d
            measure_and_add_rows(4, x, second, origin, d, spread, 4, shift, sums, largest)
        else:
            spread[:], weight[:] = 0.0, 0.0
            for u in range(count):
                at = (start + u) * d
                measure_and_add_rows(1, x, at, origin, d, spread, u, shift, sums, largest)
        add_masses(spread, of_spread, totals, 0)
        if weights.size:
            for u in range(count):
                weight[u] = weights[start + u]
                spread[u] *= weight[u]
            add_masses(spread, of_weighted, totals, 2 * _GROUP)
            add_masses(weight, of_weight, totals, 4 * _GROUP)


def look(
    X: np.ndarray,
    origin: np.ndarray,
    weights: np.ndarray | None,
    shift: np.ndarray,
    grids: tuple[SumGrid, SumGrid, SumGrid],
    sums: np.ndarray,
    max_abs: np.ndarray,
) -> tuple[int, bool, np.ndarray]:
    """Gather data statistics of rows and squared distances to `origin`, in one sweep.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, float32 or float64
    origin : ndarray of shape (d,), dtype of the rows
    weights : ndarray of shape (n,), float64, or None
    shift : ndarray of shape (d,), float64
        M of the grid of each feature.
    grids : three SumGrid
        Grids of squared distances, of these times the weights, and of the weights.
    sums : ndarray of shape (d,), float64
        IN/OUT. Sums of the rounded rows; invalid if a row is bad.
    max_abs : ndarray of shape (d,), float64
        IN/OUT. As in `data_statistics`.

    Returns
    -------
    bad_row : int
    is_nan : bool
        As `data_statistics` returns them.
    masses : ndarray of shape (3, 2), float64
        The sums on `grids`; distances are those of `daskcluster.kernels.distance.sqdist_to_one`.

    Examples
    --------
    >>> import numpy as np
    >>> sums, most, m = np.zeros(1), np.zeros(1), 1.5 * 2.0**20
    >>> grids = (SumGrid(m, 1.5),) * 3
    >>> look(np.array([[1.0], [-3.0]]), np.ones(1), None, np.array([m]), grids, sums, most)[2][0]
    array([16.,  0.])
    >>> sums, most
    (array([-2.]), array([3.]))
    """
    pattern, _, infinity = _BITS[X.dtype]
    largest, masses = np.zeros(X.shape[1], X.dtype), np.zeros((3, 2, _GROUP))
    inputs = (read_only(X), read_only(origin), weights_or_none(weights), read_only(shift))
    _look(*inputs, grids, sums, largest, masses)
    if len(X) and largest.view(pattern).max() >= infinity:
        return *_first_bad(X), masses.sum(axis=2)
    np.maximum(max_abs, largest, out=max_abs)
    return -1, False, masses.sum(axis=2)


def data_statistics(X: np.ndarray, max_abs: np.ndarray) -> tuple[int, bool]:
    """Update `max_abs` with the largest |x| of each feature, and find NaN and infinity.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, float32 or float64
    max_abs : ndarray of shape (d,), float64
        IN/OUT. Unchanged if a row is bad.

    Returns
    -------
    bad_row : int
        The first row with NaN or infinity; -1 if there is none.
    is_nan : bool
        Whether that row has a NaN.

    Examples
    --------
    >>> import numpy as np
    >>> most = np.zeros(2)
    >>> data_statistics(np.array([[1.0, -3.0], [2.0, 0.5]]), most), most
    ((-1, False), array([2., 3.]))
    >>> data_statistics(np.array([[1.0, -3.0], [np.inf, 0.5]]), most)
    (1, False)
    """
    pattern, mask, infinity = _BITS[X.dtype]
    n, d = X.shape
    patterns = read_only(X.view(pattern))
    stretch = max(1, min(n, _STRETCH // d))
    whole = n - n % stretch
    largest = np.zeros(stretch * d, pattern)
    _extremes(patterns[:whole].reshape(-1, stretch * d), mask, largest)
    most = np.ascontiguousarray(largest.reshape(stretch, d).max(axis=0))
    _extremes(patterns[whole:], mask, most)
    if n and most.max() >= infinity:
        return _first_bad(X)
    np.maximum(max_abs, most.view(X.dtype), out=max_abs)
    return -1, False


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
