"""The exponential of vectors in float32 or float64, as a polynomial.

Unlike a maths library, it gives the same bits on all machines, and its operands stay in registers between a
tile and the sums.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from llvmlite import ir

from daskcluster.kernels import emit


class _Format(NamedTuple):
    """Constants of a floating-point format for the exponential."""

    bits: int
    mantissa: int
    bias: int
    least: float
    ln2_high: float
    ln2_low: float
    n_terms: int

    @property
    def rounding(self) -> float:
        """Adding it rounds to whole numbers, in the last bits."""
        return 1.5 * 2.0**self.mantissa


_LOG2E = 1.4426950408889634
_DOUBLE = _Format(64, 52, 1023, -700.0, 6.93147180369123816490e-01, 1.90821492927058770002e-10, 14)
_SINGLE = _Format(32, 23, 127, -87.0, 0.693359375, -2.12194440054690583e-4, 8)


def _format_of(x: Any) -> _Format:
    return _DOUBLE if isinstance(x.type.element, ir.DoubleType) else _SINGLE


def constant(value: float, like: Any) -> Any:
    """Return a vector of the type of `like` with `value` in every lane."""
    return ir.Constant(like.type, [value] * like.type.count)


def polynomial(builder: Any, x: Any, terms: list[float]) -> Any:
    """Return the polynomial with `terms`, the constant first, by Horner's rule in FMAs."""
    total = constant(terms[-1], x)
    for term in reversed(terms[:-1]):
        total = emit.fma(builder, total, x, constant(term, x))
    return total


def exponential(builder: Any, x: Any) -> Any:
    """Return exp(x) of a vector, x <= 0, within two units of rounding; at least e^-700 (float32: e^-87)."""
    form, lanes = _format_of(x), x.type.count
    whole = ir.IntType(form.bits)
    integers = ir.VectorType(whole, lanes)

    def repeated(value: int) -> Any:
        return ir.Constant(integers, [value] * lanes)

    least, rounding = constant(form.least, x), constant(form.rounding, x)
    x = builder.select(builder.fcmp_ordered(">", x, least), x, least)
    shifted = emit.fma(builder, x, constant(_LOG2E, x), rounding)
    k = builder.fsub(shifted, rounding)
    r = emit.fma(builder, k, constant(-form.ln2_high, x), x)
    r = emit.fma(builder, k, constant(-form.ln2_low, x), r)
    exponent = builder.add(builder.bitcast(shifted, integers), repeated(form.bias))
    power = builder.bitcast(builder.shl(exponent, repeated(form.mantissa)), x.type)
    terms = [1.0 / math.factorial(m) for m in range(form.n_terms)]
    return builder.fmul(polynomial(builder, r, terms), power)
