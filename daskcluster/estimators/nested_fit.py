"""One call of ``NestedMiniBatchKMeans.fit``: places the rows, seeds, and goes through the rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.nested import nested
from daskcluster.algorithms.nested_batches import HOME_BYTES, NestedBatches
from daskcluster.algorithms.nested_doubling import DoublingRule
from daskcluster.chunkwise.assign import SCORE, AssignParams
from daskcluster.data.cohorts_order import NestedOrder
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.assignments import AssignmentChoice
from daskcluster.estimators.initial import initial_centres, method_for
from daskcluster.estimators.inputs import fit_dataset
from daskcluster.estimators.kmeans_base import KMeansRun, judge
from daskcluster.estimators.kmeans_fit import fit_footprint
from daskcluster.events import Callback, FitEnded, FitStarted, Notice, SeedingEnded, publish
from daskcluster.randomness import Key, as_seed
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.estimators.nested import NestedMiniBatchKMeans


class NestedFit:
    """One call of fit.

    Parameters
    ----------
    estimator : NestedMiniBatchKMeans
    source : object
        What the caller gave as X.
    dataset : Dataset
    engine : Engine
    callbacks : tuple of callables
    labelled : bool
        Labels are wanted as an array.

    Attributes
    ----------
    method, restarts, passes, bytes_read
        What a fit took; passes are those over all rows.
    """

    restarts = 1

    def __init__(
        self,
        estimator: NestedMiniBatchKMeans,
        source: Any,
        dataset: Dataset,
        engine: Engine,
        callbacks: tuple[Callback, ...],
        *,
        labelled: bool,
    ) -> None:
        self.estimator, self.source, self.dataset = estimator, source, dataset
        self.engine, self.callbacks, self.labelled = engine, callbacks, labelled
        self.method = ""
        self.passes = self.bytes_read = 0
        self._unit = estimator.metric == "cosine"
        self._began = time.perf_counter()

    def run(self) -> KMeansRun:
        estimator, dataset = self.estimator, self.dataset
        publish(
            self.callbacks,
            FitStarted(
                "nested",
                dataset.n_rows,
                dataset.n_features,
                estimator.n_clusters,
                estimator.max_iter,
                self.engine.name,
            ),
        )
        footprint = fit_footprint(dataset, estimator.n_clusters, "random")
        seed = as_seed(estimator.random_state)
        with ExitStack() as stack:
            whole = stack.enter_context(
                self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks)
            )
            labels = self._kept_labels(whole)
            batches = NestedBatches(
                whole,
                self.engine,
                NestedOrder(dataset.n_rows, Key(seed, "nested") if estimator.shuffle else None),
                int(estimator.batch_size),
                unit=self._unit,
                labels=labels,
                footprint=footprint,
                callbacks=self.callbacks,
                home_bytes=self._home_bytes(whole),
            )
            stack.callback(batches.close)
            run = self._fit(batches, self._seeded(batches, seed), stack)
            rows = batches.rows if batches.is_whole else ScaledPlacement(whole, unit=self._unit)
            best = judge(rows, run, labels, labelled=self.labelled)
            self.passes = whole.traffic.passes + batches.gathers
            self.bytes_read = batches.bytes_read
        publish(self.callbacks, self._ended(best))
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
            max_time=self._time_left(),
            callbacks=self.callbacks,
            validate=self._validator(stack),
        )

    def _seeded(self, batches: NestedBatches, seed: int) -> np.ndarray:
        """Return the first centres, chosen from the first batch."""
        estimator, rows = self.estimator, batches.rows
        dataset, traffic = rows.placement.dataset, rows.placement.traffic
        self.method = method_for(estimator.init, in_memory=dataset.in_memory)
        began, passes = time.perf_counter(), traffic.passes
        seed = int(Key(seed, "restart").generator().integers(2**63 - 1))  # as KMeans has it
        centres = initial_centres(
            estimator.init,
            rows,
            estimator.n_clusters,
            seed,
            source=self.source,
            random_state=np.random.RandomState(seed % 2**32),
            chain_length=estimator.chain_length,
        )
        seconds = time.perf_counter() - began
        publish(self.callbacks, SeedingEnded(self.method, traffic.passes - passes, seconds))
        return centres

    def _choice(self) -> AssignmentChoice:
        """Return how the rows of a batch are assigned."""
        bounds = self.estimator.bounds
        sparse = isinstance(self.dataset, SparseDataset)
        if sparse and bounds is not False:
            text = f"bounds={bounds!r} are for dense rows; of sparse rows all are looked at in each round."
            publish(self.callbacks, Notice(text))
        name = "lloyd" if sparse or bounds is False else str(bounds)
        return AssignmentChoice(
            name, self.estimator.n_clusters, self.estimator.bounds_memory, self.callbacks
        )

    def _validator(self, stack: ExitStack) -> Callable[[np.ndarray], float] | None:
        """Return what measures centres on the validation rows, if there are any."""
        if self.estimator.validation is None:
            return None
        dataset = fit_dataset(self.estimator, self.estimator.validation, None, reset=False)
        engine = LocalEngine() if dataset.in_memory else self.engine
        rows = ScaledPlacement(stack.enter_context(engine.place(dataset)), unit=self._unit)
        total = (
            float(dataset.n_rows)
            if dataset.weights is None
            else float(np.asarray(dataset.weights).sum())
        )

        def validate(centres: np.ndarray) -> float:
            found = rows.reduce(SCORE, lambda scale: AssignParams(centres, scale, rows.unit))
            return float(found.inertia) / total

        return validate

    def _kept_labels(self, placement: Placement) -> np.ndarray | None:
        if placement.shares_memory and self.dataset.in_memory:
            return np.empty(self.dataset.n_rows, np.int32)
        return None

    def _home_bytes(self, placement: Placement) -> int:
        """Return how large the batches are that this process gathers."""
        if not placement.shares_memory:
            return HOME_BYTES
        return min(HOME_BYTES, placement.state_room() // 2)

    def _ended(self, best: KMeansRun) -> FitEnded:
        return FitEnded(
            best.result.stop_reason,
            best.found.inertia,
            best.result.n_iter,
            self.passes,
            self.bytes_read,
            time.perf_counter() - self._began,
        )

    def _time_left(self) -> float | None:
        limit = self.estimator.max_time
        return None if limit is None else max(0.0, limit - (time.perf_counter() - self._began))
