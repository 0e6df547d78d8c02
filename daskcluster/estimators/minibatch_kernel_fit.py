"""One call of ``MiniBatchKernelKMeans.fit``: seeds, the loop in this process, the last pass."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.kernel_minibatch import (
    KernelResult,
    KernelSteps,
    KernelStopping,
    minibatch_kernel,
)
from daskcluster.algorithms.kernel_moving import GramBatch, MovingGramCentres, MovingWindows
from daskcluster.algorithms.kernel_recursion import MovingProducts
from daskcluster.algorithms.minibatch import refuse_bad_batch
from daskcluster.algorithms.stopping import is_final
from daskcluster.chunk import compute_dtype
from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.chunkwise.gram import GramFunction, GramSums, Points, join_points
from daskcluster.chunkwise.gram_centres import nearest_by_gram
from daskcluster.chunkwise.minibatch import Batch
from daskcluster.data.batches import ROOM_BYTES, Batches
from daskcluster.data.chosen_rows import chosen_rows
from daskcluster.engine.engine import Engine, Placement, Traffic
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.gram import (
    given_centres,
    gram_of,
    kernel_restarts,
    measure_by_gram,
    ready_rows,
    seed_of_start,
)
from daskcluster.estimators.minibatch_kernel_state import BatchKernelState, StartState
from daskcluster.estimators.sample import batch_room, threads_of
from daskcluster.events import Callback, Notice, SeedingEnded, StartEnded, publish
from daskcluster.randomness import Key
from daskcluster.seeding.kernel_kmeans_plusplus import kernel_kmeans_plusplus
from daskcluster.seeding.uniform import draw_rows
from daskcluster.sparse_rows import join_rows
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.estimators.minibatch_kernel import MiniBatchKernelKMeans

_SAMPLE_BYTES = 256 << 20

Judged = tuple[KernelResult, ScoreStatistics, np.ndarray | None]
"""The loop's result, the figures of clusters, and labels where there was room for them."""


