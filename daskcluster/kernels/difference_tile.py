"""The register tile of direct differences: squared distances in the rows' own precision."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.register_tile import TileShape, run_along, store_sums


@emit.tile_intrinsic
def difference_tile(
    typingctx: Any,
    block: Any,
    panel: Any,
    panel_at: Any,
    features: Any,
    out: Any,
    out_at: Any,
    height: Any,
    vectors: Any,
    width: Any,
    prefetched: Any,
    prefetch_at: Any,
    prefetch_step: Any,
) -> Any:
    """Store the squared distances of a block of rows to `height` centres, in the rows' dtype.

    They are computed by direct differences, so the relative error is at most (d + 2) units of rounding:
    ``out[out_at + j * block + r] = |x_r - c_j|^2``. It prefetches as `score_tile` does.
    """
    if not emit.literals(height, vectors, width):
        return None
    tile = TileShape(height.literal_value, vectors.literal_value, width.literal_value)
    signature = types.void(
        block, panel, types.intp, types.intp, out, types.intp, height, vectors, width,
        prefetched, types.intp, types.intp,
    )  # fmt: skip

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, nothing = emit.element(block), ir.Constant(emit.I64, 0)
        rows = emit.pointer(context, builder, block, args[0], nothing)
        start = emit.pointer(context, builder, panel, args[1], args[2])
        zero = ir.Constant(ir.VectorType(kind, tile.width), [0.0] * tile.width)

        later = emit.pointer(context, builder, prefetched, args[9], args[10])

        def prefetch(t: Any) -> None:
            emit.prefetch(builder, builder.gep(later, [builder.mul(t, args[11])]))

        def square(row: Any, centre: Any, total: Any) -> Any:
            gap = builder.fsub(row, centre)
            return emit.fma(builder, gap, gap, total)

        sums = run_along(
            builder, emit.step(builder, start, tile.height), rows, args[3], tile,
            [zero] * tile.height, square, prefetch,
        )  # fmt: skip
        target = emit.pointer(context, builder, out, args[4], args[5])
        store_sums(builder, sums, target, tile, emit.bits(kind) // 8)
        return context.get_dummy_value()

    return signature, codegen
