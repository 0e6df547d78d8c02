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
        x, d, taken, here, g, first, sets, costs, space, mark, seen, near, number, aside,
    ):  # fmt: skip
        """Compute what rows look at beside the list of cluster g, whose members are marked.

        From run `first` of `near` and `number` on; OUT: aside, how many for each row. Returns the most.
        """
        _ = stamp
        means, inverse, scale, add = costs.means, costs.inverse, costs.scale, costs.add
        neighbours, drawn = space.neighbours, space.drawn
        q, n_near, n_drawn = sets.shape[1], neighbours.shape[1], drawn.shape[1]
        few, pair, total = np.empty(4, np.int64), np.empty(4, near.dtype), q + q * n_near + n_drawn
        most = 0
        for r in range(here):
            i, found, waiting = taken[r], 0, 0
            for a in range(total):
                if a < q:
                    c = sets[i, a]
                elif a < q + q * n_near:
                    c = neighbours[sets[i, (a - q) // n_near], (a - q) % n_near]
                else:
                    c = drawn[i, a - q - q * n_near]
                if mark[c] != g + 1 and seen[c] != i:
                    seen[c] = i
                    few[waiting] = c * d
                    number[(first + found + waiting) * block + r] = c
                    waiting += 1
                if waiting == 4 or (a == total - 1 and waiting):
                    few[waiting:] = few[0]
                    four_distances(x, i * d, means, inverse, few, d, pair, scaled)
                    for u in range(waiting):
                        c = number[(first + found) * block + r]
                        near[(first + found) * block + r] = pair[u] * scale[c] + add[c]
                        found += 1
                    waiting = 0
            aside[r] = found
            most = max(most, found)
        return most

    return kernel(aside_of)


look_aside = _build(BLOCK, 0, STAMP)
look_aside_scaled = _build(BLOCK, 1, STAMP)
