"""Nested mini-batch k-means, slow and in float64, written from Algorithm 5 of the paper vote by vote.

Every row takes back its last vote before it gives a new one; nothing here knows that the sums are those
of the batch under its nearest centres.
"""

from __future__ import annotations

import numpy as np


def nested(
    X, centres, order, b0, *, rho=100.0, seeds_vote=False, definition="paper", max_rounds=200
):
    """Return (centres, rounds): each round a dict of batch size, S, v, sse, ratio, centres after it."""
    X, c = np.asarray(X, np.float64), np.array(centres, np.float64)
    n, k = len(X), len(c)
    S = c.copy() if seeds_vote else np.zeros_like(c)
    v = np.ones(k) if seeds_vote else np.zeros(k)
    sse = np.zeros(k)
    a, d = np.full(n, -1), np.zeros(n)
    b, rounds = min(b0, n), []
    while len(rounds) < max_rounds:
        changed = 0
        for i in order[:b]:
            if a[i] >= 0:
                sse[a[i]] -= d[i] ** 2
                S[a[i]] -= X[i]
                v[a[i]] -= 1
            distances = np.sqrt(((X[i] - c) ** 2).sum(axis=1))
            old, a[i] = a[i], int(distances.argmin())
            d[i] = distances[a[i]]
            changed += int(old != a[i])
            S[a[i]] += X[i]
            v[a[i]] += 1
            sse[a[i]] += d[i] ** 2
        ratios, before = [], c.copy()
        for j in range(k):
            if v[j] > 0:
                c[j] = S[j] / v[j]
            p = float(np.sqrt(((c[j] - before[j]) ** 2).sum()))
            ratios.append(_ratio(max(0.0, sse[j]), v[j], p, definition))
        rounds.append(
            {
                "batch_size": b,
                "S": S.copy(),
                "v": v.copy(),
                "sse": sse.copy(),
                "labels": a.copy(),
                "ratio": min(ratios),
                "centres": c.copy(),
            }
        )
        if b == n and changed == 0:
            break
        if b < n and min(ratios) > rho:
            b = min(2 * b, n)
    return c, rounds


def _ratio(sse, v, p, definition):
    if p < 1e-12:  # what rounding leaves of a centre that stands still
        return np.inf
    if v < 2:
        return 0.0
    return np.sqrt(sse / (v * (v - 1) if definition == "paper" else v - 1)) / p
