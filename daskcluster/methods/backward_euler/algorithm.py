"""Stochastic backward Euler (P. Yin, M. Pham, A. Oberman, S. Osher, J. Sci. Comput. 77, 2018).

Section 2.1, with the paper's names: from centres x an outer step solves the implicit gradient step
y = x - gamma grad phi(y) by `imaxit` fixed-point iterations, each with the gradient of a new mini-batch
of M rows, y <- x - gamma grad phi_B(y). What is carried over is not the last y but a running average
of the trajectory, xbar <- alpha xbar + (1 - alpha) y, which starts at x. Then gamma becomes beta gamma.
There are `omaxit` outer steps, and gamma begins so large (aggressive: above the inverse of the Lipschitz
constant, k for balanced clusters) that centres leave bad local minima.

The objective is phi(x) = 1 / (2 n) sum_i min_j |x_j - p_i|^2; costs and inertia here are plain sums
of squared distances, 2 n phi. The step size gamma is that of the paper.

What differs from the paper: batches are drawn without replacement, pass after pass; rows may have
weights; clusters without a row in the batch keep their centre for that iteration, as the gradient has
it. Two rules can be switched off. An outer step that runs away is redone with half the step size (see
`ImplicitDescent.step`). And a cluster with far more rows than the mean steps as a smaller one would: the
paper assumes balanced clusters, and gamma exceeds the inverse of the Lipschitz constant of a cluster by a
factor that grows with its share of the rows.

The paper does not say which side of the average alpha weighs: it is the old one, as in the Entropy-SGD that
it derives from (Chaudhari et al., "Deep relaxation", 2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from daskcluster.estimators.loop import Clock, Limits, Stepped, run_loop
from daskcluster.events import ImplicitStepEnded, StopReason
from daskcluster.methods.minibatch.algorithm import is_suspect
from daskcluster.methods.minibatch.batches import Batches
from daskcluster.methods.minibatch.chunkwise import Batch, MiniBatchStepper, MovingCentres


@dataclass(frozen=True)
class BatchClusters:
    """The clusters of a batch under given centres.

    Attributes
    ----------
    means : ndarray of shape (k, d), float64
        0 for clusters without weight.
    weights : ndarray of shape (k,), float64
        b_j.
    weight : float
        b, of the whole batch.
    cost : float
        Weighted sum of squared distances of the batch to its nearest centres: 2 b times the paper's
        objective. Not finite if a row is not, or if centres are out of range.
    """

    means: np.ndarray
    weights: np.ndarray
    weight: float
    cost: float

    def gradient(self, centres: np.ndarray, size_limit: float | None = None) -> np.ndarray:
        """Return the gradient (k, d) of the objective of the batch, cost / (2 b), at `centres`.

        That of centre j is (b_j / b) (y_j - m_j), with m_j the mean of its rows.

        With `size_limit`, the share b_j / b of a cluster counts at most as that many times 1 / k.

        Examples
        --------
        >>> import numpy as np
        >>> found = BatchClusters(np.array([[1.0], [0.0]]), np.array([2.0, 0.0]), 2.0, 0.5)
        >>> found.gradient(np.array([[4.0], [9.0]])).ravel()
        array([3., 0.])
        >>> found.gradient(np.array([[4.0], [9.0]]), size_limit=1.5).ravel()
        array([2.25, 0.  ])
        """
        shares = self.weights / self.weight if self.weight > 0.0 else self.weights
        if size_limit is not None:
            shares = np.minimum(shares, size_limit / len(shares))
        gradient: np.ndarray = shares[:, np.newaxis] * (centres - self.means)
        return gradient


class BatchAssigner:
    """Assigns batches of one kind of rows to centres, which stay in place.

    Parameters
    ----------
    dtype : dtype
        Dtype of the computations; centres are rounded to it.
    n_threads : int
        At most two are used, and only for large batches.
    """

    def __init__(self, dtype: Any, *, n_threads: int = 1) -> None:
        self.dtype, self.n_threads = np.dtype(dtype), n_threads
        self._stepper: MiniBatchStepper | None = None

    @contextmanager
    def threads(self, n_clusters: int, n_features: int) -> Iterator[Self]:
        """Hold a second thread within the context, if more than one may be used."""
        start = MovingCentres.start(np.zeros((n_clusters, n_features), self.dtype))
        with MiniBatchStepper(start, "count", n_threads=self.n_threads).threads() as self._stepper:
            yield self
        self._stepper = None

    def __call__(self, batch: Batch, centres: np.ndarray) -> BatchClusters:
        """Return the clusters of `batch` under `centres`, float64 (k, d)."""
        stepper = self._stepper
        assert stepper is not None, "use threads()"
        state = stepper.state
        with np.errstate(over="ignore"):
            np.copyto(state.centres, centres, casting="same_kind")
        # A centre that has seen no rows moves to the mean itself: a step then gives means and weights.
        state.exact, state.seen = np.zeros(centres.shape), np.zeros(len(centres))
        outcome = stepper.step(batch.ready(self.dtype))
        return BatchClusters(state.exact, state.seen, outcome.weight, outcome.cost)


MOST_RISE = 4.0
"""Times its value at the start of an outer step that a batch's objective may have at the end."""

