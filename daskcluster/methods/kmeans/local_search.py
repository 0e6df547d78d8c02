"""Local search: move a centre from a group of rows with two centres to two groups that share one.

Lloyd's algorithm ends in a local minimum that no small step leaves. Here, one centre at a time is moved to
a row drawn by its squared distance, if that lowers the total cost (Lattanzi and Sohler, "A better k-means++
algorithm via local search", ICML 2019).

Differences from the paper: several rows are drawn at a time, and the best is taken. The centre moves to the
mean of the rows that the drawn row would win, because in high dimensions a row is a poor centre even of its
own cluster. A swap must save a substantial part of the mean cost of a cluster; the search ends when no
drawn row gives such a swap. The best of the last swaps is made nevertheless, because its gain may only
appear in the following iterations of Lloyd's algorithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows, dense_rows

LEAST_GAIN = 0.25
"""Minimum gain of a swap, relative to the mean cost of a cluster."""

LEAST_CANDIDATES = 16
CANDIDATES_SHARE = 4
"""One row is drawn per this many centres: the cost share of two groups with one centre falls as 1 / k."""

MOST_SWAPPED = 64
"""Up to so many centres, a local search on a sample of rows is cheap."""

_TOGETHER = 16


def swap_centres(
    chunk: Chunk,
    centres: np.ndarray,
    seed: int,
    *,
    trial: bool = True,
) -> np.ndarray:
    """Move single centres, one swap at a time, as long as each swap lowers the cost substantially.

    Parameters
    ----------
    chunk : Chunk
        Rows with weights; few enough for memory.
    centres : ndarray of shape (k, d)
        In the compute dtype of the rows; not changed.
    seed : int
    trial : bool
        Make one last swap that gains less, for Lloyd's algorithm to improve. Without it, the result may
        equal `centres`.

    Returns
    -------
    ndarray of shape (k, d)
        Centres after at most 2 k swaps. Centres that were not moved keep their places and numbers.

    Notes
    -----
    Cost per swap: k + 32 distances per row, or a few times that where 16 candidates are not enough;
    k + max(32, k / 2) for the last one. Memory: 300 bytes per row.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.repeat([[0.0], [10.0], [20.0]], 4, axis=0) + np.tile([[0.0], [0.1]], (6, 1))
    >>> found = swap_centres(Chunk(rows, weights=np.ones(12)), np.array([[0.0], [0.1], [10.0]]), 0)
    >>> sorted(int(centre) for centre in found[:, 0].round(-1))
    [0, 10, 20]
    """
    rows, weights = chunk.computed(), chunk.weights
    assert weights is not None
    found = np.ascontiguousarray(centres)
    for step in range(2 * len(centres)):
        near = _Near.of(rows, weights, found)
        enough, swap = near.cost * (1.0 - LEAST_GAIN / len(found)), None
        drawn = _drawn(near, Key(seed, "swaps", step))
        for first in range(0, len(drawn), _TOGETHER):
            other = near.best_swap(drawn[first : first + _TOGETHER], normalize=chunk.normalize)
            swap = other if swap is None or other.cost < swap.cost else swap
            if swap.cost <= enough:
                break
        if swap is None or (swap.cost > enough and not trial):
            return found
        found = swap.centres
        if swap.cost > enough:
            return found
    return found


@dataclass(frozen=True)
class _Swap:
    """Centres after a swap, and the total cost of the rows."""

    centres: np.ndarray
    cost: float


@dataclass(frozen=True)
class _Near:
    """Rows and their nearest two centres.

    Attributes
    ----------
    rows : Rows, shape (n, d)
    weights : ndarray of shape (n,)
    centres : ndarray of shape (k, d)
    labels : ndarray of shape (n,), int32
    nearest, second : ndarray of shape (n,), float64
        Squared distances.
    """

    rows: Rows
    weights: np.ndarray
    centres: np.ndarray
    labels: np.ndarray
    nearest: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, rows: Rows, weights: np.ndarray, centres: np.ndarray) -> _Near:
        prepared, n_rows = PreparedCentres(centres), int(rows.shape[0])
        labels, runners_up = np.empty(n_rows, np.int32), np.empty(n_rows, np.int32)
        nearest, second = np.empty(n_rows), np.full(n_rows, math.inf)
        prepared.nearest_two(rows, labels, runners_up)
        prepared.sqdist_to_assigned(rows, labels, nearest)
        if len(centres) > 1:
            prepared.sqdist_to_assigned(rows, runners_up, second)
        return cls(rows, weights, centres, labels, nearest, second)

    @property
    def costs(self) -> np.ndarray:
        return self.nearest * self.weights

    @property
    def cost(self) -> float:
        return float(self.costs.sum())

    def best_swap(self, drawn: np.ndarray, *, normalize: bool) -> _Swap:
        """Return the best swap of a centre for one of the candidates that the drawn rows give."""
        candidates, least = self._means(drawn, normalize), math.inf
        number = chosen = 0
        for which, distances in enumerate(_distances(self.rows, candidates)):
            kept = np.minimum(distances, self.nearest)
            # Rows of a removed centre go to their second centre or to the candidate.
            losses = (np.minimum(distances, self.second) - kept) * self.weights
            left = np.bincount(self.labels, losses, len(self.centres)) + (kept * self.weights).sum()
            if left.min() < least:
                least, number, chosen = float(left.min()), int(left.argmin()), which
        centres = self.centres.copy()
        centres[number] = candidates[chosen]
        return _Swap(centres, least)

    def _means(self, candidates: np.ndarray, normalize: bool) -> np.ndarray:
        """Return the mean of the rows that each candidate would win."""
        found = candidates.copy()
        for number, distances in enumerate(_distances(self.rows, candidates)):
            won = np.flatnonzero((distances < self.nearest) & (self.weights > 0.0))
            if len(won):
                found[number] = weighted_mean(self.rows[won], self.weights[won])
        return np.asarray(Chunk(found, normalize=normalize).computed())


def weighted_mean(rows: Rows, weights: np.ndarray) -> np.ndarray:
    """Return the mean (d,) of rows, float64 if their weights are."""
    if isinstance(rows, SparseRows):
        masses = rows.data * np.repeat(weights, np.diff(rows.indptr))
        sums = np.bincount(rows.indices, masses, rows.n_features)
    else:
        sums = (rows * weights[:, None]).sum(axis=0)
    return np.asarray(sums / weights.sum())


def _drawn(near: _Near, key: Key) -> np.ndarray:
    """Draw rows in proportion to their costs and return them dense; none if all costs are 0."""
    edges = np.cumsum(near.costs)
    if not edges[-1] > 0.0:
        return near.centres[:0]
    n_drawn = max(LEAST_CANDIDATES, len(near.centres) // CANDIDATES_SHARE)
    targets = key.generator().random(n_drawn) * edges[-1]
    drawn = np.minimum(np.searchsorted(edges, targets, side="right"), len(edges) - 1)
    # Each row once, in the order of the draws, so that any first few are a random sample, too.
    _, first = np.unique(drawn, return_index=True)
    return dense_rows(near.rows[drawn[np.sort(first)]])


def _distances(rows: Rows, candidates: np.ndarray) -> np.ndarray:
    """Return squared distances (candidates, n)."""
    found = np.empty((int(rows.shape[0]), len(candidates)))
    PreparedCentres(candidates).sqdist_all(rows, found)
    return np.ascontiguousarray(found.T)
