"""Local search on the rows of a batch that stand for all rows so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres, nearest_with_distances, normalized_rows
from daskcluster.methods.kmeans.local_search import swap_centres, weighted_mean
from daskcluster.methods.minibatch.chunkwise.batch import MovingCentres
from daskcluster.sparse_rows import Rows, SparseRows, join_rows

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
    return Chunk(join_rows([chunk.computed(), centres]), chunk.start, None, chunk.normalize)


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
