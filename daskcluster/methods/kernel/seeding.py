"""k-means++ in the space of a Gram function: centres are images of rows (Arthur and Vassilvitskii 2007).

|phi(x) - phi(c)|^2 = K(x, x) + K(c, c) - 2 K(x, c), so a step needs as many columns of the Gram matrix
as it has candidates. As `daskcluster.seeding.kmeans_plusplus`, each step draws several candidates and
keeps the one that lowers the potential most; the paper on mini-batch kernel k-means draws one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from daskcluster.elementary import log
from daskcluster.randomness import Key

Columns = Callable[[np.ndarray], np.ndarray]
"""Row numbers (m,) -> K of all rows and these, float64 (n, m)."""


def kernel_kmeans_plusplus(
    columns: Columns,
    diagonal: np.ndarray,
    weights: np.ndarray | None,
    n_clusters: int,
    seed: int,
    *,
    n_local_trials: int | None = None,
) -> np.ndarray:
    """Choose rows by greedy D^2 sampling in the space of a Gram function.

    Parameters
    ----------
    columns : Columns
    diagonal : ndarray of shape (n,)
        K(x, x) of all rows.
    weights : ndarray of shape (n,), or None
    n_clusters : int
    seed : int
    n_local_trials : int, optional
        Candidates a step; default 2 + floor(log k).

    Returns
    -------
    ndarray of shape (k,), int64
        Distinct rows while there are any at a distance; then rows at random.

    Notes
    -----
    Cost: n (1 + (k - 1) n_local_trials) Gram values; 8 n (2 + n_local_trials) bytes.
    """
    trials = n_local_trials or 2 + int(log(max(1, n_clusters)))
    mass = np.ones(len(diagonal)) if weights is None else weights
    chosen = [int(_draw(mass, 1, Key(seed, "first centre"))[0])]
    nearest = _distances(columns, diagonal, np.array(chosen))[:, 0]
    while len(chosen) < n_clusters:
        key = Key(seed, "D^2", len(chosen))
        weighted = mass * nearest
        if not weighted.sum() > 0.0:
            return _filled(chosen, mass, n_clusters, key)
        candidates = np.unique(_draw(weighted, trials, key))
        left = np.minimum(nearest[:, None], _distances(columns, diagonal, candidates))
        best = int((mass[:, None] * left).sum(axis=0).argmin())
        chosen.append(int(candidates[best]))
        nearest = left[:, best]
    return np.array(chosen, np.int64)


def _distances(columns: Columns, diagonal: np.ndarray, which: np.ndarray) -> np.ndarray:
    squares = diagonal[:, None] + diagonal[which] - 2.0 * columns(which)
    squares[which, np.arange(len(which))] = 0.0
    return np.asarray(np.maximum(squares, 0.0))


def _draw(mass: np.ndarray, m: int, key: Key) -> np.ndarray:
    """Return `m` rows in proportion to their mass, by inverse CDF."""
    edges = np.cumsum(mass)
    found = np.searchsorted(edges, key.generator().random(m) * edges[-1], side="right")
    return np.asarray(found.clip(0, np.flatnonzero(mass > 0.0)[-1]))


def _filled(chosen: list[int], mass: np.ndarray, n_clusters: int, key: Key) -> np.ndarray:
    """Return `chosen` and rows at random: every row is a centre already."""
    rest = np.setdiff1d(np.flatnonzero(mass > 0.0), chosen)
    pool = rest if len(rest) >= n_clusters - len(chosen) else np.arange(len(mass))
    drawn = key.generator().choice(pool, n_clusters - len(chosen), replace=len(pool) < n_clusters)
    return np.concatenate([chosen, drawn]).astype(np.int64)
