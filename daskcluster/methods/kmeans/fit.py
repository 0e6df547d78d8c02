"""One call of ``KMeans.fit``: place the rows, run the restarts, keep the best."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Engine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import Fit, is_final
from daskcluster.events import Callback, SeedingEnded, StopReason, publish
from daskcluster.methods.kmeans.algorithm import lloyd
from daskcluster.methods.kmeans.base import KMeansRun, measure_run
from daskcluster.methods.kmeans.bounds import AssignmentChoice
from daskcluster.methods.kmeans.initial import (
    initial_centres,
    is_auto,
    method_for,
    restarts_for,
    warn_of_one_start,
)
from daskcluster.methods.kmeans.projection import fit_footprint
from daskcluster.models.fitted import FitResult
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.methods.kmeans.estimator import KMeans


_NO_BOUNDS = (
    "algorithm='elkan' doesn't make sense for a single cluster: there is no other centre to bound the "
    "distance to. Its result is that of 'lloyd'."
)


class SeededFit(Fit):
    """A `Fit` whose first centres come from ``init=``."""

    def seeded(self, rows: ScaledPlacement, key: Key) -> np.ndarray:
        """Return the first centres (k, d), chosen among `rows` with the draws of `key`."""
        dataset, traffic = rows.placement.dataset, rows.placement.traffic
        self.method = self.method_on(dataset)
        began, passes = time.perf_counter(), traffic.passes
        centres = self.chosen(rows, key.derived_seed())
        seconds = time.perf_counter() - began
        publish(self.callbacks, SeedingEnded(self.method, traffic.passes - passes, seconds))
        return centres

    def method_on(self, dataset: Dataset) -> str:
        """Return the name of the method that chooses centres among the rows of `dataset`."""
        return method_for(self.init, in_memory=dataset.in_memory)

    def chosen(self, rows: ScaledPlacement, seed: int) -> np.ndarray:
        """Return centres (k, d) chosen by `method`."""
        return initial_centres(
            self.method if is_auto(self.init) else self.init,
            rows,
            self.n_clusters,
            seed,
            source=self.source,
            chain_length=self.estimator.chain_length,
        )


@dataclass(frozen=True)
class KMeansState:
    """State of a fit between two iterations.

    Attributes
    ----------
    restart : int
        Number of the current restart.
    centres : ndarray of shape (k, d)
    history : sequence of dict
        Iterations of the current restart so far.
    reason : StopReason or None
        Reason why the current restart ended, if it did.
    best : FitResult or None
        Best result of the earlier restarts.
    """

    restart: int
    centres: np.ndarray
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None
    best: FitResult | None = None


class KMeansFit(SeededFit):
    """One call of fit: places the rows, runs the restarts, keeps the best."""

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
        super().__init__(
            estimator, source, dataset, engine, callbacks, labelled=labelled, resume=resume
        )
        self.method = method_for(estimator.init, in_memory=dataset.in_memory)
        self.restarts = restarts_for(self.method, estimator.n_init, in_memory=dataset.in_memory)
        warn_of_one_start(estimator, self.method, stacklevel=4)
        if estimator.algorithm == "elkan" and estimator.n_clusters == 1:
            warnings.warn(_NO_BOUNDS, RuntimeWarning, stacklevel=4)
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
            rows = ScaledPlacement(placement)
            self.recall(rows)
            resumed = self._resumed()
            best = self._best_of(resumed, rows)
            for restart in range(0 if resumed is None else resumed.restart, self.restarts):
                run = self._restart(rows, restart, best, resumed)
                if best is None or run.found.inertia < best.found.inertia:
                    best = run
                if self.time_left() == 0.0:
                    break
                resumed = None
            assert best is not None
            self.passes += placement.traffic.passes
            self.bytes_read += placement.traffic.bytes_read
        self.ended(best.result.stop_reason, best.found.inertia, best.result.n_iter)
        return best

    def _restart(
        self,
        rows: ScaledPlacement,
        restart: int,
        best: KMeansRun | None,
        resumed: KMeansState | None,
    ) -> KMeansRun:
        """Run one restart, or the rest of an interrupted one."""
        if resumed is None:
            centres = self.seeded(rows, Key(self.seed, "restart", restart))
            resumed = KMeansState(restart, centres, best=None if best is None else best.result)
            self._keep(resumed, rows)
        labels = self.kept_labels(rows.placement)
        result = self._loop(rows, resumed, labels)
        return measure_run(rows, result, labels, labelled=self.labelled)

    def _loop(
        self, rows: ScaledPlacement, resumed: KMeansState, labels: np.ndarray | None
    ) -> FitResult:
        history, most = list(resumed.history), self.estimator.max_iter
        ended = resumed.reason
        if ended is not None and is_final(ended, len(history), most, self.time_left()):
            return FitResult(resumed.centres, len(history), ended, history)

        def keep(centres: np.ndarray, history: Any, reason: StopReason | None) -> None:
            self._keep(replace(resumed, centres=centres, history=history, reason=reason), rows)

        assign = self.choice(rows, labels)
        try:
            return lloyd(
                rows,
                resumed.centres,
                assign=assign,
                max_iter=most,
                tol=self.estimator.tol,
                max_time=self.time_left(),
                callbacks=self.callbacks,
                labels=labels,
                history=resumed.history,
                keep=keep,
            )
        finally:
            assign.close()

    # -- checkpoints ----------------------------------------------------------------------------------

    def _resumed(self) -> KMeansState | None:
        """Return the state that the fit resumes from; None for a new fit."""
        shape = (self.n_clusters, self.dataset.n_features)
        return self.resumed(KMeansState, {"centres": shape, "best_centres": shape})

    def _best_of(self, resumed: KMeansState | None, rows: ScaledPlacement) -> KMeansRun | None:
        """Return the best restart before the interrupted one; takes one pass."""
        if resumed is None or resumed.best is None:
            return None
        labels = self.kept_labels(rows.placement)
        return measure_run(rows, resumed.best, labels, labelled=self.labelled)

    def _keep(self, state: KMeansState, rows: ScaledPlacement) -> None:
        ends = not state.history or state.reason is not None
        self.keep(lambda: _as_kept(state), rows.placement.traffic, rows, now=ends)


def _as_kept(state: KMeansState) -> KMeansState:
    # The labels of the best restart stay behind.
    best = None if state.best is None else replace(state.best, labelled=False)
    return replace(state, best=best)
