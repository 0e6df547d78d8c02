"""Centres that batches move are moved over clouds, too: a local search on what is remembered of rows.

A batch moves each centre towards rows that are nearest to it already. Where a cloud vanishes and another
comes up elsewhere, the centre of the one stays behind, and the rows of the other are shared out among the
centres around. `local_search` (Lattanzi and Sohler, ICML 2019) finds that out on rows. Of those that have
gone by, only sums are left: where each centre is, the weight w_j of its rows, and what they cost, c_j. So
the rows of the last leaf stand for them: those of cluster j with f_j times their weight, such that they
weigh w_j together, but do not cost more than c_j; the rest of w_j lies at the centre. What was forgotten
weighs nothing any more, so a centre that only old rows need is cheap to take away, and one whose rows are
merely not in this leaf is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.methods.kmeans.initial import unit_rows
from daskcluster.methods.minibatch.chunkwise.batch import MovingCentres
from daskcluster.methods.streaming.drift import nearest_with_distances
from daskcluster.methods.streaming.local_search import swap_centres, weighted_mean
from daskcluster.sparse_rows import Rows, SparseRows, join_rows

LEAST_ROWS = 16
"""Fewer rows of a cluster stand for themselves alone: what two halves of them cost says too little."""


@dataclass(frozen=True)
class LabelledLeaf:
    """Rows of a leaf under the centres that they have moved.

    Attributes
    ----------
    chunk : Chunk
        The rows, with weights.
    labels : ndarray of shape (n,), int32
    distances : ndarray of shape (n,), float64
        Squared.
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
        """Return what the rows of each cluster cost, float64 (k,)."""
        return np.bincount(self.labels, self.weights * self.distances, n_clusters)

    def sizes(self, n_clusters: int) -> np.ndarray:
        """Return how many rows each cluster has, int64 (k,)."""
        return np.bincount(self.labels, minlength=n_clusters)


def swap_remembered(
    state: MovingCentres,
    leaf: LabelledLeaf,
    costs: np.ndarray,
    seed: int,
    *,
    low: float,
) -> np.ndarray | None:
    """Move centres to where they serve better, if that makes what is remembered much cheaper.

    A centre that was moved becomes the mean of what it wins; others that won or lost rows move as the mean
    of theirs does. All the others stay as they are, to the bit. Weights are handed over, none is lost.

    Parameters
    ----------
    state : MovingCentres
        IN/OUT. ``seen`` counts the leaf's rows.
    leaf : LabelledLeaf
    costs : ndarray of shape (k,), float64
        c_j, the leaf's rows included.
    seed : int
    low : float
        A centre with less than so many times the weight of the heaviest costs nothing to take away.

    Returns
    -------
    ndarray of shape (k,), float64, or None
        The costs after it; None if all centres stay.

    Notes
    -----
    Cost: k distances a centre, and nothing more as long as each is worth more where it is, roughly, than
    the dearest cluster costs. Else that of `swap_centres` on the leaf's rows and k more, and as many
    looks again as it takes to label these twice. Memory: a copy of the leaf's rows.
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
    """Return whether the centre that is missed least would be missed less than the dearest could save."""
    k = len(costs)
    if k < 2:
        return False
    nearest, second = np.empty(k, np.int32), np.empty(k, np.int32)
    PreparedCentres(state.centres).nearest_two(state.centres, nearest, second)
    other = np.where(nearest == np.arange(k), second, nearest)
    ways = ((state.exact - state.exact[other]) ** 2).sum(axis=1)
    return bool((missed * ways).min() < costs.max())


def _standing(leaf: LabelledLeaf, state: MovingCentres) -> Chunk:
    """Return the rows that stand for all that is remembered: the leaf's, then the k centres."""
    chunk = leaf.chunk
    sparse = isinstance(chunk.rows, SparseRows)
    centres = SparseRows.of(state.centres) if sparse else state.centres
    return replace(chunk, rows=join_rows([chunk.computed(), centres]), weights=None)


def _weights(
    leaf: LabelledLeaf, seen: np.ndarray, costs: np.ndarray | float = math.inf
) -> np.ndarray:
    """Return the weights of these: clusters weigh `seen` together, and cost no more than `costs`."""
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
    """Let clusters follow the centres that were found; return those that won or lost rows, or moved."""
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
        state.exact[touched] = unit_rows(state.exact[touched])
    state.centres[touched] = state.exact[touched]
    return touched


def _settle(
    state: MovingCentres, cluster: int, rows: Rows, old: np.ndarray | None, new: np.ndarray
) -> None:
    """Give a cluster the weight of what it has now, and the mean, or the way from its old mean to that."""
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
