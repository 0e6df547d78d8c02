"""The inertia that follows from the statistics of clusters, for which no row is looked at."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel

_NO_SUMS = np.empty((0, 0))


@kernel
def _terms(sums, low_sums, weights, centres, origin):  # type: ignore[no-untyped-def]
    # Totals of every feature first: they stand side by side, and do not wait for one another.
    k, d = centres.shape
    inner, outer = np.zeros(d), np.zeros(d)
    moved, about = np.empty(d), np.empty(d)
    for j in range(k):
        weight, total, centre = weights[j], sums[j], centres[j]
        for t in range(d):
            moved[t] = np.float64(centre[t]) - origin[t]
            about[t] = total[t] - weight * origin[t]
        if low_sums.shape[0]:
            low = low_sums[j]
            for t in range(d):
                about[t] = (total[t] + low[t]) - weight * origin[t]
        for t in range(d):
            inner[t] += about[t] * moved[t]
            outer[t] += weight * (moved[t] * moved[t])
    first, second = 0.0, 0.0
    for t in range(d):
        first += inner[t]
        second += outer[t]
    return first, second


def inertia_terms(
    sums: np.ndarray,
    low_sums: np.ndarray | None,
    weights: np.ndarray,
    centres: np.ndarray,
    origin: np.ndarray,
) -> tuple[float, float]:
    """Return sum_j S(j).c'(j) and sum_j v(j) |c'(j)|^2 about an origin: c' = c - o, S the sums of x - o.

    Parameters
    ----------
    sums : ndarray of shape (k, d), float64
        Of the rows of each cluster, about zero.
    low_sums : ndarray of shape (k, d), float64, or None
        What is to be added to them.
    weights : ndarray of shape (k,), float64
    centres : ndarray of shape (k, d), float32 or float64
    origin : ndarray of shape (d,), float64

    Examples
    --------
    >>> import numpy as np
    >>> sums, weights = np.array([[2.0, 4.0]]), np.array([2.0])
    >>> inertia_terms(sums, None, weights, np.array([[2.0, 2.0]]), np.array([1.0, 0.0]))
    (8.0, 10.0)
    """
    low = _NO_SUMS if low_sums is None else low_sums
    arrays = (np.ascontiguousarray(array) for array in (sums, low, weights, centres, origin))
    inner, outer = _terms(*map(read_only, arrays))
    return float(inner), float(outer)
