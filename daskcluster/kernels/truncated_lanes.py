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
def add_share(
    typingctx: Any, rows: Any, at: Any, weight: Any, shift: Any, sums: Any, sums_at: Any, d: Any
) -> Any:
    """``sums[sums_at + t] += on_grid(weight * rows[at + t])`` for t < d, rounded once."""
    signature = types.void(rows, types.intp, types.float64, shift, sums, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = emit.element(rows)
        source = emit.pointer(context, builder, rows, args[0], args[1])
        grid = emit.pointer(context, builder, shift, args[3], ir.Constant(emit.I64, 0))
        total = emit.pointer(context, builder, sums, args[4], args[5])

        def part(start: Any, lanes: int) -> Any:
            factor = emit.splat(builder, args[2], lanes)

            def body(step: Any, _: list[Any]) -> list[Any]:
                t = builder.add(start, step)
                value = emit.load(
                    builder, builder.gep(source, [t]), kind, lanes, emit.bits(kind) // 8
                )
                if kind != emit.F64:
                    value = builder.fpext(value, ir.VectorType(emit.F64, lanes))
                first = emit.load(builder, builder.gep(grid, [t]), emit.F64, lanes, 8)
                value = builder.fsub(emit.fma(builder, value, factor, first), first)
                place = builder.gep(total, [t])
                old = emit.load(builder, place, emit.F64, lanes, 8)
                emit.store(builder, builder.fadd(old, value), place, 8)
                return []

            return body

        zero = ir.Constant(emit.I64, 0)
        whole = builder.and_(args[6], ir.Constant(emit.I64, -_LANES))
        emit.loop(builder, whole, _LANES, [], part(zero, _LANES))
        emit.loop(builder, builder.sub(args[6], whole), 1, [], part(whole, 1))
        return context.get_dummy_value()

    return signature, codegen


@emit.vector_intrinsic
def four_distances(
    typingctx: Any,
    rows: Any,
    at: Any,
    centres: Any,
    inverse: Any,
    places: Any,
    d: Any,
    out: Any,
    scaled: Any,
) -> Any:
    """Store what `listed_distances` computes, for one row and the four clusters at ``places[:4]``.

    Features stand in the lanes: sixteen chains, folded, then one chain for the at most fifteen
    features that remain. The same on any CPU, whatever the other three are.
    """
    if not emit.literals(scaled):
        return None
    signature = types.void(rows, types.intp, centres, inverse, places, types.intp, out, scaled)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, nothing = emit.element(rows), ir.Constant(emit.I64, 0)
        align = emit.bits(kind) // 8
        x = emit.pointer(context, builder, rows, args[0], args[1])
        listed = emit.pointer(context, builder, places, args[4], nothing)
        starts = [builder.load(emit.step(builder, listed, r)) for r in range(4)]
        means = [emit.pointer(context, builder, centres, args[2], start) for start in starts]
        scales = [emit.pointer(context, builder, inverse, args[3], start) for start in starts]

        def chains(start: Any, stop: Any, lanes: int) -> list[Any]:
            zero = ir.Constant(ir.VectorType(kind, lanes), [0.0] * lanes)

            def body(step: Any, sums: list[Any]) -> list[Any]:
                t = builder.add(start, step)
                row = emit.load(builder, builder.gep(x, [t]), kind, lanes, align)
                grown = []
                for r in range(4):
                    mean = emit.load(builder, builder.gep(means[r], [t]), kind, lanes, align)
                    gap = builder.fsub(row, mean)
                    if scaled.literal_value:
                        scale = emit.load(builder, builder.gep(scales[r], [t]), kind, lanes, align)
                        gap = builder.fmul(gap, scale)
                    grown.append(emit.fma(builder, gap, gap, sums[r]))
                return grown

            return emit.loop(builder, builder.sub(stop, start), lanes, [zero] * 4, body)

        whole = builder.and_(args[5], ir.Constant(emit.I64, -16))
        wide = _fold_four(builder, chains(nothing, whole, 16))
        rest = emit.concatenate(builder, chains(whole, args[5], 1))
        target = emit.pointer(context, builder, out, args[6], nothing)
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
