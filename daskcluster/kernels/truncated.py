"""Truncated EM on rows in memory: search, posteriors and sums in one visit.

Rows are visited by the cluster that is nearest so far. All rows of one cluster share the candidates
that stand in its list, and meet them as tiles; what else a row looks at (the rest of its own set K(n),
clusters drawn at random) is computed one by one. The best q are kept by a network of comparisons with
rows in the lanes, and the row goes to the sums of its clusters while it is still in the cache.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.by_label import group_by_label
from daskcluster.kernels.jit import STAMP, kernel
from daskcluster.kernels.row_block import aligned, lanes_of, pack_listed, pack_listed_few
from daskcluster.kernels.row_ops import fetch_row
from daskcluster.kernels.truncated_aside import look_aside, look_aside_scaled
from daskcluster.kernels.truncated_lanes import add_keys, keep_least
from daskcluster.kernels.truncated_pairs import add_pair, with_room
from daskcluster.kernels.truncated_posteriors import weigh
from daskcluster.kernels.truncated_sums import add_block
from daskcluster.kernels.truncated_tile import BLOCK, listed_distances, listed_tile_for


class Told(NamedTuple):
    """What the neighbourhoods are learnt from: sums of keys of pairs (nearest cluster, other).

    `sums` (k, width) and `counts` (k,): of rows that stayed with their cluster, over its list. `shift`
    (1,): M of the grid of keys. `rooted` (1,): keys are square roots of costs. `kept` (1,): rows that came
    from another cluster tell of those they keep alone, not of all that they have looked at.
    """

    sums: np.ndarray
    counts: np.ndarray
    shift: np.ndarray
    rooted: np.ndarray
    kept: np.ndarray


STEPS = 1.5 * 2.0**52
"""M in steps of its grid."""


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
def _load_sets(sets, taken, index):  # type: ignore[no-untyped-def]
    block = taken.shape[0]
    for r in range(block):
        for rank in range(sets.shape[1]):
            index[rank * block + r] = sets[taken[r], rank]


@kernel
def _store(taken, here, index, values, sets, bounds):  # type: ignore[no-untyped-def]
    block = taken.shape[0]
    for r in range(here):
        bounds[taken[r]] = values[r]
        for rank in range(sets.shape[1]):
            sets[taken[r], rank] = index[rank * block + r]


@kernel
def _steps(key, shift, unit, rooted):  # type: ignore[no-untyped-def]
    """Return a key in whole steps of the grid."""
    value = np.float64(math.sqrt(key)) if rooted else np.float64(key)
    return np.int64(((value + shift) - shift) * unit)


def _build_tell_pairs(block: int, stamp: int) -> Any:
    def tell_pairs(  # type: ignore[no-untyped-def]
        costs, number, counts, here, home, stays, k, shift, rooted, table, used,
    ):  # fmt: skip
        """Tell of the first `counts` costs of those of the first `here` rows that did not stay."""
        _ = stamp
        unit = STEPS / shift
        for r in range(here):
            if stays[r] > 0.0:
                continue
            first = np.int64(home[r]) * k
            for j in range(counts[r]):
                value = _steps(costs[j * block + r], shift, unit, rooted)
                add_pair(table, used, first + number[j * block + r], value, 1)

    return kernel(tell_pairs)


_tell_pairs = _build_tell_pairs(BLOCK, STAMP)


@cache
def step_kernel(dtype: np.dtype[Any], *, scaled: bool) -> Any:
    """Build the E- and M-step; `scaled` for costs with inverse deviations by feature.

    ``step(rows, weights, sets, costs, sharpness, least, space, told, pairs, grids, moments, bounds,
    learn)`` gives the table of pairs, which may be a larger one than was given (there with `used`), and the
    number of distances. With ``learn = 0`` nothing goes to the sums, and `bounds` are the least costs
    instead: what the first variance is made of.
    """
    return _build_step(*listed_tile_for(dtype), lanes_of(dtype), int(scaled), STAMP)


def _build_step(height: int, vectors: int, width: int, lanes: int, scaled: int, stamp: int) -> Any:  # noqa: C901
    # One long loop: an intrinsic takes the tile's shape as literals, which no helper could pass on.
    block = BLOCK

    def step(  # type: ignore[no-untyped-def]  # noqa: C901
        rows, weights, sets, costs, sharpness, least, space, told, pairs, grids, moments, bounds, learn,
    ):  # fmt: skip
        # IN/OUT: sets (n, q), told, pairs, moments. OUT: bounds (n,).
        _ = stamp
        n, d = rows.shape
        k, q = space.lists.shape[0], sets.shape[1]
        x, lists = rows.reshape(n * d), space.lists.reshape(space.lists.size)
        wide, flat_sets = space.lists.shape[1], sets.reshape(n * q)
        most = wide + q * (1 + space.neighbours.shape[1]) + space.drawn.shape[1]
        packed, near = aligned(d * block, rows), aligned((most + 1) * block, rows)
        zero, infinity = np.zeros(d, rows.dtype), near.dtype.type(np.inf)
        number, aside = np.empty((most + 1) * block, np.int32), np.empty(block, np.int64)
        best, index = aligned(q * block, rows), np.empty(q * block, np.int32)
        posterior, bound = np.empty(q * block), np.empty(block)
        centres, inverse, scales, adds = costs.means, costs.inverse, costs.scale, costs.add
        listed, sizes, tells = space.lists, space.sizes, told.counts.shape[0] > 0
        stays, kept_sums = np.empty(block), np.zeros(wide * block)
        mark, seen = np.zeros(k, np.int32), np.full(k, -1, np.int64)
        taken, computed = np.empty(block, np.int64), 0
        scratch = np.empty((3, (most - wide) * block + 8), np.int64)
        table, used = pairs
        shift, rooted = told.shift[0], told.rooted[0]
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
                if m:
                    if d < lanes:
                        pack_listed_few(rows, taken, 0, zero, packed, block)
                    else:
                        pack_listed(x, taken, 0, d, zero, packed, 0, vectors, width)
                for j in range(0, m, height):
                    listed_distances(
                        packed, centres, inverse, lists, g * wide + j, d, near, j * block,
                        height, vectors, width, scaled,
                    )  # fmt: skip
                for j in range(m):
                    c = listed[g, j]
                    scale, add = scales[c], adds[c]
                    if scale != 1.0 or add != 0.0:
                        for r in range(block):
                            near[j * block + r] = near[j * block + r] * scale + add
                near[m * block :] = infinity
                if scaled:
                    beside = look_aside_scaled(
                        x,
                        d,
                        taken,
                        here,
                        g,
                        m,
                        sets,
                        costs,
                        space,
                        mark,
                        seen,
                        near,
                        number,
                        aside,
                        scratch,
                    )
                else:
                    beside = look_aside(
                        x,
                        d,
                        taken,
                        here,
                        g,
                        m,
                        sets,
                        costs,
                        space,
                        mark,
                        seen,
                        near,
                        number,
                        aside,
                        scratch,
                    )
                computed += here * m + aside[:here].sum()
                best[:] = infinity
                _load_sets(sets, taken, index)  # kept where all costs overflow
                for j in range(m + beside):
                    keep_least(near, j * block, number, j * block, best, index, q, vectors, width)
                weigh(best, best, q, sharpness, least, posterior, bound, vectors, width)
                if not learn:
                    bound[:] = best[:block]
                else:
                    add_block(
                        x, d, taken, here, weights, index, best, posterior, costs, grids, moments
                    )
                _store(taken, here, index, bound, sets, bounds)
                if not tells:
                    continue
                for r in range(block):
                    stays[r] = 1.0 if m and r < here and index[r] == g else 0.0
                for j in range(m):
                    add_keys(
                        near, j * block, kept_sums, j * block, stays, shift, rooted, vectors, width
                    )
                left = here - int(stays.sum())
                staying += here - left
                if left:
                    table = with_room(table, used, left * most)
                    if told.kept[0]:
                        aside[:] = q
                        _tell_pairs(
                            best, index, aside, here, index, stays, k, shift, rooted, table, used
                        )
                    else:
                        aside += m
                        _tell_pairs(
                            near, number, aside, here, index, stays, k, shift, rooted, table, used
                        )
            if tells:
                told.counts[g] += staying
                for j in range(m):
                    for r in range(block):
                        told.sums[g, j] += kept_sums[j * block + r]
        return table, computed

    return kernel(step)
