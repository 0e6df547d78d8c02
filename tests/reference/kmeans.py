"""Slow, plain float64 truth for k-means, written from the definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np


def assign(X, centres):
    """Label by smallest squared distance, lowest index on ties; every sum by math.fsum."""
    labels, distances = [], []
    for row in np.asarray(X, dtype=np.float64):
        costs = [math.fsum((a - b) ** 2 for a, b in zip(row, c, strict=True)) for c in centres]
        best = min(range(len(costs)), key=lambda j: (costs[j], j))
        labels.append(best)
        distances.append(costs[best])
    return np.array(labels), np.array(distances)


def inertia(X, centres, weights=None):
    """Weighted sum of squared distances to the nearest centres."""
    _, distances = assign(X, np.asarray(centres, dtype=np.float64))
    weights = np.ones(len(distances)) if weights is None else weights
    return math.fsum(float(w) * float(d) for w, d in zip(weights, distances, strict=True))


def means(X, labels, k, weights=None):
    """Exact weighted means by rational arithmetic, rounded once; None for an empty cluster."""
    X = np.asarray(X, dtype=np.float64)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    found = []
    for j in range(k):
        members = np.flatnonzero(labels == j)
        total = sum((Fraction(float(weights[i])) for i in members), Fraction(0))
        if total == 0:
            found.append(None)
            continue
        sums = [
            sum(
                (Fraction(float(weights[i])) * Fraction(float(X[i, f])) for i in members),
                Fraction(0),
            )
            for f in range(X.shape[1])
        ]
        found.append(np.array([float(s / total) for s in sums]))
    return found


def lloyd(X, centres, weights=None, max_iter=300):
    """Lloyd's algorithm to the fixed point; an empty cluster gets the farthest row."""
    X = np.asarray(X, dtype=np.float64)
    centres = np.array(centres, dtype=np.float64)
    k = len(centres)
    positive = np.ones(len(X), bool) if weights is None else np.asarray(weights) > 0
    for iteration in range(1, max_iter + 1):
        labels, distances = assign(X, centres)
        labels = relocate(labels, distances, k, positive)
        found = means(X, labels, k, weights)
        moved = np.array([c if m is None else m for c, m in zip(centres, found, strict=True)])
        if np.array_equal(moved, centres):
            return centres, iteration
        centres = moved
    return centres, max_iter


def relocate(labels, distances, k, positive):
    """Give empty clusters, lowest first, the farthest rows (lowest row on ties)."""
    filled = set(labels[positive].tolist())
    empty = [j for j in range(k) if j not in filled]
    order = sorted(np.flatnonzero(positive), key=lambda i: (-distances[i], i))
    labels = labels.copy()
    if order and distances[order[0]] > 0:
        for j, i in zip(empty, order, strict=False):
            labels[i] = j
    return labels
