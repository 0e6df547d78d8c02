"""Lloyd's algorithm (S. P. Lloyd, "Least squares quantization in PCM", 1982), one pass per iteration.

What differs from the textbook: sums are exact, so a fixed point is recognised by centres that
did not change a bit, without remembering a label; the inertia of an iteration comes from the
statistics (no distance is computed for it) and is for the history only. How a pass finds the
statistics is left to an `Assignment`: all of them give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import FARTHEST, AssignParams
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import KMeansStatistics, LeastRows
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.loop import NO_LIMITS, Limits, Stepped, run_loop
from daskcluster.events import IterationEnded, StopReason
from daskcluster.kernels.distance import inertia_terms, sqdist_to_assigned
from daskcluster.methods.kmeans.assignment import Assignment, FullAssignment
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows, dense_rows


def relocate_empty(
    rows: ScaledPlacement,
    centres: np.ndarray,
    statistics: KMeansStatistics,
    scale: Scale,
    labels: np.ndarray | None = None,
) -> int:
    """Give each empty cluster, lowest index first, the farthest row that is left.

    The row leaves its old cluster's sums, exactly. Rows without weight are never chosen, ties go
    to the lowest row. If every row lies on its centre, nothing moves.

    Parameters
    ----------
    rows : ScaledPlacement
    centres : ndarray of shape (k, d)
        Centres under which `statistics` were computed.
    statistics : KMeansStatistics
        Changed in place.
    scale : Scale
        Scale of `statistics`.
    labels : ndarray of shape (n,), int32, optional
        Labels under `centres`, if they are known.

    Returns
    -------
    int
        Number of empty clusters.

    Notes
    -----
    Cost: no pass if no cluster is empty, else one.
    """
    empty = np.flatnonzero(statistics.weights <= 0.0)
    if len(empty) == 0:
        return 0
    far: LeastRows = rows.reduce(
        FARTHEST,
        lambda scale: AssignParams(
            centres, scale, labels, labelled=labels is not None, most=len(empty)
        ),
    )
    if len(far.keys) and far.keys[0] < 0.0:
        for cluster, pick in zip(empty, range(len(far.indices)), strict=False):
            _move(scale, statistics, far, pick, int(cluster))
    return len(empty)


def _move(scale: Scale, into: KMeansStatistics, far: LeastRows, pick: int, cluster: int) -> None:
    old, weight = (values[pick] for values in far.facts)
    addend = far.rows[pick].astype(np.float64)
    if scale.weighted:
        addend = addend * weight
    high, low = scale.sums.split(addend)
    into.sums[old] -= high
    into.sums[cluster] += high
    if into.sums_low is not None:
        into.sums_low[old] -= low
        into.sums_low[cluster] += low
    if into.counts_low is None:
        into.counts[old] -= 1
        into.counts[cluster] += 1
        return
    part, rest = scale.weights.split(weight)
    into.counts[old] -= part
    into.counts[cluster] += part
    into.counts_low[old] -= rest
    into.counts_low[cluster] += rest


@dataclass(frozen=True)
class CentresState:
    """State of a loop that has no more than centres."""

    centres: np.ndarray
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None


S = TypeVar("S", bound=Any)


def lloyd(
    rows: ScaledPlacement,
    state: S,
    limits: Limits = NO_LIMITS,
    *,
    assign: Assignment | None = None,
    tol: float = 1e-4,
    labels: np.ndarray | None = None,
    keep: Callable[[S], None] | None = None,
    validate: Callable[[S], float] | None = None,
) -> S:
    """Move centres to the means of their rows until nothing moves.

    Parameters
    ----------
    rows : ScaledPlacement
    state : LoopState with centres
        Where to start. To resume from a state, `rows` must know what its first pass learnt.
    limits : Limits
        Its callbacks hear an `IterationEnded` in each iteration.
    assign : Assignment, optional
        Method of the assignment; by default, all distances are computed each time.
    tol : float
        Stop when the squared movement of all centres together is at most `tol` times the mean variance of
        the features; 0 waits for the fixed point.
    labels : ndarray of shape (n,), int32, optional
        OUT. Where `assign` keeps the labels under the centres of the last pass, in this process.
    keep, validate : callable (state), optional
        The same as in `daskcluster.estimators.loop.run_loop`.

    Returns
    -------
    LoopState with centres
        After the last iteration.

    Notes
    -----
    Cost: one pass an iteration (of which bounds may leave most unread), and one more in an iteration
    that has an empty cluster. A task returns 8 k (d + 1) bytes, twice that for float64 or weighted rows.
    """
    assign = assign or FullAssignment(rows, labels)

    def step(state: S) -> Stepped[S]:
        centres = state.centres
        found = lloyd_step(rows, centres, assign, labels)
        moved: S = replace(state, centres=found.centres)
        threshold = tol * rows.known().mean_variance if tol > 0 else 0.0
        has_moved = not np.array_equal(found.centres, centres)
        weight = total_weight(rows)
        return Stepped(moved, found.facts(), weight, has_moved, found.shift, threshold)

    begin = np.ascontiguousarray(state.centres, dtype=rows.dtype)
    return run_loop(
        step,
        replace(state, centres=begin),
        IterationEnded,
        limits,
        keep=keep,
        bytes_read=lambda: rows.placement.traffic.bytes_read,
        validate=validate,
    )


def total_weight(rows: ScaledPlacement) -> float:
    """Return the weight of all rows: their number, if they have no weights."""
    return rows.known().weight.value or float(rows.known().n_rows)


@dataclass(frozen=True)
class CentresStep:
    """One update of the centres, and its cost.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        New positions.
    inertia : float
        Inertia under the previous centres.
    shift : float
        Squared movement of all centres together.
    n_empty, n_touched, n_distances : int
        Empty clusters, rows visited, distances computed.
    """

    centres: np.ndarray
    inertia: float
    shift: float
    n_empty: int
    n_touched: int
    n_distances: int

    def facts(self) -> dict[str, Any]:
        """Return everything but the centres, the fields of an event."""
        return {name: value for name, value in vars(self).items() if name != "centres"}


def lloyd_step(
    rows: ScaledPlacement,
    centres: np.ndarray,
    assign: Assignment,
    labels: np.ndarray | None = None,
) -> CentresStep:
    """Assign all rows, relocate empty clusters, and move the centres; arguments as of `lloyd`."""
    assigned = assign(centres)
    statistics, used = assigned.statistics, rows.used
    inertia = inertia_from(statistics, centres, rows)
    n_empty = relocate_empty(rows, centres, statistics, used, labels)
    moved_to = updated(statistics, centres, rows)
    shift = squared_movement(centres, moved_to)
    return CentresStep(moved_to, inertia, shift, n_empty, assigned.n_touched, assigned.n_distances)


def squared_movement(before: np.ndarray, after: np.ndarray) -> float:
    """Return the sum of the squared movements of all centres, in float64."""
    k = len(before)
    squared = np.empty(k)
    sqdist_to_assigned(after, before, np.arange(k, dtype=np.int32), squared)
    return float(squared.sum())


def updated(statistics: KMeansStatistics, centres: np.ndarray, rows: ScaledPlacement) -> np.ndarray:
    """Return the means of the clusters in the centres' dtype; an empty cluster keeps its centre.

    Means of normalized rows are scaled to length one (spherical k-means: Dhillon and Modha 2001).
    """
    means = statistics.means(centres)
    if rows.normalize:
        length = np.sqrt((means * means).sum(axis=1, keepdims=True))
        means = np.where(length > 0.0, means / np.where(length > 0.0, length, 1.0), centres)
    return means.astype(centres.dtype)


def inertia_from(statistics: KMeansStatistics, centres: np.ndarray, rows: ScaledPlacement) -> float:
    """Return the weighted sum of squared distances to `centres` from the statistics alone.

    With y = x - origin: sum w |y|^2 - 2 sum_j S_y(j).c(j) + sum_j v(j) |c(j)|^2, in float64. Good to
    about 1e-12 of the rows' total spread; final figures are computed row by row instead.
    """
    origin = rows.origin.astype(np.float64)
    found, weights = statistics, statistics.weights
    inner, outer = inertia_terms(found.sums, found.sums_low, weights, centres, origin)
    return max(0.0, rows.known().total_spread - 2.0 * inner + outer)


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
        prepared.nearest(rows, labels, runners_up)
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
