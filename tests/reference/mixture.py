"""Slow, plain float64 truth for truncated variational EM, written from the equations.

Forster and Luecke, "Can clustering scale sublinearly with its clusters?" (AISTATS 2018), and
Hirschberger, Forster and Luecke, "Large scale clustering with variational EM for Gaussian mixture
models" (arXiv 1810.00803): numbers of equations are those of the latter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

SHARED_STEPS = 2


@dataclass
class Mixture:
    """Parameters, truncated sets K(n) (nearest first), and neighbourhoods G_c."""

    means: np.ndarray
    variances: np.ndarray
    weights: np.ndarray
    sets: list
    neighbours: list
    trace: list = field(default_factory=list)
    matrices: np.ndarray | None = None


def squared(x, c):
    return math.fsum((a - b) ** 2 for a, b in zip(x, c, strict=True))


def log_joint(x, mixture, c):
    if mixture.matrices is not None:
        own, gap = mixture.matrices[c], x - mixture.means[c]
        density = -0.5 * (len(x) * math.log(2 * math.pi) + np.linalg.slogdet(own)[1])
        return math.log(mixture.weights[c]) + density - 0.5 * gap @ np.linalg.solve(own, gap)
    s = mixture.variances[c]
    terms = [
        -0.5 * math.log(2 * math.pi * v) - 0.5 * (a - b) ** 2 / v
        for a, b, v in zip(x, mixture.means[c], s, strict=True)
    ]
    return math.log(mixture.weights[c]) + math.fsum(terms)


def space(held, neighbours, drawn, rule):
    """Return the search space of a row, and the part of it that is the same for its whole cluster."""
    if rule == "row":
        shared = set()
        found = {c for held_c in held for c in neighbours[held_c]}
    else:
        shared = {c for near in neighbours[held[0]] for c in neighbours[near]}
        found = shared | set(held)
    return sorted(found | set(drawn)), shared


def e_step(X, mixture, rule, drawn, learn_neighbours=True):
    """Update K(n) by the smallest costs in the search spaces, and G_c by eq. 31."""
    k = len(mixture.means)
    totals, counts = {}, {}
    sets, filled = [], set()
    for n, x in enumerate(X):
        held = mixture.sets[n]
        if len(held) == k:
            costs = {c: -log_joint(x, mixture, c) for c in range(k)}
            sets.append(sorted(range(k), key=lambda c, costs=costs: (costs[c], c)))
            continue
        searched, shared = space(held, mixture.neighbours, drawn[n], rule)
        costs = {c: -log_joint(x, mixture, c) for c in searched}
        kept = sorted(searched, key=lambda c, costs=costs: costs[c])[: len(held)]
        home = kept[0]
        filled.add(home)
        message = searched
        if rule == "tile" and home == held[0]:
            message = shared  # by all rows of the cluster
        elif rule == "tile" and len(kept) >= len(mixture.neighbours[home]):
            message = kept
        for c in message:
            pair = home, c
            totals[pair] = totals.get(pair, 0.0) + key_of(x, mixture, c)
            counts[pair] = counts.get(pair, 0) + 1
        sets.append(kept)
    mixture.sets = sets
    if not (learn_neighbours and filled):
        return
    for home in filled:
        size = len(mixture.neighbours[home])
        means = {c: totals[h, c] / counts[h, c] for h, c in totals if h == home}
        means[home] = -math.inf
        mixture.neighbours[home] = sorted(means, key=lambda c, m=means: (m[c], c))[:size]


def key_of(x, mixture, c):
    if getattr(mixture, "rooted", True):
        return math.sqrt(squared(x, mixture.means[c]))
    return -2.0 * log_joint(x, mixture, c)


def posteriors(X, mixture):
    """Return q_n(c) as one dict a row, and log sum_{c in K(n)} p(c, y_n)."""
    q, bounds = [], []
    for x, held in zip(X, mixture.sets, strict=True):
        joints = {c: log_joint(x, mixture, c) for c in held}
        most = max(joints.values())
        total = math.fsum(math.exp(j - most) for j in joints.values())
        q.append({c: math.exp(j - most) / total for c, j in joints.items()})
        bounds.append(most + math.log(total))
    return q, bounds


def first_variance(X, mixture, gamma):
    """Eq. 8: the mean squared distance to the nearest cluster found, for each feature."""
    total = math.fsum(
        g * squared(x, mixture.means[held[0]])
        for g, x, held in zip(gamma, X, mixture.sets, strict=True)
    )
    return total / (X.shape[1] * math.fsum(gamma))


def m_step(X, mixture, gamma, q, kind):
    """Eq. 6, or its version with variances and weights of the clusters' own."""
    k, d = mixture.means.shape
    mass, sums = np.zeros(k), np.zeros((k, d))
    for x, g, row in zip(X, gamma, q, strict=True):
        for c, p in row.items():
            mass[c] += g * p
            sums[c] += g * p * x
    there = mass > 0
    mixture.means[there] = sums[there] / mass[there, None]
    if kind in ("tied", "full"):
        mixture.weights = mass / mass.sum()
        learn_matrices(X, mixture, gamma, q, mass, kind)
        return
    spread = np.zeros((k, d))
    for x, g, row in zip(X, gamma, q, strict=True):
        for c, p in row.items():
            spread[c] += g * p * (x - mixture.means[c]) ** 2
    if kind == "isotropic":
        mixture.variances[:] = spread.sum() / (d * gamma.sum())
        return
    mixture.weights = mass / mass.sum()
    own = spread[there] / mass[there, None]
    mixture.variances[there] = own if kind == "diag" else own.mean(axis=1, keepdims=True)


