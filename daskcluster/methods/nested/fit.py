"""One call of ``NestedMiniBatchKMeans.fit``: place the rows, seed, run the rounds; and its dry run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.engine.engine import Placement, Traffic
from daskcluster.engine.local import home_engine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.estimators.stopping import is_final
from daskcluster.events import SeedingEnded, publish
from daskcluster.methods.coreset.start import SAMPLE_ROWS, sampled_start
from daskcluster.methods.kmeans.bounds import AssignmentChoice
from daskcluster.methods.kmeans.fit import (
    KMeansRun,
    SeededFit,
    bounds_bytes,
    fit_footprint,
    measure_run,
    pass_flop,
    seeding_passes,
    travel,
)
from daskcluster.methods.kmeans.initial import is_auto, method_for
from daskcluster.methods.nested.algorithm import NestedState, nested
from daskcluster.methods.nested.batches import HOME_BYTES, NestedBatches, NestedOrder
from daskcluster.methods.nested.doubling import DoublingRule
from daskcluster.models.fitted import FitResult
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.methods.nested.estimator import NestedMiniBatchKMeans


class NestedFit(SeededFit):
    """One call of fit."""

    estimator: NestedMiniBatchKMeans

    def run(self) -> KMeansRun:
        estimator, dataset = self.estimator, self.dataset
        self.started("nested")
        footprint = fit_footprint(dataset, estimator.n_clusters, "random")
        shape = (self.n_clusters, dataset.n_features)
        resumed = self.resumed(NestedState, {"centres": shape, "seeds": shape})
        with ExitStack() as stack:
            whole = stack.enter_context(
                self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks)
            )
            labels = self.kept_labels(whole)
            home_bytes = HOME_BYTES
            if whole.shares_memory:
                home_bytes = min(HOME_BYTES, whole.state_room() // 2)
            batches = NestedBatches(
                whole,
                self.engine,
                NestedOrder(
                    dataset.n_rows, Key(self.seed, "nested") if estimator.shuffle else None
                ),
                int(estimator.batch_size),
                labels=labels,
                footprint=footprint,
                callbacks=self.callbacks,
                home_bytes=home_bytes,
                number=0 if resumed is None else resumed.batch,
            )
            stack.callback(batches.close)
            run = self._rounds(batches, self._begin(resumed, batches, whole), whole, stack)
            rows = batches.rows if batches.is_whole else ScaledPlacement(whole)
            best = measure_run(rows, run, labels, labelled=self.labelled)
            took = _taken(batches, whole)
            self.passes += took.passes
            self.bytes_read += took.bytes_read
        self.ended(best.result.stop_reason, best.found.inertia, best.result.n_iter)
        return best

    def _begin(
        self, resumed: NestedState | None, batches: NestedBatches, whole: Placement
    ) -> NestedState:
        """Return the state to resume from, or an initial one."""
        if resumed is not None:
            self.recall(batches.rows)
            return resumed
        centres = self._first_centres(batches)
        first = NestedState(0, False, centres, centres if self.estimator.seeds_vote else None)
        self._keep(first, batches, whole)
        return first

    def _first_centres(self, batches: NestedBatches) -> np.ndarray:
        """Return centres of a sample of all rows in memory: rare rows may not be in the first batch."""
        key, held = Key(self.seed, "restart"), batches.held
        if not is_auto(self.init) or held is None or batches.is_whole:
            return self.seeded(batches.rows, key)  # as KMeans has it
        began, size = time.perf_counter(), max(SAMPLE_ROWS, 3 * self.n_clusters)
        with home_engine(self.engine).place(held) as placement:
            rows = ScaledPlacement(placement)
            start = sampled_start(rows, self.n_clusters, size, key.derived_seed())
        self.method = method_for(self.init, in_memory=True)
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        return start.centres

    def _rounds(
        self, batches: NestedBatches, begin: NestedState, whole: Placement, stack: ExitStack
    ) -> FitResult:
        estimator, ended, n_rounds = self.estimator, begin.reason, len(begin.history)
        if ended is not None and is_final(ended, n_rounds, estimator.max_iter, self.time_left()):
            return FitResult(begin.centres, n_rounds, ended, list(begin.history))
        name = str(estimator.bounds) if estimator.bounds else "lloyd"
        return nested(
            batches,
            begin,
            choose=AssignmentChoice(
                name, self.n_clusters, estimator.bounds_memory, self.callbacks, parameter="bounds"
            ),
            rule=DoublingRule(float(estimator.rho), estimator.doubling),
            max_iter=estimator.max_iter,
            tol=estimator.tol,
            max_time=self.time_left(),
            callbacks=self.callbacks,
            validate=self.validator(stack),
            keep=lambda state: self._keep(state, batches, whole),
        )

    def _keep(self, state: NestedState, batches: NestedBatches, whole: Placement) -> None:
        ends = not state.history or state.reason is not None
        self.keep(lambda: state, _taken(batches, whole), batches.rows, now=ends)


def _taken(batches: NestedBatches, whole: Placement) -> Traffic:
    return Traffic(whole.traffic.passes + batches.gathers, batches.bytes_read)


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return what a fit with `parameters` takes on `dataset`.

    Rounds on a part of the rows are no passes. Their number is not known in advance: at most all of
    `max_iter` are on all rows.
    """
    n_clusters, size = int(parameters["n_clusters"]), int(parameters["batch_size"])
    check_enough_rows(dataset, n_clusters)
    is_whole = size >= dataset.n_rows
    at_home = size * dataset.bytes_of((0, dataset.n_rows)) <= HOME_BYTES * dataset.n_rows
    seeded_in_memory = dataset.in_memory if is_whole else at_home
    method = method_for(parameters["init"], in_memory=seeded_in_memory)
    seeding = seeding_passes(method, n_clusters) if is_whole else 0
    gathering = int(not is_whole and parameters["shuffle"] and not dataset.in_memory)
    budget, bounds = parameters["bounds_memory"], parameters["bounds"]
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=1,
        passes_at_most=seeding + gathering + int(parameters["max_iter"]) + 1,
        footprint=fit_footprint(dataset, n_clusters, method if is_whole else "sample"),
        flop=pass_flop(dataset, n_clusters),
        states=bounds_bytes(dataset, n_clusters, "lloyd" if not bounds else str(bounds)),
        states_at_most=None if budget == "auto" else int(budget),
        commit_bytes=centres_bytes(dataset, n_clusters) * (2 if parameters["seeds_vote"] else 1),
        travel=travel(dataset, n_clusters, bounded=bool(bounds)),
    )
