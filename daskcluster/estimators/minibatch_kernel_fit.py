"""One call of ``MiniBatchKernelKMeans.fit``: seeds, the loop in this process, the last pass."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.kernel_minibatch import KernelResult, KernelStopping, minibatch_kernel
from daskcluster.algorithms.kernel_moving import GramBatch, MovingGramCentres, MovingWindows
from daskcluster.algorithms.kernel_recursion import MovingProducts
from daskcluster.algorithms.minibatch import refuse_bad_batch
from daskcluster.chunk import compute_dtype
from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.chunkwise.gram import GramFunction, GramSums, Points, join_points
from daskcluster.chunkwise.gram_centres import nearest_by_gram
from daskcluster.chunkwise.minibatch import Batch
from daskcluster.data.batches import ROOM_BYTES, Batches
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.gram import (
    given_centres,
    gram_of,
    kernel_restarts,
    measure_by_gram,
    seed_of_start,
)
from daskcluster.estimators.sample import batch_room, threads_of
from daskcluster.events import Callback, Notice, SeedingEnded, StartEnded, publish
from daskcluster.randomness import Key, as_seed
from daskcluster.seeding.kernel_kmeans_plusplus import kernel_kmeans_plusplus
from daskcluster.seeding.uniform import draw_rows
from daskcluster.sparse_rows import SparseRows
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.estimators.minibatch_kernel import MiniBatchKernelKMeans

_SAMPLE_BYTES = 256 << 20

Judged = tuple[KernelResult, ScoreStatistics, np.ndarray | None]
"""The loop's result, the figures of clusters, and labels where there was room for them."""


