"""Lower bounds on distances between centres, recomputed only for centres that have moved far enough."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.row_ops import squared_distance
from daskcluster.methods.kmeans.kernels.bounds import lowered
from daskcluster.methods.kmeans.kernels.elkan import rough_error, span

_SAFE = 1.0 + 1e-9
"""More than the rounding of the length of a step, relatively."""


@kernel
def _follow(centres, error, worn, measured, halves, left):  # type: ignore[no-untyped-def]
    # IN/OUT: measured: where each centre was when it was measured (NaN: never), and the half
    # distances there. OUT: left: what is left of them for `centres`.
    k, d = centres.shape
    c, m = centres.reshape(k * d), measured.reshape(k * d)
    steps, anew = np.empty(k), np.empty(k, np.bool_)
    for j in range(k):
        least = np.float32(np.inf)
        for i in range(k):
            least = min(least, halves[j, i])
        steps[j] = math.sqrt(squared_distance(c, j * d, m, j * d, d)) * _SAFE
        anew[j] = not steps[j] <= worn * least
    for j in range(k):
        if anew[j]:
            measured[j] = centres[j]
            steps[j] = 0.0
    for j in range(k):
        for i in range(k if anew[j] else 0):
            if i < j or not anew[i]:
                low, _up = span(m, j * d, m, i * d, d, error)
                halves[i, j] = halves[j, i] = lowered(0.5 * low)
        halves[j, j] = np.inf
    for j in range(k):
        for i in range(k):
            left[j, i] = lowered(halves[j, i] - 0.5 * (steps[j] + steps[i]))
        left[j, j] = np.inf


class HalfDistances:
    """Lower bounds of half the distances between centres that move.

    Parameters
    ----------
    shape : (k, d)
        Of the centres.
    dtype : dtype
        Theirs.
    worn : float
        Of its least half distance, what a centre may go before its distances are measured anew.

    Examples
    --------
    >>> import numpy as np
    >>> halves = HalfDistances((2, 1), np.dtype(np.float64), worn=0.25)
    >>> for first in (0.0, 0.25, 1.0):
    ...     print(halves.of(np.array([[first], [4.0]])).round(3).tolist())
    [[inf, 2.0], [2.0, inf]]
    [[inf, 1.875], [1.875, inf]]
    [[inf, 1.5], [1.5, inf]]
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], worn: float) -> None:
        k, d = shape
        self._error = rough_error(d, dtype)
        self._worn = worn
        self._measured = np.full((k, d), np.nan, dtype)
        self._halves = np.zeros((k, k), np.float32)

    def of(self, centres: np.ndarray) -> np.ndarray:
        """Return the bounds for these centres, (k, k), float32, in new room; a centre's own: inf."""
        left = np.empty_like(self._halves)
        now = read_only(np.ascontiguousarray(centres))
        _follow(now, self._error, self._worn, self._measured, self._halves, left)
        return left
