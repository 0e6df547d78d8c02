"""Tile of truncated EM: squared distances of a block of rows to clusters that are listed, not packed.

Rows of a group share their candidates, but each group has other ones, and packing them into panels would
cost more than it saves. So centres are read in place, with one broadcast per feature. Differences are
computed directly and need no common offset: the relative error of a distance is at most (d + 2) rounding
errors wherever the rows lie.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.jit import tile_name
from daskcluster.kernels.panels import vector_width

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


@emit.vector_intrinsic
def listed_distances(
    typingctx: Any,
    block: Any,
    centres: Any,
    inverse: Any,
    listed: Any,
    first: Any,
    count: Any,
    d: Any,
    out: Any,
    height: Any,
    vectors: Any,
    width: Any,
    scaled: Any,
) -> Any:
    """Store squared distances of a packed block to listed clusters, `height` at a time.

    ``out[j * block + r] = sum_t ((x_r[t] - c[t]) * s[t])^2`` for j < count, rounded up to whole
    tiles, where c and s are the rows ``listed[first + j]`` of `centres` and `inverse`; with `scaled` = 0
    all s are one. Each sum is one FMA chain in feature order, so the result does not depend on the CPU.
    """
    if not emit.literals(height, vectors, width, scaled):
        return None
    tall, many, wide, has_scale = (
        value.literal_value for value in (height, vectors, width, scaled)
    )
    signature = types.void(
        block, centres, inverse, listed, types.intp, types.intp, types.intp, out,
        height, vectors, width, scaled,
    )  # fmt: skip

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, nothing = emit.element(block), ir.Constant(emit.I64, 0)
        align = emit.bits(kind) // 8
        packed = emit.pointer(context, builder, block, args[0], nothing)
        numbers = emit.pointer(context, builder, listed, args[3], args[4])
        means = emit.pointer(context, builder, centres, args[1], nothing)
        scales = emit.pointer(context, builder, inverse, args[2], nothing)
        target = emit.pointer(context, builder, out, args[7], nothing)

        def repeated(base: Any, start: Any, t: Any) -> Any:
            place = builder.gep(builder.gep(base, [start]), [t])
            return emit.splat(builder, builder.load(place, align=align), wide)

        def tile(first: Any, _: list[Any]) -> list[Any]:
            mine, starts = builder.gep(numbers, [first]), []
            for r in range(tall):
                number = builder.sext(builder.load(emit.step(builder, mine, r)), emit.I64)
                starts.append(builder.mul(number, args[6]))

            def advance(t: Any, sums: list[Any]) -> list[Any]:
                x = builder.gep(packed, [builder.mul(t, ir.Constant(emit.I64, many * wide))])
                rows = [
                    emit.load(builder, emit.step(builder, x, v * wide), kind, wide, wide * align)
                    for v in range(many)
                ]
                grown = []
                for r, start in enumerate(starts):
                    centre = repeated(means, start, t)
                    scale = repeated(scales, start, t) if has_scale else None
                    for v, row in enumerate(rows):
                        gap = builder.fsub(row, centre)
                        if scale is not None:
                            gap = builder.fmul(gap, scale)
                        grown.append(emit.fma(builder, gap, gap, sums[r * many + v]))
                return grown

            zero = ir.Constant(ir.VectorType(kind, wide), [0.0] * wide)
            sums = emit.loop(builder, args[6], 1, [zero] * (tall * many), advance)
            run = builder.mul(first, ir.Constant(emit.I64, many * wide))
            place = builder.gep(target, [run])
            for at, total in enumerate(sums):
                emit.store(builder, total, emit.step(builder, place, at * wide), wide * align)
            return []

        emit.loop(builder, args[5], tall, [], tile)
        return context.get_dummy_value()

    return signature, codegen
