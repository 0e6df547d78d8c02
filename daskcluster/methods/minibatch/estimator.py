"""MiniBatchKMeans: centres moved by small random batches of rows; its fit and its dry run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_rows
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Traffic
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import in_declared_order
from daskcluster.estimators.fit import Fit, FitRun
from daskcluster.estimators.inputs import check_enough_rows, fit_dataset
from daskcluster.estimators.loop import is_final, mean_distance
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.events import SeedingEnded, StopReason, publish
from daskcluster.invariance import DRAWN, POOLS, ROOM, varies_with
from daskcluster.methods.coreset.start import SAMPLE_ROWS, sampled_start
from daskcluster.methods.kmeans.estimator import KMeansEstimator
from daskcluster.methods.kmeans.fit import fit_footprint, measure_run, pass_flop
from daskcluster.methods.kmeans.initial import GIVEN, is_auto, method_for, placed, warn_of_one_start
from daskcluster.methods.minibatch.algorithm import (
    Improvement,
    MiniBatchState,
    Reassignment,
    Stepper,
    minibatch,
)
from daskcluster.methods.minibatch.batches import ROOM_BYTES, Batches, fits, held_bytes, whole
from daskcluster.methods.minibatch.chunkwise import (
    RUN_ROWS,
    Batch,
    MiniBatchStepper,
    MovingCentres,
    SingleRowStepper,
)
from daskcluster.methods.minibatch.parameters import MINI_BATCH
from daskcluster.methods.minibatch.sample import (
    batch_room,
    centres_of_sample,
    start_of_batches,
    threads_of,
)
from daskcluster.models.fitted import FitResult
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import Key, as_seed
from daskcluster.typing import Dataset

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

    estimator: Any
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

    batches: Batches | None = None

    def took(self) -> Traffic:
        """Return the cost without the passes of steps, which follow from their number."""
        whole, batches = super().took(), self.batches
        if batches is None:
            return whole
        return Traffic(whole.passes + batches.passes, whole.bytes_read + batches.bytes_read)

    @cached_property
    def room_bytes(self) -> int:
        """Memory for rows that are read ahead."""
        return batch_room(self.engine, self.dataset, self.callbacks, ROOM_BYTES)

    def circumstances(self) -> Mapping[str, Any]:
        """Return the size of the room for rows read ahead, on which batches then depend."""
        return {} if self.dataset.in_memory else {"bytes_read_ahead": self.room_bytes}


class MiniBatchFit(BatchFit):
    """One call of fit."""

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

    name = "mini-batch"
    moved: MovingCentres
    """Centres after the last step, with their counts."""

    @property
    def most(self) -> int:
        """Maximum number of steps: those of `max_iter` passes."""
        passes = self.estimator.max_iter
        return max(1, passes * self.dataset.n_rows // self.batch_size) if passes else 0

    def footprint(self) -> Footprint:
        return batches_footprint(self.dataset, self.n_clusters, self.room_bytes)

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
        labels = self.kept_labels(rows.placement)
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
            callbacks=self.callbacks,
        )
        with batches:
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
        patience = estimator.max_no_improvement
        patience = None if patience is None or patience is False else int(patience)
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
            Improvement.over(self.batch_size, self.dataset.n_rows, patience),
            costs=first.costs,
        )

    def _uniform(self, batches: Batches) -> tuple[MovingCentres, float]:
        """Return centres chosen from a uniform sample, and the movement that `tol` allows."""
        estimator = self.estimator
        size = self.sample_rows
        needed = self.method not in GIVEN or estimator.tol > 0
        sample = batches.sample(size if needed else 1, Key(self.seed, "sample"), uniform=needed)
        batches.refuse_bad(sample)
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


@varies_with(chunks=POOLS, storage=POOLS, memory_limit=ROOM, order=DRAWN)
@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class MiniBatchKMeans(KMeansEstimator):
    """K-means by mini-batches: fast, approximate, for data of any size.

    Every step assigns a batch of random rows to the centres and moves each centre towards the mean of its
    rows. The result is the same to the bit on any engine and any number of threads and workers. That of
    stored rows above 256 MB depends on their chunks and, where it leaves less than 256 MB, on the memory
    limit.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    init : str, URL, array, callable or estimator, default "auto"
        First centres, chosen from a random sample of rows (`init_size`). ``"auto"`` draws far rows more
        often, so that small clusters far away are not missed, and refines the centres of k-means++ on the
        sample, which counts as rows seen. A named method chooses among the rows of a uniform sample.
    n_init : int >= 1 or "auto", default "auto"
        Number of starts tried on the sample, of which the best is used. ``"auto"``: 1, but 3 for random
        rows.
    batch_size : int >= 1, default 1024
        Rows of a step. 1 is stochastic k-means: every row moves its centre at once. Steps are then taken in
        runs of 1,024 rows; after each run `history_`, `max_no_improvement`, `tol`, `max_time` and
        reassignment look (with ``learning_rate="count"`` and the Euclidean metric).
    learning_rate : {"count", "sqrt"}, default "count"
        How far a centre goes to the mean of its rows in the batch: alpha = b_j / (v_j + b_j) makes it the
        mean of all rows it has ever had (Sculley 2010, scikit-learn), alpha = sqrt(b_j / b) forgets old
        rows and often ends better (Schwartzman 2023). b_j is the weight of the centre's rows in the
        batch, b that of the batch, v_j that of the centre's rows in batches before.
    max_iter : int >= 0, default 100
        Passes over the rows at most; 0 keeps the first centres.
    max_no_improvement : int >= 0, None or False, default 10
        Stop after this many steps in which the smoothed inertia of the batches did not fall; None and False
        never do.
    reassignment_ratio : float >= 0 or "auto", default "auto"
        ``"auto"`` moves a centre to another place only where that lowers the cost of the rows seen so far:
        a local search on the rows of a batch, every 16 batches and when a batch costs twice as much as
        usual; of more than 256 centres, only those without any rows move. It is left out where the first
        centres come from a sample of all rows. A number has scikit-learn's meaning: centres that have seen
        less than this share of the rows of the centre that has seen the most start anew from random rows
        of the batch, in proportion to their weights; checked every 10 k rows, and in each step while a
        centre has seen nothing. 0 turns it off.
    tol : float >= 0, default 0.0
        Stop when the squared movement of all centres in a step is at most this times the mean feature
        variance (of the sample); 0 never does.
    init_size : int >= 1, optional
        Rows of the sample, at least 3 k: by default 8,192 with ``init="auto"``, otherwise three batches.
    metric : {"euclidean", "cosine"}, default "euclidean"
        Distance; cosine is spherical k-means.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Where the last pass runs, see `daskcluster.KMeans`. Steps run in this process.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    max_time : float > 0, optional
        Seconds, without the last pass and without validation; the step that exceeds them is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        Rows whose mean squared distance to the centres goes into `history_`. Computing it takes no part in
        the times there.
    chain_length : int >= 1, default 10
        Rows that ``"afk-mc2"`` proposes for each centre.
    checkpoint : str or path, optional
        The same as in `daskcluster.KMeans`; a commit takes 8 k (d + 1) bytes.
    checkpoint_every : int >= 1, default 10
        Passes between two commits.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, seeding_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`; labels and inertia are those of all rows under the last centres
        (after `partial_fit`: of the batch).
    counts_ : ndarray of shape (k,), float64
        Weight of the rows that each centre has seen, v_j, with those of the sample of ``init="auto"``.
    n_steps_, n_iter_ : int
        Steps, and passes started.
    stop_reason_ : str
        max_iter, no_improvement, tolerance, max_time or callback.
    history_ : list of dict
        A record for the first steps, and then whenever there are a tenth more of them: see
        `daskcluster.events.StepsEnded`.
    passes_, bytes_read_, cluster_sizes_, cluster_weights_, cluster_costs_
        As in `daskcluster.KMeans`.

    Notes
    -----
    Cost: b k distances a step, ``max_iter`` passes at most and one for inertia and labels, and one for
    the sample of the seeding where rows do not fit 256 MB. Memory: 12 k d bytes of centres,
    16 bytes a row for the orders that rows are drawn in; of rows elsewhere up to 256 MB are held (less, if
    the memory limit is small), and only these are in such orders.

    Sampling: rows in memory, or of at most 256 MB, are drawn uniformly without replacement, each once a
    pass. Of larger data, pools of at least 64 row groups (chunks, or the inner chunks of shards) from all
    over the dataset are read ahead and shuffled; each serves several steps. Every row still comes once a
    pass, but rows of a group come in the same pool: sorted rows do harm where a pool has hardly more groups
    than there are clusters. A `Notice` says how many it has. Data that was shuffled on disk
    (`daskcluster.shuffle`) has no such bias.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.repeat([[0.0, 0.0], [10.0, 10.0]], 500, axis=0)
    >>> model = dc.MiniBatchKMeans(n_clusters=2, batch_size=100, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.round(6).tolist()), round(model.inertia_, 6)
    ([[0.0, 0.0], [10.0, 10.0]], 0.0)
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = MINI_BATCH

    init: Any = "auto"
    n_init: int | str = "auto"
    batch_size: int = 1024
    learning_rate: str = "count"
    max_iter: int = 100
    max_no_improvement: int | bool | None = 10
    reassignment_ratio: float | str = "auto"
    tol: float = 0.0
    init_size: int | None = None

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, resume: bool = False
    ) -> Self:
        """Find centres.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, zarr.Array, Dataset, or URL
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Not allowed if the dataset has its own weights.
        resume : bool, default False
            Resume from the last state under `checkpoint`; see `daskcluster.KMeans.fit`.

        Returns
        -------
        self

        Raises
        ------
        CheckpointError
            The state under `checkpoint` is damaged, or belongs to other data or parameters.
        InvalidParameterError, InvalidDataError
            X or a parameter is not valid.
        MemoryLimitError
            The memory of the engine is too small.
        """
        self.check_parameters()
        fit = self.begin_fit(MiniBatchFit, X, sample_weight, resume=resume)
        run = fit.run()
        self._state = fit.moved
        self._seed = fit.seed
        n_rows = run.result.n_iter * fit.batch_size
        self.n_steps_ = n_rows if fit.is_sequential else run.result.n_iter
        self.counts_ = self._state.seen
        self._learn(run, fit)
        self.n_iter_ = -(-n_rows // fit.dataset.n_rows)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Make one step with the rows of `X` as the batch.

        The first call chooses the first centres among its rows. Later ones, and calls after `fit`, continue
        from the current centres, counts and random numbers.

        Parameters
        ----------
        X : array-like of shape (b, d), or anything `fit` takes that fits in memory
        y : ignored
        sample_weight : array-like of shape (b,), optional

        Returns
        -------
        self

        Raises
        ------
        InvalidParameterError
            The first call has fewer rows than there are clusters.
        """
        self.check_parameters()
        fresh = not hasattr(self, "cluster_centers_")
        dataset = fit_dataset(self, X, sample_weight, reset=fresh)
        chunk = whole(dataset)
        batch = Batch(chunk.rows, np.arange(chunk.n_rows), chunk.weights, chunk.normalize)
        refuse_rows(batch.taken(), int, normalize=chunk.normalize)
        if fresh:
            self._begin(batch)
        elif not hasattr(self, "_state"):
            # Of a loaded model, the weights of its clusters serve as their counts.
            self._seed = as_seed(self.random_state)
            self._state = MovingCentres.start(self._centres)
            self._state.seen[:] = self.cluster_weights_
            self._remember_nothing()
        threads = threads_of(choose_engine(self.engine, dataset))
        with MiniBatchStepper(self._state, self.learning_rate, threads).threads() as stepper:
            outcome = stepper.step(batch)
        self.n_steps_ += 1
        if not hasattr(self, "_reassignment"):
            given = self.reassignment_ratio
            ratio = None if given == "auto" else float(given)
            self._reassignment = Reassignment(ratio, self._seed)
        self._reassignment(self.n_steps_, batch, self._state, outcome.cost)
        self._review_step(batch, outcome.shift)
        return self

    def _begin(self, batch: Batch) -> None:
        """Choose the first centres among the rows of the first batch."""
        seeding = Seeding(self, len(batch))
        if len(batch) < self.n_clusters and seeding.method not in GIVEN:
            raise InvalidParameterError(
                f"n_samples={len(batch)} should be >= n_clusters={self.n_clusters} in the first call of "
                "partial_fit, which chooses the first centres among its rows; gather at least "
                f"{self.n_clusters} rows for it (later calls may have any number), or give centres as init."
            )
        self._seed = as_seed(self.random_state)
        centres = centres_of_sample(batch, self, self._seed, seeding.restarts)
        self._state = MovingCentres.start(centres)
        self.seeding_ = seeding.method
        self._n_init = seeding.restarts
        self._remember_nothing()

    def _remember_nothing(self) -> None:
        self.n_steps_ = self.passes_ = self.bytes_read_ = self.n_rows_ = 0
        self.history_ = []

    def _review_step(self, batch: Batch, shift: float) -> None:
        """Learn labels and figures of the batch, under the centres after the step."""
        state, k = self._state, self.n_clusters
        ready = batch.ready(state.centres.dtype)
        rows, centres = ready.rows[ready.listed], PreparedCentres(state.centres.copy())
        labels, distances = np.empty(len(batch), np.int32), np.empty(len(batch))
        centres.nearest(rows, labels)
        centres.sqdist_to_assigned(rows, labels, distances)
        weights = batch.listed_weights()
        self._centres = centres.array
        self.counts_ = state.seen.copy()
        self.labels_ = labels
        self.cluster_sizes_ = np.bincount(labels, minlength=k)
        self.cluster_weights_ = np.bincount(labels, weights, minlength=k)
        self.cluster_costs_ = np.bincount(labels, weights * distances, minlength=k)
        self.inertia_ = float(self.cluster_costs_.sum())
        self.n_rows_ += len(batch)
        self.n_iter_ = self.n_steps_
        self.stop_reason_ = str(StopReason.MAX_ITER)

    # -- checks -----------------------------------------------------------------------------------

    @property
    def steps_by_single_rows(self) -> bool:
        """True if steps are those of stochastic k-means, which are taken in runs."""
        euclidean = self.metric == "euclidean"
        return self.batch_size == 1 and self.learning_rate == "count" and euclidean