def learn_matrices(X, mixture, gamma, q, mass, kind):
    k, d = mixture.means.shape
    found = np.zeros((k, d, d))
    for x, g, row in zip(X, gamma, q, strict=True):
        for c, p in row.items():
            found[c] += g * p * np.outer(x - mixture.means[c], x - mixture.means[c])
    if kind == "tied":
        mixture.matrices = np.tile(found.sum(axis=0) / mass.sum(), (k, 1, 1))
        return
    there = mass > 0
    mixture.matrices[there] = found[there] / mass[there, None, None]


def free_energy(gamma, bounds):
    return math.fsum(g * b for g, b in zip(gamma, bounds, strict=True))


def var_gmm(
    X, gamma, centres, sets, neighbours, *, n_iter, rule="row", kind="isotropic", draw=None,
    warmup=0, floor=0.0,
):  # fmt: skip
    """Run `n_iter` EM iterations; ``draw(step)`` gives each row's additional candidates.

    The trace holds the free energy of every iteration, at the parameters that its E-step used.
    """
    X, gamma = np.asarray(X, np.float64), np.asarray(gamma, np.float64)
    k, d = centres.shape
    none = [[] for _ in X]
    draw = draw or (lambda step: none)
    mixture = Mixture(
        np.array(centres, np.float64), np.ones((k, d)), np.full(k, 1.0 / k),
        [list(s) for s in sets], [list(g) for g in neighbours],
    )  # fmt: skip
    mixture.rooted = kind == "isotropic"
    rules = ("row", "tile") if rule == "alternate" else (rule, rule)
    for step in range(warmup + 1):
        e_step(X, mixture, rules[step % 2], draw(step))
    mixture.variances[:] = first_variance(X, mixture, gamma)
    for iteration in range(n_iter):
        if iteration:
            step = warmup + iteration
            e_step(X, mixture, rules[step % 2], draw(step))
        q, bounds = posteriors(X, mixture)
        mixture.trace.append(free_energy(gamma, bounds))
        shared = kind == "isotropic" or iteration < SHARED_STEPS
        m_step(X, mixture, gamma, q, "isotropic" if shared else kind)
        if kind in ("tied", "full") and iteration == SHARED_STEPS - 1:
            mixture.matrices = mixture.variances[:, :, None] * np.eye(d)
        mixture.variances = np.maximum(mixture.variances, floor)
    return mixture
