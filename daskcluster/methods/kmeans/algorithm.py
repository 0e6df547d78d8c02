"""Lloyd's algorithm (S. P. Lloyd, "Least squares quantization in PCM", 1982), one pass per iteration.

What differs from the textbook: sums are exact, so a fixed point is recognised by centres that
did not change a bit, without remembering a label; the inertia of an iteration comes from the
statistics (no distance is computed for it) and is for the history only. How a pass finds the
statistics is left to an `Assignment`: all of them give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from daskcluster.chunkwise.assign import FARTHEST, AssignParams
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import FarthestRows, KMeansStatistics
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.loop import NO_LIMITS, Limits, Stepped, run_loop
from daskcluster.events import IterationEnded, StopReason
from daskcluster.kernels.distance import inertia_terms, sqdist_to_assigned
from daskcluster.methods.kmeans.assignment import Assignment, FullAssignment


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
    far: FarthestRows = rows.reduce(
        FARTHEST,
        lambda scale: AssignParams(
            centres, scale, labels, labelled=labels is not None, most=len(empty)
        ),
    )
    if len(far.distances) and far.distances[0] > 0.0:
        for cluster, pick in zip(empty, range(len(far.indices)), strict=False):
            _move(scale, statistics, far, pick, int(cluster))
    return len(empty)


def _move(scale: Scale, into: KMeansStatistics, far: FarthestRows, pick: int, cluster: int) -> None:
    weight, old = far.weights[pick], far.labels[pick]
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
        As of `daskcluster.estimators.loop.run_loop`.

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
class Step:
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
) -> Step:
    """Assign all rows, relocate empty clusters, and move the centres; arguments as of `lloyd`."""
    assigned = assign(centres)
    statistics, used = assigned.statistics, rows.used
    inertia = inertia_from(statistics, centres, rows)
    n_empty = relocate_empty(rows, centres, statistics, used, labels)
    moved_to = updated(statistics, centres, rows)
    shift = squared_movement(centres, moved_to)
    return Step(moved_to, inertia, shift, n_empty, assigned.n_touched, assigned.n_distances)


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
