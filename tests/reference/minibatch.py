"""Slow, plain float64 truth for mini-batch k-means, written from the papers.

Sculley, "Web-scale k-means clustering" (WWW 2010), a batch at a time; Schwartzman, "Mini-batch k-means
terminates within O(d / eps) iterations" (ICLR 2023) for the rate sqrt(b_j / b).
"""

from __future__ import annotations

import math

import numpy as np

from tests.reference.kmeans import assign


def step(X, weights, centres, seen, rate):
    """One step; returns new centres, new weights seen, and the cost under the old centres."""
    X = np.asarray(X, dtype=np.float64)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    labels, distances = assign(X, centres)
    cost = math.fsum(w * d for w, d in zip(weights, distances, strict=True))
    moved, seen = np.array(centres, dtype=np.float64), np.array(seen, dtype=np.float64)
    for j in range(len(moved)):
        members = np.flatnonzero(labels == j)
        b_j = math.fsum(weights[members])
        if b_j == 0:
            continue
        mean = [math.fsum(weights[members] * X[members, t]) / b_j for t in range(X.shape[1])]
        if rate == "count":
            alpha = b_j / (seen[j] + b_j)
        else:
            alpha = math.sqrt(b_j / math.fsum(weights))
        moved[j] = (1 - alpha) * moved[j] + alpha * np.array(mean)
        seen[j] += b_j
    return moved, seen, cost


def run(X, weights, centres, batches, rate):
    """Steps with given batches (lists of rows); returns centres, weights seen, and all costs."""
    centres = np.array(centres, dtype=np.float64)
    seen, costs = np.zeros(len(centres)), []
    for rows in batches:
        part = None if weights is None else np.asarray(weights)[rows]
        centres, seen, cost = step(np.asarray(X)[rows], part, centres, seen, rate)
        costs.append(cost)
    return centres, seen, costs
