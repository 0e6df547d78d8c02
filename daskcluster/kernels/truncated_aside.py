"""Costs that rows do not share with their group: the rest of their own sets, and clusters drawn for them.

Features stand in the lanes, four clusters at a time. Here too stand the values that describe clusters
and search spaces to the kernels of truncated EM.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.jit import STAMP, kernel
from daskcluster.kernels.truncated_lanes import four_distances
from daskcluster.kernels.truncated_tile import BLOCK


class Costs(NamedTuple):
    """What a cluster costs a row: ``scale[c] |(x - mean[c]) * inverse[c]|^2 + add[c]``.

    `means` and `inverse` are flat (k * d), in the rows' dtype; `inverse` is used by tiles that are
    built for it only. `scale` and `add` have shape (k,) and the rows' dtype.
    """

    means: np.ndarray
    inverse: np.ndarray
    scale: np.ndarray
    add: np.ndarray


class Space(NamedTuple):
    """What rows look at.

    `lists` (k, width) int32: candidates of the rows whose nearest cluster is c, ``sizes[c]`` of them, then
    fillers up to a multiple of the tile's height. `neighbours` (k, g) int32: looked at for every
    member of a row's own set; g = 0 for none. `drawn` (n, n_random) int32.
    """

    lists: np.ndarray
    sizes: np.ndarray
    neighbours: np.ndarray
    drawn: np.ndarray


def _build(block: int, scaled: int, stamp: int) -> Any:
    def aside_of(  # type: ignore[no-untyped-def]
        x, d, taken, here, g, first, sets, costs, space, mark, seen, near, number, aside, scratch,
    ):  # fmt: skip
        """Compute what rows look at beside the list of cluster g, whose members are marked.

        From run `first` of `near` and `number` on; OUT: aside, how many for each row. Returns the most.
        `scratch` has three runs as long as there may be pairs of a row and a cluster, and four more.
        """
        _ = stamp
        means, inverse, scale, add = costs.means, costs.inverse, costs.scale, costs.add
        row_places, places, slots = scratch[0], scratch[1], scratch[2]
        n_pairs = _list_pairs(
            d, taken, here, g, first, sets, space, mark, seen, number, aside, scratch
        )
        for at in range(4):  # the last four may go beyond the pairs
            row_places[n_pairs + at], places[n_pairs + at] = taken[0] * d, 0
        found = np.empty(n_pairs + 4, near.dtype)
        for at in range(0, n_pairs, 4):
            four_distances(x, row_places, means, inverse, places, at, d, found, scaled)
        for at in range(n_pairs):
            slot = slots[at]
            c = number[slot]
            near[slot] = found[at] * scale[c] + add[c]
        return aside[:here].max()

    return kernel(aside_of)


@kernel
def _list_pairs(d, taken, here, g, first, sets, space, mark, seen, number, aside, scratch):  # type: ignore[no-untyped-def]
    """List pairs of rows and clusters: where each begins, and where its cost goes. No branches."""
    block = taken.shape[0]
    neighbours, drawn = space.neighbours, space.drawn
    row_places, places, slots = scratch[0], scratch[1], scratch[2]
    q, n_near, n_drawn = sets.shape[1], neighbours.shape[1], drawn.shape[1]
    n_pairs, plain = 0, q * n_near + n_drawn == 0
    for r in range(here):
        i, before = taken[r], n_pairs
        slot = first * block + r
        for a in range(q):  # distinct, so nothing has to be noted if there are no others
            c = sets[i, a]
            fresh = mark[c] != g + 1
            if not plain:
                fresh = fresh and seen[c] != i
                seen[c] = i
            row_places[n_pairs], places[n_pairs], slots[n_pairs] = i * d, np.int64(c) * d, slot
            number[slot] = c
            n_pairs += fresh
            slot += block * fresh
        for a in range(q * n_near + n_drawn):
            if a < q * n_near:
                c = neighbours[sets[i, a // n_near], a % n_near]
            else:
                c = drawn[i, a - q * n_near]
            fresh = mark[c] != g + 1 and seen[c] != i
            seen[c] = i
            row_places[n_pairs], places[n_pairs], slots[n_pairs] = i * d, np.int64(c) * d, slot
            number[slot] = c
            n_pairs += fresh
            slot += block * fresh
        aside[r] = n_pairs - before
    return n_pairs


look_aside = _build(BLOCK, 0, STAMP)
look_aside_scaled = _build(BLOCK, 1, STAMP)
