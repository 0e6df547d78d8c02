"""Stochastic backward Euler in plain float64, from section 2.1 of Yin, Pham, Oberman and Osher (2018)."""

from __future__ import annotations

import numpy as np


def objective(rows, weights, centres):
    """Return phi = 1 / (2 n) sum_i min_j |x_j - p_i|^2 (n: the weight of all rows), and the labels."""
    distances = ((rows[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    labels = distances.argmin(axis=1)
    return (weights * distances.min(axis=1)).sum() / (2 * weights.sum()), labels


def gradient(rows, weights, centres, size_limit=None):
    """Return the gradient of phi where it has one: row by row, from the labels.

    With `size_limit`, that of a cluster with more than this multiple of the mean weight is scaled down.
    """
    _, labels = objective(rows, weights, centres)
    found = np.zeros_like(centres)
    for row, weight, label in zip(rows, weights, labels, strict=True):
        found[label] += weight * (centres[label] - row)
    if size_limit is not None:
        most = size_limit * weights.sum() / len(centres)
        for j in range(len(centres)):
            if weights[labels == j].sum() > most:
                found[j] *= most / weights[labels == j].sum()
    return found / weights.sum()


def unit(centres):
    return centres / np.linalg.norm(centres, axis=1, keepdims=True)


def run(X, weights, centres, batches, *, gamma, beta, alpha, imaxit, omaxit, cosine=False,
        guard=True, size_limit=None):  # fmt: skip
    """Steps with given batches (lists of rows); returns x and what was seen on the way.

    A batch is looked at at the start of the first step, and at the end of every one: the batch that
    evaluates x is the first of the next step. Returns centres, the objective of every step's first batch,
    and how often each step was halved.
    """
    rows = np.asarray(X, np.float64)
    rows = unit(rows) if cosine else rows
    weights = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
    scale = unit if cosine else np.asarray
    draws = iter(batches)
    x = np.array(centres, np.float64)
    first, starts, halvings = next(draws), [], []
    for _ in range(omaxit):
        at_start = objective(rows[first], weights[first], x)[0]
        starts.append(at_start)
        step, halved, moved = gamma, 0, None
        while moved is None:
            y, average, batch = x, x, first
            for _ in range(imaxit):
                y = scale(x - step * gradient(rows[batch], weights[batch], y, size_limit))
                average = alpha * average + (1 - alpha) * y
                batch = next(draws)
            average = scale(average)
            value, here, there = (
                objective(rows[batch], weights[batch], at)[0] for at in (average, x, centres)
            )
            far = value > 4 * at_start and value > 4 * here
            if guard and (far or value > max(4 * starts[0], 4 * there, here)):
                step, halved = step / 2, halved + 1
            else:
                moved, following = average, batch
        x, first = moved, following
        halvings.append(halved)
        gamma *= beta
    return x, starts, halvings
