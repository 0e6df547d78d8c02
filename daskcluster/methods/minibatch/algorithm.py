"""Mini-batch k-means (D. Sculley, "Web-scale k-means clustering", WWW 2010).

What differs from the paper: the rows of a batch move their centre together, by their mean, as in
scikit-learn, and the learning rate is either the running mean's, alpha_j = b_j / (v_j + b_j), or
alpha_j = sqrt(b_j / b) (G. Schwartzman, "Mini-batch k-means terminates within O(d / eps) iterations",
ICLR 2023). Batches are drawn without replacement, pass after pass. A step is one call into compiled code
in this process: no task is sent for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres, nearest_with_distances, normalized_rows
from daskcluster.chunkwise.data_statistics import RANGES
from daskcluster.elementary import log1p
from daskcluster.estimators.loop import Limits, Stepped, run_loop
from daskcluster.events import (
    Callback,
    PassEnded,
    PassProgress,
    PassStarted,
    StepsEnded,
    StopReason,
    publish,
)
from daskcluster.methods.kmeans.algorithm import swap_centres, weighted_mean
from daskcluster.methods.minibatch.batches import Batches
from daskcluster.methods.minibatch.chunkwise import (
    Batch,
    MiniBatchStepper,
    MovingCentres,
    SingleRowStepper,
    StepOutcome,
)
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows, dense_rows, join_rows
from daskcluster.storage.document import Document, read_mapping

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
    state: MovingCentres, leaf: LabelledLeaf, costs: np.ndarray, seed: int
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
    if not _may_pay(state, costs):
        return None
    # Rows that represent all remembered rows: those of the leaf, then the k centres.
    chunk, centres = leaf.chunk, state.centres
    more = SparseRows.of(centres) if isinstance(chunk.rows, SparseRows) else centres
    joined = join_rows([chunk.computed(), more])
    rows = Chunk(joined, chunk.start, None, chunk.normalize)
    weighted = replace(rows, weights=_weights(leaf, state.seen, costs))
    found = swap_centres(weighted, state.centres, seed, trial=False)
    if np.array_equal(found, state.centres):
        return None
    weights = _weights(leaf, state.seen)
    touched = _take_over(state, leaf, rows, weights, found)
    labels, distances = nearest_with_distances(rows, state.centres)
    costs = costs.copy()
    costs[touched] = np.bincount(labels, weights * distances, len(costs))[touched]
    return costs


def _may_pay(state: MovingCentres, costs: np.ndarray) -> bool:
    """Return whether removing some centre would cost less than the most expensive cluster costs."""
    k = len(costs)
    if k < 2:
        return False
    nearest, second = np.empty(k, np.int32), np.empty(k, np.int32)
    PreparedCentres(state.centres).nearest(state.centres, nearest, second)
    other = np.where(nearest == np.arange(k), second, nearest)
    ways = ((state.exact - state.exact[other]) ** 2).sum(axis=1)
    return bool((state.seen * ways).min() < costs.max())


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


_ROWS_A_CENTRE = 10
_MOST_OF_A_BATCH = 0.5
_BATCHES, _ROWS_AN_IDLE_CENTRE = 16, 2
_MOST_SEARCHED, _ONLY_IDLE = 256, 1e-12
"""A search swaps centres one by one: of more than so many, only those that have seen nothing move."""
_FORGETTING, _UNUSUAL = 0.1, 2.0
_GROWTH = 1.1
_PROGRESS_SECONDS = 0.1
_PASS = "mini-batches"


@dataclass
class Reassignment:
    """Moves centres that are worth less than another place.

    Without a ratio, a local search on the rows of the batch, which stand for all rows seen so far, moves a
    centre only if that lowers their cost. It begins whenever 16 batches and 10 k rows have passed, and in
    steps whose rows cost twice as much as usual; while a centre has seen nothing, after 2 k rows.

    With a ratio, centres with v_j < ratio * max v are set to rows of the batch. Checked in steps in which
    a cluster has received no row at all, and whenever 10 k more rows have been seen. At most half of a
    batch become centres; they are drawn without replacement in proportion to their weights. Each then
    counts as having seen as much as the least of the others, so that it is not drawn again at once.

    Parameters
    ----------
    ratio : float or None
        0 turns it off.
    seed : int
    least_rows : int
        Rows that must have been seen before the first check. Until batches from pools have drawn
        from all rows, a centre that saw none may be one whose rows are still to come.
    """

    ratio: float | None
    seed: int
    least_rows: int = 0
    _n_rows: int = 0
    _n_seen: int = 0
    _usual_cost: float = 0.0

    def __call__(self, step: int, batch: Batch, state: MovingCentres, cost: float) -> int:
        """Reassign centres after a step whose rows cost `cost`, if it is time; return how many."""
        if self.ratio is not None and self.ratio <= 0.0:
            return 0
        self._n_rows += len(batch)
        self._n_seen += len(batch)
        usual, cost = self._usual_cost, cost / len(batch)
        self._usual_cost = usual + _FORGETTING * (cost - usual) if usual else cost
        if self._n_seen < self.least_rows:
            return 0
        seen = state.seen
        if self.ratio is None and len(seen) <= _MOST_SEARCHED:
            least = max(_ROWS_A_CENTRE * len(seen), _BATCHES * len(batch))
            least = least if seen.min() > 0.0 else _ROWS_AN_IDLE_CENTRE * len(seen)
            if self._n_rows < least and not cost > _UNUSUAL * usual > 0.0:
                return 0
            self._n_rows = 0
            return self._swap(step, batch, state)
        ratio = _ONLY_IDLE if self.ratio is None else self.ratio
        if self._n_rows < _ROWS_A_CENTRE * len(seen) and seen.min() > 0.0:
            return 0
        self._n_rows = 0
        low = np.flatnonzero(seen < ratio * seen.max())
        if len(low) == 0:
            return 0
        most = int(_MOST_OF_A_BATCH * len(batch))
        low = np.sort(low[np.argsort(seen[low], kind="stable")[:most]])
        drawn = draw_positions(batch, len(low), Key(self.seed, "reassign", step))
        low = low[: len(drawn)]
        kept = np.delete(seen, low)
        rows = replace(batch, listed=batch.listed[drawn]).ready(state.centres.dtype)
        state.put(low, dense_rows(rows.rows[rows.listed]), kept.min() if len(kept) else 0.0)
        return len(low)

    def _swap(self, step: int, batch: Batch, state: MovingCentres) -> int:
        ready = batch.ready(state.centres.dtype)
        rows = ready.rows[ready.listed]
        chunk = Chunk(rows, 0, batch.listed_weights(), batch.normalize)
        before, seed = state.exact.copy(), Key(self.seed, "swaps", step).derived_seed()
        leaf = LabelledLeaf.of(chunk, state.centres)
        costs = swap_remembered(state, leaf, state.costs, seed)
        if costs is None:
            return 0
        state.costs[:] = costs
        return int((before != state.exact).any(axis=1).sum())


def draw_positions(batch: Batch, m: int, key: Key) -> np.ndarray:
    """Return at most `m` distinct positions of a batch, in proportion to weights; ascending.

    The `m` smallest of exponential keys (Efraimidis and Spirakis, 2006). Rows without weight are never
    drawn.
    """
    keys = -log1p(-key.uniforms(0, len(batch)))
    if batch.weights is not None:
        weights = batch.listed_weights()
        with np.errstate(divide="ignore", invalid="ignore"):
            keys = np.where(weights > 0.0, keys / weights, np.inf)
    drawn = np.argsort(keys, kind="stable")[:m]
    return np.sort(drawn[np.isfinite(keys[drawn])])


@dataclass
class Improvement:
    """Smoothed inertia of batches, and the number of steps without a fall (scikit-learn's rule).

    The first batch does not count: its inertia is that of the seeding.

    Parameters
    ----------
    decay : float
        Weight of a new batch, in (0, 1].
    patience : int or None
        Steps without improvement after which to stop; None never stops.

    Examples
    --------
    >>> improvement = Improvement(decay=0.5, patience=2)
    >>> [improvement.ends(cost) for cost in (9.0, 4.0, 4.0, 6.0)]
    [False, False, False, True]
    """

    decay: float
    patience: int | None = None
    smoothed: float | None = None
    _least: float = math.inf
    _n_steps: int = 0
    _waited: int = 0

    @classmethod
    def over(cls, batch_size: int, n_rows: int, patience: int | None = None) -> Improvement:
        """Return the rule for batches of `n_rows` rows: it remembers about two passes."""
        return cls(min(1.0, 2.0 * batch_size / (n_rows + 1)), patience)

    def ends(self, cost: float) -> bool:
        """Add the mean squared distance of a batch; return True if it is time to stop."""
        self._n_steps += 1
        if self._n_steps == 1:
            return False
        before = cost if self.smoothed is None else self.smoothed
        self.smoothed = before * (1.0 - self.decay) + cost * self.decay
        if self.smoothed < self._least:
            self._least, self._waited = self.smoothed, 0
        else:
            self._waited += 1
        return self.patience is not None and self._waited >= self.patience


@dataclass
class Journal:
    """Counters of steps, and the step that has the next record.

    The first steps and the last one have a record each, others when there are a tenth more of them:
    a hundred records cover 100,000 steps.

    Attributes
    ----------
    seconds : float
        Time of all steps, without validation and callbacks.
    n_rows, n_reassigned : int
        Rows seen so far, and centres reassigned since the last record that was not forced.
    next_step : float
        Step from which on the next record is due.
    recorded_seconds, recorded_rows, recorded_bytes : float and int
        At that record.
    bytes_read : int
    forced : bool
        The last record exists only because the loop ended.
    """

    seconds: float = 0.0
    n_rows: int = 0
    n_reassigned: int = 0
    next_step: float = 1.0
    recorded_seconds: float = 0.0
    recorded_rows: int = 0
    recorded_bytes: int = 0
    bytes_read: int = 0
    forced: bool = False

    def record(
        self, step: int, centres: MovingCentres, outcome: StepOutcome, smoothed: float | None
    ) -> dict[str, Any]:
        """Return the fields of a `StepsEnded`, which is forced if none is due."""
        n_touched = self.n_rows - self.recorded_rows
        facts = {
            "iteration": step,
            "seconds": self.seconds - self.recorded_seconds,
            "bytes_read": self.bytes_read - self.recorded_bytes,
            "n_touched": n_touched,
            "n_distances": n_touched * len(centres.seen),
            "batch_size": self.n_rows // step,
            "inertia": outcome.cost,
            "shift": outcome.shift,
            "n_empty": int((centres.seen <= 0.0).sum()),
            "n_rows": self.n_rows,
            "smoothed_inertia": smoothed,
            "n_reassigned": self.n_reassigned,
        }
        self.forced = step < self.next_step
        if not self.forced:
            self.n_reassigned, self.recorded_seconds = 0, self.seconds
            self.recorded_rows, self.recorded_bytes = self.n_rows, self.bytes_read
            self.next_step = max(step + 1, step * _GROWTH)
        return facts


@dataclass(frozen=True)
class MiniBatchState:
    """State of a fit between two steps. Batches and draws follow from the seed and the number of the step.

    Attributes
    ----------
    step : int
        Steps made.
    exact : ndarray of shape (k, d), float64
    seen : ndarray of shape (k,), float64
        The same as in `daskcluster.methods.minibatch.chunkwise.MovingCentres`.
    threshold : float
        Movement that `tol` allows; it comes from the sample of the seeding.
    reassignment : Reassignment
    improvement : Improvement
    journal : Journal
    history, reason
        See `daskcluster.estimators.loop.LoopState`.
    costs : ndarray of shape (k,), float64, or None
        As `seen`; None in states of an earlier version.
    """

    step: int
    exact: np.ndarray
    seen: np.ndarray
    threshold: float
    reassignment: Reassignment
    improvement: Improvement
    journal: Journal = field(default_factory=Journal)
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None
    costs: np.ndarray | None = None

    @staticmethod
    def upgrade(document: Document) -> Document:
        """Return a document in which the journal holds the history as one of this version."""
        if "history" in document.body:
            return document
        body, arrays = dict(document.body), dict(document.arrays)
        journal = {} if body["journal"] is None else read_mapping(body, "journal")
        body |= {"journal": journal, "history": journal.pop("records", [])}
        if "journal_records" in arrays:
            arrays["history"] = arrays.pop("journal_records")
        return replace(document, body=body, arrays=arrays)

    def centres(self, dtype: np.dtype) -> MovingCentres:
        """Return the centres, rounded to the dtype that rows are computed in."""
        costs = np.zeros(len(self.seen)) if self.costs is None else self.costs.copy()
        rounded = self.exact.astype(dtype)
        return MovingCentres(self.exact.copy(), rounded, self.seen.copy(), costs)


Keep = Callable[[int, Callable[[], MiniBatchState], StopReason | None], None]
"""(steps made, what makes the state after them, why the last one was the last one) -> None."""


Stepper = MiniBatchStepper | SingleRowStepper
"""Moves centres by the rows of a batch."""


def minibatch(
    batches: Batches,
    stepper: Stepper,
    begin: MiniBatchState,
    limits: Limits,
    *,
    least_steps: int = 0,
    keep: Keep | None = None,
    validate: Callable[[MiniBatchState], float] | None = None,
) -> MiniBatchState:
    """Move centres by one batch after the other.

    Parameters
    ----------
    batches : Batches
    stepper : Stepper
        Holds the centres of `begin`, which are moved.
    begin : MiniBatchState
    limits : Limits
        Its callbacks hear a `StepsEnded` for each record, and the passes.
    least_steps : int
        The loop does not end before this many steps for lack of movement or improvement: batches from
        pools may not have seen all clusters.
    keep : callable (step, make, reason) -> None, optional
        Called after each step, with a function that makes the state to resume from.
    validate : callable (state) -> float, optional
        Called for each record; its time does not count.

    Returns
    -------
    MiniBatchState
        After the last step.

    Raises
    ------
    InvalidDataError
        A row of a batch is not finite.

    Notes
    -----
    Cost: b k distances a step.
    """
    if limits.max_iter <= begin.step:
        return replace(begin, reason=StopReason.MAX_ITER)
    journal = begin.journal
    passes = _PassEvents(batches.dataset.n_rows, limits.callbacks, journal)
    steps = _Steps(batches, stepper, limits, least_steps, keep, passes, journal.bytes_read)

    def kept(state: MiniBatchState) -> None:
        if keep is not None:
            keep(state.step, lambda: state, state.reason)

    # A forced record exists only because the loop ended.
    history = begin.history[:-1] if begin.journal.forced else begin.history
    with stepper.threads():
        end = run_loop(
            steps.to_a_record,
            replace(begin, history=history, reason=None),
            StepsEnded,
            limits,
            keep=kept,
            validate=validate,
        )
    steps.passes.end()
    return end


@dataclass
class _Steps:
    """Makes the steps between two records; arguments as of `minibatch`, and the bytes read before."""

    batches: Batches
    stepper: Stepper
    limits: Limits
    least_steps: int
    keep: Keep | None
    passes: _PassEvents
    bytes_before: int

    def to_a_record(self, state: MiniBatchState) -> Stepped[MiniBatchState]:
        """Make steps until one has a record."""
        moving, journal, number = self.stepper.state, state.journal, state.step
        before = time.perf_counter()
        while True:
            batch = self.batches.next()
            outcome = self.stepper.step(batch)
            if is_suspect(outcome.cost, moving.centres.dtype):
                self.batches.refuse_bad(batch)
            number += 1
            journal.n_rows += len(batch)
            journal.n_reassigned += state.reassignment(number, batch, moving, outcome.cost)
            stalled = state.improvement.ends(outcome.cost / len(batch))
            if self.limits.callbacks:
                self.passes.add(len(batch))
            now = time.perf_counter()
            journal.seconds, before = journal.seconds + now - before, now
            reason = self._reason(number, outcome.shift, state.threshold, stalled=stalled)
            if reason or number >= journal.next_step:
                break
            if self.keep is not None:
                self.keep(number, partial(self._after, state, number), None)
        end = self._after(state, number)
        self.passes.bytes_read = journal.bytes_read
        facts = journal.record(number, moving, outcome, state.improvement.smoothed)
        return Stepped(end, facts, outcome.weight, reason=reason)

    def _reason(
        self, number: int, shift: float, threshold: float, *, stalled: bool
    ) -> StopReason | None:
        if number >= self.least_steps:
            if number > 1 and threshold > 0.0 and shift <= threshold:
                return StopReason.TOLERANCE
            if stalled:
                return StopReason.NO_IMPROVEMENT
        if number >= self.limits.max_iter:
            return StopReason.MAX_ITER
        return StopReason.MAX_TIME if self.limits.time_left == 0.0 else None

    def _after(self, state: MiniBatchState, number: int) -> MiniBatchState:
        moving = self.stepper.state
        state.journal.bytes_read = self.bytes_before + self.batches.bytes_read
        return replace(state, step=number, exact=moving.exact, seen=moving.seen, costs=moving.costs)


class _PassEvents:
    """Publishes passes to callbacks; batches may span two passes."""

    def __init__(self, n_rows: int, callbacks: Sequence[Callback], before: Journal) -> None:
        self._n_rows = n_rows
        self._callbacks = callbacks
        self._open = False
        self._done, self._reported = before.n_rows % n_rows, 0
        self._began = self._spoke = 0.0
        self._ended_bytes = self.bytes_read = before.bytes_read

    def add(self, n_rows: int) -> None:
        if not self._open:
            self._begin()
        self._done += n_rows
        now = time.perf_counter()
        if now - self._spoke > _PROGRESS_SECONDS:
            done = min(self._done, self._n_rows)
            publish(self._callbacks, PassProgress(done - self._reported))
            self._reported, self._spoke = done, now
        if self._done >= self._n_rows:
            self.end()
            if self._done:  # the batch holds rows of the next pass
                self._begin()

    def _begin(self) -> None:
        publish(self._callbacks, PassStarted(_PASS, self._n_rows))
        self._open, self._reported = True, 0
        self._began = self._spoke = time.perf_counter()

    def end(self) -> None:
        if not self._open:
            return
        done = min(self._done, self._n_rows)
        if done > self._reported:
            publish(self._callbacks, PassProgress(done - self._reported))
        seconds = time.perf_counter() - self._began
        publish(self._callbacks, PassEnded(_PASS, seconds, self.bytes_read - self._ended_bytes))
        self._ended_bytes = self.bytes_read
        self._done -= min(self._done, self._n_rows)
        self._open = False


def is_suspect(cost: float, dtype: np.dtype[Any]) -> bool:
    """Return True if a batch of this cost may hold a row that is not finite, or out of range."""
    return not cost < RANGES[dtype][1] ** 2
