"""E-steps on rows in memory: search, posteriors and sums in one visit of each row.

In truncated EM, rows are visited in groups with the same nearest cluster so far. All rows of a group share
the candidates in the list of that cluster, whose distances are computed in tiles. Distances to the other
candidates of a row (the rest of its own set K(n), random clusters) are computed pair by pair. A network of
comparisons, with rows in the SIMD lanes, selects the q nearest; then rows are added to the sums of their
clusters while they are still in the cache.

Exact EM, and densities and labels under a fitted mixture, compare rows with all clusters: n k d products.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.accumulate import group_by_label
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.row_block import aligned, lanes_of, pack_listed_rows
from daskcluster.kernels.row_ops import fetch_row
from daskcluster.kernels.sum_grid import rounded
from daskcluster.methods.mixture.kernels.candidates import (
    BLOCK,
    BY_FEATURE,
    SLOT,
    SLOT_BITS,
    WHITENED,
    WHITENED_ONCE,
    list_all,
    list_own,
    listed_distances,
    listed_tile_for,
    pair_distances,
    pair_key,
    slot_of,
    with_room,
)
from daskcluster.methods.mixture.kernels.mahalanobis import (
    listed_mahalanobis,
    pair_mahalanobis,
    pair_whitened,
    whiten_block,
)
from daskcluster.methods.mixture.kernels.posteriors import add_keys, keep_least, weigh
from daskcluster.methods.mixture.kernels.sums import add_block, add_rows, add_scratch


class NeighbourSums(NamedTuple):
    """Sums of keys of pairs (nearest cluster, other), from which neighbourhoods are learnt.

    `sums` (k, width) and `counts` (k,): sums over rows that stayed with their cluster, for the clusters of
    its list, and the numbers of these rows. `shift` (1,): M of the grid of keys. `rooted` (1,): keys are
    square roots of costs. `selected_only` (1,): rows that moved from another cluster contribute only the
    members of their new sets, not all candidates.
    """

    sums: np.ndarray
    counts: np.ndarray
    shift: np.ndarray
    rooted: np.ndarray
    selected_only: np.ndarray


STEPS = 1.5 * 2.0**52
"""M of a grid, in steps of the grid."""


@kernel
def draw_sets(words, k, sets):  # type: ignore[no-untyped-def]
    """Draw q distinct clusters of k for every row, uniformly; OUT: sets (n, q), from words (n, q)."""
    n, q = sets.shape
    for i in range(n):
        for a in range(q):  # R. W. Floyd's sample
            top = k - q + a
            pick = np.int32(words[i, a] % np.uint64(top + 1))
            for b in range(a):
                if sets[i, b] == pick:
                    pick = np.int32(top)
                    break
            sets[i, a] = pick


@kernel
def _add_moved(  # type: ignore[no-untyped-def]
    costs, number, counts, here, home, stays, grid, table, used, keys
):
    """Add the keys of rows that moved to the table: of the first `counts` costs of each such row.

    Among the first `here` rows, those with ``stays[r] == 0`` moved; pairs of a cluster with itself are
    left out. `grid` is (shift, rooted). `keys` is scratch for the pairs, whose slots are all prefetched
    before the first is used. The code of `add_pair` is repeated here, because numba counts references
    at every call of a function that has a loop.
    """
    shift, rooted = grid
    step, n_pairs, n_used = STEPS / shift, 0, used[0]
    mask, flat = np.uint64(table.shape[0] - 1), table.reshape(table.size).view(np.float64)
    for r in range(here):
        if stays[r] > 0.0:
            continue
        own = np.int64(home[r])
        for j in range(counts[r]):
            at = j * BLOCK + r
            if number[at] != own:
                keys[0, n_pairs], keys[1, n_pairs] = pair_key(own, number[at]), at
                n_pairs += 1
    for p in range(n_pairs):
        fetch_row(flat, np.int64(slot_of(keys[0, p], mask)) * SLOT, 1)
    for p in range(n_pairs):
        key, cost = keys[0, p], costs[keys[1, p]]
        rank = np.float64(math.sqrt(cost)) if rooted else np.float64(cost)
        value = np.int64(rounded(rank, shift) * step)  # in whole steps of the grid
        at = slot_of(key, mask)
        while table[at, 0] != key:
            if table[at, 0] < 0:
                table[at, 0] = key
                n_used += 1
                break
            at = (at + np.uint64(1)) & mask
        table[at, 1] += value
        table[at, 2] += 1
    used[0] = n_used


@cache
def step_kernel(dtype: np.dtype[Any], *, scaled: int) -> Any:  # noqa: C901
    """Build the kernel of an E-step and the sums of an M-step; for `scaled`, see `Costs`.

    ``step((rows, weights), sets, costs, (sharpness, least), space, neighbour_sums_of, pairs,
    (grids, moments), bounds, learn)`` returns the table of pairs (a larger one if it had to grow), the
    number of distances, and the number of rows whose nearest cluster changed. `bounds` (n,) are the
    weighted contributions of the rows to the free energy, in the order of visits. With ``learn = 0``
    nothing is added to the moments, and `bounds` are the weighted smallest costs, from which the first
    variance is computed.
    """
    # One long loop: numba counts references of arrays at every call of a function that has a loop.
    height, vectors, width = listed_tile_for(dtype)
    block, shape, scaled = BLOCK, (vectors, width, lanes_of(dtype)), int(scaled)
    by_feature, whitened = int(scaled == BY_FEATURE), scaled == WHITENED
    once, (tall, many, narrow) = scaled == WHITENED_ONCE, listed_tile_for(np.dtype(np.float64))

    def step(  # type: ignore[no-untyped-def]  # noqa: C901
        data, sets, costs, soft, space, neighbour_sums_of, pairs, sums, bounds, learn
    ):
        (rows, weights), (sharpness, least), (grids, moments) = data, soft, sums
        # IN/OUT: sets (n, q), neighbour_sums_of, pairs, moments. OUT: bounds (n,).
        n, d = rows.shape
        k, q = space.lists.shape[0], sets.shape[1]
        x, lists = rows.reshape(n * d), space.lists.reshape(space.lists.size)
        wide, flat_sets = space.lists.shape[1], sets.reshape(n * q)
        most = wide + q * (1 + space.neighbours.shape[1]) + space.drawn.shape[1]
        packed, near = aligned(d * block, rows), aligned((most + 1) * block, rows)
        zero, infinity = np.zeros(d, rows.dtype), near.dtype.type(np.inf)
        number, extra = np.empty((most + 1) * block, np.int32), np.empty(block, np.int64)
        best, index = aligned(q * block, rows), np.empty(q * block, np.int32)
        posterior, bound = np.empty(q * block), np.empty(block)
        centres, inverse, scales, adds = costs.means, costs.inverse, costs.scale, costs.add
        neighbours, drawn = space.neighbours, space.drawn
        alone = neighbours.shape[1] + drawn.shape[1] == 0
        plain = not (scales != 1.0).any() and not (adds != 0.0).any()
        listed, sizes, collects = space.lists, space.sizes, neighbour_sums_of.counts.shape[0] > 0
        stays, kept_sums = np.empty(block), np.zeros(wide * block)
        neighbour_sums, neighbour_counts = neighbour_sums_of.sums, neighbour_sums_of.counts
        mark, seen = np.zeros(k, np.int32), np.full(k, -1, np.int64)
        sources, marks = (sets, neighbours, drawn), (mark, seen)
        taken, computed, n_moved = np.empty(block, np.int64), 0, np.int64(0)
        extra_pairs = np.empty((most - wide) * block + 8, np.int64)
        keys, scratch = np.empty((2, most * block), np.int64), add_scratch(block, q)
        factors, shares, places = scratch
        factors[:] = 1.0
        gaps, white, origin = np.empty(block * d), costs.white, costs.white[:d]
        lines, far = aligned(d * block, white), aligned((wide if once else 0) * block, white)
        grid, both, firsts = grids.firsts, grids.totals, moments.firsts
        low_firsts, totals = moments.low_firsts, moments.totals
        weighted, two, selected_only = (
            weights.shape[0] > 0,
            low_firsts.shape[0] > 0,
            neighbour_sums_of.selected_only[0],
        )
        table, used = pairs
        shift, rooted = neighbour_sums_of.shift[0], neighbour_sums_of.rooted[0]
        order, starts = np.empty(sets.shape[0], np.int64), np.empty(k + 1, np.int64)
        group_by_label(sets[:, 0], order, starts)
        for g in range(k):
            if starts[g] == starts[g + 1]:
                continue
            m = sizes[g]
            for j in range(m):
                mark[listed[g, j]] = g + 1
                for r in range(block):
                    number[j * block + r] = listed[g, j]
            staying = 0
            kept_sums[: m * block] = 0.0
            for first in range(starts[g], starts[g + 1], block):
                here = min(block, starts[g + 1] - first)
                for r in range(block):
                    taken[r] = order[first + min(r, here - 1)]
                for r in range(first + here, min(first + here + block, n)):
                    fetch_row(x, order[r] * d, d)
                    fetch_row(flat_sets, order[r] * q, q)
                for r in range(block):  # sets stay the same if all costs overflow
                    at = taken[r] * q
                    for rank in range(q):
                        index[rank * block + r] = flat_sets[np.uint64(at + rank)]
                if m and not once:
                    pack_listed_rows(x, taken, d, zero, packed, shape)
                if whitened:
                    listed_mahalanobis(
                        packed, centres, inverse, lists, g * wide, m, d, gaps, near, vectors, width
                    )
                elif once:
                    whiten_block(x, taken, d, origin, inverse, gaps, lines)
                    listed_distances(
                        lines, white[d:], white, lists, g * wide, m, d, far, tall, many, narrow, 0
                    )
                    for at in range(m * block):
                        near[at] = far[at]
                else:
                    listed_distances(
                        packed, centres, inverse, lists, g * wide, m, d, near,
                        height, vectors, width, by_feature,
                    )  # fmt: skip
                if not plain:
                    for j in range(m):
                        scale, add = scales[listed[g, j]], adds[listed[g, j]]
                        for r in range(block):
                            near[j * block + r] = near[j * block + r] * scale + add
                near[m * block :] = infinity
                if alone:
                    n_pairs = list_own(index, here, g, m, mark, number, extra, extra_pairs)
                else:
                    n_pairs = list_all(
                        taken, here, g, m, sources, marks, number, extra, extra_pairs
                    )
                for at in range(n_pairs, n_pairs + 4):  # fillers, as pairs are read in fours
                    extra_pairs[at] = (near.shape[0] - block) << SLOT_BITS
                if whitened:
                    pair_mahalanobis(
                        x, taken, d, centres, inverse, extra_pairs, n_pairs, gaps, near
                    )
                elif once:
                    pair_whitened(lines, d, white, extra_pairs, n_pairs, near)
                else:
                    pair_distances(
                        x, taken, d, centres, inverse, extra_pairs, n_pairs, near, block, by_feature
                    )
                if not plain:
                    for at in range(n_pairs):
                        slot = extra_pairs[at] >> SLOT_BITS
                        c = number[slot]
                        near[slot] = near[slot] * scales[c] + adds[c]
                most_extra, computed = 0, computed + here * m + n_pairs
                for r in range(here):
                    most_extra = max(most_extra, extra[r])
                best[:] = infinity
                # Own candidates first, then the list, nearest first: later ones then seldom enter.
                keep_least(near, number, m, most_extra, best, index, q, vectors, width)
                keep_least(near, number, 0, m, best, index, q, vectors, width)
                weigh(best, best, q, sharpness, least, posterior, bound, vectors, width)
                if weighted:
                    for r in range(here):
                        factors[r] = weights[taken[r]]
                if not learn:
                    for r in range(block):
                        bound[r] = best[r]
                elif scaled:
                    add_block(
                        x, d, taken, here, weights, (index, best, posterior), costs, sums, scratch
                    )
                else:
                    # Same as `add_block`, but without a call, at which numba counts references.
                    if two:
                        add_rows(
                            x, taken, here, d, factors, posterior, best, index, q, scales, adds, 1.0, plain,
                            grid, both, firsts, low_firsts, totals, shares, places, block, 1,
                        )  # fmt: skip
                    else:
                        add_rows(
                            x, taken, here, d, factors, posterior, best, index, q, scales, adds, 1.0, plain,
                            grid, both, firsts, low_firsts, totals, shares, places, block, 0,
                        )  # fmt: skip
                for r in range(here):
                    bounds[np.uint64(first + r)] = bound[r] * factors[r]
                    n_moved += np.int64(index[r] != g)
                    at = taken[r] * q
                    for rank in range(q):
                        flat_sets[np.uint64(at + rank)] = index[rank * block + r]
                if not collects:
                    continue
                left = here
                for r in range(block):
                    stays[r] = 1.0 if m and r < here and index[r] == g else 0.0
                    left -= np.int64(stays[r])
                add_keys(near, m, kept_sums, stays, shift, rooted, vectors, width)
                staying += here - left
                if left:
                    table = with_room(table, used, left * most)
                    if selected_only:
                        extra[:] = q
                        among, names = best, index
                    else:
                        extra += m
                        among, names = near, number
                    grid_of = shift, rooted
                    _add_moved(among, names, extra, here, index, stays, grid_of, table, used, keys)
            if collects:
                neighbour_counts[g] += staying
                for j in range(m):
                    one, other = 0.0, 0.0  # exact on their grid, so in any order
                    for r in range(0, block, 2):
                        one += kept_sums[j * block + r]
                        other += kept_sums[j * block + r + 1]
                    neighbour_sums[g, j] += one + other
        return table, computed, n_moved

    return kernel(step)


@cache
def all_kernel(dtype: np.dtype[Any], *, scaled: int) -> Any:  # noqa: C901
    """Build the kernel that compares rows with all clusters; for `scaled`, see `Costs`.

    ``visit((rows, weights), costs, (sharpness, least), every, (grids, moments), index, posteriors,
    bounds)``. With `every`, posteriors are over all clusters, `bounds` (n,) are exact log-sums, and rows
    are added to the sums if `moments` has totals. Otherwise, posteriors are over the ``q =
    index.shape[1]`` clusters of least cost. OUT: index (n, q) int32 and posteriors (n, q), or (n, 0), of
    these q clusters; bounds.
    """
    # One long loop: numba counts references of arrays at every call of a function that has a loop.
    height, vectors, width = listed_tile_for(dtype)
    block, shape, scaled = BLOCK, (vectors, width, lanes_of(dtype)), int(scaled)
    by_feature, whitened = int(scaled == BY_FEATURE), scaled == WHITENED
    once, (tall, many, narrow) = scaled == WHITENED_ONCE, listed_tile_for(np.dtype(np.float64))

    def visit(data, costs, soft, every, sums, index, posteriors, bounds):  # type: ignore[no-untyped-def]  # noqa: C901
        (rows, weights), (sharpness, least), moments = data, soft, sums[1]
        n, d = rows.shape
        k, q = costs.add.shape[0], index.shape[1]
        means, inverse, scale, add = costs.means, costs.inverse, costs.scale, costs.add
        x, whole = rows.reshape(n * d), -(-k // height) * height
        listed = np.minimum(np.arange(whole), k - 1).astype(np.int32)
        packed, near = aligned(d * block, rows), aligned(whole * block, rows)
        number, taken = np.empty(k * block, np.int32), np.empty(block, np.int64)
        best, held = aligned(q * block, rows), np.zeros(q * block, np.int32)
        n_terms = k if every else q
        gaps, white, origin = np.empty(block * d), costs.white, costs.white[:d]
        lines, far = aligned(d * block, white), aligned((whole if once else 0) * block, white)
        posterior, bound = np.empty(n_terms * block), np.empty(block)
        zero, infinity = np.zeros(d, rows.dtype), near.dtype.type(np.inf)
        learns, scratch = every and moments.totals.shape[0] > 0, add_scratch(block, k)
        for c in range(k):
            number[c * block : (c + 1) * block] = c
        for start in range(0, n, block):
            here = min(block, n - start)
            for r in range(block):
                taken[r] = min(start + r, n - 1)
            if not once:
                pack_listed_rows(x, taken, d, zero, packed, shape)
            if whitened:
                listed_mahalanobis(
                    packed, means, inverse, listed, 0, k, d, gaps, near, vectors, width
                )
            elif once:
                whiten_block(x, taken, d, origin, inverse, gaps, lines)
                listed_distances(
                    lines, white[d:], white, listed, 0, k, d, far, tall, many, narrow, 0
                )
                for at in range(k * block):
                    near[at] = far[at]
            else:
                listed_distances(
                    packed,
                    means,
                    inverse,
                    listed,
                    0,
                    k,
                    d,
                    near,
                    height,
                    vectors,
                    width,
                    by_feature,
                )
            best[:] = infinity
            held[:] = 0
            for j in range(k):
                if scale[j] != 1.0 or add[j] != 0.0:
                    for r in range(block):
                        near[j * block + r] = near[j * block + r] * scale[j] + add[j]
            keep_least(near, number, 0, k, best, held, q, vectors, width)
            if every:
                weigh(best, near, k, sharpness, least, posterior, bound, vectors, width)
            else:
                weigh(best, best, q, sharpness, least, posterior, bound, vectors, width)
            if learns:
                add_block(
                    x, d, taken, here, weights, (number, near, posterior), costs, sums, scratch
                )
            for r in range(here):
                bounds[start + r] = bound[r]
                for a in range(q):
                    index[start + r, a] = held[a * block + r]
                for a in range(posteriors.shape[1]):
                    posteriors[start + r, a] = posterior[a * block + r]

    return kernel(visit)
