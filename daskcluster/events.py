"""Events that a fit publishes while it runs.

Callbacks are callables that take one event. Return values are ignored; raise `StopFit` to end a
fit early with the model it has.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


class StopReason(enum.StrEnum):
    """Why a fit ended."""

    CONVERGED = "converged"
    """No label changes any more: the centres are a fixed point."""
    TOLERANCE = "tolerance"
    """The centres moved less than `tol` allows."""
    NO_IMPROVEMENT = "no_improvement"
    """The smoothed inertia of mini-batches has not fallen for `max_no_improvement` steps."""
    MAX_ITER = "max_iter"
    MAX_TIME = "max_time"
    CALLBACK = "callback"


class StopFit(Exception):  # noqa: N818  (control flow, like StopIteration)
    """Raised by a callback to end a fit after the current iteration."""


@dataclass(frozen=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True)
class FitStarted(Event):
    """Rows and parameters are checked; work begins."""

    algorithm: str
    n_rows: int
    n_features: int
    n_clusters: int
    max_iter: int
    engine: str
    estimator: str = ""


@dataclass(frozen=True)
class PassStarted(Event):
    """A pass over the rows begins."""

    name: str
    n_rows: int


@dataclass(frozen=True)
class PassProgress(Event):
    """`rows` more rows of the running pass are done."""

    rows: int


@dataclass(frozen=True)
class PassEnded(Event):
    """All rows of a pass are done."""

    name: str
    seconds: float
    bytes_read: int


@dataclass(frozen=True)
class SeedingEnded(Event):
    """Initial centres are chosen."""

    method: str
    passes: int
    seconds: float


@dataclass(frozen=True)
class IterationEnded(Event):
    """One centre update is done.

    `inertia` belongs to the centres that the iteration started from; `shift` is the squared
    Frobenius norm of the centres' movement; `n_touched` rows were visited, for `n_distances`
    distances to centres. `mean_squared_distance` is the inertia over the weight of the rows that it is
    the sum of, which all fits have in common; `validation` is that of other rows to the new centres, if
    that was asked for (so compare it with the next record), and its time is not in `seconds`. Kernel fits
    measure both in their own space.
    """

    iteration: int
    inertia: float
    shift: float
    seconds: float
    n_empty: int = 0
    bytes_read: int = 0
    n_touched: int = 0
    n_distances: int = 0
    mean_squared_distance: float | None = None
    validation: float | None = None


@dataclass(frozen=True)
class RoundEnded(IterationEnded):
    """One centre update on a batch of rows is done; `inertia` and the counts are those of the batch.

    `doubling_ratio` is what has to exceed rho for the batch to double, or a bound of it that did not;
    None if no cluster has a veto, or if the batch is all rows.
    """

    batch_size: int = 0
    doubling_ratio: float | None = None


@dataclass(frozen=True)
class StepsEnded(IterationEnded):
    """Some mini-batch steps are done, `iteration` of them since the fit began.

    `inertia` and `shift` are those of the last step alone and of its batch; seconds, bytes, touched rows
    and distances are of all steps since the event before. `n_rows` rows were seen since the fit began,
    `smoothed_inertia` is the exponentially weighted mean of the batches' inertia a row, `n_reassigned`
    centres were set to random rows since the event before.
    """

    batch_size: int = 0
    n_rows: int = 0
    smoothed_inertia: float | None = None
    n_reassigned: int = 0


@dataclass(frozen=True)
class EpochEnded(IterationEnded):
    """One epoch of variance reduced k-means is done: a full pass, and steps that single rows made.

    `inertia` belongs to the centres that the epoch started from, `shift` to the whole epoch.
    `learning_rate` is that of its `n_steps` steps, in `n_switched` of which the row had changed centres.
    `went_back` says that the centres it would have started from were worse than those of the epoch before,
    or that its own steps diverged: centres went back to the last position correction, and the rate is
    halved from here on. `full_gradient` is the length of the gradient there, where it was computed.
    """

    learning_rate: float = 0.0
    n_steps: int = 0
    n_switched: int = 0
    went_back: bool = False
    full_gradient: float | None = None


@dataclass(frozen=True)
class ImplicitStepEnded(IterationEnded):
    """One outer step of stochastic backward Euler is done.

    `inertia` is that of the step's first batch, of `batch_size` rows, under the centres that the step
    started from; the counts are those of all its batches. `step_size` is the gamma that it was made with,
    after it was halved `n_halved` times.
    """

    batch_size: int = 0
    step_size: float = 0.0
    n_halved: int = 0


@dataclass(frozen=True)
class EMStepEnded(IterationEnded):
    """One E-step and M-step of a mixture is done.

    `free_energy` belongs to the parameters that the iteration started from, and `inertia` is the sum of
    squared distances weighted by posteriors, about the means it started from. `variance` is the mean
    variance of the features under the new parameters; `n_moved` rows have another nearest cluster.
    """

    free_energy: float = 0.0
    variance: float = 0.0
    n_moved: int = 0


@dataclass(frozen=True)
class KernelStepEnded(IterationEnded):
    """One mini-batch step of kernel k-means is done.

    `inertia` is the batch's weighted sum of squared distances to the centres before the step, in the
    space of the Gram function; the way of centres there is not measured (`shift` is 0). `n_distances`
    Gram values were computed, in `gram_seconds` of `seconds`; `n_points` rows of batches make up the
    centres now.
    """

    batch_size: int = 0
    n_points: int = 0
    gram_seconds: float = 0.0


@dataclass(frozen=True)
class DriftFound(Event):
    """New rows of a stream fit the centres much worse than those before them did.

    `error` is their mean squared distance to the centres that were found before them, `baseline` the mean
    of such errors until then; `counts` is the weight of the new rows in each cluster, `n_rows` how many
    rows the stream has had.
    """

    n_rows: int
    error: float
    baseline: float
    counts: tuple[float, ...] = ()


@dataclass(frozen=True)
class CycleEnded(Event):
    """A poll of the source of a stream is over, and its results are committed.

    `new_rows` rows of `new_objects` objects were folded, `n_rows` since the stream began; `model_version`
    is that of the latest model, None before there is one.
    """

    n_rows: int
    new_rows: int
    new_objects: int
    model_version: int | None
    seconds: float


@dataclass(frozen=True)
class StartEnded(Event):
    """One of `n_init` independent starts was evaluated on all rows."""

    number: int
    n_init: int
    inertia: float


@dataclass(frozen=True)
class FitsMade(Event):
    """`done` of `total` independent fits that compare numbers of clusters are made by now."""

    done: int
    total: int


@dataclass(frozen=True)
class FitEnded(Event):
    """The model is complete; figures are those of the whole fit."""

    stop_reason: StopReason
    inertia: float
    n_iter: int
    passes: int
    bytes_read: int
    seconds: float


@dataclass(frozen=True)
class FitFailed(Event):
    """An error or an interrupt ended the fit; it is raised to the caller as well."""

    reason: str


@dataclass(frozen=True)
class WorkersPrepare(Event):
    """Workers open the rows and load their kernels, which those of a first run compile."""


@dataclass(frozen=True)
class Notice(Event):
    """A decision or an oddity that a person would want to know."""

    text: str
    detail: dict[str, Any] = field(default_factory=dict)


def rows_passed(event: IterationEnded, n_rows: int) -> int:
    """Return how many of `n_rows` rows an iteration went over.

    Rows that bounds decide without a visit count as well; of a batch, only its own rows do.
    """
    return event.n_touched if isinstance(event, RoundEnded | StepsEnded) else n_rows


def share_looked_at(event: IterationEnded, n_rows: int) -> float | None:
    """Return the share of the rows that bounds did not skip; None if no row was skipped."""
    of_batch = isinstance(event, RoundEnded | StepsEnded)
    return event.n_touched / n_rows if not of_batch and 0 < event.n_touched < n_rows else None


class PassShare:
    """A callback that knows the running pass, and which share of its rows is done.

    Examples
    --------
    >>> share = PassShare()
    >>> share(PassStarted("assign", 40))
    >>> share(PassProgress(10))
    >>> share.name, share.done
    ('assign', 0.25)
    """

    def __init__(self) -> None:
        self.name = ""
        self.total = self._rows = 0
        self._ended = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, PassStarted):
            self.name, self._rows, self.total, self._ended = event.name, 0, event.n_rows, False
        elif isinstance(event, PassProgress):
            self._rows += event.rows
        elif isinstance(event, PassEnded):
            self._ended = True

    @property
    def done(self) -> float | None:
        """Share of the rows that are done; None before the first pass, and where rows are not counted."""
        if self._ended:
            return 1.0
        return float(min(1.0, self._rows / self.total)) if self.total else None


_REMEMBERED = 5


class Remaining:
    """An upper bound of the remaining time: iterations left times the time of the last ones.

    A fit that converges ends earlier.

    Examples
    --------
    >>> remaining = Remaining()
    >>> remaining(FitStarted("lloyd", 10, 2, 3, max_iter=11, engine="local"))
    >>> remaining(IterationEnded(1, inertia=1.0, shift=1.0, seconds=2.0))
    >>> remaining.at_most
    22.0
    """

    def __init__(self) -> None:
        self._max_iter = 0
        self._iteration = 0
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)

    def __call__(self, event: Event) -> None:
        if isinstance(event, FitStarted):
            self._max_iter, self._iteration = event.max_iter, 0
            self._seconds.clear()
        elif isinstance(event, IterationEnded):
            self._iteration = event.iteration
            self._seconds.append(event.seconds)

    @property
    def at_most(self) -> float | None:
        """Most seconds left, including the final pass; None before the first iteration."""
        if not self._seconds:
            return None
        mean = sum(self._seconds) / len(self._seconds)
        return mean * (max(0, self._max_iter - self._iteration) + 1)


Callback = Callable[[Event], None]


def publish(callbacks: Sequence[Callback], event: Event) -> None:
    """Hand one event to every callback, in order."""
    for callback in callbacks:
        callback(event)
