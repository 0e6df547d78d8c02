"""One call of ``MiniBatchKMeans.fit``: seed from a sample, run the loop, evaluate; and its dry run.

What other fits with steps in this process share is here too: seeding from a sample, threads, memory.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.engine.engine import Traffic
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import Fit, FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.loop import is_final, mean_distance
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.events import Notice, SeedingEnded, StopReason, publish
from daskcluster.methods.coreset.start import SAMPLE_ROWS, sampled_start
from daskcluster.methods.kmeans.fit import fit_footprint, measure_run, pass_flop
from daskcluster.methods.kmeans.initial import (
    GIVEN,
    is_auto,
    method_for,
    placed,
    warn_of_one_start,
)
from daskcluster.methods.minibatch.algorithm import (
    Improvement,
    MiniBatchState,
    Reassignment,
    Stepper,
    minibatch,
    refuse_bad_batch,
)
from daskcluster.methods.minibatch.batches import ROOM_BYTES, Batches, fits, held_bytes
from daskcluster.methods.minibatch.chunkwise import (
    RUN_ROWS,
    MiniBatchStepper,
    MovingCentres,
    SingleRowStepper,
)
from daskcluster.methods.minibatch.sample import (
    batch_room,
    centres_of_sample,
    start_of_batches,
    threads_of,
)
from daskcluster.models.fitted import FitResult
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.methods.minibatch.estimator import MiniBatchKMeans

_RANDOM_INITS = 3
SINGLE_ROWS_RATIO = 0.01
"""Steps of single rows know no costs of clusters, so centres are reassigned as in scikit-learn."""


@dataclass
class Seeding:
    """Chooses first centres among the rows of a sample.

    Parameters
    ----------
    estimator : MiniBatchKMeans
    n_rows : int
        Number of rows of the dataset.
    """

    estimator: MiniBatchKMeans
    n_rows: int

    @property
    def by_sensitivity(self) -> bool:
        """True if the method is not given: the sample is then drawn so that far rows are in it."""
        return is_auto(self.estimator.init)

    @property
    def method(self) -> str:
        return method_for(self.estimator.init, in_memory=True)

    @property
    def restarts(self) -> int:
        """Number of starts, of which one is chosen."""
        n_init = self.estimator.n_init
        if n_init == "auto":
            return _RANDOM_INITS if self.method in ("random", "callable") else 1
        warn_of_one_start(self.estimator, self.method, stacklevel=6)
        return 1 if self.method in GIVEN else int(n_init)

    @property
    def sample_rows(self) -> int:
        """Rows that the seeding samples unless `init_size` says so; by default at least 3 k."""
        estimator = self.estimator
        size, k = estimator.init_size, estimator.n_clusters
        if size is None:
            size = SAMPLE_ROWS if self.by_sensitivity else 3 * estimator.batch_size
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


class BatchFit(Fit):
    """A `Fit` of batches, for which rows are read ahead unless they are in memory."""

    @cached_property
    def room_bytes(self) -> int:
        """Memory for rows that are read ahead."""
        return batch_room(self.engine, self.dataset, self.callbacks, ROOM_BYTES)

    def circumstances(self) -> Mapping[str, Any]:
        """Return the size of the room for rows read ahead, on which batches then depend."""
        return {} if self.dataset.in_memory else {"bytes_read_ahead": self.room_bytes}


class MiniBatchFit(BatchFit):
    """One call of fit."""

    estimator: MiniBatchKMeans

    def prepare(self) -> None:
        estimator, dataset = self.estimator, self.dataset
        # A batch of one row is too little to evaluate: rows step in runs.
        self.is_sequential = estimator.steps_by_single_rows
        size = RUN_ROWS if self.is_sequential else estimator.batch_size
        self.batch_size = min(size, dataset.n_rows)
        self.seeding = Seeding(estimator, dataset.n_rows)
        self.method = self.seeding.method
        self.restarts = self.seeding.restarts
        self.sample_rows = self.seeding.sample_rows

    @property
    def patience(self) -> int | None:
        """Steps without improvement after which to stop."""
        given = self.estimator.max_no_improvement
        return None if given is None or given is False else int(given)

    name = "mini-batch"
    batches: Batches | None = None
    moved: MovingCentres
    """Centres after the last step, with their counts."""

    @property
    def most(self) -> int:
        """Maximum number of steps: those of `max_iter` passes."""
        passes = self.estimator.max_iter
        return max(1, passes * self.dataset.n_rows // self.batch_size) if passes else 0

    def footprint(self) -> Footprint:
        return batches_footprint(self.dataset, self.n_clusters, self.room_bytes)

    def took(self) -> Traffic:
        """Return the cost without the passes of steps, which follow from their number."""
        whole, batches = super().took(), self.batches
        if batches is None:
            return whole
        return Traffic(whole.passes + batches.passes, whole.bytes_read + batches.bytes_read)

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the run, whose ``n_iter`` counts steps."""
        k = self.n_clusters
        shapes = {"exact": (k, self.dataset.n_features), "seen": (k,), "costs": (k,)}
        state = self.resumed(MiniBatchState, shapes)
        limits = self.most, self.time_left()
        if state is None or state.reason is None or not is_final(state.reason, state.step, *limits):
            # Rows of their own: a resumed fit does not know what the sample found.
            state = self._loop(ScaledPlacement(rows.placement), state)
        self.moved = state.centres(compute_dtype(self.dataset.dtype))
        self.passes += -(-state.step * self.batch_size // self.dataset.n_rows)
        assert state.reason is not None
        result = FitResult(self.moved.centres, state.step, state.reason, list(state.history))
        labels = self.kept_labels(rows.placement) if self.labelled else None
        return measure_run(rows, result, labels, labelled=self.labelled)

    def _loop(self, rows: ScaledPlacement, resumed: MiniBatchState | None) -> MiniBatchState:
        """Make all remaining steps, and return the state after them."""
        batches = self.batches = Batches(
            self.dataset,
            self.batch_size,
            self.seed,
            room_bytes=self.room_bytes,
            least_rows=self.sample_rows,
            skipped=0 if resumed is None else resumed.step,
        )
        with ExitStack() as stack:
            stack.enter_context(batches)
            if batches.notice:
                publish(self.callbacks, Notice(batches.notice))
            if resumed is None:
                first = resumed = self._start(batches, rows)
                self.keep(lambda: first, now=True)
            return self._steps(batches, resumed)

    def _steps(self, batches: Batches, begin: MiniBatchState) -> MiniBatchState:
        state = begin.centres(compute_dtype(self.dataset.dtype))
        size, n_rows = self.batch_size, self.dataset.n_rows

        def keep(step: int, make: Callable[[], MiniBatchState], reason: StopReason | None) -> None:
            ended = step * size // n_rows > (step - 1) * size // n_rows
            self.keep(make, now=reason is not None, counts=ended)

        stepper: Stepper = SingleRowStepper(state)
        if not self.is_sequential:
            rate, threads = self.estimator.learning_rate, threads_of(self.engine)
            stepper = MiniBatchStepper(state, rate, threads)
        return minibatch(
            batches,
            stepper,
            begin,
            self.limits(),
            least_steps=self._first_pass(batches) // size,
            keep=None if self.checkpoints.commits is None else keep,
            validate=self.validate,
        )

    def validated(self, rows: ScaledPlacement, state: MiniBatchState) -> float:
        return mean_distance(rows, state.exact.astype(compute_dtype(self.dataset.dtype)))

    def _first_pass(self, batches: Batches) -> int:
        """Return the rows after which batches have drawn from all rows: with pools, a whole pass."""
        return self.dataset.n_rows if batches.is_pooled else 0

    def _start(self, batches: Batches, rows: ScaledPlacement) -> MiniBatchState:
        """Choose the first centres."""
        estimator, began = self.estimator, time.perf_counter()
        if estimator.reassignment_ratio == "auto":
            ratio = SINGLE_ROWS_RATIO if self.is_sequential else None
        else:
            ratio = float(estimator.reassignment_ratio)
        least_rows, passes = self._first_pass(batches), rows.placement.traffic.passes
        if self.seeding.by_sensitivity:
            # By sensitivity, of rows in memory if they are from all over.
            given = self.n_clusters, self.sample_rows, self.seed, self.restarts
            if batches.is_pooled and not batches.is_wide:
                found = sampled_start(rows, *given)
            else:
                found = start_of_batches(batches, *given)
            first = MovingCentres.start(found.centres)
            threshold = estimator.tol * found.mean_variance
            first.seen[:], first.costs[:] = found.weights, found.costs
            if ratio is None and not (batches.is_pooled and batches.is_wide):
                ratio = 0.0  # the sample is from all rows: no batch knows better
            least_rows = 0
        else:
            first, threshold = self._uniform(batches)
        seconds = time.perf_counter() - began
        passes = batches.passes + rows.placement.traffic.passes - passes
        publish(self.callbacks, SeedingEnded(self.method, passes, seconds))
        return MiniBatchState(
            0,
            first.exact,
            first.seen,
            threshold,
            Reassignment(ratio, self.seed, least_rows),
            Improvement.over(self.batch_size, self.dataset.n_rows, self.patience),
            costs=first.costs,
        )

    def _uniform(self, batches: Batches) -> tuple[MovingCentres, float]:
        """Return centres chosen from a uniform sample, and the movement that `tol` allows."""
        estimator = self.estimator
        size = self.sample_rows
        needed = self.method not in GIVEN or estimator.tol > 0
        sample = batches.sample(size if needed else 1, Key(self.seed, "sample"), uniform=needed)
        refuse_bad_batch(sample, batches.row_of, " of those seen so far")
        centres = centres_of_sample(sample, estimator, self.seed, self.restarts)
        threshold = 0.0
        if estimator.tol > 0:
            chunk = Chunk(sample.rows[sample.listed], normalize=sample.normalize)
            with placed(chunk) as few:
                threshold = estimator.tol * few.known().mean_variance
        return MovingCentres.start(centres), threshold


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the cost of a fit with `parameters` on `dataset`; starts are tried on a sample alone."""
    n_clusters = int(parameters["n_clusters"])
    check_enough_rows(dataset, n_clusters)
    method = method_for(parameters["init"], in_memory=True)
    # A uniform sample of rows that do not fit is a pass, and one by sensitivity at most two.
    sampled = not fits(dataset) and method not in GIVEN
    seeding = int(sampled) * (2 if is_auto(parameters["init"]) else 1)
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=1,
        passes_at_most=seeding + int(parameters["max_iter"]) + 1,
        footprint=batches_footprint(dataset, n_clusters),
        flop=pass_flop(dataset, n_clusters),
        commit_bytes=centres_bytes(dataset, n_clusters, wide=True) + 8 * n_clusters,
    )


def batches_footprint(dataset: Dataset, n_clusters: int, room_bytes: int = ROOM_BYTES) -> Footprint:
    """Return what k-means by mini-batches needs, steps in one process and passes before and after them."""
    found = fit_footprint(dataset, n_clusters, "sample")
    return replace(found, ahead_bytes=held_bytes(dataset, room_bytes))
