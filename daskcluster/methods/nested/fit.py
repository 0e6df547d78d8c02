"""One call of ``NestedMiniBatchKMeans.fit``: place the rows, seed, run the rounds."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Placement, Traffic
from daskcluster.engine.local import home_engine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.stopping import is_final
from daskcluster.events import SeedingEnded, publish
from daskcluster.methods.coreset.start import SAMPLE_ROWS, sampled_start
from daskcluster.methods.kmeans.bounds import AssignmentChoice
from daskcluster.methods.kmeans.fit import KMeansRun, SeededFit, fit_footprint, measure_run
from daskcluster.methods.kmeans.initial import is_auto, method_for
from daskcluster.methods.nested.algorithm import NestedState, nested
from daskcluster.methods.nested.batches import HOME_BYTES, NestedBatches
from daskcluster.methods.nested.doubling import DoublingRule
from daskcluster.methods.nested.gathered import NestedOrder
from daskcluster.models.fitted import FitResult
from daskcluster.randomness import Key

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
                home_bytes=self._home_bytes(whole),
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
        return nested(
            batches,
            begin,
            choose=self._choice(),
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

    def _choice(self) -> AssignmentChoice:
        """Return how the rows of a batch are assigned."""
        bounds = self.estimator.bounds
        name = str(bounds) if bounds else "lloyd"
        return AssignmentChoice(
            name,
            self.n_clusters,
            self.estimator.bounds_memory,
            self.callbacks,
            sparse=isinstance(self.dataset, SparseDataset),
            parameter="bounds",
        )

    def _home_bytes(self, placement: Placement) -> int:
        """Return how large the batches are that this process gathers."""
        if not placement.shares_memory:
            return HOME_BYTES
        return min(HOME_BYTES, placement.state_room() // 2)


def _taken(batches: NestedBatches, whole: Placement) -> Traffic:
    return Traffic(whole.traffic.passes + batches.gathers, batches.bytes_read)
