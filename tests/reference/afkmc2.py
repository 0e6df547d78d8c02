"""Slow, plain AFK-MC2 for proposals that are given, written from the paper's algorithm."""

from __future__ import annotations

import numpy as np


def chains(first, proposals, q, uniforms, weights):
    """Return which proposal each chain ends at.

    Parameters
    ----------
    first : ndarray of shape (d,)
        The first centre.
    proposals : ndarray of shape (c, m, d)
    q, uniforms, weights : ndarray of shape (c, m)
        Probability, random number and row weight of each proposal.
    """
    centres, ends = [np.asarray(first, float)], []
    for rows, masses, u, w in zip(proposals, q, uniforms, weights, strict=True):
        pi = [min(((y - c) ** 2).sum() for c in centres) for y in np.asarray(rows, float)] * w
        state = 0
        for t in range(1, len(rows)):
            if pi[state] == 0 or (pi[t] / masses[t]) / (pi[state] / masses[state]) > u[t]:
                state = t
        ends.append(state)
        if pi[state] > 0:
            centres.append(np.asarray(rows[state], float))
    return np.array(ends)