class MiniBatchKernelFit(Fit):
    """One call of fit."""

    estimator: MiniBatchKernelKMeans

    def __init__(
        self,
        estimator: MiniBatchKernelKMeans,
        source: Any,
        dataset: Dataset,
        engine: Engine,
        callbacks: tuple[Callback, ...],
        *,
        labelled: bool,
    ) -> None:
        super().__init__(estimator, source, dataset, engine, callbacks, labelled=labelled)
        self.method = str(estimator.init) if isinstance(estimator.init, str) else "array"
        self.dtype = compute_dtype(dataset.dtype)
        self.restarts = kernel_restarts(estimator, self.method)
        self.seed = as_seed(estimator.random_state)

    @property
    def truncation(self) -> int | None:
        given = self.estimator.truncation
        return None if given is None or given is False else int(given)

    def run(self) -> Judged:
        """Return the result of the best start."""
        estimator, dataset = self.estimator, self.dataset
        self.started("mini-batch-kernel")
        footprint = kernel_footprint(dataset, estimator.n_clusters, self._most_points())
        best: Judged | None = None
        with self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks) as placement:
            gram = gram_of(estimator, ScaledPlacement(placement))
            for start in range(self.restarts):
                judged = self._judged(placement, gram, start)
                if best is None or judged[1].inertia < best[1].inertia:
                    best = judged
                if self.time_left() == 0.0:
                    break
            self.passes += placement.traffic.passes
            self.bytes_read += placement.traffic.bytes_read
        assert best is not None
        result, found, _ = best
        self.ended(result.stop_reason, found.inertia, result.n_iter)
        return best

    def _judged(self, placement: Placement, gram: GramFunction, start: int) -> Judged:
        """Return one start, judged on all rows."""
        result, bound = self._loop(placement, gram, seed_of_start(self.seed, start))
        room = placement.shares_memory and self.labelled
        labels = np.empty(self.dataset.n_rows, np.int32) if room else None
        found = measure_by_gram(placement, result.centres, labels=labels, bound=bound)
        if self.restarts > 1:
            publish(self.callbacks, StartEnded(start, self.restarts, found.inertia))
        return result, found, labels

    def _loop(
        self, placement: Placement, gram: GramFunction, seed: int
    ) -> tuple[KernelResult, float]:
        estimator, size = self.estimator, self._sample_rows()
        room = batch_room(self.engine, self.dataset, self.callbacks, ROOM_BYTES)
        with Batches(
            self.dataset, estimator.batch_size, seed, room_bytes=room, least_rows=size
        ) as batches:
            if batches.notice:
                publish(self.callbacks, Notice(batches.notice))
            sample = self._sample(batches, size, gram, Key(seed, "sample"))
            moving = self._start(sample, gram, placement, seed)
            result = minibatch_kernel(
                batches,
                moving,
                rate=estimator.learning_rate,
                stopping=KernelStopping(estimator.max_iter, estimator.tol, self.time_left()),
                dtype=self.dtype,
                callbacks=self.callbacks,
            )
        self.bytes_read += batches.bytes_read
        self.passes += -(-result.n_iter * batches.batch_size // self.dataset.n_rows)
        costs = nearest_by_gram(result.centres, sample.rows, sample.diagonal)[1]
        return result, float(costs.max(initial=0.0))

    def _sample(self, batches: Batches, size: int, gram: GramFunction, key: Key) -> GramBatch:
        """Return the rows that seeding looks at, of which at least k have a weight."""
        drawn, k = batches.sample(size, key), self.n_clusters
        numbers = batches.rows_of_last()
        refuse_bad_batch(drawn, batches.row_of, " of those seen so far")
        if self.method != "array" and np.count_nonzero(drawn.listed_weights()) < k:
            # Weights are rare: only they are read to find them.
            numbers = draw_rows(self.dataset, k, key)
            rows: Any = self.dataset.take(numbers)
            rows = SparseRows.of(rows) if isinstance(self.dataset, SparseDataset) else rows
            weights = np.asarray(self.dataset.weights, np.float64)[numbers]
            drawn = Batch(rows, np.arange(k), weights)
            refuse_bad_batch(drawn, lambda position: int(numbers[position]), "")
        return GramBatch.of(drawn, numbers, gram, self.dtype)

    def _start(
        self, sample: GramBatch, gram: GramFunction, placement: Placement, seed: int
    ) -> MovingGramCentres:
        estimator, began = self.estimator, time.perf_counter()
        if self.method == "array":
            k = estimator.n_clusters
            first = given_centres(estimator.init, self.dataset, gram, k)
            norms = norms_of(first, gram, self.dataset)
        else:
            chosen = self._chosen(sample, gram, seed)
            first = [sample.points(chosen[j : j + 1], gram) for j in range(len(chosen))]
            norms = sample.diagonal[chosen]
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        if self.truncation is None:
            return MovingProducts(gram, first, norms, placement)
        normalize, threads = bool(estimator.normalize_truncated), threads_of(self.engine)
        return MovingWindows(gram, first, norms, self.truncation, normalize, threads)

    def _chosen(self, sample: GramBatch, gram: GramFunction, seed: int) -> np.ndarray:
        """Return which rows of the sample are the first centres."""
        k = self.estimator.n_clusters
        if self.method == "random":
            heavy = np.flatnonzero(sample.weights > 0.0)
            pool = heavy if len(heavy) >= k else np.arange(len(sample))
            return Key(seed, "random rows").generator().choice(pool, k, replace=False)

        def columns(which: np.ndarray) -> np.ndarray:
            points, m = sample.points(which, gram), len(which)
            return GramSums(gram, points, np.ones(m), np.arange(m), m)(sample.rows)

        return kernel_kmeans_plusplus(columns, sample.diagonal, sample.weights, k, seed)

    def _sample_rows(self) -> int:
        """Return how many rows the seeding looks at."""
        estimator, n = self.estimator, self.dataset.n_rows
        size = estimator.init_size or max(3 * estimator.batch_size, 3 * estimator.n_clusters)
        row_bytes = max(1, self.dataset.bytes_of((0, n)) // n)
        fitting = max(3 * estimator.n_clusters, _SAMPLE_BYTES // row_bytes)
        return min(size, fitting, n)

    def _most_points(self) -> int:
        """Return how many rows the centres may consist of."""
        estimator, n = self.estimator, self.dataset.n_rows
        if self.truncation is None:
            return min(n, max(1, estimator.max_iter) * estimator.batch_size)
        return min(n, estimator.n_clusters * (self.truncation + estimator.batch_size))


def norms_of(first: list[Points], gram: GramFunction, dataset: Dataset) -> np.ndarray:
    """Return K of points with themselves, (k,)."""
    points = join_points(first)
    if points.rows is not None:
        return gram.diagonal(points.rows, points.indices)
    rows: Any = dataset.take(points.indices)
    return np.array([float(row[at]) for row, at in zip(rows, points.indices, strict=True)])


def kernel_footprint(dataset: Dataset, n_clusters: int, n_points: int) -> Footprint:
    """Return what kernel k-means needs per thread, for the memory projection: points and their panels."""
    row_bytes = (
        8 if n_points == 0 else max(8, dataset.bytes_of((0, dataset.n_rows)) // dataset.n_rows)
    )
    return Footprint(thread_bytes=2 * n_points * row_bytes + 16 * (n_points + 1024 * n_clusters))
