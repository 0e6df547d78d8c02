"""The canonical score in plain Python, every rounding spelled out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32 FMA, rounded once: the exact float64 product, a sum rounded to odd, one cast."""
    product = a.astype(np.float64) * b.astype(np.float64)
    wide = c.astype(np.float64)
    total = product + wide
    back = total - product
    error = (product - (total - back)) + (wide - back)
    even = (total.view(np.int64) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    odd = np.where((error != 0) & even, np.nextafter(total, toward), total)
    return odd.astype(np.float32)


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float64 FMA, rounded once, by rational arithmetic."""
    out = [
        float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a.ravel(), b.ravel(), c.ravel(), strict=True)
    ]
    return np.array(out).reshape(a.shape)


def scores(rows: np.ndarray, centres: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Return the scores of all rows against all centres, shape (n, k)."""
    fma = fma32 if rows.dtype == np.float32 else fma64
    x, c = rows - offset, centres - offset
    squares = np.zeros(len(c))
    for t in range(c.shape[1]):
        squares = squares + c[:, t].astype(np.float64) ** 2
    total = np.broadcast_to((-0.5 * squares).astype(rows.dtype), (len(x), len(c)))
    for t in range(c.shape[1]):
        total = fma(*np.broadcast_arrays(x[:, t, None], c[:, t]), total)
    return total


def two_best(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best and the second best column of each row, lowest index on ties."""
    best = table.argmax(axis=1)
    rest = table.copy()
    rest[np.arange(len(table)), best] = -np.inf
    second = rest.argmax(axis=1) if table.shape[1] > 1 else np.full(len(table), -1)
    return best, second
