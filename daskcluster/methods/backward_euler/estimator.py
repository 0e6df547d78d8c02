"""BackwardEulerKMeans: independent starts of implicit gradient steps on mini-batches; and its dry run.

A start gives the same bits alone, together with others, or on any worker. Each commits its own state.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from daskcluster.engine.local import LocalEngine, home_engine
from daskcluster.engine.memory import BASELINE_BYTES, Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.base import in_declared_order
from daskcluster.estimators.fit import Fit, FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.loop import Limits
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.events import Notice, StartEnded, StopFit, publish
from daskcluster.invariance import DRAWN, POOLS, ROOM, varies_with
from daskcluster.methods.backward_euler.algorithm import ImplicitSteps
from daskcluster.methods.backward_euler.parameters import BACKWARD_EULER
from daskcluster.methods.backward_euler.starts import (
    Start,
    StartCommits,
    StartParameters,
    StartsState,
    held,
    run_start,
    spread,
)
from daskcluster.methods.coreset.quality import true_costs
from daskcluster.methods.kmeans.algorithm import CentresState, lloyd
from daskcluster.methods.kmeans.estimator import KMeansEstimator
from daskcluster.methods.kmeans.fit import measure_run, pass_flop
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.methods.minibatch.estimator import BatchFit, batches_footprint
from daskcluster.methods.minibatch.sample import threads_of
from daskcluster.parameters.parameter import Parameter
from daskcluster.typing import Dataset

AGGRESSIVE = 2.2
"""First step size over k, which is the inverse of the Lipschitz constant for balanced clusters. The paper
gives none; of what was tried, this leaves the most bad minima with an average of 0.9."""

_EVALUATED_BYTES = 64 << 20
"""Centres that are evaluated in one pass."""


class BackwardEulerFit(BatchFit):
    """One call of fit.

    Attributes
    ----------
    inertias : ndarray of shape (n_init,), float64
        Inertia of every start on all rows; NaN for starts that `max_time` left out.
    """

    inertias: np.ndarray

    def prepare(self) -> None:
        self.restarts = int(self.estimator.n_init)
        self.method = method_for(self.init, in_memory=True)

    name = "backward-euler"

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the run of the best start, whose ``n_iter`` counts outer steps."""
        starts = self._settled(rows, self._starts())
        best = self._refined(rows, self._best(rows, starts))
        labels = self.kept_labels(rows.placement)
        run = measure_run(rows, best.result, labels, labelled=self.labelled)
        if self.restarts == 1:
            self.inertias = np.array([run.found.inertia])
        self.passes += -(-sum(start.n_rows for start in starts) // self.dataset.n_rows)
        self.bytes_read += sum(start.bytes_read for start in starts)
        return run

    @cached_property
    def _parameters(self) -> StartParameters:
        estimator, k = self.estimator, self.n_clusters
        gamma = AGGRESSIVE * k if estimator.step_size == "auto" else float(estimator.step_size)
        return StartParameters(
            init=self.init,
            n_clusters=k,
            chain_length=int(estimator.chain_length),
            batch_size=int(estimator.batch_size),
            max_iter=int(estimator.max_iter),
            steps=ImplicitSteps(
                gamma,
                float(estimator.decay),
                float(estimator.averaging),
                int(estimator.inner_iter),
                bool(estimator.guard),
                float(estimator.size_limit) if estimator.size_limit else None,
            ),
            seed=self.seed,
            room_bytes=self.room_bytes,
            validation=self.validation_rows(),
        )

    def validator(self, stack: ExitStack) -> None:
        """Return None: each start validates its own centres."""

    def footprint(self) -> Footprint:
        """Return the memory of the passes, and on a cluster of the rows that starts read ahead."""
        found = batches_footprint(self.dataset, self.n_clusters, self.room_bytes)
        if self._stays_home or self.engine.name == "local":
            return found
        return replace(found, thread_bytes=found.thread_bytes + found.ahead_bytes, ahead_bytes=0)

    def _starts(self) -> list[Start]:
        """Run all starts: one in this thread, several on the engine or on the threads of this process."""
        limit, dataset, commits = self.time_left(), self.dataset, self._commits()
        parameters = self._parameters
        engine = home_engine(self.engine) if self._stays_home else self.engine
        if self.restarts == 1:
            threads = threads_of(engine)
            return [
                run_start(
                    dataset, parameters, 0,
                    max_time=limit, n_threads=threads, callbacks=self.callbacks, commits=commits,
                )
            ]  # fmt: skip
        if engine.name == "local":
            dataset, read = held(dataset, parameters.room_bytes)
            self.bytes_read += read
        width = engine.n_threads
        if isinstance(engine, LocalEngine) and not dataset.in_memory:
            width = min(width, (engine.memory_limit - BASELINE_BYTES) // parameters.room_bytes)
        return spread(engine, dataset, parameters, self.restarts, max(1, width), limit, commits)

    @cached_property
    def _stays_home(self) -> bool:
        """True if starts run in this process: a single one, or one that workers cannot run."""
        commits = self.checkpoints.commits
        needed = [self.dataset, self._parameters.validation]
        unread = [each for each in needed if each is not None and not self.engine.can_read(each)]
        if self.restarts == 1 or unread:
            return True
        if commits is None or self.engine.can_read(commits.folder):
            return False
        text = (
            f"workers cannot write checkpoints to {commits.folder.url!r}, so starts run in this process; "
            "give checkpoint= a bucket or a folder that workers share."
        )
        publish(self.callbacks, Notice(text))
        return True

    def _commits(self) -> StartCommits | None:
        """Return the place of the states of starts, after the fit committed its name."""
        if self.checkpoints.commits is None:
            return None
        resumed = self.resumed(StartsState, {})
        if resumed is None:
            resumed = StartsState(uuid.uuid4().hex)
            first = resumed
            self.keep(lambda: first, now=True)
        return StartCommits(self.checkpoints.commits, resumed.token)

    def _settled(self, rows: ScaledPlacement, starts: list[Start]) -> list[Start]:
        """Return starts of one cluster with their centre at the minimum, others as they are.

        With one cluster, the objective is a parabola. Steps reach its minimum only as precisely as batches
        determine it, while one pass over the rows gives it exactly: it is their mean.
        """
        if self.n_clusters > 1 or self.estimator.max_iter == 0:
            return starts
        state = CentresState(starts[0].result.centres)
        mean = lloyd(rows, state, Limits(1), tol=0.0).centres
        return [replace(start, result=replace(start.result, centres=mean)) for start in starts]

    def _refined(self, rows: ScaledPlacement, best: Start) -> Start:
        """Return the start with its centres moved by Lloyd's algorithm, if that is asked for."""
        most = int(self.estimator.refine_iter)
        if most == 0:
            return best
        state = CentresState(best.result.centres)
        found = lloyd(rows, state, self.limits(most), tol=0.0)
        return replace(best, result=replace(best.result, centres=found.centres))

    def _best(self, rows: ScaledPlacement, starts: Sequence[Start]) -> Start:
        """Return the start with the lowest inertia, the first of equal ones."""
        if self.restarts == 1:
            return starts[0]
        self.inertias = np.full(self.restarts, np.nan)
        size = starts[0].result.centres.nbytes
        at_once = max(1, _EVALUATED_BYTES // size)
        for first in range(0, len(starts), at_once):
            some = starts[first : first + at_once]
            costs = true_costs(rows, [start.result.centres for start in some])
            for start, cost in zip(some, costs, strict=True):
                self.inertias[start.number] = cost
        with suppress(StopFit):  # all starts are done, so there is nothing left to stop
            for start in starts:
                cost = float(self.inertias[start.number])
                publish(self.callbacks, StartEnded(start.number, self.restarts, cost))
        best = int(np.nanargmin(self.inertias))
        return next(start for start in starts if start.number == best)


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the cost of a fit with `parameters` on `dataset`, if no step is repeated.

    All starts are evaluated in one pass, and the best one once more for its labels; as many passes as their
    batches have rows; one for the mean if there is one cluster; and those of Lloyd's algorithm.
    """
    n_clusters, n_init = int(parameters["n_clusters"]), int(parameters["n_init"])
    check_enough_rows(dataset, n_clusters)
    batch = min(int(parameters["batch_size"]), dataset.n_rows)
    steps = int(parameters["max_iter"]) * int(parameters["inner_iter"])
    drawn = n_init * (steps + 1) * batch if steps else 0
    return Plan(
        seeding=method_for(parameters["init"], in_memory=True),
        passes_seeding=0,
        restarts=n_init,
        passes_at_most=-(-drawn // dataset.n_rows)
        + (2 if n_init > 1 else 1)
        + (n_clusters == 1)
        + int(parameters["refine_iter"]),
        footprint=batches_footprint(dataset, n_clusters),
        flop=pass_flop(dataset, n_clusters),
        commit_bytes=n_init * (3 * centres_bytes(dataset, n_clusters, wide=True) + 8 * n_clusters),
    )


@varies_with(chunks=POOLS, storage=POOLS, memory_limit=ROOM, order=DRAWN)
@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class BackwardEulerKMeans(KMeansEstimator):
    """K-means by stochastic backward Euler: where the first centres are hardly matters.

    An outer step solves the implicit gradient step of the k-means objective by a few fixed-point
    iterations, each on a new mini-batch, and goes to the average of what they pass. The first steps are
    so large that centres leave bad local minima; then they shrink. The result is the same to the bit on
    any engine and any number of threads and workers. That of stored rows above 256 MB depends on their
    chunks and, where it leaves less than 256 MB, on the memory limit.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    init : str, URL, array, callable or estimator, default "auto"
        First centres, chosen among the rows of a random sample (three batches, at least 3 k rows).
        ``"auto"`` draws far rows more often and refines the centres of k-means++, as in
        `daskcluster.MiniBatchKMeans`.
    n_init : int >= 1, default 1
        Independent starts, of which the one with the lowest inertia is kept. They run at the same time on
        the threads of this process, or on the workers of a cluster if these can read the rows; each gives
        the same bits as alone. Given centres are the same for all of them, but batches differ.
    batch_size : int >= 1, default 1000
        Rows of an inner iteration; the paper's M.
    step_size : float > 0 or "auto", default "auto"
        Step size of the first outer step: the paper's gamma, for its objective phi = 1 / (2 n) times the
        sum of squared distances. ``"auto"`` is 2.2 k: beyond k, where the fixed-point iteration of
        balanced clusters would not converge without the average. The larger, the farther centres go.
    decay : float in (0, 1], default 0.9803921568627451
        Step size over that of the step before, in (0, 1]; beta.
    averaging : float in [0, 1), default 0.9
        Weight of the old average of the trajectory, in [0, 1); alpha. 0 keeps the last iterate.
    inner_iter : int >= 1, default 5
        Fixed-point iterations of an outer step; imaxit.
    max_iter : int >= 0, default 100
        Outer steps; omaxit. 0 keeps the first centres.
    size_limit : float > 0, None or False, default 1.25
        A cluster with more than this multiple of the mean number of rows steps as one that has as many:
        else its centre would overshoot so far that nothing settles. None: no limit, as in the paper.
    guard : bool, default True
        Redo a step that diverges with half its size. False: steps are those of the paper, and diverge.
    refine_iter : int >= 0, default 0
        Iterations of Lloyd's algorithm, at most, that finish the start that is kept.
    metric : {"euclidean", "cosine"}, default "euclidean"
        Distance; cosine is spherical k-means.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Where starts and the last passes run, see `daskcluster.KMeans`. A single start runs in this process.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`: of a single start an `ImplicitStepEnded` for each
        step, of several a `StartEnded` for each of them when all are evaluated.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    max_time : float > 0, optional
        Seconds, without the last passes; the step that exceeds them is the last of its start.
    validation : str, array-like of shape (m, d) or Dataset, optional
        The same as in `daskcluster.KMeans`, after each outer step of every start.
    chain_length : int >= 1, default 10
        Rows that ``"afk-mc2"`` proposes for each centre.
    checkpoint : str or path, optional
        The same as in `daskcluster.KMeans`. Each start has commits of its own, of 8 k (3 d + 1) bytes.
    checkpoint_every : int >= 1, default 10
        Outer steps between two commits.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, seeding_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`; `inertia_` is 2 n phi, on all rows.
    start_inertias_ : ndarray of shape (n_init,), float64
        Inertia of every start, on all rows; NaN where `max_time` left none for it. Not saved. Of several
        starts before `refine_iter`, of a single one after it.
    n_iter_ : int
        Outer steps of the start that was kept.
    stop_reason_ : str
        max_iter, max_time or callback.
    history_ : list of dict
        A record for each outer step of that start: see `daskcluster.events.ImplicitStepEnded`.
    passes_, bytes_read_, cluster_sizes_, cluster_weights_, cluster_costs_
        As in `daskcluster.KMeans`, of all starts together.

    Notes
    -----
    Cost: ``max_iter inner_iter + 1`` batches of M k distances for each start, one pass for inertia and
    labels, one more for all of several starts, one for each of `refine_iter`. Memory: 48 k d bytes for each
    start at a time, 8 bytes a row for the order of rows in memory; of rows elsewhere 256 MB for each start
    at a time, or once for all of them on one machine if they fit there. A worker returns centres and
    history, once.

    P. Yin, M. Pham, A. Oberman and S. Osher, "Stochastic backward Euler: an implicit gradient descent
    algorithm for k-means clustering", J. Sci. Comput. 77 (2018), section 2.1. ``init="random"``,
    ``size_limit=None`` and ``guard=False`` follow it to the letter; its text as we have it lacks gamma,
    alpha and beta. Different by default: `size_limit`; with `guard`, a step is redone with half the size
    if the mean objective of a batch at its end exceeds 4 times the value at its beginning. In any case, a
    cluster without rows in a batch keeps its centre, and batches are drawn without replacement, as in
    `daskcluster.MiniBatchKMeans`, whose notes on sampling hold here. With one cluster the objective is a
    parabola: the centre goes to its minimum, the mean of the rows, in one pass more. With several, centres
    end near those of batches, not at the means of their clusters: `refine_iter`, or a `KMeans` that takes
    the model as ``init``, continues from there to the fixed point.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.repeat([[0.0, 0.0], [10.0, 10.0]], 500, axis=0)
    >>> model = dc.BackwardEulerKMeans(n_clusters=2, n_init=3, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.round(2).tolist()), model.start_inertias_.shape
    ([[0.0, 0.0], [10.0, 10.0]], (3,))
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = BACKWARD_EULER
    fit_class: ClassVar[type[Fit]] = BackwardEulerFit

    init: Any = "auto"
    n_init: int = 1
    batch_size: int = 1000
    step_size: float | str = "auto"
    decay: float = 1 / 1.02
    averaging: float = 0.9
    inner_iter: int = 5
    max_iter: int = 100
    size_limit: float | bool | None = 1.25
    guard: bool = True
    refine_iter: int = 0

    def _learn_own(self, fit: BackwardEulerFit) -> None:
        self.start_inertias_ = fit.inertias
