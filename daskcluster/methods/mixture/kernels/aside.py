"""What rows look at and do not share with their group: the rest of their own sets, clusters drawn for them.

Here too stand the values that describe clusters and search spaces to the kernels of truncated EM.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from daskcluster.kernels.jit import kernel
from daskcluster.methods.mixture.kernels.apart import SLOT_BITS


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


@kernel
def list_own(own, here, g, first, mark, number, aside, pairs):  # type: ignore[no-untyped-def]
    """List pairs of rows and members of their own sets that are not marked with cluster g.

    `own` has the sets of a block, in runs of the block by rank. OUT: pairs (see `pair_distances`), of which
    the number is returned; number, from run `first` on; and aside, how many each row has. No branches,
    and no row waits for another's.

    A set has no member twice, so nothing has to be noted; the nearest member is g itself, which is marked
    if there is a list. Unsigned indices spare the check for negative ones.
    """
    block, wanted, n_pairs = aside.shape[0], np.int32(g + 1), np.int64(0)
    aside[:] = 0
    for a in range(1 if first else 0, own.shape[0] // block):
        for r in range(here):
            c = own[np.uint64(a * block + r)]
            fresh = np.int64(mark[np.uint64(c)] != wanted)
            slot = (first + aside[np.uint64(r)]) * block + r
            number[np.uint64(slot)] = c
            pairs[np.uint64(n_pairs)] = (slot << SLOT_BITS) | np.int64(c)
            n_pairs += fresh
            aside[np.uint64(r)] += fresh
    return n_pairs


@kernel
def list_all(taken, here, g, first, sources, marks, number, aside, pairs):  # type: ignore[no-untyped-def]
    """Do as `list_own`, with neighbours of all members and clusters that were drawn.

    `sources` is (sets, neighbours, drawn), `marks` (mark, seen).
    """
    (sets, neighbours, drawn), (mark, seen) = sources, marks
    block = taken.shape[0]
    q, n_near, n_drawn = sets.shape[1], neighbours.shape[1], drawn.shape[1]
    n_pairs, wanted = np.int64(0), np.int32(g + 1)
    for r in range(here):
        i, before, slot = taken[r], n_pairs, first * block + r
        for a in range(q + q * n_near + n_drawn):
            if a < q:
                c = sets[i, a]
            elif a < q + q * n_near:
                c = neighbours[sets[i, (a - q) // n_near], (a - q) % n_near]
            else:
                c = drawn[i, a - q - q * n_near]
            fresh = np.int64(mark[c] != wanted and seen[c] != i)
            seen[c] = i
            number[slot] = c
            pairs[n_pairs] = (slot << SLOT_BITS) | np.int64(c)
            n_pairs += fresh
            slot += block * fresh
        aside[r] = n_pairs - before
    return n_pairs
