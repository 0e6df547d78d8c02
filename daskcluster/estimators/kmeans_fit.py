"""One call of ``KMeans.fit``: places the rows, restarts, keeps the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskcluster.algorithms.lloyd import lloyd
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Engine
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.assignments import AssignmentChoice
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.initial import method_for, restarts_for, warn_of_one_start
from daskcluster.estimators.kmeans_base import KMeansRun, judge
from daskcluster.events import Callback
from daskcluster.randomness import Key, as_seed
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.estimators.kmeans import KMeans


class KMeansFit(Fit):
    """One call of fit: places the rows, restarts, keeps the best."""

    estimator: KMeans

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
        super().__init__(estimator, source, dataset, engine, callbacks, labelled=labelled)
        self.method = method_for(estimator.init, in_memory=dataset.in_memory)
        self.restarts = restarts_for(self.method, estimator.n_init, in_memory=dataset.in_memory)
        warn_of_one_start(estimator, self.method, stacklevel=4)
        self.choice = AssignmentChoice(
            estimator.algorithm,
            estimator.n_clusters,
            estimator.bounds_memory,
            callbacks,
            sparse=isinstance(dataset, SparseDataset),
        )

    def run(self) -> KMeansRun:
        estimator, dataset = self.estimator, self.dataset
        self.started(estimator.algorithm)
        footprint = fit_footprint(dataset, estimator.n_clusters, self.method)
        with self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks) as placement:
            rows = ScaledPlacement(placement, unit=self.unit)
            seed = as_seed(estimator.random_state)
            best: KMeansRun | None = None
            for restart in range(self.restarts):
                run = self._restart(rows, Key(seed, "restart", restart))
                if best is None or run.found.inertia < best.found.inertia:
                    best = run
                if self.time_left() == 0.0:
                    break
            assert best is not None
            self.passes, self.bytes_read = placement.traffic.passes, placement.traffic.bytes_read
        self.ended(best.result.stop_reason, best.found.inertia, best.result.n_iter)
        return best

    def _restart(self, rows: ScaledPlacement, key: Key) -> KMeansRun:
        estimator = self.estimator
        centres = self.seeded(rows, key)
        labels = self.kept_labels(rows.placement)
        assign = self.choice(rows, labels)
        try:
            result = lloyd(
                rows,
                centres,
                assign=assign,
                max_iter=estimator.max_iter,
                tol=estimator.tol,
                max_time=self.time_left(),
                callbacks=self.callbacks,
                labels=labels,
            )
        finally:
            assign.close()
        return judge(rows, result, labels, labelled=self.labelled)


def fit_footprint(dataset: Dataset, n_clusters: int, method: str) -> Footprint:
    """Return what a fit needs per thread and per row, for the memory projection."""
    grids = 2 if dataset.weights is not None or dataset.dtype.itemsize == 8 else 1
    statistics = 8 * n_clusters * (dataset.n_features + 1) * grids
    panels = 2 * 4 * (n_clusters + 64) * (dataset.n_features + 1)
    row_bytes = {"k-means++": 8, "k-means||": 4}.get(method, 0)
    return Footprint(thread_bytes=2 * statistics + panels, row_bytes=row_bytes)
