"""Candidates of rows, and squared distances to them: those that a group shares, and pairs.

Rows of a group share their candidates, but each group has other ones, and packing them into panels would
cost more than it saves. So centres are read in place, with one broadcast per feature. Differences are
computed directly and need no common offset: the relative error of a distance is at most (d + 2) rounding
errors wherever the rows lie. Extra candidates of a row, which its group does not share, are pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from daskcluster.kernels import emit
from daskcluster.kernels.jit import kernel, tile_name
from daskcluster.kernels.panels import vector_width

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


class ListedTile(NamedTuple):
    """`height` listed clusters by `vectors` vectors of `width` rows."""

    height: int
    vectors: int
    width: int


def listed_tile_for(dtype: np.dtype[Any]) -> ListedTile:
    """Return the tile for this CPU: eight FMA chains, or more if a block has more vectors."""
    width = vector_width(dtype, tile_name())
    vectors = BLOCK // width
    return ListedTile(max(2, 8 // vectors), vectors, width)


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
