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
from daskcluster.kernels.sum_grid import emit_rounded


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
                value = emit_rounded(builder, value, grid)
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
