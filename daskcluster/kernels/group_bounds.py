"""Lower bounds of the distances from rows to groups of centres, from the largest bounds of panels.

The bounds that rule centres out (`daskcluster.kernels.pruned_search`) also say how far these are, at least.
"""

from __future__ import annotations

import math

import numpy as np

from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import scores_in_panel

_ROUNDED = 1.0 - 2.0**-22
"""Covers the rounding to float32."""


@kernel
def group_maxima(maxima, at, n_panels, per_group, block, tops):  # type: ignore[no-untyped-def]
    """OUT: tops (g * block,): the largest bound in each group of panels, of each row of a block."""
    for g in range(tops.shape[0] // block):
        for r in range(block):
            tops[g * block + r] = maxima[at + g * per_group * block + r]
        for p in range(g * per_group + 1, min((g + 1) * per_group, n_panels)):
            for r in range(block):
                tops[g * block + r] = max(tops[g * block + r], maxima[at + p * block + r])


@kernel
def bound_groups(place, begin, count, labels, bounded, place_of, per_group, tops, lower, shape):  # type: ignore[no-untyped-def]
    """Bound the distances from the rows of a block to all centres of a group but their own.

    `place` is that of `daskcluster.kernels.pruned_search`, `tops` are the largest bounds of each group, and
    `shape` is (height, n_panels, block, `Errors.top`, dot). OUT: lower, from row `begin` on.
    """
    (words, at, bounds, features, found), (height, n_panels, block, top, dot) = place, shape
    for r in range(count):
        a = labels[begin + r]
        if a < 0:
            continue
        own = place_of[a]
        home, most = own // (per_group * height), -np.int64(top)
        for p in range(home * per_group, min((home + 1) * per_group, n_panels)):
            scores_in_panel(
                words, at + r, bounds, p * height * (features + 1), features, found, height, block,
                np.int32(top), dot,
            )  # fmt: skip
            for lane in range(height):
                if p * height + lane != own:
                    most = max(most, np.int64(found[lane]))
        tops[home * block + r] = most
        # A score of s is a squared distance of |x'|^2 - 2 s.
        base, unit = bounded.lengths[r] - 2.0 * bounded.margins[r], 2.0 / bounded.scale
        bounds_of = lower[begin + r]
        for g in range(bounds_of.shape[0]):
            squared = max(base - unit * tops[g * block + r], 0.0)
            bounds_of[g] = np.float32(math.sqrt(squared) * _ROUNDED)
