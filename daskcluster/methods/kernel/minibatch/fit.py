"""One call of ``MiniBatchKernelKMeans.fit``: seeding, the loop in this process, and the last pass."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunk import compute_dtype
from daskcluster.engine.engine import Engine, Placement, Traffic
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import Fit, FitRun, mean_cost
from daskcluster.estimators.loop import is_final
from daskcluster.events import Callback, Notice, SeedingEnded, StartEnded, publish
from daskcluster.methods.kernel.chunkwise.centres import GramCentres, nearest_by_gram
from daskcluster.methods.kernel.chunkwise.gram import GramFunction, GramSums, Points, join_points
from daskcluster.methods.kernel.initial import (
    chosen_rows,
    given_centres,
    gram_of,
    kernel_restarts,
    measure_by_gram,
    refuse_validation,
    seed_of_start,
)
from daskcluster.methods.kernel.minibatch.algorithm import (
    KernelResult,
    KernelSteps,
    minibatch_kernel,
)
from daskcluster.methods.kernel.minibatch.centres import (
    GramBatch,
    MovingGramCentres,
    MovingProducts,
    MovingWindows,
    kept_bytes,
)
from daskcluster.methods.kernel.minibatch.state import BatchKernelState, NumberedRows, StartState
from daskcluster.methods.kernel.parameters import GRAPHS
from daskcluster.methods.minibatch.algorithm import refuse_bad_batch
from daskcluster.methods.minibatch.batches import ROOM_BYTES, Batches, held_bytes
from daskcluster.methods.minibatch.sample import batch_room, threads_of
from daskcluster.randomness import Key
from daskcluster.seeding.methods import draw_rows
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.methods.kernel.minibatch.estimator import MiniBatchKernelKMeans

_SAMPLE_BYTES = 256 << 20


@dataclass(frozen=True)
class End:
    """A start whose steps are done, with the rows that it was seeded from."""

    state: StartState
    centres: GramCentres
    sample: GramBatch
    moving: MovingGramCentres


class MiniBatchKernelFit(Fit):
    """One call of fit."""

    estimator: MiniBatchKernelKMeans
    rows_and_gram: tuple[ScaledPlacement, GramFunction]

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

    @property
    def has_windows(self) -> bool:
        """Whether centres are windows of batches, not inner products with all rows."""
        return self.truncation is not None

    def circumstances(self) -> Mapping[str, Any]:
        """Return the size of the prefetch buffer, on which batches depend unless rows are in memory."""
        return {} if self.dataset.in_memory else {"bytes_read_ahead": self.room_bytes}

    def footprint(self) -> Footprint:
        """Return the memory that the fit needs."""
        return minibatch_footprint(
            self.dataset,
            self.estimator.n_clusters,
            self._most_points(),
            self.room_bytes,
            batch_rows=rows_per_step(self.dataset.n_rows, vars(self.estimator)),
            truncated=self.has_windows,
        )

    def gram(self, rows: ScaledPlacement) -> GramFunction:
        """Return the Gram function."""
        return gram_of(self.estimator, rows)

    name = "mini-batch-kernel"
    batches: Batches | None = None

    def took(self) -> Traffic:
        whole, batches = super().took(), self.batches
        read = 0 if batches is None else batches.bytes_read
        return Traffic(whole.passes, whole.bytes_read + read)

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the best start, evaluated."""
        n, truncated, gram = self.dataset.n_rows, self.has_windows, self.gram(rows)
        shapes = BatchKernelState.shapes(n, self.n_clusters)
        resumed = self.resumed(
            BatchKernelState, shapes, lambda state: state.check(n, truncated=truncated)
        )
        self.rows_and_gram = rows, gram
        return self.best_restart(
            resumed,
            lambda kept: self.evaluated(rows, self._ended(rows, gram, kept)),
            lambda run: run.found.inertia,
        )

    def validation_rows(self) -> Dataset | None:
        refuse_validation(self.estimator)
        return super().validation_rows()

    def validated(self, rows: ScaledPlacement, moving: MovingGramCentres) -> float:
        return mean_cost(measure_by_gram(rows.placement, moving.centres()), rows)

    def begin(self, restart: int, best: StartState | None) -> BatchKernelState:
        return BatchKernelState(restart, best=best)

    def finish(self, state: BatchKernelState) -> tuple[StartState, FitRun]:
        rows, gram = self.rows_and_gram
        end = self._made(rows, gram, state)
        size = rows_per_step(self.dataset.n_rows, vars(self.estimator))
        self.passes += -(-end.state.n_steps * size // self.dataset.n_rows)
        run = self.evaluated(rows, end)
        if self.restarts > 1:
            publish(self.callbacks, StartEnded(state.restart, self.restarts, run.found.inertia))
        return end.state.ended(), run

    def evaluated(self, rows: ScaledPlacement, end: End) -> FitRun:
        """Return one start, evaluated on all rows. One pass."""
        placement, centres = rows.placement, end.centres
        costs = nearest_by_gram(centres, end.sample.rows, end.sample.diagonal)[1]
        room = placement.shares_memory and self.labelled
        labels = np.empty(self.dataset.n_rows, np.int32) if room else None
        bound = float(costs.max(initial=0.0))
        found = measure_by_gram(placement, centres, labels=labels, bound=bound)
        return FitRun(KernelResult.of(centres, end.state.steps), found, labels)

    def _made(self, rows: ScaledPlacement, gram: GramFunction, state: BatchKernelState) -> End:
        """Make the remaining steps of a start."""
        estimator, resumed = self.estimator, state.made
        if resumed is not None and resumed.steps.reason is not None:
            limits = estimator.max_iter, self.time_left()
            if is_final(resumed.steps.reason, resumed.n_steps, *limits):
                return self._ended(rows, gram, resumed)
        seed = seed_of_start(self.seed, state.restart)
        with Batches(
            self.dataset,
            estimator.batch_size,
            seed,
            room_bytes=self.room_bytes,
            least_rows=self._sample_rows(),
            skipped=0 if resumed is None else resumed.n_steps,
            replacement=bool(estimator.replacement),
        ) as batches:
            if batches.notice:
                publish(self.callbacks, Notice(batches.notice))
            if resumed is not None:
                sample = self._rows_of(gram).batch(resumed.sample)
                moving = self.moving(rows, gram, resumed)
            else:
                sample = self._sample(batches, gram, Key(seed, "sample"))
                moving = self._start(sample, gram, rows.placement, seed)

            def keep(steps: KernelSteps) -> None:
                self.keep(
                    lambda: replace(state, made=StartState.of(sample.indices, steps, moving)),
                    now=not steps.history or steps.reason is not None,
                )

            self.batches = batches
            steps = KernelSteps(np.zeros(moving.k)) if resumed is None else resumed.steps
            if resumed is None:
                keep(steps)
            with moving.threads():
                steps = minibatch_kernel(
                    batches,
                    moving,
                    steps,
                    self.limits(),
                    rate=estimator.learning_rate,
                    dtype=self.dtype,
                    tol=estimator.tol,
                    keep=keep,
                    validate=self.validate,
                )
            self.batches = None
        self.bytes_read += batches.bytes_read
        return End(StartState.of(sample.indices, steps, moving), moving.centres(), sample, moving)

    def _sample(self, batches: Batches, gram: GramFunction, key: Key) -> GramBatch:
        """Return the rows that seeding samples; at least k of them have a positive weight."""
        drawn, k = batches.sample(self._sample_rows(), key), self.n_clusters
        refuse_bad_batch(drawn, batches.row_of, " of those seen so far")
        if self.method != "array" and np.count_nonzero(drawn.listed_weights()) < k:
            # Few rows have a weight, so choose them by the weights alone.
            return self._rows_of(gram).batch(draw_rows(self.dataset, k, key))
        return GramBatch.of(drawn, batches.rows_of_last(), gram, self.dtype)

    def _start(
        self, sample: GramBatch, gram: GramFunction, placement: Placement, seed: int
    ) -> MovingGramCentres:
        estimator, began = self.estimator, time.perf_counter()
        if self.method == "array":
            first = given_centres(estimator.init, self.dataset, gram, self.n_clusters)
            norms = norms_of(first, gram, self.dataset)
        else:
            columns = partial(self.columns, sample, gram)
            diagonal = sample.diagonal
            chosen = chosen_rows(estimator, columns, lambda: diagonal, sample.weights, seed)
            first = [sample.points(chosen[j : j + 1], gram) for j in range(len(chosen))]
            norms = sample.diagonal[chosen]
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        return self.standing(gram, first, norms, placement)

    def standing(
        self, gram: GramFunction, first: list[Points], norms: np.ndarray, placement: Placement
    ) -> MovingGramCentres:
        """Return centres at one point each; `norms` (k,) are their K(x, x)."""
        if self.truncation is None:
            return MovingProducts.start(gram, first, norms, placement)
        return MovingWindows.start(gram, first, norms, self.truncation, **self.window_options())

    def window_options(self) -> dict[str, Any]:
        """Return the options of windows."""
        return {
            "normalize": bool(self.estimator.normalize_truncated),
            "n_threads": threads_of(self.engine),
            "cut": bool(self.estimator.cut_batches),
        }

    def columns(self, sample: GramBatch, gram: GramFunction, which: np.ndarray) -> np.ndarray:
        """Return K(x, y) for the rows x of a sample and its rows y in `which`."""
        points, m = sample.points(which, gram), len(which)
        return GramSums(gram, points, np.ones(m), np.arange(m), m)(sample.rows)

    # -- checkpoints ----------------------------------------------------------------------------------

    def _ended(self, rows: ScaledPlacement, gram: GramFunction, state: StartState) -> End:
        """Return a start that had ended when its state was saved."""
        moving = self.moving(rows, gram, state)
        return End(state, moving.centres(), self._rows_of(gram).batch(state.sample), moving)

    def _rows_of(self, gram: GramFunction) -> NumberedRows:
        return NumberedRows(self.dataset, gram, self.dtype, self.estimator.init, self.n_clusters)

    def moving(
        self, rows: ScaledPlacement, gram: GramFunction, state: StartState
    ) -> MovingGramCentres:
        """Return the centres of a start from its saved state."""
        if state.products is not None:
            return state.products.restored(gram, self._rows_of(gram).points, rows.placement)
        return self.restored_windows(gram, state)

    def restored_windows(self, gram: GramFunction, state: StartState) -> MovingWindows:
        """Return the windows of a saved state."""
        assert state.windows is not None
        at, options = self._rows_of(gram).points, self.window_options()
        return state.windows.restored(gram, at, self.truncation, **options)

    def _sample_rows(self) -> int:
        """Return the number of rows that the seeding samples."""
        estimator, n = self.estimator, self.dataset.n_rows
        size = estimator.init_size or max(3 * estimator.batch_size, 3 * estimator.n_clusters)
        row_bytes = max(1, self.dataset.bytes_of((0, n)) // n)
        fitting = max(3 * estimator.n_clusters, _SAMPLE_BYTES // row_bytes)
        return min(size, fitting, n)

    def _most_points(self) -> int:
        """Return the maximum number of rows that the centres consist of."""
        estimator, n = self.estimator, self.dataset.n_rows
        if self.truncation is None:
            return min(n, max(1, estimator.max_iter) * estimator.batch_size)
        most = estimator.n_clusters * (self.truncation + estimator.batch_size)
        return most if estimator.replacement else min(n, most)


def rows_per_step(n_rows: int, parameters: Mapping[str, Any]) -> int:
    """Return the number of rows of a batch."""
    size = int(parameters["batch_size"])
    return size if parameters["replacement"] else min(size, n_rows)


def norms_of(first: list[Points], gram: GramFunction, dataset: Dataset) -> np.ndarray:
    """Return K(x, x) of points, (k,)."""
    points = join_points(first)
    if points.rows is not None or gram.name in GRAPHS:
        return gram.diagonal(points.rows, points.indices)
    rows: Any = dataset.take(points.indices)
    return np.array([float(row[at]) for row, at in zip(rows, points.indices, strict=True)])


def minibatch_footprint(
    dataset: Dataset,
    n_clusters: int,
    n_points: int,
    room_bytes: int = ROOM_BYTES,
    *,
    batch_rows: int,
    truncated: bool,
) -> Footprint:
    """Return the memory that mini-batch kernel k-means needs, with windows (`truncated`) or without."""
    found = kernel_footprint(dataset, n_clusters, n_points)
    rows = held_bytes(dataset, room_bytes)
    if truncated:
        return replace(found, home_bytes=kept_bytes(batch_rows, n_points), ahead_bytes=rows)
    return replace(found, home_bytes=rows + 16 * dataset.n_rows * n_clusters)


def kernel_footprint(dataset: Dataset, n_clusters: int, n_points: int) -> Footprint:
    """Return the memory that kernel k-means needs per thread: points and their panels."""
    n = dataset.n_rows
    row_bytes = 8 if n_points == 0 else max(8, dataset.bytes_of((0, n)) // n)
    return Footprint(thread_bytes=2 * n_points * row_bytes + 16 * (n_points + 1024 * n_clusters))