_MOST_HALVINGS = 30
"""Halvings in one outer step, after which centres stay where they are."""


@dataclass(frozen=True)
class ImplicitSteps:
    """Settings of the outer steps.

    Attributes
    ----------
    step_size : float
        gamma of the first step.
    decay : float
        beta, in (0, 1]: ratio of gamma of a step to gamma of the previous one.
    averaging : float
        alpha, in [0, 1): the weight of the old average.
    inner_iter : int
        imaxit, fixed-point iterations of a step.
    guard : bool
        Repeat steps that run away. Without it, only what exceeds the range of numbers is repeated.
    size_limit : float or None
        Multiple of the mean share of a cluster in a batch that its step counts at most; None: any.
    """

    step_size: float
    decay: float = 1 / 1.01
    averaging: float = 0.75
    inner_iter: int = 5
    guard: bool = True
    size_limit: float | None = None


@dataclass(frozen=True)
class StepTaken:
    """One outer step.

    Attributes
    ----------
    start : BatchClusters
        Clusters of the first batch, under the centres before the step.
    shift : float
        Squared movement of all centres.
    step_size : float
        gamma of the step.
    n_halved : int
        Number of times that it was repeated.
    n_batches : int
        Number of batches evaluated.
    """

    start: BatchClusters
    shift: float
    step_size: float
    n_halved: int
    n_batches: int


@dataclass(frozen=True)
class DescentState:
    """State of a descent between two outer steps. Batches follow from the number of earlier steps.

    Attributes
    ----------
    centres : ndarray of shape (k, d), float64
    step_size : float
        Step size of the next step.
    n_batches : int
        Evaluated so far.
    first_centres : ndarray of shape (k, d), float64
    first_cost : float
        Mean objective of the first batch there; infinite before it is evaluated.
    start : BatchClusters or None
        Clusters of the last batch at `centres`, with which the next step starts.
    history, reason
        See `daskcluster.estimators.loop.LoopState`.
    seconds : float
        Since the loop began.
    """

    centres: np.ndarray
    step_size: float
    n_batches: int
    first_centres: np.ndarray
    first_cost: float = math.inf
    start: BatchClusters | None = None
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None
    seconds: float = 0.0

    @classmethod
    def first(cls, centres: np.ndarray, steps: ImplicitSteps) -> DescentState:
        """Return the state before the first step."""
        wide = np.array(centres, np.float64)
        return cls(wide, steps.step_size, 0, wide)


