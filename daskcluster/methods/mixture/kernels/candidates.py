"""Candidates of rows, squared distances to them, and neighbourhoods of clusters, which they come from.

Rows of a group share their candidates, but each group has other ones, and packing them into panels would
cost more than it saves. So centres are read in place, with one broadcast per feature. Differences are
computed directly and need no common offset: the relative error of a distance is at most (d + 2) rounding
errors wherever the rows lie. Extra candidates of a row, which its group does not share, are pairs.

A neighbourhood has the nearest other clusters, estimated from distances of rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from daskcluster.kernels import emit
from daskcluster.kernels.accumulate import group_by_label
from daskcluster.kernels.jit import kernel, tile_name
from daskcluster.kernels.panels import vector_width
from daskcluster.kernels.register_tile import TileShape

SLOT_BITS = 32
"""A pair is one word: its cluster in this many lower bits, the place of its cost in the upper bits."""


@emit.vector_intrinsic(literals="block scaled")
def pair_distances(builder, rows, taken, d, centres, inverse, pairs, count, out, block, scaled):  # type: ignore[no-untyped-def]
    """Store squared distances as `listed_distances` defines them, for pairs of a row and a cluster.

    ``pairs[p]`` has the cluster and the place in `out`; its row is ``taken[place % block]``. `count` is
    rounded up to a multiple of four, so up to three more pairs are read. Features are in the lanes: sixteen
    chains, folded, then one chain for the remaining features (at most fifteen). A distance depends
    neither on the CPU nor on the other pairs.
    """
    kind, nothing = rows.type.pointee, ir.Constant(emit.I64, 0)
    align = emit.bits(kind) // 8
    whole = builder.and_(d, ir.Constant(emit.I64, -16))

    def four(first: Any, _: list[Any]) -> list[Any]:
        places, points, means, scales = [], [], [], []
        for r in range(4):
            word = builder.load(emit.step(builder, builder.gep(pairs, [first]), r))
            place = builder.lshr(word, ir.Constant(emit.I64, SLOT_BITS))
            cluster = builder.and_(word, ir.Constant(emit.I64, (1 << SLOT_BITS) - 1))
            lane = builder.and_(place, ir.Constant(emit.I64, block - 1))
            row, start = builder.load(builder.gep(taken, [lane])), builder.mul(cluster, d)
            places.append(place)
            points.append(builder.gep(rows, [builder.mul(row, d)]))
            means.append(builder.gep(centres, [start]))
            scales.append(builder.gep(inverse, [start]))

        def chains(start: Any, stop: Any, lanes: int) -> list[Any]:
            zero = emit.zeros(kind, lanes)

            def body(step: Any, sums: list[Any]) -> list[Any]:
                t = builder.add(start, step)

                def features(base: Any) -> Any:
                    return emit.load(builder, builder.gep(base, [t]), kind, lanes, align)

                grown = []
                for r in range(4):
                    gap = builder.fsub(features(points[r]), features(means[r]))
                    if scaled:
                        gap = builder.fmul(gap, features(scales[r]))
                    grown.append(emit.fma(builder, gap, gap, sums[r]))
                return grown

            return emit.loop(builder, builder.sub(stop, start), lanes, [zero] * 4, body)

        wide = _fold_four(builder, chains(nothing, whole, 16))
        rest = emit.concatenate(builder, chains(whole, d, 1))
        found = builder.fadd(wide, rest)
        for r in range(4):
            value = builder.extract_element(found, ir.Constant(emit.I32, r))
            builder.store(value, builder.gep(out, [places[r]]))
        return []

    emit.loop(builder, count, 4, [], four)


def _fold_four(builder: Any, vectors: list[Any]) -> Any:
    """Return the sums of the lanes of four vectors of sixteen, as one vector of four."""

    def halves(a: Any, b: Any, run: int) -> Any:
        # Adds lanes that are `run` apart; the sums are in runs of `run` lanes of a and b in turn.
        lanes = a.type.count
        low = [
            base + at + i
            for at in range(0, lanes, 2 * run)
            for base in (0, lanes)
            for i in range(run)
        ]
        high = [pick + run for pick in low]
        first = emit.shuffle(builder, a, b, low)
        return builder.fadd(first, emit.shuffle(builder, a, b, high))

    pairs = [halves(vectors[0], vectors[1], 1), halves(vectors[2], vectors[3], 1)]
    # The lanes of each pair are a b a b ...; joined they are a b c d a b c d ...
    joined = halves(pairs[0], pairs[1], 2)
    while joined.type.count > 4:
        half = joined.type.count // 2
        low = emit.shuffle(builder, joined, joined, range(half))
        high = emit.shuffle(builder, joined, joined, range(half, 2 * half))
        joined = builder.fadd(low, high)
    return joined


BY_FEATURE, WHITENED, WHITENED_ONCE = 1, 2, 3
"""Kinds of costs, see `Costs`."""


class Costs(NamedTuple):
    """Coefficients of the cost of cluster c: ``scale[c] |(x - mean[c]) * inverse[c]|^2 + add[c]``.

    `means` and `inverse` are flat (k * d,), in the rows' dtype. Kernels built with ``scaled=0`` do not use
    `inverse`. In those built with ``scaled=WHITENED``, the product is that with a matrix: `inverse` has
    packed inverse Cholesky factors in float64 (see `daskcluster.methods.mixture.kernels.mahalanobis`), one
    per cluster. With ``scaled=WHITENED_ONCE``, all clusters share one factor, and distances are those of
    whitened rows: `white` has the d features of an origin, and then the whitened differences of all means
    from it, in float64. `scale` and `add` have shape (k,) and the rows' dtype.
    """

    means: np.ndarray
    inverse: np.ndarray
    scale: np.ndarray
    add: np.ndarray
    white: np.ndarray = np.empty(0)


class Space(NamedTuple):
    """The candidates of rows.

    `lists` (k, width) int32: ``sizes[c]`` candidates of the rows whose nearest cluster is c, then fillers
    up to a multiple of the tile's height. `neighbours` (k, g) int32: the candidates that each member of
    a row's own set adds; g = 0 for none. `drawn` (n, n_random) int32: random candidates of each row.
    """

    lists: np.ndarray
    sizes: np.ndarray
    neighbours: np.ndarray
    drawn: np.ndarray


@kernel
def list_own(own, here, g, first, mark, number, extra, pairs):  # type: ignore[no-untyped-def]
    """List pairs of rows and members of their own sets that are not in the list of cluster g.

    `own` has the sets of a block, in one run per rank; members of the list are marked with g + 1 in `mark`.
    Returns the number of pairs. OUT: pairs (see `pair_distances`); number, the clusters, from run `first`
    on; and extra, the number of pairs of each row. There are no branches and no dependencies between rows.

    Members of a set are distinct, so they need no marks. The nearest member is g itself, which is marked
    if there is a list. Unsigned indices avoid numba's check for negative ones.
    """
    block, wanted, n_pairs = extra.shape[0], np.int32(g + 1), np.int64(0)
    extra[:] = 0
    for a in range(1 if first else 0, own.shape[0] // block):
        for r in range(here):
            c = own[np.uint64(a * block + r)]
            fresh = np.int64(mark[np.uint64(c)] != wanted)
            slot = (first + extra[np.uint64(r)]) * block + r
            number[np.uint64(slot)] = c
            pairs[np.uint64(n_pairs)] = (slot << SLOT_BITS) | np.int64(c)
            n_pairs += fresh
            extra[np.uint64(r)] += fresh
    return n_pairs


@kernel
def list_all(taken, here, g, first, sources, marks, number, extra, pairs):  # type: ignore[no-untyped-def]
    """Do as `list_own`, also with the neighbours of all members and with random clusters.

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
        extra[r] = n_pairs - before
    return n_pairs


