"""Logarithm and exponential in float64 with the same bits on every machine.

NumPy has code of its own for AVX-512, and the C library differs between releases and systems. What a
fit draws and returns must depend on neither. Each function is a fixed sequence of IEEE operations, one
NumPy call each: no compiler can join a multiplication with an addition. Reductions and polynomials are
those of fdlibm (Sun Microsystems, 1993). Errors stay below one unit in the last place, below two for
`log2` and `exp2`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

LN2, LOG_2PI = 0.6931471805599453, 1.8378770664093456
"""log(2), log(2 pi)"""

_BLOCK = 1 << 12
"""Values at a time, so that what is between stays in the cache."""
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_PER_LN2 = 1.4426950408889634
_ROOT_HALF = 0.7071067811865476
_LEAST, _MOST = -1100.0, 1100.0
"""Powers of two beyond which there is nothing but zero and infinity."""

# (log((1 + s) / (1 - s)) - 2 s) / s as a polynomial in s^2, and what exp(r) takes from r^2.
_LOG_TERMS = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
_EXP_TERMS = (
    1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05,
    -1.65339022054652515390e-06, 4.13813679705723846039e-08,
)  # fmt: skip


def log(values: Any) -> np.ndarray:
    """Return the natural logarithm, float64: -inf of zero, NaN below.

    Examples
    --------
    >>> from daskcluster.elementary import log
    >>> log([1.0, 2.0, 0.0])
    array([0.        , 0.69314718,       -inf])
    """
    return _by_blocks(_log, values)


def log1p(values: Any) -> np.ndarray:
    """Return log(1 + x), float64, without the rounding of 1 + x.

    Examples
    --------
    >>> from daskcluster.elementary import log1p
    >>> log1p([0.0, 1e-20, 1.0])
    array([0.00000000e+00, 1.00000000e-20, 6.93147181e-01])
    """
    return _by_blocks(_log1p, values)


def log2(values: Any) -> np.ndarray:
    """Return the logarithm to the base two, float64; exact for powers of two.

    Examples
    --------
    >>> from daskcluster.elementary import log2
    >>> log2([0.125, 1.0, 1024.0])
    array([-3.,  0., 10.])
    """
    return _by_blocks(_log2, values)


def exp(values: Any) -> np.ndarray:
    """Return e to the power of the values, float64.

    Examples
    --------
    >>> from daskcluster.elementary import exp
    >>> exp([0.0, 1.0, -1000.0])
    array([1.        , 2.71828183, 0.        ])
    """
    return _by_blocks(_exp, values)


def exp2(values: Any) -> np.ndarray:
    """Return two to the power of the values, float64; exact for whole numbers.

    Examples
    --------
    >>> from daskcluster.elementary import exp2
    >>> exp2([-1.0, 0.5, 3.0])
    array([0.5       , 1.41421356, 8.        ])
    """
    return _by_blocks(_exp2, values)


def _by_blocks(function: Callable[[np.ndarray], np.ndarray], values: Any) -> np.ndarray:
    given = np.asarray(values, np.float64)
    flat, found = given.ravel(), np.empty(given.size)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        for first in range(0, flat.size, _BLOCK):
            found[first : first + _BLOCK] = function(flat[first : first + _BLOCK])
    return found.reshape(given.shape)


def _polynomial(x: np.ndarray, terms: tuple[float, ...]) -> np.ndarray:
    total = terms[-1] * x
    for term in reversed(terms[:-1]):
        total += term
        total *= x
    return total


def _split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return m in [sqrt(1/2), sqrt(2)) and k, both float64, with x = m 2^k."""
    m, k = np.frexp(x)
    low = m < _ROOT_HALF
    return np.where(low, m + m, m), (k - low).astype(np.float64)


def _log_near_one(f: np.ndarray, k: np.ndarray, c: np.ndarray | float) -> np.ndarray:
    """Return log(1 + f) + c + k log 2."""
    s, half = f / (2.0 + f), 0.5 * f * f
    rest = s * (half + _polynomial(s * s, _LOG_TERMS))
    return rest + (k * _LN2_LOW + c) - half + f + k * _LN2_HIGH


def _log_at_ends(x: np.ndarray, found: np.ndarray) -> np.ndarray:
    inside = (x > 0.0) & (x < np.inf)
    if not inside.all():
        ends = np.where(x == 0.0, -np.inf, np.where(x > 0.0, x, np.nan))
        found = np.where(inside, found, ends)
    return found


def _log(x: np.ndarray) -> np.ndarray:
    m, k = _split(x)
    return _log_at_ends(x, _log_near_one(m - 1.0, k, 0.0))


def _log1p(x: np.ndarray) -> np.ndarray:
    u = 1.0 + x
    lost = np.where(u > 2.0, 1.0 - (u - x), x - (u - 1.0)) / u
    m, k = _split(u)
    near = k == 0.0
    found = _log_near_one(np.where(near, x, m - 1.0), k, np.where(near, 0.0, lost))
    return _log_at_ends(u, found)


def _log2(x: np.ndarray) -> np.ndarray:
    m, k = _split(x)
    return _log_at_ends(x, k + _log_near_one(m - 1.0, np.zeros(len(m)), 0.0) * _PER_LN2)


def _exp(x: np.ndarray) -> np.ndarray:
    k = np.rint(np.clip(x * _PER_LN2, _LEAST, _MOST))
    return _exp_near_zero(x, x - k * _LN2_HIGH, k * _LN2_LOW, k)


def _exp2(x: np.ndarray) -> np.ndarray:
    k = np.rint(np.clip(x, _LEAST, _MOST))
    return _exp_near_zero(x, (x - k) * LN2, np.zeros(len(x)), k)


def _exp_near_zero(x: np.ndarray, high: np.ndarray, low: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return exp(high - low) 2^k, and what exp(x) is where k is at one of its ends."""
    r = high - low
    c = r - _polynomial(r * r, _EXP_TERMS)
    near = 1.0 + (r * c / (2.0 - c) - low + high)
    inside = np.abs(k) < _MOST
    if inside.all():
        return np.ldexp(near, k.astype(np.int32))
    ends = np.where(np.isnan(x), np.nan, np.where(k > 0.0, np.inf, 0.0))
    return np.where(inside, np.ldexp(near, np.where(inside, k, 0.0).astype(np.int32)), ends)
