"""Which centre of a panel has won a row, where `daskcluster.kernels.register_tile` told the panel alone."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit


@emit.vector_intrinsic
def place_in_panel(
    typingctx: Any,
    block: Any,
    block_at: Any,
    panel: Any,
    panel_at: Any,
    features: Any,
    best: Any,
    at: Any,
    height: Any,
    rows: Any,
) -> Any:
    """Return the first of the `height` centres of a panel that scores ``best[at]``: 0, 1, ...

    `block_at` is where the row's first feature stands in a block of `rows` rows. The scores are those of
    `score_tile`, to the bit, with centres in the lanes. So one of them is ``best[at]`` where that came from
    this panel: NaN never wins there, and -inf wins from nothing. Should none be, it is the last centre:
    callers index with the result.
    """
    if not emit.literals(height):
        return None
    centres = height.literal_value
    signature = types.int32(
        block, types.intp, panel, types.intp, types.intp, best, types.intp, height, types.intp
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = emit.element(block)
        lanes = 1 << (centres - 1).bit_length()
        row = emit.pointer(context, builder, block, args[0], args[1])
        start = emit.pointer(context, builder, panel, args[2], args[3])
        most = emit.pointer(context, builder, best, args[5], args[6])

        def line(t: Any) -> Any:
            place = builder.gep(start, [builder.mul(t, ir.Constant(emit.I64, centres))])
            return emit.load_first(builder, place, kind, lanes, centres)

        def grow(t: Any, total: list[Any]) -> list[Any]:
            x = builder.load(builder.gep(row, [builder.mul(t, args[8])]))
            coordinates = line(builder.add(t, ir.Constant(emit.I64, 1)))
            return [emit.fma(builder, emit.splat(builder, x, lanes), coordinates, total[0])]

        (scores,) = emit.loop(builder, args[4], 1, [line(ir.Constant(emit.I64, 0))], grow)
        wanted = emit.splat(builder, builder.load(most), lanes)
        return emit.first_lane(builder, builder.fcmp_ordered("==", scores, wanted), centres - 1)

    return signature, codegen