@dataclass
class ImplicitDescent:
    """Centres moved by implicit gradient steps.

    Attributes
    ----------
    batches : Batches
    assign : BatchAssigner
        With its threads held.
    now : DescentState
        State after the last step, without the history: x is ``now.centres``.
    steps : ImplicitSteps
    """

    batches: Batches
    assign: BatchAssigner
    now: DescentState
    steps: ImplicitSteps

    def step(self) -> StepTaken:
        """Make one outer step, halved until it stays within bounds.

        It is repeated with half of gamma if at its end, xbar, the mean objective of a batch exceeds 4
        times that of the batch that the step began with, and 4 times its own under the centres of the
        beginning (so that the noise of small batches is not taken for it); or when it rises above 4
        times that of the very first centres in the same way. Later steps start from the last gamma. The
        objective at the iterates y is not limited: their overshooting moves centres out
        of bad minima, and the average holds it back.

        Raises
        ------
        InvalidDataError
            A row of a batch is not finite.

        Notes
        -----
        Cost: `inner_iter` batches, M k distances each, one batch more in the first step.
        """
        looked, x = self.now.n_batches, self.now.centres
        start = self.now.start if self.now.start is not None else self._look(x)
        if looked == 0:
            self.now = replace(self.now, first_cost=_mean(start))
        gamma, halved = self.now.step_size, 0
        found = self._solve(start, gamma)
        while found is None and halved < _MOST_HALVINGS:
            gamma, halved = gamma / 2.0, halved + 1
            found = self._solve(start, gamma)
        centres, end = (x, start) if found is None else found
        shift = float(((centres - x) ** 2).sum())
        step_size = self.now.step_size * self.steps.decay
        self.now = replace(self.now, centres=centres, step_size=step_size, start=end)
        return StepTaken(start, shift, gamma, halved, self.now.n_batches - looked)

    def _solve(self, start: BatchClusters, gamma: float) -> tuple[np.ndarray, BatchClusters] | None:
        """Return xbar and the clusters of the next batch there; None if it diverged."""
        alpha, last, x = self.steps.averaging, self.steps.inner_iter - 1, self.now.centres
        y, average, found = x, x, start
        for inner in range(self.steps.inner_iter):
            y = self._scaled(x - gamma * found.gradient(y, self.steps.size_limit))
            average = alpha * average + (1.0 - alpha) * y
            if inner == last:
                # The batch that checks the average also starts the next step.
                y = average = self._scaled(average)
            found = self._look(y)
            if not math.isfinite(found.cost):
                return None
        ran_away = self.steps.guard and self._ran_away(found, start)
        return None if ran_away else (average, found)

    def _scaled(self, centres: np.ndarray) -> np.ndarray:
        """Return centres of length one for the cosine metric."""
        if not self.batches.dataset.normalize:
            return centres
        length = np.sqrt((centres**2).sum(axis=1, keepdims=True))
        scaled: np.ndarray = centres / np.where(length > 0.0, length, 1.0)
        return scaled

    def _look(self, centres: np.ndarray) -> BatchClusters:
        """Return the clusters of the next batch at `centres`."""
        self._batch = self.batches.next()
        self.now = replace(self.now, n_batches=self.now.n_batches + 1)
        found = self.assign(self._batch, centres)
        if is_suspect(found.cost, self.assign.dtype):
            self.batches.refuse_bad(self._batch)
        return found

    def _ran_away(self, found: BatchClusters, start: BatchClusters) -> bool:
        """Return True if the last batch costs far more than at the start of this or of the first step."""
        cost, allowed = _mean(found), MOST_RISE * _mean(start)
        if cost <= min(allowed, MOST_RISE * self.now.first_cost):
            return False
        here = _mean(self.assign(self._batch, self.now.centres))
        if not cost <= max(allowed, MOST_RISE * here):
            return True
        # Small rises would add up over steps, so far above the first centres only falls are allowed.
        return cost > max(here, MOST_RISE * _mean(self.assign(self._batch, self.now.first_centres)))


def _mean(found: BatchClusters) -> float:
    return found.cost / found.weight if found.weight > 0.0 else 0.0


def backward_euler(
    batches: Batches,
    assign: BatchAssigner,
    begin: DescentState,
    steps: ImplicitSteps,
    limits: Limits,
    *,
    keep: Callable[[DescentState], None] | None = None,
    validate: Callable[[DescentState], float] | None = None,
) -> DescentState:
    """Move centres by implicit gradient steps.

    Parameters
    ----------
    batches : Batches
        Batches of M rows; those of the steps before `begin` are skipped.
    assign : BatchAssigner
    begin : DescentState
        Where to start: centres in the dtype of `assign`; for the cosine metric of length one.
    steps : ImplicitSteps
    limits : Limits
        omaxit outer steps; seconds include those before `begin`. Its callbacks hear an `ImplicitStepEnded`
        for each outer step.
    keep, validate : callable (DescentState), optional
        Called with the state after each outer step.

    Returns
    -------
    DescentState
        After the last outer step.

    Raises
    ------
    InvalidDataError
        A row that was met is not finite.

    Notes
    -----
    Cost: max_iter inner_iter + 1 batches of M k distances. Memory: 6 k d numbers of float64.
    """
    limits = replace(limits, clock=Clock(begin.seconds))
    descent = ImplicitDescent(batches, assign, begin, steps)
    n_rows, k = batches.batch_size, len(begin.centres)

    def step(state: DescentState) -> Stepped[DescentState]:
        taken = descent.step()
        facts = {
            "inertia": taken.start.cost,
            "shift": taken.shift,
            "n_empty": int((taken.start.weights <= 0.0).sum()),
            "n_touched": taken.n_batches * n_rows,
            "n_distances": taken.n_batches * n_rows * k,
            "batch_size": n_rows,
            "step_size": taken.step_size,
            "n_halved": taken.n_halved,
        }
        state = replace(descent.now, seconds=limits.clock.seconds)
        return Stepped(state, facts, taken.start.weight)

    with assign.threads(*begin.centres.shape):
        return run_loop(
            step,
            begin,
            ImplicitStepEnded,
            limits,
            keep=keep,
            bytes_read=lambda: batches.bytes_read,
            validate=validate,
        )
