"""Rows that a sample may contain: masses added up, and a first look at each row's random number."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only, weights_or_none
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.row_groups import AHEAD, add_masses, any_below, measure_rows
from daskcluster.kernels.row_ops import fetch_row
from daskcluster.kernels.sum_grid import SumGrid, split

_GROUP = 8


@kernel
def _screen(sqdist, weights, ranks, offset, slope, shift, low_shift, found):  # type: ignore[no-untyped-def]
    high, low, count = 0.0, 0.0, 0
    for i in range(sqdist.shape[0]):
        weight = weights[i] if weights.size else 1.0
        rounded, rest = split(weight * sqdist[i], shift, low_shift)
        high += rounded
        low += rest
        found[count] = i
        count += ranks[i] < weight * (offset + slope * sqdist[i])
    return count, high, low


def screen(
    sqdist: np.ndarray,
    weights: np.ndarray | None,
    ranks: np.ndarray,
    offset: float,
    slope: float,
    grid: SumGrid,
) -> tuple[np.ndarray, float, float]:
    """Find the rows whose rank is below ``w (offset + slope * sqdist)``, and sum ``w * sqdist``.

    Parameters
    ----------
    sqdist : ndarray of shape (n,), float64
    weights : ndarray of shape (n,), float64, or None
    ranks : ndarray of shape (n,), uint16
    offset, slope : float
    grid : SumGrid
        Of the sum.

    Returns
    -------
    found : ndarray of int64
        Places of the rows, ascending.
    high, low : float
        The sum, on two grids.

    Examples
    --------
    >>> import numpy as np
    >>> ranks, grid = np.array([5, 1, 9], np.uint16), SumGrid(1.5 * 2.0**52, 1.5)
    >>> screen(np.array([1.0, 2.0, 4.0]), None, ranks, 1.0, 2.0, grid)
    (array([1]), 7.0, 0.0)
    """
    found = np.empty(len(sqdist) + 1, np.int64)
    values = (read_only(sqdist), weights_or_none(weights), read_only(ranks))
    count, high, low = _screen(*values, float(offset), float(slope), *grid, found)
    return found[:count], high, low


@kernel
def _screen_rows(rows, point, weights, ranks, offset, slope, grid, totals, found, sqdist):  # type: ignore[no-untyped-def]
    # OUT: found and sqdist, as many as the number that is returned.
    n, d = rows.shape
    x, kept = rows.reshape(n * d), 0
    distance, mass, weight = np.zeros(_GROUP), np.zeros(_GROUP), np.ones(_GROUP)
    soon = _GROUP * max(1, AHEAD // (_GROUP * d))
    for start in range(0, n, _GROUP):
        count = min(_GROUP, n - start)
        fetch_row(x, (start + soon) * d, _GROUP * d)
        if count == _GROUP:
            measure_rows(4, x, start * d, point, d, distance, 0)
            measure_rows(4, x, (start + 4) * d, point, d, distance, 4)
        else:
            distance[:] = 0.0
            for u in range(count):
                measure_rows(1, x, (start + u) * d, point, d, distance, u)
        if weights.size:
            weight[:] = 0.0
            for u in range(count):
                weight[u] = weights[start + u]
            for u in range(_GROUP):
                mass[u] = weight[u] * distance[u]
            add_masses(mass, grid, totals, 0)
        else:
            add_masses(distance, grid, totals, 0)
        if count < _GROUP or any_below(ranks, start, weight, distance, offset, slope):
            for u in range(count):
                if ranks[start + u] < weight[u] * (offset + slope * distance[u]):
                    found[kept], sqdist[kept] = start + u, distance[u]
                    kept += 1
    return kept


def screen_rows(
    X: np.ndarray,
    point: np.ndarray,
    weights: np.ndarray | None,
    ranks: np.ndarray,
    offset: float,
    slope: float,
    grid: SumGrid,
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Measure rows and `screen` them in one visit.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, float32 or float64
    point : ndarray of shape (d,), dtype of X
        Squared distances to it are those of `daskcluster.kernels.distance.sqdist_to_one`.
    weights, ranks, offset, slope, grid
        As in `screen`.

    Returns
    -------
    found : ndarray of int64, shape (c,)
        Places of the rows, ascending.
    sqdist : ndarray of float64, shape (c,)
        Of the rows that were found.
    high, low : float
        The sum over all rows, on two grids.

    Examples
    --------
    >>> import numpy as np
    >>> ranks, grid = np.array([5, 1, 9], np.uint16), SumGrid(1.5 * 2.0**52, 1.5)
    >>> X = np.array([[1.0], [2.0], [-2.0]])
    >>> screen_rows(X, np.zeros(1), None, ranks, 1.0, 0.5, grid)
    (array([1]), array([4.]), 9.0, 0.0)
    """
    found, sqdist = np.empty(len(X), np.int64), np.empty(len(X))
    totals = np.zeros((2, _GROUP))
    values = (read_only(X), read_only(point), weights_or_none(weights), read_only(ranks))
    limits = float(offset), float(slope)
    kept = _screen_rows(*values, *limits, grid, totals.reshape(-1), found, sqdist)
    high, low = totals.sum(axis=1)
    # Copies: the rest of the buffers need not be kept.
    return found[:kept].copy(), sqdist[:kept].copy(), float(high), float(low)
