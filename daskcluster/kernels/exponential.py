"""The exponential of vectors in float32 or float64, as a polynomial.

Unlike a maths library, it gives the same bits on all machines, and its operands stay in registers between a
tile and the sums.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from daskcluster.kernels import emit
from daskcluster.kernels.jit import kernel


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
    return exponentials(builder, [x])[0]


def exponentials(builder: Any, xs: list[Any]) -> list[Any]:
    """Return `exponential` of several vectors of a type, with the same bits.

    Their instructions alternate. One exponential is a chain of some 15 instructions, each of which waits
    for the last, so a CPU that gets them one after the other has few that it can start.
    """
    form, lanes = _format_of(xs[0]), xs[0].type.count
    integers = ir.VectorType(ir.IntType(form.bits), lanes)

    def repeated(value: int) -> Any:
        return ir.Constant(integers, [value] * lanes)

    def each(value: float) -> Any:
        return constant(value, xs[0])

    least, rounding = each(form.least), each(form.rounding)
    xs = [builder.select(builder.fcmp_ordered(">", x, least), x, least) for x in xs]
    shifted = [emit.fma(builder, x, each(_LOG2E), rounding) for x in xs]
    ks = [builder.fsub(all_bits, rounding) for all_bits in shifted]
    for part in (form.ln2_high, form.ln2_low):
        xs = [emit.fma(builder, k, each(-part), x) for k, x in zip(ks, xs, strict=True)]
    totals, *terms = [each(1.0 / math.factorial(m)) for m in reversed(range(form.n_terms))]
    totals = [totals] * len(xs)
    for term in terms:
        totals = [emit.fma(builder, t, x, term) for t, x in zip(totals, xs, strict=True)]
    found = []
    for total, bits in zip(totals, shifted, strict=True):
        exponent = builder.add(builder.bitcast(bits, integers), repeated(form.bias))
        power = builder.bitcast(builder.shl(exponent, repeated(form.mantissa)), total.type)
        found.append(builder.fmul(total, power))
    return found


@kernel
def exponential_of_number(x):  # type: ignore[no-untyped-def]
    """Return exp(x) of a number, x <= 0; at least e^-700. Without FMA, for the same bits on any machine."""
    x = max(x, -700.0)
    k = np.rint(x * 1.4426950408889634)
    r = (x - k * _DOUBLE.ln2_high) - k * _DOUBLE.ln2_low
    total, term = 1.0, 1.0
    for m in range(1, 15):
        term *= r / m
        total += term
    return math.ldexp(total, int(k))
