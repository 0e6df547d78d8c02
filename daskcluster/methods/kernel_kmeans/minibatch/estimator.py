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
from daskcluster.methods.kernel_kmeans.chunkwise import (
    GramFunction,
    GramSums,
    GraphCentres,
    Points,
    clamped,
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
from daskcluster.methods.kernel_kmeans.graph import (
    GraphGram,
    GraphKMeansModel,
    Terms,
    coefficients_of,
    graph_and_matrix,
    graph_centres,
    graph_footprint,
)
from daskcluster.methods.kernel_kmeans.minibatch.algorithm import (
    GramBatch,
    KernelSteps,
    Mean,
    MovingGramCentres,
    MovingProducts,
    MovingWindows,
    Window,
    kept_bytes,
    merged,
    minibatch_kernel,
)
from daskcluster.methods.kernel_kmeans.model import KernelKMeansModel
from daskcluster.methods.kernel_kmeans.parameters import GRAPHS, MINI_BATCH_KERNEL, is_graph
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.methods.minibatch.batches import ROOM_BYTES, Batches, held_bytes
from daskcluster.methods.minibatch.chunkwise import Batch
from daskcluster.methods.minibatch.estimator import BatchFit
from daskcluster.methods.minibatch.sample import threads_of
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import Key
from daskcluster.seeding.methods import draw_rows
from daskcluster.sparse_rows import Rows, join_rows
from daskcluster.storage.document import Shapes, check_numbers, stored_as, within
from daskcluster.typing import Dataset

_SAMPLE_BYTES = 256 << 20


PointsAt = Callable[[np.ndarray], Points]
"""Row numbers -> points that are ready for the kernels."""


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

    def windows(self, at: PointsAt, truncation: int | None, *, normalize: bool) -> list[Window]:
        """Return the windows; arguments as in `MovingWindows.start`."""
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
class ProductsState:
    """Centres as inner products with all rows.

    Attributes
    ----------
    squares : ndarray of shape (k,)
        Squared lengths of the centres.
    sizes : ndarray of shape (k,), int64
        Number of points of each centre; the initial one comes first.
    points : ndarray of shape (m,), int64
        Row numbers of the points, one centre after the other.
    factors : ndarray of shape (m,)
        Coefficients of the points.
    products : ndarray of shape (n, k), or None
        Inner products; None if no step follows.
    """

    squares: np.ndarray
    sizes: np.ndarray
    points: np.ndarray
    factors: np.ndarray
    products: np.ndarray | None = None

    @classmethod
    def of(cls, moving: MovingProducts) -> Self:
        """Return the state of moving centres."""
        terms = [term for centre in moving.terms for term in centre]
        return cls(
            moving.squares.copy(),
            np.array([sum(len(points) for points, _ in centre) for centre in moving.terms]),
            np.concatenate([points.indices for points, _ in terms]),
            np.concatenate([factors for _, factors in terms]),
            moving.products,
        )

    @staticmethod
    def shapes(n_rows: int, k: int) -> Shapes:
        """Return the shapes of the arrays."""
        free: Shapes = {"points": (None,), "factors": (None,)}
        return {"squares": (k,), "sizes": (k,), "products": (n_rows, k), **free}

    def check(self, n_rows: int) -> None:
        """Refuse arrays that are not centres of `n_rows` rows.

        Raises
        ------
        ModelFormatError
        """
        k, m = len(self.squares), len(self.points)
        check_numbers("points", self.points, n_rows, -k)
        check_numbers("sizes", self.sizes, m + 1, 1)
        if not int(self.sizes.sum()) == m == len(self.factors):
            raise ModelFormatError("the lengths of its arrays of centres do not match.")

    def restored(self, gram: GramFunction, at: PointsAt, placement: Placement) -> MovingProducts:
        """Return the moving centres; arguments as in `MovingProducts.start`."""
        points, factors = at(self.points), self.factors.copy()
        products = np.empty((0, 0)) if self.products is None else self.products
        ends = np.cumsum(self.sizes)
        terms = [
            [
                (points.take(slice(a, b)), factors[a:b])
                for a, b in ((first, first + 1), (first + 1, last))
                if b > a
            ]
            for first, last in zip(ends - self.sizes, ends, strict=True)
        ]
        return MovingProducts(gram, terms, self.squares, products, placement)


@dataclass(frozen=True)
class StartState:
    """State of one start between two steps. The seed and the number of steps determine the next batch.

    Attributes
    ----------
    sample : ndarray of shape (s,), int64
        Numbers of the rows that the seeding sampled; they also fix the grid of cost sums.
    steps : KernelSteps
    windows : WindowsState or None
    products : ProductsState or None
        The centres, in one of the two forms.
    """

    sample: np.ndarray
    steps: KernelSteps
    windows: WindowsState | None = None
    products: ProductsState | None = None

    @classmethod
    def of(cls, sample: np.ndarray, steps: KernelSteps, moving: MovingGramCentres) -> Self:
        """Return the state after `steps`, with the centres `moving`."""
        if isinstance(moving, MovingWindows):
            return cls(sample, steps, windows=WindowsState.of(moving))
        assert isinstance(moving, MovingProducts)
        return cls(sample, steps, products=ProductsState.of(moving))

    def ended(self) -> Self:
        """Return the state of an ended start, without the inner products, which only steps need."""
        if self.products is None:
            return self
        return replace(self, products=replace(self.products, products=None))

    @property
    def n_steps(self) -> int:
        return len(self.steps.history)

    @staticmethod
    def shapes(n_rows: int, k: int) -> Shapes:
        """Return the shapes of the arrays."""
        return {
            "sample": (None,),
            "steps_seen": (k,),
            **within("windows", WindowsState.shapes(k)),
            **within("products", ProductsState.shapes(n_rows, k)),
        }

    def check(self, n_rows: int, *, truncated: bool) -> None:
        """Refuse what is no state of such a fit.

        Raises
        ------
        ModelFormatError
        """
        check_numbers("sample", self.sample, n_rows)
        centres = self.windows if truncated else self.products
        if centres is None:
            raise ModelFormatError("it has no centres.")
        centres.check(n_rows)


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
    def shapes(n_rows: int, k: int) -> Shapes:
        """Return the shapes of the arrays."""
        one = StartState.shapes(n_rows, k)
        return {**within("made", one), **within("best", one)}

    def check(self, n_rows: int, *, truncated: bool) -> None:
        """Refuse what is no state of such a fit.

        Raises
        ------
        ModelFormatError
        """
        for each in (self.made, self.best):
            if each is not None:
                each.check(n_rows, truncated=truncated)
        products = None if self.made is None else self.made.products
        if products is not None and products.products is None:
            raise ModelFormatError("it has no array 'made_products_products'.")


@dataclass(frozen=True)
class End:
    """A start whose steps are done, with the rows that it was seeded from."""

    state: StartState
    sample: GramBatch
    moving: MovingGramCentres


class MiniBatchKernelFit(GramFit, BatchFit):
    """One call of fit."""

    estimator: MiniBatchKernelKMeans
    name = "mini-batch-kernel"
    window_class: type[MovingWindows] = MovingWindows
    placement: Placement
    gram: GramFunction

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return compute_dtype(self.dataset.dtype)

    @property
    def truncation(self) -> int | None:
        given = self.estimator.truncation
        return None if given is None or given is False else int(given)

    @property
    def has_windows(self) -> bool:
        """Whether centres are windows of batches, not inner products with all rows."""
        return self.truncation is not None

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

    def function_for(self, rows: ScaledPlacement) -> GramFunction:
        """Return the Gram function."""
        return gram_of(self.estimator, rows)

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the best start, evaluated."""
        n, truncated = self.dataset.n_rows, self.has_windows
        self.placement, self.gram = rows.placement, self.function_for(rows)
        shapes = BatchKernelState.shapes(n, self.n_clusters)
        resumed = self.resumed(
            BatchKernelState, shapes, lambda state: state.check(n, truncated=truncated)
        )
        return self.best_restart(
            resumed,
            lambda kept: self.evaluated(self._ended(kept)),
            lambda run: run.found.inertia,
        )

    def validated(self, rows: ScaledPlacement, moving: MovingGramCentres) -> float:
        return mean_cost(measure_by_gram(rows.placement, moving.centres()), rows)

    def begin(self, restart: int, best: StartState | None) -> BatchKernelState:
        return BatchKernelState(restart, best=best)

    def finish(self, state: BatchKernelState) -> tuple[StartState, FitRun]:
        end = self._made(state)
        self.stopped = end.state.steps.reason is StopReason.CALLBACK
        size = rows_per_step(self.dataset.n_rows, vars(self.estimator))
        self.passes += -(-end.state.n_steps * size // self.dataset.n_rows)
        run = self.evaluated(end)
        if self.restarts > 1:
            publish(self.callbacks, StartEnded(state.restart, self.restarts, run.found.inertia))
        return end.state.ended(), run

    def evaluated(self, end: End) -> FitRun:
        """Return one start, evaluated on all rows. One pass."""
        centres = end.moving.centres()
        costs = nearest_of(centres.relative(end.sample.rows), end.sample.diagonal)[1]
        return self.measured(self.placement, centres, end.state.steps, costs)

    def _made(self, state: BatchKernelState) -> End:
        """Make the remaining steps of a start."""
        estimator, resumed = self.estimator, state.made
        if resumed is not None and resumed.steps.reason is not None:
            limits = estimator.max_iter, self.time_left()
            if is_final(resumed.steps.reason, resumed.n_steps, *limits):
                return self._ended(resumed)
        seed = seed_of_start(self.seed, state.restart)
        with Batches(
            self.dataset,
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
        return End(StartState.of(sample.indices, steps, moving), sample, moving)

    def _sample(self, batches: Batches, key: Key) -> GramBatch:
        """Return the rows that seeding samples; at least k of them have a positive weight."""
        drawn, k = batches.sample(self._sample_rows(), key), self.n_clusters
        batches.refuse_bad(drawn)
        if self.method != "array" and np.count_nonzero(drawn.listed_weights()) < k:
            # Few rows have a weight, so choose them by the weights alone.
            return self._batch_of(draw_rows(self.dataset, k, key))
        return GramBatch.of(drawn, batches.rows_of_last(), self.gram, self.dtype)

    def _start(self, sample: GramBatch, seed: int) -> MovingGramCentres:
        estimator, gram, began = self.estimator, self.gram, time.perf_counter()
        if self.method == "array":
            first = given_centres(estimator.init, self.dataset, gram, self.n_clusters)
            norms = norms_of(first, gram, self.dataset)
        else:
            columns = partial(self.columns, sample)
            diagonal = sample.diagonal
            chosen = chosen_rows(estimator, columns, lambda: diagonal, sample.weights, seed)
            first = [sample.points(chosen[j : j + 1], gram) for j in range(len(chosen))]
            norms = sample.diagonal[chosen]
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        if not self.has_windows:
            return MovingProducts.start(gram, first, norms, self.placement)
        options = {"normalize": bool(estimator.normalize_truncated), **self._window_options}
        return self.window_class.start(gram, first, norms, self.truncation, **options)

    @property
    def _window_options(self) -> dict[str, Any]:
        return {"n_threads": threads_of(self.engine), "cut": bool(self.estimator.cut_batches)}

    def columns(self, sample: GramBatch, which: np.ndarray) -> np.ndarray:
        """Return K(x, y) for the rows x of a sample and its rows y in `which`."""
        points, m = sample.points(which, self.gram), len(which)
        return GramSums(self.gram, points, np.ones(m), np.arange(m), m)(sample.rows)

    # -- checkpoints ----------------------------------------------------------------------------------

    def _ended(self, state: StartState) -> End:
        """Return a start that had ended when its state was saved."""
        return End(state, self._batch_of(state.sample), self._restored(state))

    def _batch_of(self, numbers: np.ndarray) -> GramBatch:
        """Return rows of these numbers, which are read again, in the form of a batch."""
        weights = self.dataset.weights
        weights = None if weights is None else np.asarray(weights, np.float64)[numbers]
        batch = Batch(rows_at(self.dataset, numbers), np.arange(len(numbers)), weights)
        refuse_rows(batch.taken(), lambda position: int(numbers[position]), "")
        return GramBatch.of(batch, numbers, self.gram, self.dtype)

    def _points_of(self, numbers: np.ndarray) -> Points:
        """Return rows as points; number -1 - j stands for the j-th given centre."""
        if self.gram.is_precomputed:
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

    def _restored(self, state: StartState) -> MovingGramCentres:
        """Return the centres of a start from its saved state."""
        at = self._points_of
        if state.products is not None:
            return state.products.restored(self.gram, at, self.placement)
        assert state.windows is not None
        normalize = bool(self.estimator.normalize_truncated)
        windows = state.windows.windows(at, self.truncation, normalize=normalize)
        return self.window_class(self.gram, windows, **self._window_options)

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


def plan_minibatch_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a `MiniBatchKernelKMeans` fit; `flop` is that of the last pass.

    With a graph, the rows are read once more, and steps are passes by their batches alone.
    """
    n, k, max_iter = dataset.n_rows, *(int(parameters[name]) for name in ("n_clusters", "max_iter"))
    check_enough_rows(dataset, k)
    restarts = 1 if parameters["n_init"] == "auto" else int(parameters["n_init"])
    b, tau = rows_per_step(n, parameters), int(parameters["truncation"] or 0)
    is_graph, first = parameters["kernel"] in GRAPHS, first_passes(parameters)
    points = k * (tau + b) if tau else k + max_iter * b
    if is_graph or not parameters["replacement"]:
        points = min(points, k * n)
    per_start = -(-max_iter * b // n) + 2
    if not (tau or is_graph):  # products with all rows, per step
        per_start += max_iter + 1
    return Plan(
        seeding=str(parameters["init"]),
        passes_seeding=first,
        restarts=restarts,
        passes_at_most=first + is_graph + restarts * per_start,
        footprint=graph_footprint(dataset, parameters)
        if is_graph
        else minibatch_footprint(dataset, k, points, batch_rows=b, truncated=bool(tau)),
        flop=pass_flop(dataset, n if is_graph else points),
        commit_bytes=(16 * points + (0 if tau or is_graph else 8 * n * k)) * min(restarts, 2),
    )


@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class MiniBatchKernelKMeans(KernelEstimator):
    """K-means in the space of a Mercer kernel, by mini-batches, for any number of rows.

    A step compares a batch of rows with the centres, which are weighted sums of images of a few rows, and
    moves each centre towards the mean of its rows. Clusters need not be convex. The n x n matrix is never
    formed. The result is bit-identical on any engine and for any number of threads and workers.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    kernel : str or callable, default "rbf"
        exp(-gamma |x - y|^2), exp(-gamma |x - y|_1), (gamma x.y + coef0)^degree, x.y, x.y of rows scaled to
        length one. ``"precomputed"``: X is the symmetric matrix (n, n), in memory or not. ``"knn"`` and
        ``"heat"`` are kernels of the graph of nearest neighbours, as in `daskcluster.KernelKMeans`; the
        rows must fit in memory. A callable takes two blocks of rows and returns the matrix of their values.
    gamma : float >= 0 or "auto", default "auto"
        ``"auto"`` is 1 / (4 times the sum of the features' variances), from one pass.
    degree : int >= 1, default 3
        Degree of the polynomial kernel.
    coef0 : float, default 1.0
        Parameters of the polynomial kernel.
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
        most tau + batch_size rows. None keeps all batches (Algorithm 1); each step is then a pass over
        all rows.
    normalize_truncated : bool, default True
        Scale the coefficients of a truncated centre so that they sum to one. False leaves them as in
        equation (1) of the paper; centres then shrink towards the origin.
    cut_batches : bool, default False
        Drop rows one by one, oldest batch first, so that a centre never has more than tau rows. By default
        whole batches are dropped, as the paper's formulas say; where a batch alone brings tau rows to each
        cluster, smaller values of tau then change nothing.
    learning_rate : {"count", "sqrt"}, default "sqrt"
        As in `daskcluster.MiniBatchKMeans`.
    init : {"k-means++", "random"} or array, default "k-means++"
        How to choose the rows of a random sample whose images are the initial centres; or rows (k, d); or,
        with a precomputed kernel or a graph, row numbers (k,).
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
        Above 0: print a line after every iteration.
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
    Cost of a step: at most (b + b / k) k (tau + b) + b^2 Gram values for any n; with
    ``truncation=None``, n b. ``gamma="auto"`` takes one pass before the first step. Inertia and labels
    take one pass at the end, with at most k (tau + b) Gram values per row. Memory: k (tau + b) rows twice,
    and the batches as in `daskcluster.MiniBatchKMeans`; with ``truncation=None``, all batches and 16 n k
    bytes.

    For a graph, the rows are read once, and scikit-learn finds their nearest neighbours. The matrix is
    never formed. A step with ``"knn"`` takes the entries of b + k (tau + b) sparse rows, about
    `n_neighbors` to twice as many in each. A step with ``"heat"`` takes one product of the matrix with k
    columns, by a series of about 20 sparse products for t = 1, exact to 10^-13 of the sum: as much as an
    iteration of `daskcluster.KernelKMeans`, for any batch size. K(x, x) and new rows are as there: exact
    for up to 12,000 rows, and neither ``transform`` nor ``score``. Memory: at most
    n (160 (n_neighbors + 8) + 48 c + 16 d) bytes, with ``truncation=None`` too. c is k for ``"knn"``; for
    ``"heat"`` it is at least 512, or 64 beyond 12,000 rows, for K(x, x).

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

    model_kinds = (KernelKMeansModel.kind, GraphKMeansModel.kind)

    batch_size: int = 1024
    replacement: bool = False
    truncation: int | None = 200
    normalize_truncated: bool = True
    cut_batches: bool = False
    learning_rate: str = "sqrt"
    init_size: int | None = None
    max_iter: int = 200

    def fit_kind(self) -> type[GramFit]:
        """Return the class of a call of fit."""
        return GraphBatchFit if is_graph(self.kernel) else MiniBatchKernelFit

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.init_size is not None and self.init_size < self.n_clusters:
            raise InvalidParameterError(
                f"init_size={self.init_size} should be >= n_clusters={self.n_clusters}: the initial "
                "centres are distinct rows of the sample."
            )


@dataclass(frozen=True, eq=False)
class GraphFunction(GramFunction):
    """The kernel of a graph: a function of two row numbers.

    Attributes
    ----------
    graph : NeighbourGraph
    matrix : GraphGram
    """

    graph: Any = None
    matrix: Any = None

    @property
    def is_precomputed(self) -> bool:
        """True: points are row numbers."""
        return True

    def diagonal(self, rows: Rows | None, indices: np.ndarray) -> np.ndarray:
        return np.asarray(self.matrix.diagonal[indices])


@dataclass(frozen=True, eq=False)
class _Products:
    """P = K C at any rows, and Q, the squared lengths of the centres.

    The heat kernel has its products at all rows at once; those of the k-nn kernel come on demand.
    """

    matrix: GraphGram
    scaled: Any
    whole: np.ndarray | None
    squares: np.ndarray

    @classmethod
    def of(cls, matrix: GraphGram, terms: Terms) -> _Products:
        k, squares = len(terms), np.empty(len(terms))
        rows = np.concatenate([which for which, _ in terms])
        factors = np.concatenate([each for _, each in terms])
        groups = np.repeat(np.arange(k), [len(which) for which, _ in terms])
        if matrix.heat_time is None:
            scaled = matrix.scaled(rows, factors, groups, k)
            found = cls(matrix, scaled, None, squares)
        else:
            found = cls(matrix, None, matrix.apply(coefficients_of(terms, matrix.n_rows)), squares)
        own = found.at(rows)[np.arange(len(rows)), groups]
        squares[:] = np.bincount(groups, factors * own, minlength=k)
        return found

    def at(self, which: np.ndarray) -> np.ndarray:
        """Return P at some rows, float64 (m, k)."""
        return (
            self.matrix.rows_times(which, self.scaled) if self.whole is None else self.whole[which]
        )


@dataclass
class GraphWindows(MovingWindows):
    """Centres as windows of the last batches, with the kernel of a graph.

    Without truncation, a window is a single mean of all its rows. Products of windows stay zero.

    Notes
    -----
    Cost of a step: for the k-nn kernel, the entries of b + k (tau + b) sparse rows, some `n_neighbors`
    each; for the heat kernel, a product with k columns, which is what an iteration on the full batch takes.
    Memory: 48 n k bytes.
    """

    gram: GraphFunction
    _products: _Products | None = None

    def terms(self) -> Terms:
        """Return the rows of each centre, each row once, and their coefficients."""
        return [_terms(window) for window in self.windows]

    def products(self) -> _Products:
        """Return the products with the current centres."""
        if self._products is None:
            self._products = _Products.of(self.gram.matrix, self.terms())
        return self._products

    def centres(self) -> GraphCentres:
        gram, norms = self.gram, self.products().squares
        return graph_centres(self.terms(), norms, gram.matrix, gram.graph, gram.name)

    def relative(self, batch: GramBatch) -> np.ndarray:
        began, products = time.perf_counter(), self.products()
        found = products.squares - 2.0 * products.at(batch.indices)
        self.meter.n_values += len(batch) * self.k
        self.meter.seconds += time.perf_counter() - began
        return np.asarray(found)

    def move(self, batch: GramBatch, labels: np.ndarray, alphas: np.ndarray) -> None:
        for j, mean in batch.means(labels, self.k, self.gram).items():
            window = self.windows[j]
            added = mean.single() if self.cut and window.truncation is not None else [mean]
            shares = mean.shares if len(added) > 1 else np.ones(1)
            nothing = np.zeros((len(added), len(window.means) + len(added)))
            window.move(added, alphas[j] * shares, nothing)
            if window.truncation is None:
                rows, factors = _terms(window)
                window.means, window.factors = [Mean(Points(None, rows), factors)], np.ones(1)
                window.products = np.zeros((1, 1))
        self._products = None


def _terms(window: Window) -> tuple[np.ndarray, np.ndarray]:
    points, factors = merged([window.terms()])
    return points.indices, factors


class GraphBatchFit(MiniBatchKernelFit):
    """One call of fit with the kernel of a graph."""

    has_windows = True
    window_class = GraphWindows
    gram: GraphFunction

    def footprint(self) -> Footprint:
        return graph_footprint(self.dataset, vars(self.estimator), self.room_bytes)

    def function_for(self, rows: ScaledPlacement) -> GramFunction:
        graph, matrix = graph_and_matrix(self.estimator, rows, self.seed, self.callbacks)
        return GraphFunction(str(self.estimator.kernel), graph=graph, matrix=matrix)

    def columns(self, sample: GramBatch, which: np.ndarray) -> np.ndarray:
        numbers = sample.indices
        return np.asarray(self.gram.matrix.columns(numbers[which])[numbers])

    def evaluated(self, end: End) -> FitRun:
        """Return one start, evaluated on all rows, which are in memory."""
        assert isinstance(end.moving, GraphWindows)
        centres, gram = end.moving.centres(), self.gram
        products = end.moving.products().at(np.arange(self.dataset.n_rows))
        nearest = (centres.norms - 2.0 * products).min(axis=1)
        costs = clamped(gram.matrix.diagonal + nearest)
        return self.measured_on_graph(centres, gram.graph, end.state.steps, costs)
