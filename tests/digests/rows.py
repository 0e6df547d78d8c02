"""Rows that are the same bits on every machine and with every NumPy: hashed counters, plain arithmetic.

Additions, multiplications and divisions are rounded by IEEE 754 alone. Logarithms, exponentials and
sums over axes are not: how they round depends on NumPy and on the CPU, so none of them is used here.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.sparse import csr_array

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def words(count: int, seed: int) -> np.ndarray:
    """Return 64 random bits for each of `count` counters (SplitMix64; Steele, Lea, Flood 2014)."""
    word = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)
    word *= _GOLDEN
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        word = (word ^ (word >> np.uint64(shift))) * factor
    return word ^ (word >> np.uint64(31))


def whole(count: int, seed: int, below: int) -> np.ndarray:
    """Return whole numbers in [0, below), below 2^16."""
    return ((words(count, seed) >> np.uint64(48)) * np.uint64(below) >> np.uint64(16)).astype(
        np.int64
    )


def bells(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return float64 numbers about zero with a standard deviation of about one: sums of four uniforms."""
    drawn = words(shape[0] * shape[1], seed)
    total = np.zeros(drawn.shape)
    for part in range(4):
        field = (drawn >> np.uint64(16 * part)) & np.uint64(0xFFFF)
        total = total + field.astype(np.float64)
    # The quotient fills all digits of float64, and so of float32: sums of such numbers round.
    return ((total - 2.0 * 65535.0) / 37837.0).reshape(shape)


@cache
def rows(n: int, d: int, dtype: str = "f4", seed: int = 1, clusters: int = 11) -> np.ndarray:
    """Return rows around some centres, and a tenth of them ten times as far from the origin."""
    centres = 3.0 * bells((clusters, d), seed + 1000)
    found = centres[whole(n, seed + 2000, clusters)] + bells((n, d), seed)
    found[::10] *= 10.0
    return _kept(found.astype(dtype))


@cache
def weights(n: int, seed: int = 7) -> np.ndarray:
    """Return weights over five orders of magnitude, some of them zero."""
    found = (1.0 + whole(n, seed, 1000)) / 7.0
    found[::13] *= 100.0
    found[::17] = 0.0
    return _kept(found)


@cache
def csr(n: int, d: int, dtype: str = "f4", seed: int = 5) -> csr_array:
    """Return CSR rows of which an eighth of the values is stored, one in each row at the least."""
    dense = np.array(rows(n, d, dtype, seed))
    empty = whole(n * d, seed + 3000, 8).reshape(n, d) > 0
    empty[np.arange(n), whole(n, seed + 4000, d)] = False
    dense[empty] = 0.0
    return csr_array(dense)


def _kept(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False  # many fits share it
    return array
