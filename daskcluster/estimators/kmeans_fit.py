"""One call of ``KMeans.fit``: places the rows, restarts, keeps the best."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.lloyd import lloyd
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.assignments import AssignmentChoice
from daskcluster.estimators.initial import initial_centres, method_for
from daskcluster.estimators.kmeans_base import KMeansRun, judge
from daskcluster.events import Callback, FitEnded, FitStarted, SeedingEnded, publish
from daskcluster.randomness import Key, as_seed
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.estimators.kmeans import KMeans


class KMeansFit:
    """One call of fit: places the rows, restarts, keeps the best."""

    def __init__(
        self,
        estimator: KMeans,
        source: Any,
        dataset: Dataset,
        engine: Engine,
        callbacks: tuple[Callback, ...],
        *,
        labelled: bool,
    ) -> None:
        self.estimator = estimator
        self.source = source
        self.dataset = dataset
        self.engine = engine
        self.callbacks = callbacks
        self.labelled = labelled
        self.method = method_for(estimator.init, in_memory=dataset.in_memory)
        self.restarts = estimator.restarts_for(dataset)
        self.choice = AssignmentChoice(
            estimator.algorithm,
            estimator.n_clusters,
            estimator.bounds_memory,
            callbacks,
            sparse=isinstance(dataset, SparseDataset),
        )
        self.passes = self.bytes_read = 0
        self._began = time.perf_counter()

    def run(self) -> KMeansRun:
        estimator, dataset = self.estimator, self.dataset
        publish(
            self.callbacks,
            FitStarted(
                estimator.algorithm,
                dataset.n_rows,
                dataset.n_features,
                estimator.n_clusters,
                estimator.max_iter,
                self.engine.name,
            ),
        )
        footprint = fit_footprint(dataset, estimator.n_clusters, self.method)
        with self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks) as placement:
            rows = ScaledPlacement(placement, unit=(estimator.metric == "cosine"))
            seed = as_seed(estimator.random_state)
            best: KMeansRun | None = None
            for restart in range(self.restarts):
                run = self._restart(rows, Key(seed, "restart", restart))
                if best is None or run.found.inertia < best.found.inertia:
                    best = run
                if self._time_is_up():
                    break
            assert best is not None
            self.passes, self.bytes_read = placement.traffic.passes, placement.traffic.bytes_read
        publish(self.callbacks, self._ended(best))
        return best

    def _restart(self, rows: ScaledPlacement, key: Key) -> KMeansRun:
        estimator = self.estimator
        began, passes = time.perf_counter(), rows.placement.traffic.passes
        seed = int(key.generator().integers(2**63 - 1))
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
        spent = rows.placement.traffic.passes - passes
        publish(self.callbacks, SeedingEnded(self.method, spent, seconds))
        labels = self._kept_labels(rows.placement)
        assign = self.choice(rows, labels)
        try:
            result = lloyd(
                rows,
                centres,
                assign=assign,
                max_iter=estimator.max_iter,
                tol=estimator.tol,
                max_time=self._time_left(),
                callbacks=self.callbacks,
                labels=labels,
            )
        finally:
            assign.close()
        return judge(rows, result, labels, labelled=self.labelled)

    def _kept_labels(self, placement: Placement) -> np.ndarray | None:
        """Return room for labels where it is small beside the rows: those are in memory too."""
        if placement.shares_memory and self.dataset.in_memory:
            return np.empty(self.dataset.n_rows, np.int32)
        return None

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

    def _time_is_up(self) -> bool:
        left = self._time_left()
        return left is not None and left <= 0.0


def fit_footprint(dataset: Dataset, n_clusters: int, method: str) -> Footprint:
    """Return what a fit needs per thread and per row, for the memory projection."""
    grids = 2 if dataset.weights is not None or dataset.dtype.itemsize == 8 else 1
    statistics = 8 * n_clusters * (dataset.n_features + 1) * grids
    panels = 2 * 4 * (n_clusters + 64) * (dataset.n_features + 1)
    row_bytes = {"k-means++": 8, "k-means||": 4}.get(method, 0)
    return Footprint(thread_bytes=2 * statistics + panels, row_bytes=row_bytes)
