"""One call of ``BackwardEulerKMeans.fit``: run and evaluate the starts, keep the best; and its dry run."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine, home_engine
from daskcluster.engine.memory import BASELINE_BYTES, Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import Fit, FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.loop import Limits
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.events import Callback, Notice, StartEnded, StopFit, publish
from daskcluster.methods.backward_euler.algorithm import ImplicitSteps
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
from daskcluster.methods.kmeans.fit import measure_run, pass_flop
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.methods.minibatch.batches import ROOM_BYTES
from daskcluster.methods.minibatch.fit import batches_footprint
from daskcluster.methods.minibatch.sample import batch_room, threads_of
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.methods.backward_euler.estimator import BackwardEulerKMeans

AGGRESSIVE = 2.2
"""First step size over k, which is the inverse of the Lipschitz constant for balanced clusters. The paper
gives none; of what was tried, this leaves the most bad minima with an average of 0.9."""

_EVALUATED_BYTES = 64 << 20
"""Centres that are evaluated in one pass."""


class BackwardEulerFit(Fit):
    """One call of fit.

    Attributes
    ----------
    inertias : ndarray of shape (n_init,), float64
        Inertia of every start on all rows; NaN for starts that `max_time` left out.
    """

    inertias: np.ndarray

    def __init__(
        self,
        estimator: BackwardEulerKMeans,
        source: Any,
        dataset: Dataset,
        engine: Engine,
        callbacks: tuple[Callback, ...],
        **options: Any,
    ) -> None:
        self.room_bytes = batch_room(engine, dataset, callbacks, ROOM_BYTES)
        super().__init__(estimator, source, dataset, engine, callbacks, **options)
        self.restarts = int(self.estimator.n_init)
        self.method = method_for(self.init, in_memory=True)

    def circumstances(self) -> Mapping[str, Any]:
        """Return the parameters that batches depend on, if rows are read ahead."""
        return {} if self.dataset.in_memory else {"bytes_read_ahead": self.room_bytes}

    name = "backward-euler"

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the run of the best start, whose ``n_iter`` counts outer steps."""
        starts = self._settled(rows, self._starts())
        best = self._refined(rows, self._best(rows, starts))
        labels = self.kept_labels(rows.placement) if self.labelled else None
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
