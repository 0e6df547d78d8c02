"""Variance reduced k-means (Zhao et al., "Large-scale k-means clustering via variance reduction", 2018).

VRKM++ is Algorithm 4 of the paper, VRKM is Algorithm 3. An epoch assigns all rows, moves centres to the
means of their rows (the position correction), and lets T random rows move centres one by one, at a
constant rate (`STEPS`). VRKM also computes the full gradient at
the corrected centres, in a pass of its own. It is zero there (equation 9), so both have the same iterates.

What differs from the paper: when to stop, on which it says nothing, and a guard, which can be switched off.
A position correction can only lower the inertia; if it is nevertheless higher than an epoch before, the
steps have lost more than was gained. Centres then go back to the last position correction, and the rate is
halved. So the inertia never rises from one accepted epoch to the next, and in the end Lloyd's algorithm
converges. An empty cluster keeps its centre.

If rates adapt, they follow Tan, Ma, Dai and Qian ("Barzilai-Borwein step size for stochastic gradient
descent", 2016), who have this rate for variance reduced gradients: |s|^2 / |s.y| over the number of rows,
with s the movement of the centres from one epoch to the next, and y that of the mean gradient. A pass has
both at hand: the gradient of a centre is its distance from the mean of its cluster, in proportion to the
weight of the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import ASSIGN, AssignParams
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.statistics import KMeansStatistics, Reduction
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.loop import Limits, Stepped, run_loop
from daskcluster.events import EpochEnded, Notice, StopReason, publish
from daskcluster.kernels.sum_grid import grid_shift, round_to_grid
from daskcluster.methods.kmeans.algorithm import (
    inertia_from,
    squared_movement,
    total_weight,
    updated,
)
from daskcluster.methods.kmeans.assignment import FullAssignment
from daskcluster.methods.minibatch.chunkwise import Batch, DriftingCentres, label_batch
from daskcluster.randomness import Key
from daskcluster.sparse_rows import SparseRows

_RUN_BYTES = 16 << 20
"""Drawn rows are converted, where they must be, in runs of about this many bytes."""
_LEAST_RUN = 256


@dataclass(frozen=True)
class StepParams:
    """Starting point of the steps of an epoch.

    Attributes
    ----------
    before : ndarray of shape (k, d)
        Centres of the full pass: they say which centre a row had.
    snapshot : ndarray of shape (k, d)
        Centres after the position correction.
    learning_rate : float
    n_steps, n_rows : int
        Numbers of all partitions together.
    n_partitions : int
    limit : float
        How far a centre may drift; a longer way means that the steps diverge.
    key : Key
        Key of the draws of this epoch.
    mean_weight : float
        Mean weight of all rows.
    labels : ndarray of shape (n,), int32, or None
        Labels under `before`, where they were kept in this process.
    """

    before: np.ndarray
    snapshot: np.ndarray
    learning_rate: float
    n_steps: int
    n_rows: int
    n_partitions: int
    limit: float
    key: Key
    mean_weight: float = 1.0
    labels: np.ndarray | None = None


@dataclass
class StepsTaken:
    """Sums over the steps of some partitions.

    Attributes
    ----------
    drift : ndarray of shape (k, d), float64
        How far centres went, on a grid: sums are exact, in any order.
    n_steps, n_switched : int
        All steps, and those whose row had changed centres.
    lost : bool
        A centre went farther than the limit, and the rest of the steps was not taken.
    """

    drift: np.ndarray
    n_steps: int = 0
    n_switched: int = 0
    lost: bool = False

    def combine(self, other: StepsTaken) -> StepsTaken:
        self.drift += other.drift
        self.n_steps += other.n_steps
        self.n_switched += other.n_switched
        self.lost = self.lost or other.lost
        return self


@dataclass(frozen=True)
class _PreparedStep:
    params: StepParams
    before: PreparedCentres
    shift: float


def _prepare(params: StepParams) -> _PreparedStep:
    shift = float(grid_shift(params.limit, params.n_partitions))
    return _PreparedStep(params, PreparedCentres(params.before), shift)


def _zero(prepared: _PreparedStep) -> StepsTaken:
    return StepsTaken(np.zeros(prepared.params.snapshot.shape))


def step_partition(chunk: Chunk, prepared: _PreparedStep, into: StepsTaken) -> None:
    """Take the steps of one partition, which `chunk` holds as a whole, and add their sums.

    Which steps of the epoch are the partition's follows from its place among the rows; step t draws by
    the random number of t in any partition.
    """
    params = prepared.params
    first = params.n_steps * chunk.start // params.n_rows
    last = params.n_steps * chunk.stop // params.n_rows
    listed, share = _draw(chunk, params.key.uniforms(first, last), params.mean_weight)
    if not len(listed):
        return
    is_sparse = isinstance(chunk.rows, SparseRows)
    centres = DriftingCentres(params.snapshot, limit=params.limit, sparse=is_sparse)
    panels = prepared.before.sparse_panels if is_sparse else prepared.before.panels
    row_bytes = max(1, chunk.rows.nbytes // max(1, chunk.n_rows))
    size = max(_LEAST_RUN, _RUN_BYTES // row_bytes)
    for at in range(0, len(listed), size):
        run = listed[at : at + size]
        if params.labels is not None:
            table = params.labels[chunk.start + run]
        batch = Batch(chunk.rows, run, normalize=chunk.normalize).ready(params.snapshot.dtype)
        if params.labels is None:
            table = label_batch(batch, panels)
        centres.run_steps(batch, table, params.learning_rate * share)
        if centres.lost:
            into.lost = True
            return
    into.drift += round_to_grid(centres.drift(), prepared.shift)
    into.n_steps += len(listed)
    into.n_switched += centres.n_switched


def _draw(chunk: Chunk, uniforms: np.ndarray, mean_weight: float) -> tuple[np.ndarray, float]:
    """Return rows of the chunk drawn with replacement, and the factor of their steps.

    Rows come in proportion to their weights. Partitions share the steps in proportion to their rows, so
    where weights are larger than on average steps are as much longer.
    """
    n = chunk.n_rows
    if chunk.weights is None or not n:
        # A uniform number has 53 bits: its product with n may round up to n.
        return np.minimum((uniforms * n).astype(np.int64), n - 1), 1.0
    ends = np.cumsum(chunk.weights)
    if not ends[-1] > 0.0:
        return np.empty(0, np.int64), 0.0
    listed = np.searchsorted(ends, uniforms * ends[-1], side="right")
    last = np.flatnonzero(chunk.weights)[-1]
    return np.minimum(listed, last), float(ends[-1] / n / mean_weight)


STEPS = Reduction(
    name="steps",
    prepare=_prepare,
    zero=_zero,
    chunk=step_partition,
)
"""`StepParams` -> `StepsTaken`, over a dataset whose chunks are the partitions of the inner loop."""


DOUBLING_MOST = 2.0
"""Epochs that double stop growing at this multiple of the rows, the largest that the paper tries."""


@dataclass(frozen=True)
class StepRule:
    """Number of steps of an epoch.

    Attributes
    ----------
    epoch_size : float or "doubling"
        T as a multiple of the rows, or 2^s in epoch s = 1, 2, ..., to twice the rows at most.
    n_partitions : int
        Number of partitions of the inner loop.
    """

    epoch_size: float | str = 1.0
    n_partitions: int = 1

    def n_steps(self, epoch: int, n_rows: int) -> int:
        """Return T of `epoch`, which counts from 1.

        Examples
        --------
        >>> [StepRule("doubling").n_steps(s, 10) for s in (1, 3, 9)]
        [2, 8, 20]
        """
        if isinstance(self.epoch_size, str):
            most = DOUBLING_MOST * n_rows
            return int(min(most, 2 ** min(epoch, int(most).bit_length())))
        return round(self.epoch_size * n_rows)


@dataclass(frozen=True)
class Secant:
    """The centres and the gradient at which an epoch began.

    Attributes
    ----------
    centres, gradient : ndarray of shape (k, d), float64
        Centres, and the mean gradient of half the inertia there.
    """

    centres: np.ndarray
    gradient: np.ndarray

    @classmethod
    def of(cls, centres: np.ndarray, means: np.ndarray, weights: np.ndarray) -> Secant:
        """Return that of centres, with the means and weights of their clusters."""
        here = centres.astype(np.float64)
        return cls(here, weights[:, None] * (here - means) / float(weights.sum()))

    def rate(self, before: Secant, n_rows: int) -> float | None:
        """Return the rate that follows from the last two epochs; None if nothing moved.

        Examples
        --------
        >>> import numpy as np
        >>> weights = np.array([30.0, 10.0])
        >>> first, second = (Secant.of(np.full((2, 1), x), np.zeros((2, 1)), weights) for x in (4, 3))
        >>> second.rate(first, 40)  # K / n
        0.05
        """
        moved, turned = self.centres - before.centres, self.gradient - before.gradient
        square, product = float((moved * moved).sum()), abs(float((moved * turned).sum()))
        if not product > 0.0:
            return None
        # Few digits, which do not depend on how sums were rounded.
        return float(f"{square / product / n_rows:.3g}")


def secant_bytes(n_clusters: int, n_features: int) -> int:
    """Return the bytes of a `Secant`."""
    return 2 * 8 * n_clusters * n_features


_ROUNDING = 1e-9
"""Inertia that rises by less than this share has not risen: centres are rounded."""

TakeSteps = Callable[[StepParams], StepsTaken]


@dataclass(frozen=True)
class EpochsState:
    """State of the loop between two epochs. Steps and draws follow from the number of the epoch.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    learning_rate : float
        eta of the next epoch: halved whenever centres went back.
    largest_rate : float
        The rate that this left, which an adaptive one does not exceed.
    previous : float or None
        Inertia that the next one is compared with; None before the first epoch.
    is_snapshot : bool
        `centres` are the last position correction, to which they went back.
    snapshot : ndarray of shape (k, d), or None
        Centres after the last position correction.
    bound : float
        Their inertia is at most this; centres that turn out worse have diverged in the last epoch.
    history, reason
        See `daskcluster.estimators.loop.LoopState`.
    secant : Secant or None
        Where the last epoch began, if rates adapt.
    """

    centres: np.ndarray
    learning_rate: float
    previous: float | None = None
    is_snapshot: bool = False
    snapshot: np.ndarray | None = None
    bound: float = math.inf
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None
    largest_rate: float = 1.0
    secant: Secant | None = None


@dataclass
class _Epoch:
    """One epoch, and why it is the last, if it is."""

    centres: np.ndarray
    inertia: float
    shift: float
    n_empty: int
    n_touched: int
    n_distances: int
    learning_rate: float
    n_steps: int = 0
    n_switched: int = 0
    went_back: bool = False
    full_gradient: float | None = None
    ends: StopReason | None = None


def _notice(epoch: _Epoch, number: int) -> Notice:
    why = "steps diverged" if epoch.n_steps else f"the inertia rose to {epoch.inertia:.6g}"
    return Notice(
        f"epoch {number}: {why} at learning_rate={epoch.learning_rate:.3g}; centres go back to the last "
        "position correction, and the rate is halved. Pass a smaller learning_rate or epoch_size."
    )


@dataclass
class VarianceReduced:
    """Moves centres epoch by epoch; `now` is the state after the last one.

    Parameters
    ----------
    rows : ScaledPlacement
    take_steps : callable (StepParams) -> StepsTaken
        Runs the inner loop; see `daskcluster.methods.variance_reduced.estimator`.
    rule : StepRule
    key : Key
        Key of the draws; its iteration is replaced by the epoch.
    full_gradient : bool
        Compute the (zero) full gradient of Algorithm 3 in each epoch.
    guard : bool
        Go back and halve the rate when the inertia rises; without, centres go wherever steps take them.
    adapts : bool
        From the second epoch on, rates are those of Barzilai and Borwein.
    tol : float
        Stop when the inertia changes by at most this times itself from one epoch to the next; 0 waits
        until nothing moves.
    labels : ndarray of shape (n,), int32, optional
        OUT. Where labels are kept in this process: steps then look them up.

    Notes
    -----
    Cost: an epoch is a pass over all rows (n k distances), T k distances of steps, and the rows these draw
    (with many partitions: another pass); a further pass with `full_gradient`. What travels: 8 k (d + 1)
    bytes a task and pass.
    """

    rows: ScaledPlacement
    take_steps: TakeSteps
    rule: StepRule
    key: Key
    full_gradient: bool = False
    guard: bool = True
    adapts: bool = False
    tol: float = 1e-4
    labels: np.ndarray | None = None

    def __post_init__(self) -> None:
        self._assign = FullAssignment(self.rows, self.labels, plans=True)

    def run(
        self,
        begin: EpochsState,
        limits: Limits,
        *,
        keep: Callable[[EpochsState], None] | None = None,
        validate: Callable[[EpochsState], float] | None = None,
    ) -> EpochsState:
        """Return the state after the last epoch; callbacks hear `EpochEnded`, and when centres go back.

        To resume from a state that `keep` got, `rows` needs the data statistics.
        """
        rows, self.now = self.rows, begin

        def step(state: EpochsState) -> Stepped[EpochsState]:
            number = len(state.history) + 1
            epoch = self.next(state.centres, number)
            if epoch.went_back:
                publish(limits.callbacks, _notice(epoch, number))
            facts = {
                name: of for name, of in vars(epoch).items() if name not in ("centres", "ends")
            }
            state, weight = replace(self.now, centres=epoch.centres), total_weight(rows)
            return Stepped(state, facts, weight, reason=epoch.ends)

        return run_loop(
            step,
            replace(begin, centres=np.ascontiguousarray(begin.centres, dtype=rows.dtype)),
            EpochEnded,
            limits,
            keep=keep,
            bytes_read=lambda: rows.placement.traffic.bytes_read,
            validate=validate,
        )

    def next(self, centres: np.ndarray, number: int) -> _Epoch:
        """Make epoch `number` from `centres`."""
        rows, now = self.rows, self.now
        assigned = self._assign(centres)
        statistics = assigned.statistics
        inertia = inertia_from(statistics, centres, rows) if np.isfinite(centres).all() else np.inf
        epoch = _Epoch(
            centres, inertia, 0.0, int((statistics.weights <= 0.0).sum()), assigned.n_touched,
            assigned.n_distances, now.learning_rate,
        )  # fmt: skip
        if self._has_risen(inertia):
            self._go_back(epoch)
            return epoch
        change = math.inf if now.previous is None else abs(now.previous - inertia)
        snapshot = updated(statistics, centres, rows)
        now = replace(now, previous=inertia, bound=inertia, snapshot=snapshot, is_snapshot=False)
        self.now = now
        if np.array_equal(snapshot, centres):
            epoch.ends = StopReason.CONVERGED
        elif self.tol > 0.0 and change <= self.tol * inertia:
            epoch.ends = StopReason.TOLERANCE
            epoch.centres = snapshot
        else:
            if self.adapts:
                here = Secant.of(centres, snapshot, statistics.weights)
                found = now.secant and here.rate(now.secant, rows.placement.dataset.n_rows)
                epoch.learning_rate = min(found or now.learning_rate, now.largest_rate)
                self.now = replace(now, secant=here, learning_rate=epoch.learning_rate)
            self._step(centres, snapshot, epoch, number)
        epoch.shift = squared_movement(centres, epoch.centres)
        return epoch

    def _has_risen(self, inertia: float) -> bool:
        # Of a position correction itself the inertia cannot rise but by rounding.
        if not self.guard or self.now.previous is None or self.now.is_snapshot:
            return False
        return not inertia <= self.now.previous * (1.0 + _ROUNDING)

    def _go_back(self, epoch: _Epoch) -> None:
        assert self.now.snapshot is not None
        epoch.went_back, epoch.centres = True, self.now.snapshot
        rate = self.now.learning_rate / 2.0
        self.now = replace(self.now, is_snapshot=True, learning_rate=rate, largest_rate=rate)

    def _step(self, centres: np.ndarray, snapshot: np.ndarray, epoch: _Epoch, number: int) -> None:
        """Let random rows move the corrected centres."""
        if self.full_gradient:
            # Its length at the snapshot: line 8 of Algorithm 3.
            labels = self.labels
            statistics: KMeansStatistics = self.rows.reduce(
                ASSIGN,
                lambda scale: AssignParams(centres, scale, labels, labelled=labels is not None),
            )
            gradient = snapshot - updated(statistics, centres, self.rows)
            epoch.full_gradient = float(np.sqrt((gradient.astype(np.float64) ** 2).sum()))
        taken = self.take_steps(self._params(centres, snapshot, number))
        epoch.n_steps, epoch.n_switched = taken.n_steps, taken.n_switched
        epoch.n_distances += taken.n_steps * len(centres)
        if taken.lost and self.guard:
            self._go_back(epoch)
            return
        moved = snapshot.astype(np.float64) + taken.drift
        if self.rows.normalize:
            length = np.sqrt((moved * moved).sum(axis=1, keepdims=True))
            moved /= np.where(length > 0.0, length, 1.0)
        epoch.centres = moved.astype(centres.dtype)

    def _params(self, centres: np.ndarray, snapshot: np.ndarray, number: int) -> StepParams:
        rows, rule = self.rows, self.rule
        data_statistics, n_rows = rows.known(), rows.placement.dataset.n_rows
        weighted = rows.placement.dataset.weights is not None
        return StepParams(
            before=centres,
            snapshot=snapshot,
            learning_rate=self.now.learning_rate,
            n_steps=rule.n_steps(number, n_rows),
            n_rows=n_rows,
            n_partitions=rule.n_partitions,
            # The largest distance of two rows: a centre that far from the mean of its rows is lost.
            limit=2.0 * float(np.sqrt((rows.scale.max_abs**2).sum())) or 1.0,
            key=Key(self.key.seed, self.key.stage, number),
            mean_weight=data_statistics.weight.value / n_rows if weighted else 1.0,
            labels=self.labels,
        )
