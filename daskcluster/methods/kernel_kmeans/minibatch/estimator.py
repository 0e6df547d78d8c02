"""MiniBatchKernelKMeans: kernel k-means at a cost that does not depend on the number of rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from daskcluster.chunk import compute_dtype
from daskcluster.chunkwise.data_statistics import refuse_rows
from daskcluster.data.dataset import chosen_rows as rows_at
from daskcluster.data.memory import ArrayDataset
from daskcluster.data.weighted import array_weights
from daskcluster.engine.engine import Placement
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError, ModelFormatError
from daskcluster.estimators.base import in_declared_order
from daskcluster.estimators.fit import FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.loop import is_final, mean_cost
from daskcluster.estimators.plan import Plan
from daskcluster.events import SeedingEnded, StartEnded, StopReason, publish
from daskcluster.invariance import DRAWN, POOLS, ROOM, varies_with
from daskcluster.methods.kernel_kmeans.chunkwise import (
    GramFunction,
    GramSums,
    Points,
    join_points,
    nearest_of,
)
from daskcluster.methods.kernel_kmeans.estimator import KernelEstimator
from daskcluster.methods.kernel_kmeans.fit import (
    GramFit,
    chosen_rows,
    first_passes,
    given_centres,
    gram_of,
    kernel_footprint,
    measure_by_gram,
    ready_rows,
    seed_of_start,
)
from daskcluster.methods.kernel_kmeans.graph import graph_footprint
from daskcluster.methods.kernel_kmeans.minibatch.algorithm import (
    GramBatch,
    KernelSteps,
    Mean,
    MovingWindows,
    Window,
    minibatch_kernel,
)
from daskcluster.methods.kernel_kmeans.parameters import MINI_BATCH_KERNEL, is_graph
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.methods.minibatch.batches import ROOM_BYTES, Batches, held_bytes
from daskcluster.methods.minibatch.chunkwise import Batch
from daskcluster.methods.minibatch.estimator import BatchFit
from daskcluster.methods.minibatch.sample import threads_of
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import Key
from daskcluster.seeding.methods import draw_rows
from daskcluster.sparse_rows import join_rows
from daskcluster.storage.document import Shapes, check_numbers, stored_as, within
from daskcluster.typing import Dataset

_SAMPLE_BYTES = 256 << 20


@dataclass(frozen=True)
class WindowsState:
    """Centres as windows of the last batches: one window after the other, oldest batch first.

    Attributes
    ----------
    lengths : ndarray of shape (k,), int64
        L, the number of means of each window.
    first : ndarray of shape (k,), int64
        1 where the oldest mean is the initial centre, else 0.
    sizes : ndarray of shape (sum of L,), int64
        Number of points of each mean.
    factors : ndarray of shape (sum of L,)
        Coefficients of the means.
    products : ndarray of shape (sum of L^2,)
        Inner products of the means of each window.
    points : ndarray of shape (m,), int64
        Row numbers of the points.
    shares : ndarray of shape (m,)
        Shares of the points in their means.
    """

    lengths: np.ndarray
    first: np.ndarray
    sizes: np.ndarray
    factors: np.ndarray
    products: np.ndarray
    points: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, moving: MovingWindows) -> Self:
        """Return the state of moving windows."""
        windows = moving.windows
        means = [mean for window in windows for mean in window.means]
        return cls(
            np.array([len(window.means) for window in windows]),
            np.array([int(window.has_first) for window in windows]),
            np.array([len(mean) for mean in means]),
            np.concatenate([window.factors for window in windows]),
            np.concatenate([window.products.ravel() for window in windows]),
            np.concatenate([mean.points.indices for mean in means]),
            np.concatenate([mean.shares for mean in means]),
        )

    @staticmethod
    def shapes(k: int) -> Shapes:
        """Return the shapes of the arrays."""
        free = ("sizes", "factors", "products", "points", "shares")
        return {"lengths": (k,), "first": (k,), **dict.fromkeys(free, (None,))}

    def check(self, n_rows: int) -> None:
        """Refuse arrays that are not windows of `n_rows` rows.

        Raises
        ------
        ModelFormatError
        """
        k, m, most = len(self.lengths), len(self.points), 1 << 31
        check_numbers("points", self.points, n_rows, -k)
        check_numbers("lengths", self.lengths, min(most, len(self.sizes) + 1), 1)
        check_numbers("sizes", self.sizes, m + 1, 1)
        check_numbers("first", self.first, 2)
        whole = int(self.lengths.sum()) == len(self.sizes) == len(self.factors)
        inner = int((self.lengths**2).sum()) == len(self.products)
        if not (whole and inner and int(self.sizes.sum()) == m == len(self.shares)):
            raise ModelFormatError("the lengths of its arrays of windows do not match.")

    def windows(
        self, at: Callable[[np.ndarray], Points], truncation: int | None, *, normalize: bool
    ) -> list[Window]:
        """Return the windows; `at` returns the points of row numbers, others as in `Window`."""
        points, ends = at(self.points), np.cumsum(self.sizes)
        means = [
            Mean(points.take(slice(first, last)), self.shares[first:last])
            for first, last in zip(ends - self.sizes, ends, strict=True)
        ]
        windows, mean, product = [], 0, 0
        for length, has_first in zip(self.lengths.tolist(), self.first.tolist(), strict=True):
            square = self.products[product : product + length * length]
            windows.append(
                Window(
                    means[mean : mean + length],
                    self.factors[mean : mean + length],
                    square.reshape(length, length),
                    truncation,
                    normalize,
                    bool(has_first),
                )
            )
            mean, product = mean + length, product + length * length
        return windows


@dataclass(frozen=True)
class StartState:
    """State of one start between two steps. The seed and the number of steps determine the next batch.

    Attributes
    ----------
    sample : ndarray of shape (s,), int64
        Numbers of the rows that the seeding sampled; they also fix the grid of cost sums.
    steps : KernelSteps
    windows : WindowsState
        The centres.
    """

    sample: np.ndarray
    steps: KernelSteps
    windows: WindowsState

    @property
    def n_steps(self) -> int:
        return len(self.steps.history)

    @staticmethod
    def shapes(k: int) -> Shapes:
        """Return the shapes of the arrays."""
        return {
            "sample": (None,),
            "steps_seen": (k,),
            **within("windows", WindowsState.shapes(k)),
        }

    def check(self, n_rows: int) -> None:
        """Refuse what is no state of such a fit.

        Raises
        ------
        ModelFormatError
        """
        check_numbers("sample", self.sample, n_rows)
        self.windows.check(n_rows)


@dataclass(frozen=True)
class BatchKernelState:
    """State of a fit between two steps.

    Attributes
    ----------
    restart : int
        Number of the current start.
    made : StartState or None
        State of the current start; None before its seeding.
    best : StartState or None
        Final state of the best of the previous starts.
    """

    restart: int = field(metadata=stored_as("start"))
    made: StartState | None = None
    best: StartState | None = None

    @staticmethod
    def shapes(k: int) -> Shapes:
        """Return the shapes of the arrays."""
        one = StartState.shapes(k)
        return {**within("made", one), **within("best", one)}

    def check(self, n_rows: int) -> None:
        """Refuse what is no state of such a fit.

        Raises
        ------
        ModelFormatError
        """
        for each in (self.made, self.best):
            if each is not None:
                each.check(n_rows)


End = tuple[StartState, GramBatch, MovingWindows]
"""A start whose steps are done, the rows that it was seeded from, and its centres."""


class MiniBatchKernelFit(GramFit, BatchFit):
    """One call of fit."""

    estimator: MiniBatchKernelKMeans
    name = "mini-batch-kernel"
    placement: Placement
    gram: GramFunction
    drawn_from: Dataset
    """Where batches come from: the dataset, or the rows in memory of a graph."""

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return compute_dtype(self.dataset.dtype)

    @property
    def truncation(self) -> int | None:
        given = self.estimator.truncation
        return None if given is None or given is False else int(given)

    def circumstances(self) -> Mapping[str, Any]:
        """Return what batches depend on; those of a graph come from rows in memory."""
        return {} if is_graph(self.estimator.kernel) else super().circumstances()

    def footprint(self) -> Footprint:
        """Return the memory that the fit needs."""
        return minibatch_footprint(self.dataset, vars(self.estimator), self.room_bytes)

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the best start, evaluated."""
        n, shapes = self.dataset.n_rows, BatchKernelState.shapes(self.n_clusters)
        self.placement, self.drawn_from = rows.placement, self.dataset
        if is_graph(kernel := self.estimator.kernel):
            self.gram = GramFunction(kernel, operator=self.with_graph(rows))
            assert self.graph is not None
            held, weights = ArrayDataset(self.graph.neighbourhoods.points), self.dataset.weights
            self.drawn_from = held
            if weights is not None:
                self.drawn_from = held.with_weights(array_weights(weights, held.n_rows))
        else:
            self.gram = gram_of(self.estimator, rows)
        resumed = self.resumed(BatchKernelState, shapes, lambda state: state.check(n))
        return self.best_restart(
            resumed,
            lambda kept: self.evaluated(*self._ended(kept)),
            lambda run: run.found.inertia,
        )

    def validated(self, rows: ScaledPlacement, moving: MovingWindows) -> float:
        return mean_cost(measure_by_gram(rows.placement, moving.centres()), rows)

    def begin(self, restart: int, best: StartState | None) -> BatchKernelState:
        return BatchKernelState(restart, best=best)

    def finish(self, state: BatchKernelState) -> tuple[StartState, FitRun]:
        end = self._made(state)
        made = end[0]
        self.stopped = made.steps.reason is StopReason.CALLBACK
        size = rows_per_step(self.dataset.n_rows, vars(self.estimator))
        if self.graph is None:  # else the rows are in memory
            self.passes += -(-made.n_steps * size // self.dataset.n_rows)
        run = self.evaluated(*end)
        if self.restarts > 1:
            publish(self.callbacks, StartEnded(state.restart, self.restarts, run.found.inertia))
        return made, run

    def evaluated(self, made: StartState, sample: GramBatch, moving: MovingWindows) -> FitRun:
        """Return one start, evaluated on all rows. One pass, or none over a graph."""
        centres = moving.centres()
        if self.graph is not None:
            relative = centres.relative(np.arange(self.dataset.n_rows))
            costs = nearest_of(relative, self.matrix.diagonal)[1]
            return self.measured_on_graph(centres, made.steps, costs)
        costs = nearest_of(centres.relative(sample.rows), sample.diagonal)[1]
        return self.measured(self.placement, centres, made.steps, costs)

    def _made(self, state: BatchKernelState) -> End:
        """Make the remaining steps of a start."""
        estimator, resumed = self.estimator, state.made
        if resumed is not None and resumed.steps.reason is not None:
            limits = estimator.max_iter, self.time_left()
            if is_final(resumed.steps.reason, resumed.n_steps, *limits):
                return self._ended(resumed)
        seed = seed_of_start(self.seed, state.restart)
        with Batches(
            self.drawn_from,
            estimator.batch_size,
            seed,
            room_bytes=self.room_bytes,
            least_rows=self._sample_rows(),
            skipped=0 if resumed is None else resumed.n_steps,
            replacement=bool(estimator.replacement),
            callbacks=self.callbacks,
        ) as batches:
            if resumed is not None:
                sample, moving = self._batch_of(resumed.sample), self._restored(resumed)
            else:
                sample = self._sample(batches, Key(seed, "sample"))
                moving = self._start(sample, seed)

            def made(steps: KernelSteps) -> StartState:
                return StartState(sample.indices, steps, WindowsState.of(moving))

            def keep(steps: KernelSteps) -> None:
                self.keep(
                    lambda: replace(state, made=made(steps)),
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
        return made(steps), sample, moving

    def _sample(self, batches: Batches, key: Key) -> GramBatch:
        """Return the rows that seeding samples; at least k of them have a positive weight."""
        drawn, k = batches.sample(self._sample_rows(), key), self.n_clusters
        batches.refuse_bad(drawn)
        if self.method != "array" and np.count_nonzero(drawn.listed_weights()) < k:
            # Few rows have a weight, so choose them by the weights alone.
            return self._batch_of(draw_rows(self.drawn_from, k, key))
        return GramBatch.of(drawn, batches.rows_of_last(), self.gram, self.dtype)

    def _start(self, sample: GramBatch, seed: int) -> MovingWindows:
        estimator, gram, began = self.estimator, self.gram, time.perf_counter()
        if self.method == "array":
            first = given_centres(estimator.init, self.dataset, gram, self.n_clusters)
            points = join_points(first)
            rows = self.drawn_from.take(points.indices) if points.rows is None else points.rows
            norms = gram.diagonal(rows, points.indices)
        else:
            columns = partial(self.columns, sample)
            diagonal = sample.diagonal
            chosen = chosen_rows(estimator, columns, lambda: diagonal, sample.weights, seed)
            first = [sample.points(chosen[j : j + 1], gram) for j in range(len(chosen))]
            norms = sample.diagonal[chosen]
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        return MovingWindows.start(
            gram,
            first,
            norms,
            self.truncation,
            normalize=bool(estimator.normalize_truncated),
            n_threads=threads_of(self.engine),
        )

    def columns(self, sample: GramBatch, which: np.ndarray) -> np.ndarray:
        """Return K(x, y) for the rows x of a sample and its rows y in `which`."""
        points, m = sample.points(which, self.gram), len(which)
        return GramSums(self.gram, points, np.ones(m), np.arange(m), m)(sample.rows)

    # -- checkpoints ----------------------------------------------------------------------------------

    def _ended(self, state: StartState) -> End:
        """Return a start that had ended when its state was saved."""
        return state, self._batch_of(state.sample), self._restored(state)

    def _batch_of(self, numbers: np.ndarray) -> GramBatch:
        """Return rows of these numbers, which are read again, in the form of a batch."""
        weights = self.dataset.weights
        weights = None if weights is None else np.asarray(weights, np.float64)[numbers]
        batch = Batch(rows_at(self.drawn_from, numbers), np.arange(len(numbers)), weights)
        refuse_rows(batch.taken(), lambda position: int(numbers[position]), "")
        return GramBatch.of(batch, numbers, self.gram, self.dtype)

    def _points_of(self, numbers: np.ndarray) -> Points:
        """Return rows as points; number -1 - j stands for the j-th given centre."""
        if self.gram.by_number:
            return Points(None, numbers)
        inside = numbers >= 0
        n_inside = int(inside.sum())
        parts = [ready_rows(rows_at(self.dataset, numbers[inside]), self.gram)] if n_inside else []
        if n_inside < len(numbers):
            given = given_centres(self.estimator.init, self.dataset, self.gram, self.n_clusters)
            parts += [point.rows for point in given if point.rows is not None]
        # The j-th given centre comes j places after the rows that were read.
        places = np.where(inside, np.cumsum(inside) - 1, n_inside - 1 - numbers)
        return Points(join_rows(parts)[places], numbers)

    def _restored(self, state: StartState) -> MovingWindows:
        """Return the centres of a start from its saved state."""
        normalize = bool(self.estimator.normalize_truncated)
        windows = state.windows.windows(self._points_of, self.truncation, normalize=normalize)
        return MovingWindows(self.gram, windows, threads_of(self.engine))

    def _sample_rows(self) -> int:
        """Return the number of rows that the seeding samples."""
        estimator, n = self.estimator, self.dataset.n_rows
        size = estimator.init_size or max(3 * estimator.batch_size, 3 * estimator.n_clusters)
        row_bytes = max(1, self.dataset.bytes_of((0, n)) // n)
        fitting = max(3 * estimator.n_clusters, _SAMPLE_BYTES // row_bytes)
        return min(size, fitting, n)


def rows_per_step(n_rows: int, parameters: Mapping[str, Any]) -> int:
    """Return the number of rows of a batch."""
    size = int(parameters["batch_size"])
    return size if parameters["replacement"] else min(size, n_rows)


def most_points(n_rows: int, parameters: Mapping[str, Any]) -> int:
    """Return the maximum number of rows that the centres consist of."""
    k, b = int(parameters["n_clusters"]), rows_per_step(n_rows, parameters)
    tau = int(parameters["truncation"] or 0)
    points = k * (tau + b) if tau else k + int(parameters["max_iter"]) * b
    if parameters["replacement"]:
        return points
    return min(points, k * n_rows)


def minibatch_footprint(
    dataset: Dataset, parameters: Mapping[str, Any], room_bytes: int = ROOM_BYTES
) -> Footprint:
    """Return the memory that mini-batch kernel k-means needs."""
    if is_graph(parameters["kernel"]):
        return graph_footprint(dataset, parameters)
    points = most_points(dataset.n_rows, parameters)
    found = kernel_footprint(dataset, int(parameters["n_clusters"]), points)
    return replace(found, ahead_bytes=held_bytes(dataset, room_bytes))


def plan_minibatch_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a `MiniBatchKernelKMeans` fit; `flop` is that of the last pass.

    With the kernel of a graph, steps take no passes, because the rows are in memory.
    """
    n, max_iter = dataset.n_rows, int(parameters["max_iter"])
    check_enough_rows(dataset, int(parameters["n_clusters"]))
    restarts = 1 if parameters["n_init"] == "auto" else int(parameters["n_init"])
    points, first = most_points(n, parameters), first_passes(parameters)
    per_start = -(-max_iter * rows_per_step(n, parameters) // n) + 2
    if is_graph(parameters["kernel"]):
        per_start, points = 0, n
    return Plan(
        seeding=str(parameters["init"]),
        passes_seeding=first,
        restarts=restarts,
        passes_at_most=first + restarts * per_start,
        footprint=minibatch_footprint(dataset, parameters),
        flop=pass_flop(dataset, points),
        commit_bytes=16 * points * min(restarts, 2),
    )


@varies_with(chunks=POOLS, storage=POOLS, memory_limit=ROOM, order=DRAWN)
@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class MiniBatchKernelKMeans(KernelEstimator):
    """K-means in the space of a Mercer kernel, by mini-batches, for any number of rows.

    A step compares a batch of rows with the centres, which are weighted sums of images of a few rows, and
    moves each centre towards the mean of its rows. Clusters need not be convex. The n x n matrix is never
    formed. The result is bit-identical on any engine and for any number of threads and workers. That of
    stored rows above 256 MB depends on their chunks and, where it leaves less than 256 MB, on the memory
    limit.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    kernel : str or callable, default "rbf"
        exp(-gamma |x - y|^2), exp(-gamma |x - y|_1), (gamma x.y + coef0)^degree, x.y, x.y of rows scaled to
        length one. ``"precomputed"``: X is the symmetric matrix (n, n), in memory or not. ``"knn"`` and
        ``"heat"`` are kernels of the graph of nearest neighbours: D^-1 A D^-1 with A the adjacency matrix
        (with loops, made symmetric) and D its row sums, and exp(-t L) with L = I - D^-1/2 A D^-1/2; the
        rows must fit in memory. A callable takes two blocks of rows and returns the matrix of their values.
    gamma : float >= 0 or "auto", default "auto"
        ``"auto"`` is 1 / (4 times the sum of the features' variances), from one pass.
    degree : int >= 1, default 3
        Degree of the polynomial kernel.
    coef0 : float, default 1.0
        Constant term of the polynomial kernel.
    n_neighbors : int >= 1, default 10
        Neighbours of each row, including the row itself; for ``"knn"`` and ``"heat"``.
    heat_time : float > 0, default 1.0
        t of ``"heat"``.
    kernel_params : dict, optional
        Further arguments of a callable kernel.
    batch_size : int >= 1, default 1024
        Rows per step.
    replacement : bool, default False
        Draw the rows of a batch independently, as the paper does, so that it may hold a row several times
        (and more rows than there are). By default every row comes once a pass.
    truncation : int >= 1, None or False, default 200
        tau: a centre consists of the latest batches that together have at least tau of its rows, so of at
        most tau + batch_size rows. None keeps all batches (Algorithm 1); the cost of a step then grows
        with the number of rows drawn so far.
    normalize_truncated : bool, default True
        Scale the coefficients of a truncated centre so that they sum to one. False leaves them as in
        equation (1) of the paper; centres then shrink towards the origin.
    learning_rate : {"count", "sqrt"}, default "sqrt"
        As in `daskcluster.MiniBatchKMeans`.
    init : {"k-means++", "random"} or array, default "k-means++"
        How to choose the rows of a random sample whose images are the initial centres; or rows (k, d); or,
        with a precomputed kernel or that of a graph, row numbers (k,).
    n_local_trials : int >= 1, optional
        Candidates per centre of greedy k-means++; 1 is plain k-means++, as in the paper. By default
        2 + log(k), rounded down.
    n_init : int >= 1 or "auto", default "auto"
        Number of starts, each with other batches; the one with the lowest inertia on all rows is kept.
        "auto" is one. Every start takes about the same time.
    init_size : int >= 1, optional
        Rows in the sample; by default three batches, and at least 3 k.
    max_iter : int >= 0, default 200
        Maximum number of batches; 0 keeps the initial centres.
    tol : float >= 0, default 0.0
        Stop when a step lowers the mean squared distance of its batch by less than this; 0 never stops.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Where passes run; see `daskcluster.KMeans`. Steps run in this process.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    max_time : float > 0, optional
        Seconds for the steps, without the last pass; the step that exceeds them is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        The same as in `daskcluster.KernelKMeans`, after each step.
    checkpoint : str or path, optional
        Save progress at this URL; continue with resume.
    checkpoint_every : int >= 1, default 10
        As in `daskcluster.KMeans`, counted in steps.

    Attributes
    ----------
    labels_ : ndarray of shape (n,), int32, or Labels
    inertia_ : float
        Weighted sum of squared distances to the centres, in the space of the kernel.
    gamma_ : float
    support_ : ndarray of shape (m,), int64
        Numbers of the rows that make up the centres; negative for centres given as `init`.
    support_clusters_, support_coefficients_ : ndarrays of shape (m,)
        The centre and the coefficient of each support.
    history_ : list of dict
        A record per step; see `daskcluster.events.KernelStepEnded`. ``mean_squared_distance`` and
        ``validation`` are measured in the space of the kernel.
    n_iter_, stop_reason_, seeding_, passes_, bytes_read_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`.
    cluster_sizes_, cluster_weights_, cluster_costs_ : ndarrays of shape (k,)

    Notes
    -----
    Cost of a step: at most b k (tau + b) + b^2 Gram values for any n. ``gamma="auto"`` takes one pass
    before the first step. Inertia and labels take one pass at the end, with at most k (tau + b) Gram values
    per row. Memory: k (tau + b) rows twice, and the batches as in `daskcluster.MiniBatchKMeans`. With
    ``truncation=None``, the rows of all batches so far take the place of k (tau + b), each once a centre.

    For a graph, rows are read once, and scikit-learn finds their nearest neighbours; the matrix is never
    formed. A step with ``"knn"`` takes the edges of the rows in the batch and in the centres. A step with
    ``"heat"`` costs as much as an iteration of `daskcluster.KernelKMeans`, whatever the batch size: a
    product of the matrix with k columns, by a series of some twenty sparse products for t = 1. ``predict``,
    K(x, x) and memory are as in `daskcluster.KernelKMeans`, so there is no ``transform`` or ``score``.

    B. Jourdan and G. Schwartzman, "Mini-batch kernel k-means" (2024), Algorithms 1 and 2. By default
    batches are drawn without replacement, pass after pass, as in `daskcluster.MiniBatchKMeans`.
    ``replacement=True``, ``normalize_truncated=False``, ``n_local_trials=1`` and ``init_size=n`` follow the
    paper to the letter. Signs and indices in the paper that disagree with its derivation are corrected.
    Negative squared distances, which come from rounding or from a matrix that is not a Mercer kernel,
    count as zero. The centre of a cluster without rows in a batch does not move.

    Examples
    --------
    Two rings, which k-means cannot separate:

    >>> import numpy as np
    >>> import daskcluster as dc
    >>> rng = np.random.default_rng(0)
    >>> angle, ring = rng.uniform(0, 2 * np.pi, 2000), rng.integers(0, 2, 2000)
    >>> X = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1 + 4 * ring[:, None])
    >>> model = dc.MiniBatchKernelKMeans(2, gamma=0.5, batch_size=256, random_state=0).fit(X)
    >>> len(model.support_) <= 2 * (200 + 256)
    True
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = MINI_BATCH_KERNEL

    batch_size: int = 1024
    replacement: bool = False
    truncation: int | None = 200
    normalize_truncated: bool = True
    learning_rate: str = "sqrt"
    init_size: int | None = None
    max_iter: int = 200

    fit_kind = MiniBatchKernelFit

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.init_size is not None and self.init_size < self.n_clusters:
            raise InvalidParameterError(
                f"init_size={self.init_size} should be >= n_clusters={self.n_clusters}: the initial "
                "centres are distinct rows of the sample."
            )