@dataclass(frozen=True)
class _End:
    """A start that has made its steps, and the rows that it was seeded from."""

    state: StartState
    result: KernelResult
    sample: GramBatch


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
        resume: bool = False,
    ) -> None:
        self.room_bytes = batch_room(engine, dataset, callbacks, ROOM_BYTES)
        super().__init__(
            estimator, source, dataset, engine, callbacks, labelled=labelled, resume=resume
        )
        self.method = str(estimator.init) if isinstance(estimator.init, str) else "array"
        self.dtype = compute_dtype(dataset.dtype)
        self.restarts = kernel_restarts(estimator, self.method)

    @property
    def truncation(self) -> int | None:
        given = self.estimator.truncation
        return None if given is None or given is False else int(given)

    def circumstances(self) -> Mapping[str, Any]:
        """Return what batches depend on, where rows are read ahead."""
        return {} if self.dataset.in_memory else {"bytes_read_ahead": self.room_bytes}

    def run(self) -> Judged:
        """Return the result of the best start."""
        estimator, dataset = self.estimator, self.dataset
        self.started("mini-batch-kernel")
        footprint = kernel_footprint(dataset, estimator.n_clusters, self._most_points())
        with self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks) as placement:
            rows = ScaledPlacement(placement)
            self.recall(rows)
            best = self._best(rows, gram_of(estimator, rows))
            self.passes += placement.traffic.passes
            self.bytes_read += placement.traffic.bytes_read
        result, found, _ = best
        self.ended(result.stop_reason, found.inertia, result.n_iter)
        return best

    def _best(self, rows: ScaledPlacement, gram: GramFunction) -> Judged:
        begun, kept, best = self._begun(), None, None
        if begun is not None and begun.best is not None:
            kept = begun.best
            best = self._judged(rows, self._ended(rows, gram, kept))
        for start in range(0 if begun is None else begun.start, self.restarts):
            end = self._made(rows, gram, begun or BatchKernelState(start, best=kept))
            judged = self._judged(rows, end)
            if self.restarts > 1:
                publish(self.callbacks, StartEnded(start, self.restarts, judged[1].inertia))
            if best is None or judged[1].inertia < best[1].inertia:
                best, kept = judged, end.state.ended()
            if self.time_left() == 0.0:
                break
            begun = None
        assert best is not None
        return best

    def _judged(self, rows: ScaledPlacement, end: _End) -> Judged:
        """Return one start, judged on all rows."""
        placement, centres = rows.placement, end.result.centres
        costs = nearest_by_gram(centres, end.sample.rows, end.sample.diagonal)[1]
        room = placement.shares_memory and self.labelled
        labels = np.empty(self.dataset.n_rows, np.int32) if room else None
        bound = float(costs.max(initial=0.0))
        found = measure_by_gram(placement, centres, labels=labels, bound=bound)
        return end.result, found, labels

    def _made(self, rows: ScaledPlacement, gram: GramFunction, state: BatchKernelState) -> _End:
        """Make all steps of a start that are left."""
        estimator, begun = self.estimator, state.made
        if begun is not None and self._has_ended(begun.steps):
            return self._ended(rows, gram, begun)
        seed = seed_of_start(self.seed, state.start)
        with self._batches(seed, 0 if begun is None else begun.n_steps) as batches:
            if batches.notice:
                publish(self.callbacks, Notice(batches.notice))
            if begun is None:
                sample = self._sample(batches, gram, Key(seed, "sample"))
                moving = self._start(sample, gram, rows.placement, seed)
                begun = StartState.of(sample.indices, KernelSteps(np.zeros(moving.k)), moving)
                self._keep(replace(state, made=begun), rows, batches)
            else:
                sample = self._batch_at(begun.sample, gram)
                moving = self._moving(rows, gram, begun)

            def keep(steps: KernelSteps) -> None:
                self._keep(
                    replace(state, made=StartState(sample.indices, steps)), rows, batches, moving
                )

            steps = minibatch_kernel(
                batches,
                moving,
                rate=estimator.learning_rate,
                stopping=KernelStopping(estimator.max_iter, estimator.tol, self.time_left()),
                dtype=self.dtype,
                callbacks=self.callbacks,
                begun=begun.steps,
                keep=keep,
            )
        self.bytes_read += batches.bytes_read
        return self._end_of(StartState.of(sample.indices, steps, moving), moving, sample)

    def _batches(self, seed: int, skipped: int) -> Batches:
        return Batches(
            self.dataset,
            self.estimator.batch_size,
            seed,
            room_bytes=self.room_bytes,
            least_rows=self._sample_rows(),
            skipped=skipped,
        )

    def _end_of(self, state: StartState, moving: MovingGramCentres, sample: GramBatch) -> _End:
        steps, n = state.steps, self.dataset.n_rows
        self.passes += -(-state.n_steps * min(self.estimator.batch_size, n) // n)
        assert steps.reason is not None
        result = KernelResult(moving.centres(), state.n_steps, steps.reason, list(steps.history))
        return _End(state, result, sample)

    def _sample(self, batches: Batches, gram: GramFunction, key: Key) -> GramBatch:
        """Return the rows that seeding looks at, of which at least k have a weight."""
        drawn, k = batches.sample(self._sample_rows(), key), self.n_clusters
        refuse_bad_batch(drawn, batches.row_of, " of those seen so far")
        if self.method != "array" and np.count_nonzero(drawn.listed_weights()) < k:
            # Weights are rare: only they are read to find them.
            return self._batch_at(draw_rows(self.dataset, k, key), gram)
        return GramBatch.of(drawn, batches.rows_of_last(), gram, self.dtype)

    def _batch_at(self, numbers: np.ndarray, gram: GramFunction) -> GramBatch:
        """Return rows by their numbers."""
        weights = self.dataset.weights
        weights = None if weights is None else np.asarray(weights, np.float64)[numbers]
        batch = Batch(chosen_rows(self.dataset, numbers), np.arange(len(numbers)), weights)
        refuse_bad_batch(batch, lambda position: int(numbers[position]), "")
        return GramBatch.of(batch, numbers, gram, self.dtype)

    def _start(
        self, sample: GramBatch, gram: GramFunction, placement: Placement, seed: int
    ) -> MovingGramCentres:
        began = time.perf_counter()
        if self.method == "array":
            first = self._given(gram)
            norms = norms_of(first, gram, self.dataset)
        else:
            chosen = self._chosen(sample, gram, seed)
            first = [sample.points(chosen[j : j + 1], gram) for j in range(len(chosen))]
            norms = sample.diagonal[chosen]
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        if self.truncation is None:
            return MovingProducts.start(gram, first, norms, placement)
        normalize, n_threads = self._window_options()
        return MovingWindows.start(
            gram, first, norms, self.truncation, normalize=normalize, n_threads=n_threads
        )

    def _given(self, gram: GramFunction) -> list[Points]:
        return given_centres(self.estimator.init, self.dataset, gram, self.n_clusters)

    def _window_options(self) -> tuple[bool, int]:
        return bool(self.estimator.normalize_truncated), threads_of(self.engine)

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

    # -- checkpoints ----------------------------------------------------------------------------------

    def _begun(self) -> BatchKernelState | None:
        n, truncated = self.dataset.n_rows, self.truncation is not None
        shapes = BatchKernelState.shapes(n, self.n_clusters)
        return self.begun(
            BatchKernelState, shapes, lambda state: state.check(n, truncated=truncated)
        )

    def _has_ended(self, steps: KernelSteps) -> bool:
        most, made = self.estimator.max_iter, len(steps.history)
        return steps.reason is not None and is_final(steps.reason, made, most, self.time_left())

    def _ended(self, rows: ScaledPlacement, gram: GramFunction, state: StartState) -> _End:
        """Return what a start has left that has ended before."""
        return self._end_of(
            state, self._moving(rows, gram, state), self._batch_at(state.sample, gram)
        )

    def _moving(
        self, rows: ScaledPlacement, gram: GramFunction, state: StartState
    ) -> MovingGramCentres:
        """Return the centres of a start that goes on."""
        at = partial(self._points_at, gram)
        if state.products is not None:
            return state.products.restored(gram, at, rows.placement)
        assert state.windows is not None
        assert self.truncation is not None
        normalize, n_threads = self._window_options()
        return state.windows.restored(
            gram, at, self.truncation, normalize=normalize, n_threads=n_threads
        )

    def _points_at(self, gram: GramFunction, numbers: np.ndarray) -> Points:
        """Return points by their numbers; those below zero are centres that were given."""
        if gram.is_precomputed:
            return Points(None, numbers)
        given = [] if (numbers >= 0).all() else self._given(gram)
        inside = numbers >= 0
        n_inside = int(inside.sum())
        read = [ready_rows(chosen_rows(self.dataset, numbers[inside]), gram)] if n_inside else []
        # Given centre -1 - j stands j places behind the rows that were read.
        rows = join_rows([*read, *(point.rows for point in given if point.rows is not None)])
        places = np.where(inside, np.cumsum(inside) - 1, n_inside - 1 - numbers)
        return Points(rows[places], numbers)

    def _keep(
        self,
        state: BatchKernelState,
        rows: ScaledPlacement,
        batches: Batches,
        moving: MovingGramCentres | None = None,
    ) -> None:
        """Commit a state if it is time to; `moving` are its centres, if it lacks them."""
        made = state.made
        assert made is not None

        def whole() -> BatchKernelState:
            if moving is None:
                return state
            return replace(state, made=StartState.of(made.sample, made.steps, moving))

        traffic = rows.placement.traffic
        took = Traffic(traffic.passes, traffic.bytes_read + batches.bytes_read)
        self.keep(whole, took, rows, now=moving is None or made.steps.reason is not None)

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
