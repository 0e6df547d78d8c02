"""The parts of `fit` that all estimators share: events, checks, checkpoints, time limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np

from daskcluster.chunk import compute_dtype
from daskcluster.chunkwise.data_statistics import warn_of_zeros
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.data.csr import csr_of
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Placement, Traffic
from daskcluster.engine.local import home_engine
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import DaskClusterError
from daskcluster.estimators.checkpoints import CheckpointHeader, Checkpoints, FitCost
from daskcluster.estimators.inputs import fit_dataset
from daskcluster.estimators.loop import Clock, Limits, LoopState, mean_distance
from daskcluster.events import (
    Callback,
    FitEnded,
    FitFailed,
    FitStarted,
    Notice,
    StopReason,
    publish,
)
from daskcluster.kernels.warm_up import compiled_by_two
from daskcluster.randomness import as_seed
from daskcluster.reports.progress import ProgressBar
from daskcluster.storage.document import Document, Shapes
from daskcluster.storage.location import Location
from daskcluster.typing import Dataset

S = TypeVar("S")
T = TypeVar("T")


_REASON = 300
"""Most characters of the reason of a failure."""


def _reported(run: Callable[..., T]) -> Callable[..., T]:
    """Let `run` publish `FitFailed` before it raises."""

    @wraps(run)
    def reported(self: Fit) -> T:
        try:
            return run(self)
        except BaseException as error:
            # A callback that raised the error may do so again, or another one: the first counts.
            with suppress(BaseException):
                publish(self.callbacks, FitFailed(reason_of(error)))
            raise

    return reported


def reason_of(error: BaseException) -> str:
    """Return why a fit failed, for those who can see its progress.

    Only messages of daskcluster are part of it: those of other libraries may contain credentials.

    Examples
    --------
    >>> reason_of(KeyboardInterrupt()), reason_of(OSError("key=abc"))
    ('interrupted', 'OSError')
    """
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    name = type(error).__name__
    return f"{name}: {error}"[:_REASON] if isinstance(error, DaskClusterError) else name


@dataclass
class FitRun:
    """The outcome of a fit: the result of its loop, final figures, and labels if there was room for them.

    Attributes
    ----------
    result : FitResult
    found : ScoreStatistics
        Or other figures with an inertia.
    labels : ndarray of shape (n,), int32, or None
    search : FixedSearch or None
        That of the final centres, None if none pays.
    """

    result: Any
    found: Any
    labels: np.ndarray | None = None
    search: FixedSearch | None = None


class Fit:
    """One call of `fit`. Subclasses implement `learn`; those with restarts `begin` and `finish`.

    ``run`` places the rows, learns, and publishes both ends. A subclass that cannot be run so has a ``run``
    of its own, which calls `started` first and `ended` last.

    Parameters
    ----------
    estimator : estimator
        With parameters ``engine``, ``callbacks``, ``init``, ``chain_length``, ``max_iter``, ``max_time``
        and ``n_clusters``.
    source : object
        The argument X of the caller.
    dataset : Dataset
    resume : bool
        Resume from the last commit of an earlier call under the estimator's ``checkpoint``.

    Attributes
    ----------
    method : str
        Method that chose the first centres.
    init : object
        The estimator's parameter ``init``.
    engine : Engine
    callbacks : tuple of callables
    labelled : bool
        Whether labels are requested as an array.
    restarts, passes, bytes_read : int
        Totals of the fit, including the time before an interruption; passes are those over all rows.
    stopped : bool
        Whether to leave out the restarts that are left.
    rows : ScaledPlacement or None
        The placed rows, while there are some; their data statistics are committed.
    validate : callable (state) -> float, or None
        Evaluates a state on the ``validation`` rows.
    """

    name: str
    """Name of the algorithm, for events."""
    method = ""
    restarts = 1
    stopped = False
    rows: ScaledPlacement | None = None
    validate: Callable[[Any], float] | None = None

    def __init__(
        self,
        estimator: Any,
        source: Any,
        dataset: Dataset,
        *,
        resume: bool = False,
    ) -> None:
        self.estimator, self.source, self.dataset = estimator, source, dataset
        self.engine, self.labelled = choose_engine(estimator.engine, dataset), dataset.in_memory
        callbacks = all_callbacks(estimator)
        self.callbacks = (*callbacks, *self.engine.listeners())
        self.init: Any = getattr(estimator, "init", None)
        self.passes = self.bytes_read = 0
        self.clock = Clock()
        self.checkpoints = Checkpoints(
            estimator,
            dataset,
            callbacks,
            resume=resume,
            circumstances=self.circumstances(),
            check=self.check_attached,
        )
        self._header = None
        if self.checkpoints.found is not None:
            self._header = header = self.checkpoints.found.header(dataset.n_features)
            self.passes, self.bytes_read = header.spent.passes, header.spent.bytes_read
            self.method, self.clock = header.spent.method, Clock(header.spent.seconds)
        self.prepare()

    def __init_subclass__(cls) -> None:
        # Here, so that no method, nor one of another package, can forget to report a failure.
        if "run" in vars(cls):
            cls.run = _reported(vars(cls)["run"])  # type: ignore[method-assign]

    def prepare(self) -> None:
        """Set what follows from the parameters and the rows, at the end of the constructor."""

    # -- one run -----------------------------------------------------------------------------------

    @_reported
    def run(self) -> Any:
        """Place the rows, learn, and publish both ends."""
        self.started(self.name, self.most)
        with ExitStack() as stack:
            if self.engine.name == "local":
                stack.enter_context(self._compiling())
            self.rows = ScaledPlacement(self.placed(stack))
            self.keep_totals(self.rows)
            self.recall(self.rows)
            self.validate = self.validator(stack)
            run = self.learn(self.rows, stack)
            if found := self.rows.data_statistics:
                warn_of_zeros(found.n_zero, found.n_rows)
            self._add(self.took())
        self.rows = None
        self.ended(run.result.stop_reason, run.found.inertia, run.result.n_iter)
        return run

    def _compiling(self) -> AbstractContextManager[None]:
        return compiled_by_two(
            self.n_clusters,
            compute_dtype(self.dataset.dtype),
            is_sparse=csr_of(self.dataset) is not None,
            tell=lambda text: publish(self.callbacks, Notice(text)),
        )

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return int(self.estimator.n_clusters)

    @property
    def most(self) -> int:
        """Maximum number of iterations."""
        return int(self.estimator.max_iter)

    def placed(self, stack: ExitStack) -> Placement:
        """Return the rows, placed on the engine until `stack` is closed."""
        placement = self.engine.place(
            self.dataset, footprint=self.footprint(), callbacks=self.callbacks
        )
        return stack.enter_context(placement)

    def footprint(self) -> Footprint:
        """Return the memory that the fit needs."""
        raise NotImplementedError

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the result of the fit; what `stack` holds is closed after it."""
        raise NotImplementedError

    def begin(self, restart: int, best: Any) -> Any:
        """Return the state in which a restart begins; `best` is what is kept of the best one before."""
        raise NotImplementedError

    def finish(self, state: Any) -> tuple[Any, Any]:
        """Make the rest of a restart; return what is kept of it, and the restart, evaluated."""
        raise NotImplementedError

    def best_restart(
        self, resumed: Any, restored: Callable[[Any], T], inertia: Callable[[T], float]
    ) -> T:
        """Make the restarts that are left; return the one with the lowest inertia, the first of equal ones.

        Parameters
        ----------
        resumed : state or None
            State of an interrupted fit, with fields ``restart`` and ``best``.
        restored : callable
            Returns a restart from what was kept of it.
        inertia : callable
        """
        kept = None if resumed is None else resumed.best
        best = None if kept is None else restored(kept)
        for restart in range(0 if resumed is None else resumed.restart, self.restarts):
            made, found = self.finish(self.begin(restart, kept) if resumed is None else resumed)
            if best is None or inertia(found) < inertia(best):
                best, kept = found, made
            if self.stopped or self.time_left() == 0.0:
                break
            resumed = None
        assert best is not None
        return best

    def limits(self, max_iter: int | None = None) -> Limits:
        """Return what is left of the limits of the fit."""
        most = self.most if max_iter is None else max_iter
        return Limits(most, self.estimator.max_time, self.callbacks, self.clock)

    # -- clock and events ----------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Seconds that the fit has taken, with those before an interruption and without validation."""
        return self.clock.seconds

    def time_left(self) -> float | None:
        """Return the seconds left of `max_time`; None if there is no limit."""
        return Limits(max_time=self.estimator.max_time, clock=self.clock).time_left

    def started(self, name: str, max_iter: int | None = None) -> None:
        """Publish that the fit has started; pass `max_iter` if it is not the estimator's."""
        most = self.estimator.max_iter if max_iter is None else max_iter
        shape = self.dataset.n_rows, self.dataset.n_features, self.n_clusters
        kind = type(self.estimator).__name__
        publish(self.callbacks, FitStarted(name, *shape, most, self.engine.name, kind))

    def ended(self, stop_reason: StopReason, inertia: float, n_iter: int) -> None:
        """Publish that the fit has ended, with its `passes` and `bytes_read`."""
        spent = self.passes, self.bytes_read, self.seconds
        publish(self.callbacks, FitEnded(stop_reason, inertia, n_iter, *spent))

    # -- checkpoints -------------------------------------------------------------------------------

    def circumstances(self) -> Mapping[str, Any]:
        """Return plain values that the result depends on besides parameters and rows."""
        return {}

    def check_attached(self, state: Document, place: Callable[[str], Location]) -> None:
        """Raise if attachments of a commit are damaged; by default there are none.

        Called when only the rows and the parameters are known. ``place(name)`` returns the location of an
        attachment.
        """

    @property
    def resumes(self) -> bool:
        """Whether the fit resumes from a commit."""
        return self._header is not None

    @cached_property
    def seed(self) -> int:
        """The seed of all draws; a resumed fit has the seed of the interrupted one."""
        if self._header is not None:
            return self._header.spent.seed
        commits = self.checkpoints.commits
        kept = None if commits is None or commits.totals is None else commits.totals.first_seed()
        return as_seed(self.estimator.random_state) if kept is None else kept

    def resumed(
        self, kind: type[S], shapes: Shapes, check: Callable[[S], None] = lambda state: None
    ) -> S | None:
        """Return the state that the fit resumes from; None for a new fit.

        Parameters
        ----------
        kind : type
            Dataclass of the state; see `daskcluster.storage.document`.
        shapes : mapping of str to tuple of int
            Shapes of its arrays.
        check : callable (state) -> None
            Raises `ModelFormatError` if the state is inconsistent.

        Raises
        ------
        CheckpointError
            The commit is not a state of this kind.
        """
        found = self.checkpoints.found
        return None if found is None else found.state(kind, shapes, check)

    def recall(self, rows: ScaledPlacement) -> None:
        """Restore the data statistics of the first pass, if it was made before the interruption."""
        if self._header is not None and self._header.data_statistics is not None:
            rows.remember(self._header.data_statistics)

    def keep_totals(self, rows: ScaledPlacement) -> None:
        """Let long passes over the rows of the fit keep their totals until the next commit."""
        commits = self.checkpoints.commits
        if commits is not None and commits.totals is not None:
            commits.totals.seed = self.seed
            rows.placement.totals = commits.totals

    def keep(self, state: Callable[[], Any], **when: Any) -> None:
        """Commit ``state()`` if a commit is due.

        Parameters
        ----------
        state : callable () -> dataclass
            Makes the state that `resumed` will return.
        **when
            See `daskcluster.estimators.checkpoints.Commits.keep`.
        """

        def document() -> Document:
            took, rows = self.took(), self.rows
            passes, bytes_read = self.passes + took.passes, self.bytes_read + took.bytes_read
            spent = FitCost(self.seed, self.method, passes, bytes_read, self.seconds)
            return CheckpointHeader(spent, None if rows is None else rows.data_statistics).around(
                state()
            )

        if self.checkpoints.commits is not None:
            self.checkpoints.commits.keep(document, **when)

    def keep_step(self, state: Any, loop: LoopState | None = None) -> None:
        """Commit the state after a step if a commit is due, or if it is the first or last one of its loop.

        Parameters
        ----------
        state : dataclass
        loop : LoopState, optional
            The state of the loop, if it is only a part of `state`.
        """
        loop = state if loop is None else loop
        ends = not loop.history or loop.reason is not None
        self.keep(lambda: state, now=ends)

    def took(self) -> Traffic:
        """Return passes and bytes that `passes` and `bytes_read` do not include yet."""
        return Traffic() if self.rows is None else self.rows.placement.traffic

    def _add(self, took: Traffic) -> None:
        self.passes += took.passes
        self.bytes_read += took.bytes_read

    # -- pieces of a run --------------------------------------------------------------------------

    def kept_labels(self, placement: Placement) -> np.ndarray | None:
        """Return an array for labels if the rows are in memory, too, so that it is comparatively small."""
        if placement.shares_memory and self.dataset.in_memory:
            return np.empty(self.dataset.n_rows, np.int32)
        return None

    def validator(self, stack: ExitStack) -> Callable[[Any], float] | None:
        """Return the function that evaluates states on the ``validation`` rows; None without such rows.

        The rows stay placed until `stack` is closed.
        """
        dataset = self.validation_rows()
        if dataset is None:
            return None
        engine = home_engine(self.engine) if dataset.in_memory else self.engine
        rows = ScaledPlacement(stack.enter_context(engine.place(dataset)))

        return lambda state: self.validated(rows, state)

    def validation_rows(self) -> Dataset | None:
        """Return the ``validation`` rows of the estimator, checked and scaled like those of the fit."""
        given = getattr(self.estimator, "validation", None)
        if given is None:
            return None
        return fit_dataset(self.estimator, given, None, reset=False, complete=True)

    def validated(self, rows: ScaledPlacement, state: Any) -> float:
        """Return the mean squared distance of other rows to the centres of a state, by weight."""
        return mean_distance(rows, state.centres)


def all_callbacks(estimator: Any) -> tuple[Callback, ...]:
    """Return the callbacks of a fit: the estimator's, and one that shows progress if it is verbose."""
    verbose = getattr(estimator, "verbose", 0)
    own = (ProgressBar(sys.stdout),) if verbose else ()
    return (*estimator.callbacks, *own)
