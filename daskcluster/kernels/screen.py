"""Rows that a sample may contain: masses added up, and a first look at each row's random number."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only, weights_or_none
from daskcluster.kernels.jit import kernel


@kernel
def _screen(sqdist, weights, ranks, offset, slope, shift, low_shift, found):  # type: ignore[no-untyped-def]
    high, low, count = 0.0, 0.0, 0
    for i in range(sqdist.shape[0]):
        weight = weights[i] if weights.size else 1.0
        mass = weight * sqdist[i]
        rounded = (mass + shift) - shift
        high += rounded
        low += ((mass - rounded) + low_shift) - low_shift
        found[count] = i
        count += ranks[i] < weight * (offset + slope * sqdist[i])
    return count, high, low


def screen(
    sqdist: np.ndarray,
    weights: np.ndarray | None,
    ranks: np.ndarray,
    offset: float,
    slope: float,
    shifts: tuple[float, float],
) -> tuple[np.ndarray, float, float]:
    """Find the rows whose rank is below ``w (offset + slope * sqdist)``, and sum ``w * sqdist``.

    Parameters
    ----------
    sqdist : ndarray of shape (n,), float64
    weights : ndarray of shape (n,), float64, or None
    ranks : ndarray of shape (n,), uint16
    offset, slope : float
    shifts : two floats
        M of the two grids of the sum.

    Returns
    -------
    found : ndarray of int64
        Places of the rows, ascending.
    high, low : float
        The sum, on two grids.

    Examples
    --------
    >>> import numpy as np
    >>> ranks, shifts = np.array([5, 1, 9], np.uint16), (1.5 * 2.0**52, 1.5)
    >>> screen(np.array([1.0, 2.0, 4.0]), None, ranks, 1.0, 2.0, shifts)
    (array([1]), 7.0, 0.0)
    """
    found = np.empty(len(sqdist) + 1, np.int64)
    values = (read_only(sqdist), weights_or_none(weights), read_only(ranks))
    count, high, low = _screen(*values, float(offset), float(slope), *map(float, shifts), found)
    return found[:count], high, low
