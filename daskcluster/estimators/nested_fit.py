"""One call of ``NestedMiniBatchKMeans.fit``: places the rows, seeds, and goes through the rounds."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.nested import nested
from daskcluster.algorithms.nested_batches import HOME_BYTES, NestedBatches
from daskcluster.algorithms.nested_doubling import DoublingRule
from daskcluster.data.cohorts_order import NestedOrder
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Placement
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.assignments import AssignmentChoice
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.footprint import fit_footprint
from daskcluster.estimators.kmeans_base import KMeansRun, judge
from daskcluster.events import Notice, publish
from daskcluster.randomness import Key, as_seed

if TYPE_CHECKING:
    from daskcluster.estimators.nested import NestedMiniBatchKMeans


class NestedFit(Fit):
    """One call of fit."""

    estimator: NestedMiniBatchKMeans

    def run(self) -> KMeansRun:
        estimator, dataset = self.estimator, self.dataset
        self.started("nested")
        footprint = fit_footprint(dataset, estimator.n_clusters, "random")
        seed = as_seed(estimator.random_state)
        with ExitStack() as stack:
            whole = stack.enter_context(
                self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks)
            )
            labels = self.kept_labels(whole)
            batches = NestedBatches(
                whole,
                self.engine,
                NestedOrder(dataset.n_rows, Key(seed, "nested") if estimator.shuffle else None),
                int(estimator.batch_size),
                unit=self.unit,
                labels=labels,
                footprint=footprint,
                callbacks=self.callbacks,
                home_bytes=self._home_bytes(whole),
            )
            stack.callback(batches.close)
            key = Key(seed, "restart")  # as KMeans has it
            run = self._fit(batches, self.seeded(batches.rows, key), stack)
            rows = batches.rows if batches.is_whole else ScaledPlacement(whole, unit=self.unit)
            best = judge(rows, run, labels, labelled=self.labelled)
            self.passes = whole.traffic.passes + batches.gathers
            self.bytes_read = batches.bytes_read
        self.ended(best.result.stop_reason, best.found.inertia, best.result.n_iter)
        return best

    def _fit(self, batches: NestedBatches, centres: np.ndarray, stack: ExitStack) -> Any:
        estimator = self.estimator
        return nested(
            batches,
            centres,
            choose=self._choice(),
            rule=DoublingRule(float(estimator.rho), estimator.doubling),
            seeds_vote=estimator.seeds_vote,
            max_iter=estimator.max_iter,
            tol=estimator.tol,
            max_time=self.time_left(),
            callbacks=self.callbacks,
            validate=self.validator(stack),
        )

    def _choice(self) -> AssignmentChoice:
        """Return how the rows of a batch are assigned."""
        bounds = self.estimator.bounds
        sparse = isinstance(self.dataset, SparseDataset)
        if sparse and bounds is not False:
            text = f"bounds={bounds!r} are for dense rows; of sparse rows all are looked at in each round."
            publish(self.callbacks, Notice(text))
        name = "lloyd" if sparse or bounds is False else str(bounds)
        return AssignmentChoice(
            name,
            self.n_clusters,
            self.estimator.bounds_memory,
            self.callbacks,
            parameter="bounds",
        )

    def _home_bytes(self, placement: Placement) -> int:
        """Return how large the batches are that this process gathers."""
        if not placement.shares_memory:
            return HOME_BYTES
        return min(HOME_BYTES, placement.state_room() // 2)
