"""What a row adds to a cluster in an M-step, on grids: see `daskcluster.kernels.accumulate`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.jit import STAMP, kernel
from daskcluster.kernels.truncated_lanes import add_shares, add_two_on_grids
from daskcluster.kernels.truncated_tile import BLOCK


class Moments(NamedTuple):
    """Sums of an M-step, float64, flat; w is the row weight times the posterior.

    `firsts` (k * d,) of w x, and `low_firsts`, their low part, empty where one grid is enough. `seconds`
    (2, k * d) of w (x - mean)^2 by feature, high and low part, or (2, 0). `totals` (4 k,): for each
    cluster the high parts of the sums of w and of w |x - mean|^2, then the low parts (without the latter,
    if by feature).
    """

    firsts: np.ndarray
    low_firsts: np.ndarray
    seconds: np.ndarray
    totals: np.ndarray


class MomentGrids(NamedTuple):
    """M of the grids of `Moments`, then that of their residuals.

    `firsts` and `seconds` (2 d,), or (0,) for the latter; `totals` (4,).
    """

    firsts: np.ndarray
    seconds: np.ndarray
    totals: np.ndarray


@kernel
def _on_grids(value, high, low):  # type: ignore[no-untyped-def]
    rounded = (value + high) - high
    return rounded, ((value - rounded) + low) - low


@kernel
def _add_squares(x, row_at, w, means, at, d, shifts, high, low):  # type: ignore[no-untyped-def]
    for t in range(d):
        gap = np.float64(x[row_at + t]) - np.float64(means[at + t])
        value, rest = _on_grids(w * (gap * gap), shifts[t], shifts[d + t])
        high[at + t] += value
        low[at + t] += rest


def _build_add_block(block: int, stamp: int) -> Any:
    def add_block(x, d, taken, here, weights, index, best, posterior, costs, grids, moments):  # type: ignore[no-untyped-def]
        """Add the first `here` rows of a block to their clusters."""
        # Parts of tuples are taken out once: each costs the count of a reference.
        _ = stamp
        means, scale, add = costs.means, costs.scale, costs.add
        shifts, second, both = grids.firsts, grids.seconds, grids.totals
        firsts, low_firsts, totals = moments.firsts, moments.low_firsts, moments.totals
        seconds, low_seconds = moments.seconds[0], moments.seconds[1]
        two, by_feature = low_firsts.shape[0] > 0, second.shape[0] > 0
        shares, places = (
            np.empty(index.shape[0] // block),
            np.empty(index.shape[0] // block, np.int64),
        )
        for r in range(here):
            i, count = taken[r], 0
            row_at, weight = i * d, weights[i] if weights.shape[0] else 1.0
            for at in range(r, index.shape[0], block):
                w, c = weight * posterior[at], np.int64(index[at])
                if not w > 0.0:
                    continue
                shares[count], places[count] = w, c * d
                count += 1
                squared = 0.0
                if by_feature:
                    _add_squares(x, row_at, w, means, c * d, d, second, seconds, low_seconds)
                else:
                    squared = (np.float64(best[at]) - add[c]) / scale[c]
                add_two_on_grids(w, w * squared, both, totals, 4 * c)
            if two:
                add_shares(x, row_at, shares, places, count, shifts, firsts, low_firsts, d, 1)
            else:
                add_shares(x, row_at, shares, places, count, shifts, firsts, firsts, d, 0)

    return kernel(add_block)


add_block = _build_add_block(BLOCK, STAMP)
