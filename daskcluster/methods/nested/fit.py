"""One call of ``NestedMiniBatchKMeans.fit``: place the rows, seed, run the rounds; and its dry run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.engine.engine import Placement, Traffic
from daskcluster.engine.local import home_engine
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.events import SeedingEnded, publish
from daskcluster.methods.coreset.start import SAMPLE_ROWS, sampled_start
from daskcluster.methods.kmeans.bounds import AssignmentChoice
from daskcluster.methods.kmeans.fit import (
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
    batches: NestedBatches
    whole: Placement

    name = "nested"

    def footprint(self) -> Footprint:
        return fit_footprint(self.dataset, self.n_clusters, "random")

    def took(self) -> Traffic:
        whole = self.whole.traffic
        return Traffic(whole.passes + self.batches.gathers, self.batches.bytes_read)

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        estimator, self.whole = self.estimator, rows.placement
        shape = (self.n_clusters, self.dataset.n_features)
        state = self.resumed(NestedState, {"centres": shape, "seeds": shape})
        labels = self.kept_labels(self.whole)
        home_bytes = HOME_BYTES
        if self.whole.shares_memory:
            home_bytes = min(HOME_BYTES, self.whole.state_room() // 2)
        key = Key(self.seed, "nested") if estimator.shuffle else None
        self.batches = batches = NestedBatches(
            self.whole,
            self.engine,
            NestedOrder(self.dataset.n_rows, key),
            int(estimator.batch_size),
            labels=labels,
            footprint=self.footprint(),
            callbacks=self.callbacks,
            home_bytes=home_bytes,
            number=0 if state is None else state.batch,
        )
        stack.callback(batches.close)
        self.rows = batches.rows
        self.recall(batches.rows)
        if state is None:
            centres = self._first_centres(batches)
            state = NestedState(0, False, centres, centres if estimator.seeds_vote else None)
            self.keep_step(state)

        def keep(state: NestedState) -> None:
            self.rows = batches.rows
            self.keep_step(state)

        name = str(estimator.bounds) if estimator.bounds else "lloyd"
        choice = AssignmentChoice(
            name, self.n_clusters, estimator.bounds_memory, self.callbacks, parameter="bounds"
        )
        end = nested(
            batches,
            state,
            self.limits(),
            choose=choice,
            rule=DoublingRule(float(estimator.rho), estimator.doubling),
            tol=estimator.tol,
            validate=self.validate,
            keep=keep,
        )
        keeps_labels = batches.is_whole and batches.labels is not None
        result = FitResult.of(end, state if keeps_labels else None)
        rows = batches.rows if batches.is_whole else ScaledPlacement(self.whole)
        return measure_run(rows, result, labels, labelled=self.labelled)

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
