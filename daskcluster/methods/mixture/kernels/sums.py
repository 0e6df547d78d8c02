"""What a row adds to a cluster in an M-step, on grids."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.jit import kernel
from daskcluster.kernels.sum_grid import SumGrid, split
from daskcluster.methods.mixture.kernels.add import add_rows
from daskcluster.methods.mixture.kernels.tile import BLOCK


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
    """The grids of `Moments`: of arrays (d,), or (0,) for `seconds`, and (2,) for `totals`."""

    firsts: SumGrid
    seconds: SumGrid
    totals: SumGrid


@kernel
def _add_squares(x, row_at, w, means, at, d, shifts, low_shifts, high, low):  # type: ignore[no-untyped-def]
    for t in range(d):
        gap = np.float64(x[row_at + t]) - np.float64(means[at + t])
        value, rest = split(w * (gap * gap), shifts[t], low_shifts[t])
        high[at + t] += value
        low[at + t] += rest


def _build_add_block(block: int) -> Any:
    def add_block(  # type: ignore[no-untyped-def]
        x, d, taken, here, weights, found, costs, sums, scratch
    ):
        """Add the first `here` rows of a block to their clusters; `found` is (index, best, posterior).

        `sums` is (`MomentGrids`, `Moments`). `scratch` has float64 (block,), and float64 and int64 of as
        many elements as a row has posteriors.
        """
        # Parts of tuples are taken out once: each costs the count of a reference.
        (index, best, posterior), (grids, moments) = found, sums
        means, scale, add = costs.means, costs.scale, costs.add
        grid, (second, low_second), both = grids.firsts, grids.seconds, grids.totals
        firsts, low_firsts, totals = moments.firsts, moments.low_firsts, moments.totals
        factors, shares, places = scratch
        count = index.shape[0] // block
        squares = 1.0
        for r in range(here):
            factors[r] = weights[taken[r]] if weights.shape[0] else 1.0
        if second.shape[0] > 0:
            squares = 0.0
            seconds, low_seconds = moments.seconds[0], moments.seconds[1]
            for r in range(here):
                for at in range(r, index.shape[0], block):
                    w = factors[r] * posterior[at]
                    if w > 0.0:
                        c = np.int64(index[at])
                        _add_squares(
                            x, taken[r] * d, w, means, c * d, d,
                            second, low_second, seconds, low_seconds,
                        )  # fmt: skip
        if low_firsts.shape[0] > 0:
            add_rows(
                x, taken, here, d, factors, posterior, best, index, count, scale, add, squares, False,
                grid, both, firsts, low_firsts, totals, shares, places, block, 1,
            )  # fmt: skip
        else:
            add_rows(
                x, taken, here, d, factors, posterior, best, index, count, scale, add, squares, False,
                grid, both, firsts, firsts, totals, shares, places, block, 0,
            )  # fmt: skip

    return kernel(add_block)


@kernel
def add_scratch(block, count):  # type: ignore[no-untyped-def]
    """Return what `add_block` needs for blocks of rows with `count` posteriors."""
    return np.empty(block), np.empty(count), np.empty(count, np.int64)


add_block = _build_add_block(BLOCK)
