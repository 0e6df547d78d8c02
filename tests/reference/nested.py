"""Nested mini-batch k-means, slow and in float64, written from Algorithm 5 of the paper vote by vote.

Every row takes back its last vote before it gives a new one; nothing here knows that the sums are those
of the batch under its nearest centres.
"""

from __future__ import annotations

import numpy as np


def nested(
    X,
    centres,
    order,
    b0,
    *,
    rho=100.0,
    seeds_vote=False,
    definition="paper",
    max_rounds=200,
    weights=None,
):
    """Return (centres, rounds): each round a dict of batch size, S, v, sse, ratio, centres after it.

    Votes of weighted rows count their weights, without votes of the seeds.
    """
    X, c = np.asarray(X, np.float64), np.array(centres, np.float64)
    n, k = len(X), len(c)
    w = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    S = c.copy() if seeds_vote else np.zeros_like(c)
    v = np.ones(k) if seeds_vote else np.zeros(k)
    sse = np.zeros(k)
    a, d = np.full(n, -1), np.zeros(n)
    b, rounds = min(b0, n), []
    while len(rounds) < max_rounds:
        changed = 0
        for i in order[:b]:
            if a[i] >= 0:
                sse[a[i]] -= w[i] * d[i] ** 2
                S[a[i]] -= w[i] * X[i]
                v[a[i]] -= w[i]
            distances = np.sqrt(((X[i] - c) ** 2).sum(axis=1))
            old, a[i] = a[i], int(distances.argmin())
            d[i] = distances[a[i]]
            changed += int(old != a[i])
            S[a[i]] += w[i] * X[i]
            v[a[i]] += w[i]
            sse[a[i]] += w[i] * d[i] ** 2
        ratios, before = [], c.copy()
        for j in range(k):
            if v[j] > 0:
                c[j] = S[j] / v[j]
            p = float(np.sqrt(((c[j] - before[j]) ** 2).sum()))
            size = v[j]
            if weights is not None:  # Kish's effective number of rows
                mine = w[order[:b]][a[order[:b]] == j]
                size = mine.sum() ** 2 / (mine**2).sum() if mine.any() else 0.0
            ratios.append(_ratio(max(0.0, sse[j]), v[j], size, p, definition))
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


def _ratio(sse, v, size, p, definition):
    if p < 1e-12:  # what rounding leaves of a centre that stands still
        return np.inf
    if size < 2:
        return 0.0
    variance = sse / v * size / (size - 1)
    return np.sqrt(variance / size if definition == "paper" else variance) / p
