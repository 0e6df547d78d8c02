"""What a row adds to a cluster in an M-step, on grids: see `daskcluster.kernels.accumulate`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.jit import STAMP, kernel
from daskcluster.kernels.row_ops import add_on_grids
from daskcluster.kernels.truncated_lanes import add_share
from daskcluster.kernels.truncated_tile import BLOCK


class Moments(NamedTuple):
    """Sums of an M-step, high and low part of each: float64, flat.

    `firsts` (k * d,) of w x, `seconds` (k * d,) or (k,) of w |x - mean|^2, by feature or not, `masses`
    (k,) of w, where w is the row weight times the posterior. `low_firsts` is empty where one grid is
    enough.
    """

    firsts: np.ndarray
    low_firsts: np.ndarray
    seconds: np.ndarray
    low_seconds: np.ndarray
    masses: np.ndarray
    low_masses: np.ndarray


class MomentGrids(NamedTuple):
    """M of the grids of `Moments`, then that of their residuals.

    `firsts` (2 d,), `seconds` (2 d,) or (2,), `masses` (2,).
    """

    firsts: np.ndarray
    seconds: np.ndarray
    masses: np.ndarray


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
        shifts, mass, second = grids.firsts, grids.masses, grids.seconds
        firsts, low_firsts = moments.firsts, moments.low_firsts
        seconds, low_seconds = moments.seconds, moments.low_seconds
        masses, low_masses = moments.masses, moments.low_masses
        two, by_feature = low_firsts.shape[0] > 0, second.shape[0] > 2
        for r in range(here):
            i = taken[r]
            row_at, weight = i * d, weights[i] if weights.shape[0] else 1.0
            for at in range(r, index.shape[0], block):
                w, c = weight * posterior[at], index[at]
                if not w > 0.0:
                    continue
                if two:
                    add_on_grids(x, row_at, w, shifts, firsts, low_firsts, c * d, d)
                else:
                    add_share(x, row_at, w, shifts, firsts, c * d, d)
                value, rest = _on_grids(w, mass[0], mass[1])
                masses[c] += value
                low_masses[c] += rest
                if by_feature:
                    _add_squares(x, row_at, w, means, c * d, d, second, seconds, low_seconds)
                    continue
                squared = (np.float64(best[at]) - add[c]) / scale[c]
                value, rest = _on_grids(w * squared, second[0], second[1])
                seconds[c] += value
                low_seconds[c] += rest

    return kernel(add_block)


add_block = _build_add_block(BLOCK, STAMP)