BLOCK = 16
"""Rows per block. Small, because groups are small where there are many clusters."""


def listed_tile_for(dtype: np.dtype[Any]) -> TileShape:
    """Return the tile for this CPU: eight FMA chains, or more if a block has more vectors."""
    width = vector_width(dtype, tile_name())
    vectors = BLOCK // width
    return TileShape(max(2, 8 // vectors), vectors, width)


@emit.vector_intrinsic(literals="height vectors width scaled")
def listed_distances(  # type: ignore[no-untyped-def]
    builder, block, centres, inverse, listed, first, count, d, out, height, vectors, width, scaled
):
    """Store squared distances of a packed block to listed clusters, `height` at a time.

    ``out[j * block + r] = sum_t ((x_r[t] - c[t]) * s[t])^2`` for j < count, rounded up to whole
    tiles, where c and s are the rows ``listed[first + j]`` of `centres` and `inverse`; with `scaled` = 0
    all s are one. Each sum is one FMA chain in feature order, so the result does not depend on the CPU.
    """
    kind, numbers = block.type.pointee, builder.gep(listed, [first])
    align = emit.bits(kind) // 8

    def repeated(base: Any, start: Any, t: Any) -> Any:
        place = builder.gep(builder.gep(base, [start]), [t])
        return emit.splat(builder, builder.load(place, align=align), width)

    def tile(first: Any, _: list[Any]) -> list[Any]:
        mine, starts = builder.gep(numbers, [first]), []
        for r in range(height):
            number = builder.sext(builder.load(emit.step(builder, mine, r)), emit.I64)
            starts.append(builder.mul(number, d))

        def advance(t: Any, sums: list[Any]) -> list[Any]:
            x = builder.gep(block, [builder.mul(t, ir.Constant(emit.I64, vectors * width))])
            rows = [
                emit.load(builder, emit.step(builder, x, v * width), kind, width, width * align)
                for v in range(vectors)
            ]
            grown = []
            for r, start in enumerate(starts):
                centre = repeated(centres, start, t)
                scale = repeated(inverse, start, t) if scaled else None
                for v, row in enumerate(rows):
                    gap = builder.fsub(row, centre)
                    if scale is not None:
                        gap = builder.fmul(gap, scale)
                    grown.append(emit.fma(builder, gap, gap, sums[r * vectors + v]))
            return grown

        zero = emit.zeros(kind, width)
        sums = emit.loop(builder, d, 1, [zero] * (height * vectors), advance)
        run = builder.mul(first, ir.Constant(emit.I64, vectors * width))
        place = builder.gep(out, [run])
        for at, total in enumerate(sums):
            emit.store(builder, total, emit.step(builder, place, at * width), width * align)
        return []

    emit.loop(builder, count, height, [], tile)


SLOT = 4
HALF = 32
_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def pair_key(c, other):  # type: ignore[no-untyped-def]
    """Return the key of a pair of clusters: `c` in the upper half of the word, `other` in the lower."""
    return (np.int64(c) << np.int64(HALF)) | np.int64(other)


@kernel
def slot_of(key, mask):  # type: ignore[no-untyped-def]
    """Return the first slot to probe for a key: a hash of the bits that depend on both clusters."""
    return ((np.uint64(key) * _MIX) >> np.uint64(HALF)) & mask


@kernel
def add_pair(table, used, key, value, count):  # type: ignore[no-untyped-def]
    """Add `value` and `count` to the sums of a key; `used` (1,) counts the keys. Needs a free slot."""
    mask = np.uint64(table.shape[0] - 1)
    at = slot_of(key, mask)
    while table[at, 0] != key:
        if table[at, 0] < 0:
            table[at, 0] = key
            used[0] += 1
            break
        at = (at + np.uint64(1)) & mask
    table[at, 1] += value
    table[at, 2] += count


@kernel
def new_table(size):  # type: ignore[no-untyped-def]
    """Return an empty table of `size` slots; `size` is a power of two."""
    table = np.zeros((size, SLOT), np.int64)
    table[:, 0] = -1
    return table


@kernel
def merge_pairs(table, used, more):  # type: ignore[no-untyped-def]
    """Add all pairs of table `more`, which may be compact, to `table`, which needs room for them."""
    for at in range(more.shape[0]):
        if more[at, 0] >= 0:
            add_pair(table, used, more[at, 0], more[at, 1], more[at, 2])


@kernel
def with_room(table, used, more):  # type: ignore[no-untyped-def]
    """Return `table` if it has room for `more` keys, else a larger copy."""
    size = table.shape[0]
    if 3 * (used[0] + more) <= 2 * size:
        return table
    while 3 * (used[0] + more) > 2 * size:
        size *= 2
    larger, fresh = new_table(size), np.zeros(1, np.int64)
    merge_pairs(larger, fresh, table)
    return larger


@kernel
def list_pairs(table, pairs):  # type: ignore[no-untyped-def]
    """Copy all pairs of a table to `pairs`, which needs one extra row."""
    # Without a branch, which would be mispredicted at every other slot.
    at = 0
    for slot in range(table.shape[0]):
        for j in range(3):
            pairs[np.uint64(at), j] = table[np.uint64(slot), j]
        at += 1 if table[np.uint64(slot), 0] >= 0 else 0


_OTHER = np.uint64((1 << HALF) - 1)


@kernel
def _select(members, means, count, c, near, nearest):  # type: ignore[no-untyped-def]
    """Select c itself, then those of the first `count` clusters with the least means; ties by number.

    OUT: near (g,) means and nearest (g,) cluster numbers, -1 where there are too few.
    """
    g = near.shape[0]
    near[0], near[1:] = -np.inf, np.inf
    nearest[0], nearest[1:] = c, -1
    for j in range(count):
        mean, other, last = means[np.uint64(j)], members[np.uint64(j)], near[g - 1]
        if other == c or not (mean < last or (mean == last and other < nearest[g - 1])):
            continue
        at = g - 1
        while at > 1 and not near[at - 1] < mean:
            if near[at - 1] == mean and nearest[at - 1] < other:
                break
            near[at], nearest[at] = near[at - 1], nearest[at - 1]
            at -= 1
        near[at], nearest[at] = mean, other


@kernel
def _fill(found, old):  # type: ignore[no-untyped-def]
    """Replace each -1 in `found` by a member of `old` that is not in it yet."""
    for j in range(found.shape[0]):
        if found[j] >= 0:
            continue
        for b in range(old.shape[0]):
            if not (found == old[b]).any():
                found[j] = old[b]
                break


@kernel
def learn_neighbours(lists, sizes, sums, counts, step, pairs, old):  # type: ignore[no-untyped-def]
    """Return the neighbourhoods (k, g): each cluster itself, then the clusters with the least mean keys.

    ``sums[c, j]`` is the sum of keys over the ``counts[c]`` rows that stayed with c, for the j-th cluster
    of its list; `step` is the number of grid steps in a key of one. `pairs` has the sums, in grid steps,
    over rows that moved to c. Clusters without rows, and places without
    a candidate, keep the members of `old`.
    """
    # One cluster at a time, so that `place` maps each other cluster directly to its sums.
    k, g = old.shape
    n = pairs.shape[0]
    found, near, nearest = np.empty((k, g), np.int32), np.empty(g), np.empty(g, np.int64)
    home, order = np.empty(n, np.int32), np.empty(n, np.int64)
    starts = np.empty(k + 1, np.int64)
    for at in range(n):
        home[at] = pairs[np.uint64(at), 0] >> HALF
    group_by_label(home, order, starts)
    members, place = np.zeros(k + 1, np.int64), np.zeros(k, np.int64)
    more, n_more, means = np.zeros(k + 1, np.int64), np.zeros(k + 1, np.int64), np.empty(k)
    for c in range(k):
        n_listed = np.int64(sizes[c]) if counts[c] else 0
        for j in range(n_listed):
            members[j], more[j], n_more[j] = lists[c, j], 0, 0
            place[lists[c, j]] = j
        size = n_listed
        for i in range(starts[c], starts[c + 1]):
            # Without a branch, which would often be mispredicted. A place is valid if its member matches.
            pair = np.uint64(order[np.uint64(i)])
            other = np.uint64(pairs[pair, 0]) & _OTHER
            spot = np.uint64(place[other])
            known = (spot < np.uint64(size)) & (members[spot] == np.int64(other))
            spot = spot if known else np.uint64(size)
            size += np.int64(not known)
            sum_before, count_before = more[spot], n_more[spot]
            members[spot], place[other] = other, spot
            more[spot] = (sum_before if known else 0) + pairs[pair, 1]
            n_more[spot] = (count_before if known else 0) + pairs[pair, 2]
        for j in range(n_listed):
            means[j] = (sums[c, j] * step + more[j]) / (counts[c] + n_more[j])
        for j in range(n_listed, size):
            means[j] = more[j] / n_more[j]
        _select(members, means, size, c, near, nearest)
        for j in range(g):
            found[c, j] = nearest[j]
        _fill(found[c], old[c])
    return found


@kernel
def neighbour_lists(neighbours, lists, sizes):  # type: ignore[no-untyped-def]
    """List the neighbours' neighbours of each cluster; OUT: lists (k, width), sizes (k,).

    The neighbours themselves come first, so that later candidates seldom enter the sets of rows. Beyond
    its size, a list repeats the cluster itself.
    """
    k, g = neighbours.shape
    mark = np.full(k, -1, np.int64)
    for c in range(k):
        lists[c] = c
        size = 0
        for a in range(-1, g):
            for b in range(g):
                other = neighbours[c, b] if a < 0 else neighbours[neighbours[c, a], b]
                if mark[other] != c:
                    mark[other] = c
                    lists[c, size] = other
                    size += 1
        sizes[c] = size
