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
from dataclasses import dataclass, replace

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.methods.kmeans.initial import normalized_rows
from daskcluster.methods.minibatch.chunkwise.batch import MovingCentres
from daskcluster.methods.streaming.drift import nearest_with_distances
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows, dense_rows, join_rows

LEAST_GAIN = 0.25
"""Minimum gain of a swap, relative to the mean cost of a cluster."""

LEAST_CANDIDATES = 16
CANDIDATES_SHARE = 4
"""One row is drawn per this many centres: the cost share of two groups with one centre falls as 1 / k."""

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


LEAST_ROWS = 16
"""Minimum number of rows of a cluster in a leaf; fewer are too few to represent its earlier rows."""


@dataclass(frozen=True)
class LabelledLeaf:
    """Rows of a leaf, labelled with the centres after its steps.

    Attributes
    ----------
    chunk : Chunk
        The rows, with weights.
    labels : ndarray of shape (n,), int32
    distances : ndarray of shape (n,), float64
        Squared distances.
    """

    chunk: Chunk
    labels: np.ndarray
    distances: np.ndarray

    @classmethod
    def of(cls, chunk: Chunk, centres: np.ndarray) -> LabelledLeaf:
        return cls(chunk, *nearest_with_distances(chunk, centres))

    @property
    def weights(self) -> np.ndarray:
        assert self.chunk.weights is not None
        return self.chunk.weights

    def costs(self, n_clusters: int) -> np.ndarray:
        """Return the cost of the rows of each cluster, float64 (k,)."""
        return np.bincount(self.labels, self.weights * self.distances, n_clusters)

    def sizes(self, n_clusters: int) -> np.ndarray:
        """Return the number of rows of each cluster, int64 (k,)."""
        return np.bincount(self.labels, minlength=n_clusters)


def swap_remembered(
    state: MovingCentres,
    leaf: LabelledLeaf,
    costs: np.ndarray,
    seed: int,
    *,
    low: float,
) -> np.ndarray | None:
    """Swap centres if that lowers the cost of all remembered rows substantially.

    A swapped centre becomes the mean of the rows that it wins. Other centres that win or lose rows shift
    by the change of the mean of their rows. All others stay bit-identical. Total weight is preserved.

    Parameters
    ----------
    state : MovingCentres
        IN/OUT. ``seen`` counts the leaf's rows.
    leaf : LabelledLeaf
    costs : ndarray of shape (k,), float64
        Costs of all remembered rows by cluster, including the leaf's.
    seed : int
    low : float
        Centres with less than this fraction of the weight of the heaviest can be removed at no cost.

    Returns
    -------
    ndarray of shape (k,), float64, or None
        The costs after the swaps; None if there are none.

    Notes
    -----
    Cost: k distances per centre, and no more if removing any centre would cost roughly more than the most
    expensive cluster. Otherwise `swap_centres` on the rows of the leaf and k more, and labelling them
    twice. Memory: a copy of the leaf's rows.
    """
    missed = np.where(state.seen < low * state.seen.max(), 0.0, state.seen)
    if not _may_pay(state, missed, costs):
        return None
    rows = _standing(leaf, state)
    weighted = replace(rows, weights=_weights(leaf, missed, costs))
    found = swap_centres(weighted, state.centres, seed, trial=False)
    if np.array_equal(found, state.centres):
        return None
    weights = _weights(leaf, state.seen)
    touched = _take_over(state, leaf, rows, weights, found)
    labels, distances = nearest_with_distances(rows, state.centres)
    costs = costs.copy()
    costs[touched] = np.bincount(labels, weights * distances, len(costs))[touched]
    return costs


def _may_pay(state: MovingCentres, missed: np.ndarray, costs: np.ndarray) -> bool:
    """Return whether removing some centre would cost less than the most expensive cluster costs."""
    k = len(costs)
    if k < 2:
        return False
    nearest, second = np.empty(k, np.int32), np.empty(k, np.int32)
    PreparedCentres(state.centres).nearest_two(state.centres, nearest, second)
    other = np.where(nearest == np.arange(k), second, nearest)
    ways = ((state.exact - state.exact[other]) ** 2).sum(axis=1)
    return bool((missed * ways).min() < costs.max())


def _standing(leaf: LabelledLeaf, state: MovingCentres) -> Chunk:
    """Return rows that represent all remembered rows: those of the leaf, then the k centres."""
    chunk = leaf.chunk
    sparse = isinstance(chunk.rows, SparseRows)
    centres = SparseRows.of(state.centres) if sparse else state.centres
    return replace(chunk, rows=join_rows([chunk.computed(), centres]), weights=None)


def _weights(
    leaf: LabelledLeaf, seen: np.ndarray, costs: np.ndarray | float = math.inf
) -> np.ndarray:
    """Return weights of these rows, such that clusters weigh `seen` and cost at most `costs`."""
    k = len(seen)
    theirs = np.bincount(leaf.labels, leaf.weights, k)
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.nan_to_num(seen / theirs, nan=0.0, posinf=0.0)
        times = np.fmin(most, costs / leaf.costs(k))
    times = np.where(leaf.sizes(k) < LEAST_ROWS, np.minimum(most, 1.0), times)
    rest = np.maximum(0.0, seen - times * theirs)
    return np.concatenate([times[leaf.labels] * leaf.weights, rest])


def _take_over(
    state: MovingCentres,
    leaf: LabelledLeaf,
    rows: Chunk,
    weights: np.ndarray,
    found: np.ndarray,
) -> np.ndarray:
    """Update clusters after swaps; return those that were swapped, or won or lost rows."""
    moved = (found != state.centres).any(axis=1)
    before = np.concatenate([leaf.labels, np.arange(len(found), dtype=np.int32)])
    after, _ = nearest_with_distances(rows, found)
    changed = (before != after) & (weights > 0.0)
    touched = np.unique(np.concatenate([np.flatnonzero(moved), before[changed], after[changed]]))
    state.exact[moved] = found[moved]
    for cluster in touched:
        old, new = (np.where(labels == cluster, weights, 0.0) for labels in (before, after))
        _settle(state, cluster, rows.rows, None if moved[cluster] else old, new)
    if rows.normalize:
        state.exact[touched] = normalized_rows(state.exact[touched])
    state.centres[touched] = state.exact[touched]
    return touched


def _settle(
    state: MovingCentres, cluster: int, rows: Rows, old: np.ndarray | None, new: np.ndarray
) -> None:
    """Set the weight of a cluster to that of its new rows; set its centre to their mean.

    If the cluster had rows before (`old`), shift its centre by the change of their mean instead.
    """
    state.seen[cluster] = new.sum()
    if state.seen[cluster] > 0.0:
        mean = _mean(rows, new)
        if old is None:
            state.exact[cluster] = mean
        elif old.any():
            state.exact[cluster] += mean - _mean(rows, old)


def _mean(rows: Rows, weights: np.ndarray) -> np.ndarray:
    members = np.flatnonzero(weights > 0.0)
    return weighted_mean(rows[members], weights[members])
