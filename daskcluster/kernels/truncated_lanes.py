"""What truncated EM does with a block of costs, rows in the lanes.

Numba's own loops over such short runs are not turned into vectors reliably, hence intrinsics. Each goes
through all candidates of a block: numba counts the references of every array at every call of an
intrinsic that has a loop inside.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit


@emit.vector_intrinsic
def keep_least(
    typingctx: Any,
    near: Any,
    number: Any,
    first: Any,
    count: Any,
    best: Any,
    index: Any,
    keep: Any,
    vectors: Any,
    width: Any,
) -> Any:
    """Insert candidates of every row of a block into the row's `keep` least, in ascending order.

    `near` and `number` have the costs and numbers of candidates in runs of a block, of which `count` from
    run `first` on are inserted; `best` and `index` have `keep` runs. Who came first stays ahead on ties.
    """
    if not emit.literals(vectors, width):
        return None
    many, wide = vectors.literal_value, width.literal_value
    signature = types.void(
        near, number, types.intp, types.intp, best, index, types.intp, vectors, width
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, zero = emit.element(near), ir.Constant(emit.I64, 0)
        full, block = wide * emit.bits(kind) // 8, ir.Constant(emit.I64, many * wide)
        start = builder.mul(args[2], block)
        costs = emit.pointer(context, builder, near, args[0], start)
        names = emit.pointer(context, builder, number, args[1], start)
        values = emit.pointer(context, builder, best, args[4], zero)
        labels = emit.pointer(context, builder, index, args[5], zero)
        worst = builder.mul(builder.sub(args[6], ir.Constant(emit.I64, 1)), block)

        def candidates(v: int) -> Any:
            at = ir.Constant(emit.I64, v * wide)
            last_at = builder.gep(values, [builder.add(worst, at)])

            def insert_one(rank: Any, rising: list[Any]) -> list[Any]:
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

            def body(j: Any, _: list[Any]) -> list[Any]:
                here = builder.add(builder.mul(j, block), at)
                cost = emit.load(builder, builder.gep(costs, [here]), kind, wide, full)
                enters = builder.fcmp_ordered(
                    "<", cost, emit.load(builder, last_at, kind, wide, full)
                )
                bits = builder.bitcast(enters, ir.IntType(wide))
                any_enters = builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
                with builder.if_then(any_enters):
                    name = emit.load(builder, builder.gep(names, [here]), emit.I32, wide, 4)
                    emit.loop(builder, args[6], 1, [cost, name], insert_one)
                return []

            return body

        for v in range(many):
            emit.loop(builder, args[3], 1, [], candidates(v))
        return context.get_dummy_value()

    return signature, codegen


@emit.vector_intrinsic
def add_keys(
    typingctx: Any,
    near: Any,
    count: Any,
    sums: Any,
    counted: Any,
    shift: Any,
    rooted: Any,
    vectors: Any,
    width: Any,
) -> Any:
    """Add `count` runs of costs of a block, or their square roots, to float64 sums, on a grid.

    ``sums[at] += counted[r] * on_grid(near[at])`` for lane r of each run, where `counted` is 0 or 1.
    """
    if not emit.literals(vectors, width):
        return None
    many, wide = vectors.literal_value, width.literal_value
    signature = types.void(
        near, types.intp, sums, counted, types.float64, types.boolean, vectors, width
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, zero = emit.element(near), ir.Constant(emit.I64, 0)
        full, block = wide * emit.bits(kind) // 8, ir.Constant(emit.I64, many * wide)
        costs = emit.pointer(context, builder, near, args[0], zero)
        totals = emit.pointer(context, builder, sums, args[2], zero)
        who = emit.pointer(context, builder, counted, args[3], zero)
        grid, wide_kind = emit.splat(builder, args[4], wide), ir.VectorType(emit.F64, wide)
        flag = builder.trunc(args[5], ir.IntType(1))
        counts = [
            emit.load(builder, emit.step(builder, who, v * wide), emit.F64, wide, 8)
            for v in range(many)
        ]

        def body(j: Any, _: list[Any]) -> list[Any]:
            run = builder.mul(j, block)
            for v, mine in enumerate(counts):
                at = builder.add(run, ir.Constant(emit.I64, v * wide))
                cost = emit.load(builder, builder.gep(costs, [at]), kind, wide, full)
                cost = builder.select(flag, square_root(builder, cost), cost)
                value = cost if kind == emit.F64 else builder.fpext(cost, wide_kind)
                value = builder.fsub(builder.fadd(value, grid), grid)
                place = builder.gep(totals, [at])
                total = emit.load(builder, place, emit.F64, wide, 8)
                emit.store(builder, builder.fadd(total, builder.fmul(value, mine)), place, 8)
            return []

        emit.loop(builder, args[1], 1, [], body)
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
