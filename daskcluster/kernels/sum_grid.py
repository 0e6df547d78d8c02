"""Grids of exact sums: sums that do not depend on the order of their terms.

Floating-point addition is not associative. Here every addend v is first rounded to a grid of
spacing u, as (v + M) - M with M = 1.5 * 2**52 * u, where u is large enough that any partial sum of n
addends of at most ``max_abs`` is a multiple of u below 2**53 u. Such sums are exact; so addition is
associative and commutative, and subtraction undoes it. If one grid is too coarse (float64 rows, weights,
many rows), the exact residuals are summed on a second, finer one.

The idea of pre-rounding to a common grid is that of reproducible summation (Demmel and Nguyen,
"Fast Reproducible Floating-Point Summation", ARITH 2013); unlike there, M comes from a bound known before
the pass, so that the loop has no carry and no branch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels import emit
from daskcluster.kernels.jit import kernel

_LEAST_EXPONENT, _MOST_EXPONENT = -900, 1024


def grid_shift(max_abs: Any, n_rows: int) -> Any:
    """Return M of the grid on which `n_rows` addends of at most `max_abs` sum exactly.

    Examples
    --------
    >>> from daskcluster.kernels.sum_grid import grid_shift
    >>> m = grid_shift(1.0, 1000)
    >>> (0.1 + m) - m != 0.1, abs(((0.1 + m) - m) - 0.1) < 2**-40
    (True, True)
    """
    # frexp: |max_abs| < 2**exponent. At least two bits for rows keep v + M in M's own binade.
    rows = max(2, (max(1, int(n_rows)) - 1).bit_length())
    if isinstance(max_abs, float):  # same as below, in a fifth of the time
        power = max(math.frexp(max_abs)[1] + rows, _LEAST_EXPONENT)
        return math.ldexp(1.5, power) if power < _MOST_EXPONENT else math.inf
    _, exponent = np.frexp(np.asarray(max_abs, dtype=np.float64))
    return np.ldexp(1.5, np.maximum(exponent + rows, _LEAST_EXPONENT))


class SumGrid(NamedTuple):
    """The shifts M of a grid and of the second grid; arrays for several sums at once.

    Short kernels take the two parts as arguments; passing the tuple takes half a microsecond longer.

    Attributes
    ----------
    high : float or ndarray
        M of the grid that addends are rounded to.
    low : float or ndarray
        M of the grid that the residuals, at most u / 2, are rounded to.

    Examples
    --------
    >>> grid = SumGrid.of(1.0, 1000)
    >>> high, low = grid.split(0.1)
    >>> high != 0.1, high + low == 0.1
    (True, True)
    """

    high: Any
    low: Any

    @classmethod
    def of(cls, max_abs: Any, n_rows: int) -> SumGrid:
        """Return the grids on which `n_rows` addends of at most `max_abs` sum exactly."""
        return cls._above(grid_shift(max_abs, n_rows), n_rows)

    @classmethod
    def of_total(cls, total: Any, n_rows: int) -> SumGrid:
        """Return the grids for `n_rows` addends whose absolute values sum to at most `total`."""
        return cls._above(grid_shift(total, 1), n_rows)

    @classmethod
    def _above(cls, high: Any, n_rows: int) -> SumGrid:
        return cls(high, grid_shift(high / 1.5 * 2.0**-53, n_rows))

    def split(self, values: Any) -> tuple[Any, Any]:
        """Round values to the first grid, and the residuals to the second."""
        high = round_to_grid(values, self.high)
        return high, round_to_grid(values - high, self.low)


def round_to_grid(values: Any, shift: Any) -> Any:
    """Round values, numbers or arrays, to the grid of `shift`."""
    return (values + shift) - shift


# -- in kernels ---------------------------------------------------------------------------------------


rounded = kernel(round_to_grid)
"""`round_to_grid` of a number, for kernels."""


@kernel
def split(value, high, low):  # type: ignore[no-untyped-def]
    """Like `SumGrid.split`, for a number."""
    part = rounded(value, high)
    return part, rounded(value - part, low)


# -- in intrinsics, of vectors ------------------------------------------------------------------------


def emit_rounded(builder: Any, value: Any, shift: Any) -> Any:
    """Emit ``(value + shift) - shift``."""
    return builder.fsub(builder.fadd(value, shift), shift)


def emit_split(builder: Any, value: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Emit the operations of `split`."""
    part = emit_rounded(builder, value, high)
    return part, emit_rounded(builder, builder.fsub(value, part), low)


def emit_split_product(
    builder: Any, value: Any, factor: Any, high: Any, low: Any | None
) -> tuple[Any, Any | None]:
    """Emit `split` of the exact product ``value * factor``; without `low`, only the first part."""
    part = builder.fsub(emit.fma(builder, value, factor, high), high)
    if low is None:
        return part, None
    rest = emit.fma(builder, value, factor, builder.fneg(part))
    return part, emit_rounded(builder, rest, low)
