"""Slow float64 truth for lightweight coresets, written from the definition."""

from __future__ import annotations

import numpy as np


def moments(X, weights=None):
    """Return total weight, weighted mean and weighted spread about it."""
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    mean = (w[:, None] * X).sum(axis=0) / w.sum()
    return w.sum(), mean, float((w * ((X - mean) ** 2).sum(axis=1)).sum())


def probabilities(X, point, weights=None):
    """q(n): half by weight, half by weighted squared distance to `point`; by weight if all are there."""
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    masses = w * ((X - point) ** 2).sum(axis=1)
    by_weight = w / w.sum()
    return by_weight if masses.sum() == 0 else (by_weight + masses / masses.sum()) / 2
