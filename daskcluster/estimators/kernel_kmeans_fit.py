"""One call of ``KernelKMeans.fit``: Gram matrix, seeds, the loop, the figures of clusters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.gram_graph import GraphGram
from daskcluster.algorithms.kernel_full import FullResult, GramMatrix, StreamedGram, full_batch
from daskcluster.algorithms.kernel_minibatch import KernelResult
from daskcluster.algorithms.kernel_window import joined
from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.chunkwise.gram import GramFunction, Points
from daskcluster.chunkwise.gram_centres import GramCentres
from daskcluster.engine.engine import Placement
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.gram import gram_of, measure_by_gram
from daskcluster.estimators.minibatch_kernel_fit import kernel_footprint
from daskcluster.estimators.neighbour_graph import neighbour_graph
from daskcluster.events import Notice, SeedingEnded, publish
from daskcluster.parameters.kernel import GRAPHS
from daskcluster.randomness import Key, as_seed
from daskcluster.seeding.kernel_kmeans_plusplus import kernel_kmeans_plusplus

if TYPE_CHECKING:
    from daskcluster.estimators.kernel_kmeans import KernelKMeans


class KernelFit(Fit):
    """One call of fit."""

    estimator: KernelKMeans

    def run(self) -> tuple[KernelResult, ScoreStatistics, np.ndarray | None]:
        """Return the loop's result, the figures of clusters, and labels where there was room for them."""
        estimator, dataset = self.estimator, self.dataset
        self.method = str(estimator.init) if isinstance(estimator.init, str) else "array"
        self.started("kernel")
        seed = as_seed(estimator.random_state)
        footprint = kernel_footprint(dataset, estimator.n_clusters, dataset.n_rows)
        with self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks) as placement:
            weights = dataset.weights
            weights = np.ones(dataset.n_rows) if weights is None else np.asarray(weights, float)
            gram = self._matrix(placement, seed)
            seeds = self._seeds(gram, weights, seed)
            found = full_batch(
                gram,
                seeds,
                weights,
                max_iter=estimator.max_iter,
                tol=estimator.tol,
                max_time=self.time_left(),
                callbacks=self.callbacks,
            )
            result, scores, labels = self._judged(found, gram, placement, weights)
            self.passes, self.bytes_read = placement.traffic.passes, placement.traffic.bytes_read
        self.ended(result.stop_reason, scores.inertia, result.n_iter)
        return result, scores, labels

    def _matrix(self, placement: Placement, seed: int) -> GramMatrix:
        estimator, rows = self.estimator, ScaledPlacement(placement)
        if callable(estimator.kernel) or estimator.kernel not in GRAPHS:
            if estimator.kernel == "precomputed" or callable(estimator.kernel):
                rows.known()  # looks for NaN
            return StreamedGram(placement, gram_of(estimator, rows))
        rows.known()
        heat = float(estimator.heat_time) if estimator.kernel == "heat" else None
        graph = GraphGram(neighbour_graph(self.dataset, int(estimator.n_neighbors)), heat, seed)
        if graph.is_estimated:
            text = (
                f"K(x, x) of the heat kernel of {graph.n_rows:,} rows is an estimate, which seeding and "
                "inertia follow; labels do not depend on it."
            )
            publish(self.callbacks, Notice(text))
        return graph

    def _seeds(self, gram: GramMatrix, weights: np.ndarray, seed: int) -> np.ndarray:
        estimator, k, began = self.estimator, self.n_clusters, time.perf_counter()
        if self.method == "array":
            chosen = np.asarray(estimator.init)
            inside = chosen.dtype.kind in "iu" and bool(
                ((chosen >= 0) & (chosen < gram.n_rows)).all()
            )
            if not inside:
                raise InvalidParameterError(
                    f"init={estimator.init!r} should be row numbers in 0 to {gram.n_rows - 1}."
                )
        elif self.method == "random":
            heavy = np.flatnonzero(weights > 0.0)
            pool = heavy if len(heavy) >= k else np.arange(gram.n_rows)
            chosen = Key(seed, "random rows").generator().choice(pool, k, replace=False)
        else:
            chosen = kernel_kmeans_plusplus(gram.columns, gram.diagonal(), weights, k, seed)
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        return chosen.astype(np.int64)

    def _judged(
        self, found: FullResult, gram: GramMatrix, placement: Placement, weights: np.ndarray
    ) -> tuple[KernelResult, ScoreStatistics, np.ndarray | None]:
        """Return the result with its centres as sums of rows, and what a last pass says of clusters.

        Graphs know no more than the loop does: their figures are those of the loop.
        """
        members = found.members
        streamed = isinstance(gram, StreamedGram)
        points = gram.points() if isinstance(gram, StreamedGram) else _numbers(gram.n_rows)
        function = (
            gram.gram if isinstance(gram, StreamedGram) else GramFunction(self.estimator.kernel)
        )
        terms = [(points.take(rows), factors) for rows, factors in members.terms]
        centres = GramCentres(joined(function, terms), members.norms)
        result = KernelResult(centres, found.n_iter, found.stop_reason, list(found.history))
        if not streamed:
            return result, _scores(found, weights, self.n_clusters), found.labels.astype(np.int32)
        room = (
            np.empty(gram.n_rows, np.int32) if placement.shares_memory and self.labelled else None
        )
        bound = float(found.costs.max(initial=0.0))
        return result, measure_by_gram(placement, centres, labels=room, bound=bound), room


def _numbers(n: int) -> Points:
    return Points(None, np.arange(n))


def _scores(found: FullResult, weights: np.ndarray, k: int) -> ScoreStatistics:
    labels: Any = found.labels
    totals = [np.bincount(labels, each, minlength=k) for each in (weights, weights * found.costs)]
    high = [np.stack([total, np.zeros(k)]) for total in totals]
    return ScoreStatistics(np.bincount(labels, minlength=k), *high)
