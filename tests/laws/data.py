"""Data that shows violations: normal float32 rows hide most of them."""

from __future__ import annotations

import numpy as np


def lognormal(n=1500, d=5, *, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(12, d))
    rows = centres[rng.integers(0, 12, n)] + 0.3 * rng.normal(size=(n, d))
    return np.exp(2.0 * rows).astype(dtype)


def weights(n=1500, seed=1):
    drawn = np.random.default_rng(seed).lognormal(sigma=2.0, size=n)
    drawn[::17] = 0.0
    return drawn


CASES = {
    "float32": (np.float32, False),
    "float64": (np.float64, False),
    "weighted float32": (np.float32, True),
    "weighted float64": (np.float64, True),
}


def case(name, n=1500, d=5):
    dtype, weighted = CASES[name]
    return lognormal(n, d, dtype=dtype), (weights(n) if weighted else None)
