"""One call of ``KMeans.fit``: places the rows, restarts, keeps the best."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.assignment import Assignment, BoundedAssignment, FullAssignment
from daskcluster.algorithms.auto import AutoAssignment
from daskcluster.algorithms.kinds import AUTOMATIC, Bounds, fallbacks, recent_bytes, within
from daskcluster.algorithms.lloyd import lloyd
from daskcluster.chunkwise.assign import (
    SCORE,
    AssignParams,
    RowParams,
    ScoreStatistics,
    label_rows,
    prepare_rows,
)
from daskcluster.data.sink import ArraySink
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.initial import initial_centres, method_for
from daskcluster.events import Callback, FitEnded, FitStarted, Notice, SeedingEnded, publish
from daskcluster.host import format_bytes
from daskcluster.models.result import FitResult
from daskcluster.randomness import Key, as_seed
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.estimators.kmeans import KMeans


@dataclass
class KMeansRun:
    """One restart: its loop's result, the final figures, and labels where they were wanted."""

    result: FitResult
    found: ScoreStatistics
    labels: np.ndarray | None


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
        )
        seconds = time.perf_counter() - began
        spent = rows.placement.traffic.passes - passes
        publish(self.callbacks, SeedingEnded(self.method, spent, seconds))
        labels = self._kept_labels(rows.placement)
        assign = self._assignment(rows, labels)
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
        return self._judge(rows, result, labels)

    def _assignment(self, rows: ScaledPlacement, labels: np.ndarray | None) -> Assignment:
        """Return how rows are assigned: within bounds, as far as memory allows."""
        name = self.estimator.algorithm
        if name == "lloyd":
            return FullAssignment(rows, labels)
        if isinstance(self.dataset, SparseDataset):
            if name != "auto":
                self._notice(f"algorithm={name!r} is for dense rows; sparse rows take lloyd.")
            return FullAssignment(rows, labels)
        if name == "auto":
            kinds = self._within(AUTOMATIC, rows)
            return AutoAssignment(
                rows,
                kinds,
                labels,
                recent_bytes=lambda kind: self._recent_bytes(kind, rows),
                reads=self._is_read_again(rows),
            )
        kinds = self._within(fallbacks(Bounds(name)), rows)
        if not kinds or kinds[0] != name:
            wanted = self.dataset.n_rows * Bounds(name).row_bytes(
                self.estimator.n_clusters, rows.dtype
            )
            self._notice(
                f"algorithm={name!r} needs {format_bytes(wanted)} for its bounds, of which "
                f"{format_bytes(self._bounds_room(rows))} are there; {kinds[0] if kinds else 'lloyd'} "
                "takes its place, with the same result. Raise bounds_memory or the memory limit."
            )
        if not kinds:
            return FullAssignment(rows, labels)
        recent = self._recent_bytes(kinds[0], rows)
        return BoundedAssignment(rows, kinds[0], labels, recent_bytes=recent)

    def _is_read_again(self, rows: ScaledPlacement) -> bool:
        size = self.dataset.bytes_of((0, self.dataset.n_rows))
        return not self.dataset.in_memory and size > rows.placement.state_room()

    def _recent_bytes(self, kind: Bounds, rows: ScaledPlacement) -> int:
        room, k = self._bounds_room(rows), self.estimator.n_clusters
        return recent_bytes(kind, room, self.dataset, k, rows.dtype)

    def _within(self, kinds: Sequence[Bounds], rows: ScaledPlacement) -> tuple[Bounds, ...]:
        room = self._bounds_room(rows)
        return within(kinds, room, self.dataset.n_rows, self.estimator.n_clusters, rows.dtype)

    def _bounds_room(self, rows: ScaledPlacement) -> int:
        budget = self.estimator.bounds_memory
        room = rows.placement.state_room()
        return room if budget == "auto" else min(room, int(budget))

    def _notice(self, text: str) -> None:
        publish(self.callbacks, Notice(text))

    def _kept_labels(self, placement: Placement) -> np.ndarray | None:
        """Return room for labels where it is small beside the rows: those are in memory too."""
        if placement.shares_memory and self.dataset.in_memory:
            return np.empty(self.dataset.n_rows, np.int32)
        return None

    def _judge(
        self, rows: ScaledPlacement, result: FitResult, labels: np.ndarray | None
    ) -> KMeansRun:
        """Compute the final inertia and cluster figures, and labels, row by row."""
        centres = result.centres
        found = rows.reduce(
            SCORE,
            lambda scale: AssignParams(centres, scale, rows.unit, labels, labelled=result.labelled),
        )
        if self.labelled and labels is None:
            labels = np.empty(self.dataset.n_rows, np.int32)
            _fetch_labels(rows.placement, RowParams(centres, rows.unit), labels)
        return KMeansRun(result, found, labels if self.labelled else None)

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


def _fetch_labels(placement: Placement, params: RowParams, labels: np.ndarray) -> None:
    placement.map_rows(label_rows, ArraySink(labels), params, prepare=prepare_rows, name="labels")


def fit_footprint(dataset: Dataset, n_clusters: int, method: str) -> Footprint:
    """Return what a fit needs per thread and per row, for the memory projection."""
    grids = 2 if dataset.weights is not None or dataset.dtype.itemsize == 8 else 1
    statistics = 8 * n_clusters * (dataset.n_features + 1) * grids
    panels = 2 * 4 * (n_clusters + 64) * (dataset.n_features + 1)
    row_bytes = {"k-means++": 8, "k-means||": 4}.get(method, 0)
    return Footprint(thread_bytes=2 * statistics + panels, row_bytes=row_bytes)
