"""Slow, plain float64 truth for variance reduced and for stochastic k-means.

Zhao et al., "Large-scale k-means clustering via variance reduction" (2018), Algorithms 1 (m = 1), 3 and 4.
"""

from __future__ import annotations

import numpy as np

from tests.reference.kmeans import assign


def inner(X, table, snapshot, draws, rate, gradient=None):
    """Lines 9 to 16 of Algorithm 3, without `gradient` lines 6 to 13 of Algorithm 4; returns C_T."""
    C = snapshot.copy()
    for i in draws:
        a, b = int(((X[i] - C) ** 2).sum(axis=1).argmin()), table[i]
        gamma = np.zeros_like(C)
        gamma[a] += C[a] - X[i]
        gamma[b] -= snapshot[b] - X[i]
        if gradient is not None:
            gamma += gradient
        C = C - rate * gamma
    return C


def correct(X, labels, C):
    """Algorithm 2: centres less their gradient; an empty cluster keeps its centre."""
    new = C.copy()
    for j in range(len(C)):
        if (labels == j).any():
            new[j] = C[j] - (C[j] - X[labels == j]).mean(axis=0)
    return new


def epochs(X, centres, draws, rate, *, full_gradient=False, weights=None):
    """One epoch for each list of parts in `draws`; returns (centres, inertia) of every epoch.

    A part is a list of rows and a factor of the rate: parts step from the same snapshot, and what they
    did is added up. The paper has one.
    """
    X, C, found = np.asarray(X, np.float64), np.array(centres, np.float64), []
    for parts in draws:
        labels, distances = assign(X, C)
        labels = np.asarray(labels)
        copies = np.ones(len(X), int) if weights is None else np.asarray(weights).astype(int)
        inertia = float((copies * np.asarray(distances)).sum())
        snapshot = correct(np.repeat(X, copies, axis=0), np.repeat(labels, copies), C)
        gradient = None
        if full_gradient:
            gradient = np.array(
                [
                    (snapshot[j] - X[labels == j]).mean(axis=0) if (labels == j).any() else 0 * C[j]
                    for j in range(len(C))
                ]
            )
        ends = [inner(X, labels, snapshot, rows, rate * factor, gradient) for rows, factor in parts]
        C = snapshot + sum(end - snapshot for end in ends)
        found.append((C.copy(), inertia))
    return found


def sgd(X, weights, centres, seen, rows):
    """Algorithm 1 with m = 1; returns centres and the weight that each has seen."""
    X, C, v = np.asarray(X, np.float64), np.array(centres, np.float64), np.array(seen, np.float64)
    for i in rows:
        w = 1.0 if weights is None else weights[i]
        if w == 0:
            continue
        a = int(((X[i] - C) ** 2).sum(axis=1).argmin())
        v[a] += w
        C[a] -= w / v[a] * (C[a] - X[i])
    return C, v
