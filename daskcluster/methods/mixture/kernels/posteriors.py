"""From costs to posteriors and log-sums, rows in the lanes, with an exponential and a logarithm of our own.

Polynomials, so that posteriors are the same bits on machines with other maths libraries.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.exponential import exponential, polynomial

_LN2 = 0.6931471805599453
_LOG_TERMS = [2.0 / (2 * m + 1) for m in range(16)]


def _constant(value: float, lanes: int) -> Any:
    return ir.Constant(ir.VectorType(emit.F64, lanes), [value] * lanes)


def _whole(value: int, lanes: int) -> Any:
    return ir.Constant(ir.VectorType(emit.I64, lanes), [value] * lanes)


def logarithm(builder: Any, x: Any) -> Any:
    """Return log(x) of a float64 vector of normal numbers x >= 1."""
    lanes = x.type.count
    bits = builder.bitcast(x, ir.VectorType(emit.I64, lanes))
    exponent = builder.sub(builder.lshr(bits, _whole(52, lanes)), _whole(1023, lanes))
    mantissa = builder.and_(bits, _whole((1 << 52) - 1, lanes))
    m = builder.bitcast(builder.or_(mantissa, _whole(1023 << 52, lanes)), x.type)
    one = _constant(1.0, lanes)
    s = builder.fdiv(builder.fsub(m, one), builder.fadd(m, one))
    tail = builder.fmul(s, polynomial(builder, builder.fmul(s, s), _LOG_TERMS))
    return emit.fma(builder, builder.sitofp(exponent, x.type), _constant(_LN2, lanes), tail)


@emit.vector_intrinsic
def weigh(
    typingctx: Any,
    least: Any,
    costs: Any,
    keep: Any,
    sharpness: Any,
    floor: Any,
    posterior: Any,
    bound: Any,
    vectors: Any,
    width: Any,
) -> Any:
    """Turn costs of a block, `keep` runs of which none is below those of `least`, into posteriors.

    ``posterior[rank] = exp(-sharpness * cost[rank]) / total``, 0 where less than `floor`, and
    ``bound = log(total)`` without what all terms have in common.
    """
    if not emit.literals(vectors, width):
        return None
    many, wide = vectors.literal_value, width.literal_value
    signature = types.void(
        least, costs, types.intp, types.float64, types.float64, posterior, bound, vectors, width
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, zero = emit.element(costs), ir.Constant(emit.I64, 0)
        smallest = emit.pointer(context, builder, least, args[0], zero)
        source = emit.pointer(context, builder, costs, args[1], zero)
        shares = emit.pointer(context, builder, posterior, args[5], zero)
        out = emit.pointer(context, builder, bound, args[6], zero)
        sharp, low = (emit.splat(builder, args[i], wide) for i in (3, 4))

        def cost_at(place: Any) -> Any:
            value = emit.load(builder, place, kind, wide, emit.bits(kind) // 8)
            return value if kind == emit.F64 else builder.fpext(value, sharp.type)

        for v in range(many):
            first = builder.fmul(cost_at(emit.step(builder, smallest, v * wide)), sharp)

            def place_of(base: Any, rank: Any, v: int = v) -> Any:
                start = builder.mul(rank, ir.Constant(emit.I64, many * wide))
                return emit.step(builder, builder.gep(base, [start]), v * wide)

            def raise_up(rank: Any, totals: list[Any], first: Any = first) -> list[Any]:
                cost = builder.fmul(cost_at(place_of(source, rank)), sharp)
                value = exponential(builder, builder.fsub(first, cost))
                emit.store(builder, value, place_of(shares, rank), 8)
                return [builder.fadd(totals[0], value)]

            (total,) = emit.loop(builder, args[2], 1, [_constant(0.0, wide)], raise_up)
            factor = builder.fdiv(_constant(1.0, wide), total)

            def divide(rank: Any, _: list[Any], factor: Any = factor) -> list[Any]:
                place = place_of(shares, rank)
                value = builder.fmul(emit.load(builder, place, emit.F64, wide, 8), factor)
                large = builder.fcmp_ordered(">=", value, low)
                emit.store(builder, builder.select(large, value, _constant(0.0, wide)), place, 8)
                return []

            emit.loop(builder, args[2], 1, [], divide)
            value = builder.fsub(logarithm(builder, total), first)
            emit.store(builder, value, emit.step(builder, out, v * wide), 8)
        return context.get_dummy_value()

    return signature, codegen
