"""The first look at rows: extremes, NaN and infinity.

The largest |x| of a feature is found on bit patterns: with the sign cleared they order as the
numbers do, and infinity and NaN are the largest of all. So one integer maximum per value both
measures and checks, and only data that fails is searched for the row at fault.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import STAMP, kernel
from daskcluster.kernels.row_ops import add_on_grid, squared_distance

_STRETCH = 512
"""Narrow rows are scanned several at a time, as one row of about this many values."""

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


@kernel
def _first_bad(patterns, mask, infinity):  # type: ignore[no-untyped-def]
    for i in range(patterns.shape[0]):
        worst = infinity - infinity
        for t in range(patterns.shape[1]):
            worst = max(worst, patterns[i, t] & mask)
        if worst >= infinity:
            return i, worst > infinity
    return -1, False


def _build_look(stamp: int) -> Any:
    def look(rows, origin, shift, sums, spread):  # type: ignore[no-untyped-def]
        _ = stamp
        n, d = rows.shape
        x = rows.reshape(n * d)
        for i in range(n):
            spread[i] = squared_distance(x, i * d, origin, 0, d)
            add_on_grid(x, i * d, shift, sums, 0, d)

    return kernel(look)


_look = _build_look(STAMP)


def spread_and_sum(
    X: np.ndarray, origin: np.ndarray, shift: np.ndarray, sums: np.ndarray, spread: np.ndarray
) -> None:
    """Measure squared distances to `origin`, and add all rows up on a grid, in one visit.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, float32 or float64
    origin : ndarray of shape (d,), dtype of the rows
    shift : ndarray of shape (d,), float64
        M of the grid of each feature.
    sums : ndarray of shape (d,), float64
        IN/OUT.
    spread : ndarray of shape (n,), float64
        OUT. As `daskcluster.kernels.distance.sqdist_to_one` has them.

    Examples
    --------
    >>> import numpy as np
    >>> sums, spread = np.zeros(1), np.empty(2)
    >>> spread_and_sum(np.array([[1.0], [3.0]]), np.ones(1), np.array([1.5 * 2.0**20]), sums, spread)
    >>> sums, spread
    (array([4.]), array([0., 4.]))
    """
    _look(read_only(X), read_only(origin), read_only(shift), sums, spread)


def survey(X: np.ndarray, max_abs: np.ndarray) -> tuple[int, bool]:
    """Raise `max_abs` to the largest |x| of each feature, and look for NaN and infinity.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, float32 or float64
    max_abs : ndarray of shape (d,), float64
        IN/OUT. Left as it is if a row is bad.

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
    >>> survey(np.array([[1.0, -3.0], [2.0, 0.5]]), most), most
    ((-1, False), array([2., 3.]))
    >>> survey(np.array([[1.0, -3.0], [np.inf, 0.5]]), most)
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
        row, is_nan = _first_bad(patterns, mask, infinity)
        return int(row), bool(is_nan)
    np.maximum(max_abs, most.view(X.dtype), out=max_abs)
    return -1, False
