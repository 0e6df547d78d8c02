"""One call of ``MiniBatchKMeans.fit``: seeds from a sample, runs the loop in this process, judges."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.minibatch import MiniBatchStopping, minibatch, refuse_bad_batch
from daskcluster.algorithms.minibatch_journal import Journal
from daskcluster.algorithms.minibatch_reassign import Reassignment
from daskcluster.chunkwise.assign import SCORE, AssignParams, ScoreStatistics
from daskcluster.chunkwise.minibatch import Batch, MiniBatchStepper, MovingCentres
from daskcluster.data.batches import ROOM_BYTES, Batches
from daskcluster.data.open import open_dataset
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.local import LocalEngine, default_threads
from daskcluster.engine.memory import BASELINE_BYTES
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.initial import initial_centres, method_for
from daskcluster.estimators.inputs import fit_dataset
from daskcluster.estimators.kmeans_base import KMeansRun, judge
from daskcluster.estimators.kmeans_fit import fit_footprint
from daskcluster.events import Callback, FitEnded, FitStarted, Notice, SeedingEnded, publish
from daskcluster.host import format_bytes, host_memory
from daskcluster.models.result import FitResult
from daskcluster.randomness import Key, as_seed
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.estimators.minibatch import MiniBatchKMeans

_GIVEN = ("array", "model")
_RANDOM_INITS = 3
_LEAST_ROOM = 16 << 20


@dataclass
class Seeding:
    """Chooses first centres among the rows of a sample.

    Parameters
    ----------
    estimator : MiniBatchKMeans
    n_rows : int
        Of the dataset.
    """

    estimator: MiniBatchKMeans
    n_rows: int

    @property
    def method(self) -> str:
        return method_for(self.estimator.init, in_memory=True)

    @property
    def restarts(self) -> int:
        """How many starts are made, of which one is chosen."""
        n_init = self.estimator.n_init
        if n_init == "auto":
            return _RANDOM_INITS if self.method in ("random", "callable") else 1
        if self.method in _GIVEN and n_init != 1:
            warnings.warn(
                "Explicit initial center position passed: performing only one init in "
                f"{type(self.estimator).__name__} instead of n_init={n_init}.",
                RuntimeWarning,
                stacklevel=5,
            )
            return 1
        return int(n_init)

    @property
    def sample_rows(self) -> int:
        """How many rows the seeding looks at: three batches, at least 3 k, unless `init_size` says so."""
        estimator = self.estimator
        size, k = estimator.init_size, estimator.n_clusters
        if size is None:
            size = 3 * estimator.batch_size
            return min(max(size, 3 * k), self.n_rows)
        if size < k:
            warnings.warn(
                f"init_size={size} should be larger than n_clusters={k}. Setting it to "
                "min(3*n_clusters, n_samples)",
                RuntimeWarning,
                stacklevel=6,
            )
            size = 3 * k
        return min(int(size), self.n_rows)

    def choose(self, sample: Batch, seed: int, restarts: int) -> np.ndarray:
        """Return centres (k, d) in the compute dtype: of all starts, the best on the sample."""
        estimator = self.estimator
        rows = sample.rows[sample.listed]
        weights = None if sample.weights is None else sample.listed_weights()
        with placed(rows, weights, unit=estimator.metric == "cosine") as few:
            best: tuple[float, np.ndarray] | None = None
            for number in range(restarts):
                draw = int(Key(seed, "start", number).generator().integers(2**63 - 1))
                centres = initial_centres(
                    estimator.init,
                    few,
                    estimator.n_clusters,
                    draw,
                    source=rows if isinstance(rows, np.ndarray) else few.placement.dataset,
                    random_state=np.random.RandomState(draw % 2**32),
                    chain_length=estimator.chain_length,
                )
                cost = 0.0 if restarts == 1 else _inertia(few, centres)
                if best is None or cost < best[0]:
                    best = cost, centres
        assert best is not None
        return best[1]


@contextmanager
def placed(rows: Any, weights: Any, *, unit: bool) -> Iterator[ScaledPlacement]:
    """Yield some rows placed on the threads of this process."""
    with LocalEngine().place(open_dataset(rows, weights=weights)) as placement:
        yield ScaledPlacement(placement, unit=unit)


def threads_of(engine: Engine) -> int:
    """Return the threads of this process that a step may take; a cluster leaves it all of them."""
    return engine.n_threads if isinstance(engine, LocalEngine) else default_threads()


def _inertia(rows: ScaledPlacement, centres: np.ndarray) -> float:
    found: ScoreStatistics = rows.reduce(
        SCORE, lambda scale: AssignParams(centres, scale, rows.unit)
    )
    return found.inertia


class MiniBatchFit:
    """One call of fit."""

    def __init__(
        self,
        estimator: MiniBatchKMeans,
        dataset: Dataset,
        engine: Engine,
        callbacks: tuple[Callback, ...],
        *,
        labelled: bool,
    ) -> None:
        self.estimator = estimator
        self.dataset = dataset
        self.engine = engine
        self.callbacks = callbacks
        self.labelled = labelled
        self.unit = estimator.metric == "cosine"
        self.seed = as_seed(estimator.random_state)
        self.batch_size = min(estimator.batch_size, dataset.n_rows)
        self.seeding = Seeding(estimator, dataset.n_rows)
        self.method = self.seeding.method
        self.restarts = self.seeding.restarts
        self.passes = self.bytes_read = 0
        self._began = time.perf_counter()

    @property
    def patience(self) -> int | None:
        """Steps without improvement after which to stop."""
        given = self.estimator.max_no_improvement
        return None if given is None or given is False else int(given)

    @property
    def n_steps(self) -> int:
        """Steps at most: as many as `max_iter` passes hold."""
        passes = self.estimator.max_iter
        return max(1, passes * self.dataset.n_rows // self.batch_size) if passes else 0

    def run(self) -> tuple[KMeansRun, MovingCentres]:
        """Return the run, whose ``n_iter`` counts steps, and the centres with what they have seen."""
        estimator, dataset = self.estimator, self.dataset
        publish(
            self.callbacks,
            FitStarted(
                "mini-batch",
                dataset.n_rows,
                dataset.n_features,
                estimator.n_clusters,
                self.n_steps,
                self.engine.name,
            ),
        )
        footprint = fit_footprint(dataset, estimator.n_clusters, "sample")
        with self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks) as placement:
            result, state = self._loop()
            rows = ScaledPlacement(placement, unit=self.unit)
            run = judge(rows, result, self._room_for_labels(placement), labelled=self.labelled)
            self.passes += placement.traffic.passes
            self.bytes_read += placement.traffic.bytes_read
        publish(self.callbacks, self._ended(run))
        return run, state

    def _loop(self) -> tuple[FitResult, MovingCentres]:
        estimator, size = self.estimator, self.seeding.sample_rows
        with ExitStack() as stack:
            batches = stack.enter_context(
                Batches(
                    self.dataset,
                    self.batch_size,
                    self.seed,
                    room_bytes=self._room(),
                    least_rows=size,
                )
            )
            if batches.notice:
                publish(self.callbacks, Notice(batches.notice))
            validate = stack.enter_context(self._validation())
            state, threshold = self._start(batches, size)
            stepper = MiniBatchStepper(
                state, estimator.learning_rate, self.unit, threads_of(self.engine)
            )
            result = minibatch(
                batches,
                stepper,
                stopping=MiniBatchStopping(
                    self.n_steps, threshold, self.patience, self._time_left()
                ),
                reassignment=Reassignment(estimator.reassignment_ratio, self.seed, self.unit),
                journal=Journal(state, self.dataset.n_rows, self.callbacks, validate),
            )
        self.bytes_read += batches.bytes_read
        self.passes += -(-result.n_iter * self.batch_size // self.dataset.n_rows)
        return result, state

    def _room(self) -> int:
        """Return how much memory rows that are read ahead may take in this process.

        The same everywhere, for the draw depends on it, unless the memory limit leaves less.
        """
        engine = self.engine
        limit = engine.memory_limit if isinstance(engine, LocalEngine) else host_memory()
        room = min(ROOM_BYTES, max(limit - BASELINE_BYTES, _LEAST_ROOM))
        if room < ROOM_BYTES and not self.dataset.in_memory:
            publish(
                self.callbacks,
                Notice(
                    f"memory_limit={format_bytes(limit)} leaves {format_bytes(room)} for rows read "
                    f"ahead instead of {format_bytes(ROOM_BYTES)}: batches, and so the result of a seed, "
                    "are others than with a higher limit."
                ),
            )
        return room

    def _start(self, batches: Batches, size: int) -> tuple[MovingCentres, float]:
        """Return the first centres, and the movement that `tol` allows."""
        estimator, began = self.estimator, time.perf_counter()
        needed = self.method not in _GIVEN or estimator.tol > 0
        sample = batches.sample(size if needed else 1, Key(self.seed, "sample"))
        refuse_bad_batch(sample, batches.row_of, " of those seen so far")
        centres = self.seeding.choose(sample, self.seed, self.restarts)
        threshold = 0.0
        if estimator.tol > 0:
            with placed(sample.rows[sample.listed], None, unit=self.unit) as few:
                threshold = estimator.tol * few.known().mean_variance
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        return MovingCentres.start(centres), threshold

    @contextmanager
    def _validation(self) -> Iterator[Callable[[np.ndarray], float] | None]:
        """Yield what measures the mean squared distance of the validation rows to centres."""
        given = self.estimator.validation
        if given is None:
            yield None
            return
        dataset = fit_dataset(self.estimator, given, None, reset=False)
        with LocalEngine(threads_of(self.engine)).place(dataset) as placement:
            rows = ScaledPlacement(placement, unit=self.unit)
            yield lambda centres: _mean_distance(rows, centres)

    def _room_for_labels(self, placement: Placement) -> np.ndarray | None:
        if placement.shares_memory and self.dataset.in_memory and self.labelled:
            return np.empty(self.dataset.n_rows, np.int32)
        return None

    def _time_left(self) -> float | None:
        limit = self.estimator.max_time
        return None if limit is None else max(0.0, limit - (time.perf_counter() - self._began))

    def _ended(self, run: KMeansRun) -> FitEnded:
        return FitEnded(
            run.result.stop_reason,
            run.found.inertia,
            run.result.n_iter,
            self.passes,
            self.bytes_read,
            time.perf_counter() - self._began,
        )


def _mean_distance(rows: ScaledPlacement, centres: np.ndarray) -> float:
    wanted = np.ascontiguousarray(centres, rows.dtype)
    found: ScoreStatistics = rows.reduce(
        SCORE, lambda scale: AssignParams(wanted, scale, rows.unit)
    )
    weighted = rows.placement.dataset.weights is not None
    weight = float(found.weights.sum()) if weighted else float(found.sizes.sum())
    return found.inertia / weight
