"""One call of ``KMeans.fit``: places the rows, restarts, keeps the best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.lloyd import lloyd
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.assignments import AssignmentChoice
from daskcluster.estimators.checkpoints import Checkpoints
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.footprint import fit_footprint
from daskcluster.estimators.initial import method_for, restarts_for, warn_of_one_start
from daskcluster.estimators.kmeans_base import KMeansRun, judge
from daskcluster.estimators.kmeans_state import KMeansState
from daskcluster.events import Callback, StopReason
from daskcluster.models.document import Document
from daskcluster.models.result import FitResult
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
        resume: bool = False,
    ) -> None:
        super().__init__(estimator, source, dataset, engine, callbacks, labelled=labelled)
        self.checkpoints = Checkpoints(estimator, dataset, callbacks, resume=resume)
        self._before = (0, 0)
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
        footprint = fit_footprint(
            dataset, estimator.n_clusters, self.method, estimator.chain_length
        )
        with self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks) as placement:
            rows = ScaledPlacement(placement, unit=self.unit)
            begun = self._begun(rows)
            seed = as_seed(estimator.random_state) if begun is None else begun.seed
            best = self._best_of(begun, rows)
            for restart in range(0 if begun is None else begun.restart, self.restarts):
                run = self._restart(rows, seed, restart, best, begun)
                if best is None or run.found.inertia < best.found.inertia:
                    best = run
                if self.time_left() == 0.0:
                    break
                begun = None
            assert best is not None
            self.passes, self.bytes_read = self._spent(placement)
        self.ended(best.result.stop_reason, best.found.inertia, best.result.n_iter)
        return best

    def _restart(
        self,
        rows: ScaledPlacement,
        seed: int,
        restart: int,
        best: KMeansRun | None,
        begun: KMeansState | None,
    ) -> KMeansRun:
        """Make one restart, or the rest of the one that was begun."""
        if begun is None:
            centres = self.seeded(rows, Key(seed, "restart", restart))
            begun = KMeansState(seed, restart, centres, best=None if best is None else best.result)
            self._keep(begun, rows, now=True)
        labels = self.kept_labels(rows.placement)
        result = self._loop(rows, begun, labels)
        return judge(rows, result, labels, labelled=self.labelled)

    def _loop(
        self, rows: ScaledPlacement, begun: KMeansState, labels: np.ndarray | None
    ) -> FitResult:
        if begun.reason is not None:
            history = list(begun.history)
            return FitResult(begun.centres, len(history), begun.reason, history)

        def keep(centres: np.ndarray, history: Any, reason: StopReason | None) -> None:
            self._keep(replace(begun, centres=centres, history=history, reason=reason), rows)

        assign = self.choice(rows, labels)
        try:
            return lloyd(
                rows,
                begun.centres,
                assign=assign,
                max_iter=self.estimator.max_iter,
                tol=self.estimator.tol,
                max_time=self.time_left(),
                callbacks=self.callbacks,
                labels=labels,
                history=begun.history,
                keep=keep,
            )
        finally:
            assign.close()

    # -- checkpoints ----------------------------------------------------------------------------------

    def _begun(self, rows: ScaledPlacement) -> KMeansState | None:
        """Return the state that the fit goes on from, if it does."""
        if self.checkpoints.found is None:
            return None
        begun = KMeansState.of(self.checkpoints.found, rows)
        if begun.survey is not None:
            rows.remember(begun.survey)
        self._before = begun.passes, begun.bytes_read
        return begun

    def _best_of(self, begun: KMeansState | None, rows: ScaledPlacement) -> KMeansRun | None:
        """Return the best of the restarts before the one that was begun: one pass."""
        if begun is None or begun.best is None:
            return None
        labels = self.kept_labels(rows.placement)
        return judge(rows, begun.best, labels, labelled=self.labelled)

    def _keep(self, state: KMeansState, rows: ScaledPlacement, *, now: bool = False) -> None:
        passes, bytes_read = self._spent(rows.placement)

        def document() -> Document:
            spent = replace(state, passes=passes, bytes_read=bytes_read, survey=rows.survey)
            return spent.document()

        self.checkpoints.keep(document, now=now)

    def _spent(self, placement: Placement) -> tuple[int, int]:
        """Return passes and bytes of the fit, those before it was interrupted included."""
        traffic = placement.traffic
        return self._before[0] + traffic.passes, self._before[1] + traffic.bytes_read
