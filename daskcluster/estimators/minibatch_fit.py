"""One call of ``MiniBatchKMeans.fit``: seeds from a sample, runs the loop in this process, judges."""

from __future__ import annotations

import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.minibatch import (
    MiniBatchStopping,
    Stepper,
    minibatch,
    refuse_bad_batch,
)
from daskcluster.algorithms.minibatch_journal import Journal
from daskcluster.algorithms.minibatch_reassign import Reassignment
from daskcluster.chunkwise.minibatch import Batch, MiniBatchStepper, MovingCentres
from daskcluster.chunkwise.single_rows import RUN_ROWS, SingleRowStepper
from daskcluster.data.batches import ROOM_BYTES, Batches
from daskcluster.engine.engine import Engine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.footprint import fit_footprint
from daskcluster.estimators.initial import GIVEN, method_for, warn_of_one_start
from daskcluster.estimators.kmeans_base import KMeansRun, judge
from daskcluster.estimators.sample import batch_room, centres_of_sample, placed, threads_of
from daskcluster.events import Callback, Notice, SeedingEnded, publish
from daskcluster.models.result import FitResult
from daskcluster.randomness import Key, as_seed
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.estimators.minibatch import MiniBatchKMeans

_RANDOM_INITS = 3


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
        warn_of_one_start(self.estimator, self.method, stacklevel=5)
        return 1 if self.method in GIVEN else int(n_init)

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
                stacklevel=5,
            )
            size = 3 * k
        return min(int(size), self.n_rows)

    def choose(self, sample: Batch, seed: int, restarts: int) -> np.ndarray:
        """Return centres (k, d) in the compute dtype: of all starts, the best on the sample."""
        return centres_of_sample(sample, self.estimator, seed, restarts)


class MiniBatchFit(Fit):
    """One call of fit."""

    estimator: MiniBatchKMeans

    def __init__(
        self,
        estimator: MiniBatchKMeans,
        source: Any,
        dataset: Dataset,
        engine: Engine,
        callbacks: tuple[Callback, ...],
        *,
        labelled: bool,
    ) -> None:
        super().__init__(estimator, source, dataset, engine, callbacks, labelled=labelled)
        self.seed = as_seed(estimator.random_state)
        # A batch of one row is too little to look at anything: rows step in runs.
        self.is_sequential = estimator.steps_by_single_rows
        size = RUN_ROWS if self.is_sequential else estimator.batch_size
        self.batch_size = min(size, dataset.n_rows)
        self.seeding = Seeding(estimator, dataset.n_rows)
        self.method = self.seeding.method
        self.restarts = self.seeding.restarts

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
        self.started("mini-batch", self.n_steps)
        footprint = fit_footprint(dataset, estimator.n_clusters, "sample")
        with self.engine.place(dataset, footprint=footprint, callbacks=self.callbacks) as placement:
            result, state = self._loop()
            rows = ScaledPlacement(placement, unit=self.unit)
            labels = self.kept_labels(placement) if self.labelled else None
            run = judge(rows, result, labels, labelled=self.labelled)
            self.passes += placement.traffic.passes
            self.bytes_read += placement.traffic.bytes_read
        self.ended(run.result.stop_reason, run.found.inertia, run.result.n_iter)
        return run, state

    def _loop(self) -> tuple[FitResult, MovingCentres]:
        estimator, size = self.estimator, self.seeding.sample_rows
        with ExitStack() as stack:
            batches = stack.enter_context(
                Batches(
                    self.dataset,
                    self.batch_size,
                    self.seed,
                    room_bytes=batch_room(self.engine, self.dataset, self.callbacks, ROOM_BYTES),
                    least_rows=size,
                )
            )
            if batches.notice:
                publish(self.callbacks, Notice(batches.notice))
            validate = self.validator(stack)
            state, threshold = self._start(batches, size)
            # Only after a pass have batches from pools met all rows.
            first_pass = self.dataset.n_rows if batches.is_pooled else 0
            stepper: Stepper = (
                SingleRowStepper(state)
                if self.is_sequential
                else MiniBatchStepper(
                    state, estimator.learning_rate, self.unit, threads_of(self.engine)
                )
            )
            result = minibatch(
                batches,
                stepper,
                stopping=MiniBatchStopping(
                    self.n_steps,
                    threshold,
                    self.patience,
                    self.time_left(),
                    first_pass // self.batch_size,
                ),
                reassignment=Reassignment(
                    estimator.reassignment_ratio,
                    self.seed,
                    self.unit,
                    first_pass,
                ),
                journal=Journal(state, self.dataset.n_rows, self.callbacks, validate),
            )
        self.bytes_read += batches.bytes_read
        self.passes += batches.passes - (-result.n_iter * self.batch_size // self.dataset.n_rows)
        return result, state

    def _start(self, batches: Batches, size: int) -> tuple[MovingCentres, float]:
        """Return the first centres, and the movement that `tol` allows."""
        estimator, began = self.estimator, time.perf_counter()
        needed = self.method not in GIVEN or estimator.tol > 0
        sample = batches.sample(size if needed else 1, Key(self.seed, "sample"), uniform=needed)
        refuse_bad_batch(sample, batches.row_of, " of those seen so far")
        centres = self.seeding.choose(sample, self.seed, self.restarts)
        threshold = 0.0
        if estimator.tol > 0:
            with placed(sample.rows[sample.listed], None, unit=self.unit) as few:
                threshold = estimator.tol * few.known().mean_variance
        seconds = time.perf_counter() - began
        publish(self.callbacks, SeedingEnded(self.method, batches.passes, seconds))
        return MovingCentres.start(centres), threshold
