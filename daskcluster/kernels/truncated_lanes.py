"""What truncated EM does with a block of costs, rows in the lanes; and sums with features in the lanes.

Numba's own loops over such short runs are not turned into vectors reliably, hence intrinsics.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit

_LANES = 8


@emit.vector_intrinsic
def keep_least(
    typingctx: Any,
    near: Any,
    near_at: Any,
    number: Any,
    number_at: Any,
    best: Any,
    index: Any,
    keep: Any,
    vectors: Any,
    width: Any,
) -> Any:
    """Insert one candidate of every row of a block into the row's `keep` least, in ascending order.

    From ``near[near_at]`` and ``number[number_at]`` stand the costs and numbers of the candidates; `best`
    and `index` have `keep` runs of a block. Who came first stays ahead on ties.
    """
    if not emit.literals(vectors, width):
        return None
    many, wide = vectors.literal_value, width.literal_value
    signature = types.void(
        near, types.intp, number, types.intp, best, index, types.intp, vectors, width
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, zero = emit.element(near), ir.Constant(emit.I64, 0)
        full = wide * emit.bits(kind) // 8
        costs = emit.pointer(context, builder, near, args[0], args[1])
        names = emit.pointer(context, builder, number, args[2], args[3])
        values = emit.pointer(context, builder, best, args[4], zero)
        labels = emit.pointer(context, builder, index, args[5], zero)
        block = ir.Constant(emit.I64, many * wide)
        worst = builder.mul(builder.sub(args[6], ir.Constant(emit.I64, 1)), block)
        for v in range(many):
            at = ir.Constant(emit.I64, v * wide)
            cost = emit.load(builder, builder.gep(costs, [at]), kind, wide, full)
            last = emit.load(
                builder, builder.gep(values, [builder.add(worst, at)]), kind, wide, full
            )
            enters = builder.fcmp_ordered("<", cost, last)
            bits = builder.bitcast(enters, ir.IntType(wide))
            any_enters = builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
            with builder.if_then(any_enters):
                name = emit.load(builder, builder.gep(names, [at]), emit.I32, wide, 4)

                def insert(rank: Any, rising: list[Any], at: Any = at) -> list[Any]:
                    place = builder.add(builder.mul(rank, block), at)
                    value_at, label_at = builder.gep(values, [place]), builder.gep(labels, [place])
                    old = emit.load(builder, value_at, kind, wide, full)
                    held = emit.load(builder, label_at, emit.I32, wide, 4)
                    wins = builder.fcmp_ordered("<", rising[0], old)
                    emit.store(builder, builder.select(wins, rising[0], old), value_at, full)
                    emit.store(builder, builder.select(wins, rising[1], held), label_at, 4)
                    return [
                        builder.select(wins, old, rising[0]),
                        builder.select(wins, held, rising[1]),
                    ]

                emit.loop(builder, args[6], 1, [cost, name], insert)
        return context.get_dummy_value()

    return signature, codegen


@emit.vector_intrinsic
def add_keys(
    typingctx: Any,
    near: Any,
    near_at: Any,
    sums: Any,
    sums_at: Any,
    counted: Any,
    shift: Any,
    rooted: Any,
    vectors: Any,
    width: Any,
) -> Any:
    """Add the costs of a block, or their square roots, to float64 sums, one a lane, on a grid.

    ``sums[sums_at + r] += counted[r] * on_grid(cost[near_at + r])`` where `counted` is 0 or 1.
    """
    if not emit.literals(vectors, width):
        return None
    many, wide = vectors.literal_value, width.literal_value
    signature = types.void(
        near, types.intp, sums, types.intp, counted, types.float64, types.boolean, vectors, width
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, zero = emit.element(near), ir.Constant(emit.I64, 0)
        full = wide * emit.bits(kind) // 8
        costs = emit.pointer(context, builder, near, args[0], args[1])
        totals = emit.pointer(context, builder, sums, args[2], args[3])
        who = emit.pointer(context, builder, counted, args[4], zero)
        grid = emit.splat(builder, args[5], wide)
        wide_kind = ir.VectorType(emit.F64, wide)
        for v in range(many):
            cost = emit.load(builder, emit.step(builder, costs, v * wide), kind, wide, full)
            flag = builder.trunc(args[6], ir.IntType(1))
            cost = builder.select(flag, square_root(builder, cost), cost)
            value = cost if kind == emit.F64 else builder.fpext(cost, wide_kind)
            value = builder.fsub(builder.fadd(value, grid), grid)
            counts = emit.load(builder, emit.step(builder, who, v * wide), emit.F64, wide, 8)
            place = emit.step(builder, totals, v * wide)
            total = emit.load(builder, place, emit.F64, wide, 8)
            emit.store(builder, builder.fadd(total, builder.fmul(value, counts)), place, 8)
        return context.get_dummy_value()

    return signature, codegen


def square_root(builder: Any, value: Any) -> Any:
    """Return the square roots of a vector."""
    kind = value.type
    name = f"llvm.sqrt.v{kind.count}f{emit.bits(kind.element)}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(kind, [kind]), name)
    return builder.call(function, [value])


@emit.vector_intrinsic
def add_shares(
    typingctx: Any,
    rows: Any,
    at: Any,
    shares: Any,
    places: Any,
    count: Any,
    grids: Any,
    sums: Any,
    low_sums: Any,
    d: Any,
    two: Any,
) -> Any:
    """``sums[places[j] + t] += on_grid(shares[j] * rows[at + t])`` for j < count, t < d, rounded once.

    `grids` has d shifts, then those of the residuals, which go to `low_sums` in the same way with
    `two` = 1. A part of the row is widened once and goes to all its sums.
    """
    if not emit.literals(two):
        return None
    signature = types.void(
        rows, types.intp, shares, places, types.intp, grids, sums, low_sums, types.intp, two
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, zero = emit.element(rows), ir.Constant(emit.I64, 0)
        source = emit.pointer(context, builder, rows, args[0], args[1])
        factors = emit.pointer(context, builder, shares, args[2], zero)
        listed = emit.pointer(context, builder, places, args[3], zero)
        grid = emit.pointer(context, builder, grids, args[5], zero)
        low_grid = emit.pointer(context, builder, grids, args[5], args[8])
        total = emit.pointer(context, builder, sums, args[6], zero)
        low_total = emit.pointer(context, builder, low_sums, args[7], zero)

        def add_at(base: Any, place: Any, value: Any) -> None:
            where = builder.gep(base, [place])
            old = emit.load(builder, where, emit.F64, value.type.count, 8)
            emit.store(builder, builder.fadd(old, value), where, 8)

        def part(start: Any, lanes: int) -> Any:
            def body(step: Any, _: list[Any]) -> list[Any]:
                t = builder.add(start, step)
                size = emit.bits(kind) // 8
                value = emit.load(builder, builder.gep(source, [t]), kind, lanes, size)
                if kind != emit.F64:
                    value = builder.fpext(value, ir.VectorType(emit.F64, lanes))
                first = emit.load(builder, builder.gep(grid, [t]), emit.F64, lanes, 8)
                second = emit.load(builder, builder.gep(low_grid, [t]), emit.F64, lanes, 8)

                def share(j: Any, _: list[Any]) -> list[Any]:
                    factor = emit.splat(builder, builder.load(builder.gep(factors, [j])), lanes)
                    place = builder.add(builder.load(builder.gep(listed, [j])), t)
                    high = builder.fsub(emit.fma(builder, value, factor, first), first)
                    add_at(total, place, high)
                    if two.literal_value:
                        rest = emit.fma(builder, value, factor, builder.fneg(high))
                        add_at(low_total, place, builder.fsub(builder.fadd(rest, second), second))
                    return []

                emit.loop(builder, args[4], 1, [], share)
                return []

            return body

        whole = builder.and_(args[8], ir.Constant(emit.I64, -_LANES))
        emit.loop(builder, whole, _LANES, [], part(zero, _LANES))
        emit.loop(builder, builder.sub(args[8], whole), 1, [], part(whole, 1))
        return context.get_dummy_value()

    return signature, codegen


@emit.vector_intrinsic
def four_distances(
    typingctx: Any,
    rows: Any,
    row_places: Any,
    centres: Any,
    inverse: Any,
    places: Any,
    first: Any,
    d: Any,
    out: Any,
    scaled: Any,
) -> Any:
    """Store what `listed_distances` computes, for four pairs of a row and a cluster.

    From element `first` of `row_places` and `places` stand where their features begin; `out` is
    filled from there on. Features stand in the lanes: sixteen chains, folded, then one chain for the at
    most fifteen features that remain. The same on any CPU, whatever the other three pairs are.
    """
    if not emit.literals(scaled):
        return None
    signature = types.void(
        rows, row_places, centres, inverse, places, types.intp, types.intp, out, scaled
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, nothing = emit.element(rows), ir.Constant(emit.I64, 0)
        align = emit.bits(kind) // 8

        def starts(array_type: Any, array: Any) -> list[Any]:
            listed = emit.pointer(context, builder, array_type, array, args[5])
            return [builder.load(emit.step(builder, listed, r)) for r in range(4)]

        def pointers(array_type: Any, array: Any, at: list[Any]) -> list[Any]:
            return [emit.pointer(context, builder, array_type, array, start) for start in at]

        at = starts(places, args[4])
        points = pointers(rows, args[0], starts(row_places, args[1]))
        means, scales = pointers(centres, args[2], at), pointers(inverse, args[3], at)

        def chains(start: Any, stop: Any, lanes: int) -> list[Any]:
            zero = ir.Constant(ir.VectorType(kind, lanes), [0.0] * lanes)

            def body(step: Any, sums: list[Any]) -> list[Any]:
                t = builder.add(start, step)

                def features(base: Any) -> Any:
                    return emit.load(builder, builder.gep(base, [t]), kind, lanes, align)

                grown = []
                for r in range(4):
                    gap = builder.fsub(features(points[r]), features(means[r]))
                    if scaled.literal_value:
                        gap = builder.fmul(gap, features(scales[r]))
                    grown.append(emit.fma(builder, gap, gap, sums[r]))
                return grown

            return emit.loop(builder, builder.sub(stop, start), lanes, [zero] * 4, body)

        whole = builder.and_(args[6], ir.Constant(emit.I64, -16))
        wide = _fold_four(builder, chains(nothing, whole, 16))
        rest = emit.concatenate(builder, chains(whole, args[6], 1))
        target = emit.pointer(context, builder, out, args[7], args[5])
        emit.store(builder, builder.fadd(wide, rest), target, align)
        return context.get_dummy_value()

    return signature, codegen


def _fold_four(builder: Any, vectors: list[Any]) -> Any:
    """Return the sums of the lanes of four vectors of sixteen, as one vector of four."""

    def halves(a: Any, b: Any, run: int) -> Any:
        # Runs of `run` lanes of a, then of b, in turn; and their other halves, added.
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
    # Lanes of a pair: a b a b ...; now four and four in turn.
    joined = halves(pairs[0], pairs[1], 2)
    while joined.type.count > 4:
        half = joined.type.count // 2
        low = emit.shuffle(builder, joined, joined, range(half))
        high = emit.shuffle(builder, joined, joined, range(half, 2 * half))
        joined = builder.fadd(low, high)
    return joined


@emit.vector_intrinsic
def add_two_on_grids(typingctx: Any, one: Any, two: Any, grids: Any, sums: Any, at: Any) -> Any:
    """Add two values to ``sums[at : at + 4]``: both high parts, then both low parts.

    `grids` has the two first shifts, then the two shifts of the residuals.
    """
    signature = types.void(types.float64, types.float64, grids, sums, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        shifts = emit.pointer(context, builder, grids, args[2], ir.Constant(emit.I64, 0))
        place = emit.pointer(context, builder, sums, args[3], args[4])
        values = emit.concatenate(builder, [emit.splat(builder, args[i], 1) for i in (0, 1)])
        first = emit.load(builder, shifts, emit.F64, 2, 8)
        second = emit.load(builder, emit.step(builder, shifts, 2), emit.F64, 2, 8)
        high = builder.fsub(builder.fadd(values, first), first)
        rest = builder.fsub(values, high)
        low = builder.fsub(builder.fadd(rest, second), second)
        total = emit.load(builder, place, emit.F64, 4, 8)
        added = builder.fadd(total, emit.concatenate(builder, [high, low]))
        emit.store(builder, added, place, 8)
        return context.get_dummy_value()

    return signature, codegen
