"""The tile of Gram functions: a block of rows against a panel of points, evaluated and added up.

Products or distances, the transcendental and the weighted sum all happen in registers; the value of a
pair is never stored. The chain of a pair runs in feature order and the sums in the order of the points,
in float64, so that a row has the same sums on any CPU.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.exponential import exponential
from daskcluster.kernels.jit import tile_name
from daskcluster.kernels.panels import vector_width
from daskcluster.kernels.register_tile import TileShape, broadcast, run_along

SQUARE, ABSOLUTE, PRODUCT = 0, 1, 2
"""What a feature adds: (x - y)^2, |x - y|, x y."""

_VECTORS = 2
_HEIGHTS = {"avx512": 8, "avx2": 4, "neon": 8, "portable": 4}


def gram_tile_for(dtype: np.dtype[Any]) -> TileShape:
    """Return the tile for this CPU: enough chains to hide the latency of an FMA."""
    name = tile_name()
    return TileShape(_HEIGHTS[name], _VECTORS, vector_width(dtype, name))


def _absolute(builder: Any, value: Any) -> Any:
    name = f"llvm.fabs.v{value.type.count}f{emit.bits(value.type.element)}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(value.type, [value.type]), name)
    return builder.call(function, [value])


def _square_term(builder: Any, row: Any, point: Any, total: Any) -> Any:
    gap = builder.fsub(row, point)
    return emit.fma(builder, gap, gap, total)


def _absolute_term(builder: Any, row: Any, point: Any, total: Any) -> Any:
    return builder.fadd(total, _absolute(builder, builder.fsub(row, point)))


_TERMS: dict[int, Any] = {SQUARE: _square_term, ABSOLUTE: _absolute_term, PRODUCT: emit.fma}


def _power(builder: Any, base: Any, degree: Any) -> Any:
    def multiply(_: Any, values: list[Any]) -> list[Any]:
        return [builder.fmul(values[0], base)]

    times = builder.sub(degree, ir.Constant(emit.I64, 1))
    return emit.loop(builder, times, 1, [base], multiply)[0]


@emit.vector_intrinsic
def add_gram(
    typingctx: Any,
    block: Any,
    block_at: Any,
    panel: Any,
    panel_at: Any,
    features: Any,
    factors: Any,
    places: Any,
    first: Any,
    sums: Any,
    sums_at: Any,
    scale: Any,
    shift: Any,
    degree: Any,
    term: Any,
    height: Any,
    vectors: Any,
    width: Any,
) -> Any:
    """Add Gram values of a block of rows and `height` points to the float64 sums of the points' groups.

    ``sums[sums_at + places[first + j] + r] += factors[first + j] * K(x_r, y_j)``, where K is
    ``exp(scale * total)``, or for products ``(scale * total + shift) ** degree``, and `total` adds up
    what `term` names. Coordinates stand from ``panel[panel_at]`` on, `height` for each feature.
    """
    if not emit.literals(term, height, vectors, width):
        return None
    tile = TileShape(height.literal_value, vectors.literal_value, width.literal_value)
    kind_of_term = term.literal_value
    signature = types.void(
        block, types.intp, panel, types.intp, types.intp, factors, places, types.intp,
        sums, types.intp, types.float64, types.float64, types.intp, term, height, vectors, width,
    )  # fmt: skip

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = emit.element(block)
        rows = emit.pointer(context, builder, block, args[0], args[1])
        start = emit.pointer(context, builder, panel, args[2], args[3])
        zero = ir.Constant(ir.VectorType(kind, tile.width), [0.0] * tile.width)
        totals = run_along(
            builder, start, rows, args[4], tile, [zero] * tile.height,
            partial(_TERMS[kind_of_term], builder),
        )  # fmt: skip
        factor = emit.pointer(context, builder, factors, args[5], args[7])
        place = emit.pointer(context, builder, places, args[6], args[7])
        target = emit.pointer(context, builder, sums, args[8], args[9])

        def narrow(value: Any) -> Any:
            value = value if kind == emit.F64 else builder.fptrunc(value, kind)
            return emit.splat(builder, value, tile.width)

        scales, shifts = narrow(args[10]), narrow(args[11])

        def evaluate(total: Any) -> Any:
            if kind_of_term == PRODUCT:
                return _power(builder, emit.fma(builder, scales, total, shifts), args[12])
            return exponential(builder, builder.fmul(scales, total))

        wide = ir.VectorType(emit.F64, tile.width)
        for j in range(tile.height):
            weight = broadcast(builder, emit.step(builder, factor, j), tile.width, 8)
            group = builder.gep(target, [builder.load(emit.step(builder, place, j))])
            for v in range(tile.vectors):
                value = evaluate(totals[j][v])
                value = value if kind == emit.F64 else builder.fpext(value, wide)
                at = emit.step(builder, group, v * tile.width)
                before = emit.load(builder, at, emit.F64, tile.width, 64)
                emit.store(builder, emit.fma(builder, weight, value, before), at, 64)
        return context.get_dummy_value()

    return signature, codegen
