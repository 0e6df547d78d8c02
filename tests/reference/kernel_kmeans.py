"""Slow, plain float64 truth for kernel k-means, written from the papers.

Jourdan and Schwartzman, "Mini-batch kernel k-means" (2024): centres as explicit coefficients of all rows,
made anew in every step from all steps so far (section 4.1); and full-batch kernel k-means.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import expm


def gram(X, Y, kernel="rbf", gamma=1.0, degree=3, coef0=1.0):
    """K of all rows of X and all rows of Y."""
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    if kernel == "cosine":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
        Y = Y / np.linalg.norm(Y, axis=1, keepdims=True)
    if kernel == "rbf":
        return np.exp(-gamma * ((X[:, None] - Y[None]) ** 2).sum(axis=2))
    if kernel == "laplacian":
        return np.exp(-gamma * np.abs(X[:, None] - Y[None]).sum(axis=2))
    if kernel == "polynomial":
        return (gamma * X @ Y.T + coef0) ** degree
    return X @ Y.T


def graph(X, n_neighbors=10):
    """Adjacency and degrees: neighbours are those within the distance of the g-th nearest of either."""
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    radii = np.sort(squares, axis=1)[:, n_neighbors - 1]
    adjacency = (squares <= np.maximum(radii[:, None], radii)).astype(float)
    return adjacency, adjacency.sum(axis=1)


def knn(X, n_neighbors=10):
    """D^-1 A D^-1 of the graph."""
    adjacency, degrees = graph(X, n_neighbors)
    return adjacency / degrees[:, None] / degrees


def heat(X, t=1.0, n_neighbors=10):
    """exp(-t L), L the normalized Laplacian of the graph."""
    adjacency, degrees = graph(X, n_neighbors)
    scaled = adjacency / np.sqrt(degrees[:, None] * degrees)
    return expm(-t * (np.eye(len(X)) - scaled))


def sqdist(K, coefficients):
    """Squared distances of all rows to centres with given coefficients (k, n)."""
    P = K @ coefficients.T
    Q = np.einsum("jn,nm,jm->j", coefficients, K, coefficients)
    return np.maximum(np.diag(K)[:, None] - 2.0 * P + Q, 0.0)


def centre(n, first, steps, truncation, normalize):
    """Coefficients (n,) of a centre after `steps`: (alpha, rows, weights) of each batch with rows of it."""
    window = len(steps)
    if truncation is not None:
        sizes = np.cumsum([len(rows) for _, rows, _ in steps][::-1])
        enough = np.flatnonzero(sizes >= truncation)
        window = enough[0] + 1 if len(enough) else len(steps)
    found = np.zeros(n)
    left = 1.0
    for alpha, rows, weights in steps[::-1][:window]:
        np.add.at(found, rows, alpha * left * weights / weights.sum())
        left *= 1.0 - alpha
    if window == len(steps):
        found[first] += left
    elif normalize:
        found /= found.sum()
    return found


def minibatch(K, first, batches, rate="sqrt", weights=None, truncation=None, normalize=True):
    """Coefficients (k, n) of the centres after all `batches` (lists of rows)."""
    n, k = len(K), len(first)
    weights = np.ones(n) if weights is None else weights
    steps = [[] for _ in range(k)]
    seen, coefficients = np.zeros(k), np.eye(n)[first]
    for rows in batches:
        labels = sqdist(K, coefficients)[rows].argmin(axis=1)
        total = weights[rows].sum()
        for j in range(k):
            mine = rows[labels == j]
            mine = mine[weights[mine] > 0]
            b_j = weights[mine].sum()
            if b_j == 0:
                continue
            alpha = np.sqrt(b_j / total) if rate == "sqrt" else b_j / (seen[j] + b_j)
            seen[j] += b_j
            steps[j].append((alpha, mine, weights[mine]))
        coefficients = np.stack(
            [centre(n, first[j], steps[j], truncation, normalize) for j in range(k)]
        )
    return coefficients


def algorithm_2(K, first, batches, truncation, eps=0.0):
    """Algorithm 2 with its stop, for rows without weights: (coefficients, untruncated ones, steps).

    The untruncated centres of section 4.1 are those of the same batches with the same labels.
    Steps end when the mean cost of a batch falls by less than `eps`; 0 makes all steps.
    """
    n, k = len(K), len(first)
    centres, history, whole = np.eye(n)[first], [[] for _ in range(k)], np.eye(n)[first]
    n_steps = 0
    for rows in batches:
        n_steps += 1
        squares = sqdist(K, centres)[rows]
        labels, before = squares.argmin(axis=1), squares.min(axis=1).mean()
        for j in range(k):
            mine = rows[labels == j]
            if len(mine):
                history[j].append((np.sqrt(len(mine) / len(rows)), mine, np.ones(len(mine))))
        centres, whole = (
            np.stack([centre(n, first[j], history[j], tau, normalize=False) for j in range(k)])
            for tau in (truncation, None)
        )
        if eps > 0 and before - sqdist(K, centres)[rows].min(axis=1).mean() < eps:
            break
    return centres, whole, n_steps


def full_batch(K, labels, weights=None, max_iter=100):
    """Lloyd's algorithm in the space of K from given labels; an empty cluster keeps its centre."""
    n = len(K)
    weights = np.ones(n) if weights is None else weights
    k = labels.max() + 1
    coefficients = np.zeros((k, n))
    for _ in range(max_iter):
        for j in range(k):
            mine = np.where(labels == j, weights, 0.0)
            if mine.sum() > 0:
                coefficients[j] = mine / mine.sum()
        found = sqdist(K, coefficients).argmin(axis=1)
        if (found == labels).all():
            break
        labels = found
    return labels, coefficients
