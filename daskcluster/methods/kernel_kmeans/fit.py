"""One call of ``KernelKMeans.fit``: Gram function, seeding, starts, the best one; and its dry run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.chunkwise.exact_sum import HEADROOM
from daskcluster.data.csr import csr_of
from daskcluster.deprecation import moved
from daskcluster.elementary import log
from daskcluster.engine.engine import Placement
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.estimators.fit import Fit, FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.loop import mean_cost
from daskcluster.estimators.plan import Plan
from daskcluster.events import SeedingEnded, StartEnded, StopReason, publish
from daskcluster.methods.kernel_kmeans.algorithm import (
    FullResult,
    FullState,
    GramMatrix,
    Members,
    StreamedGram,
    block_rows,
    full_batch,
    restored,
)
from daskcluster.methods.kernel_kmeans.chunkwise import (
    CALLABLE,
    FUNCTIONS,
    GRAM_SCORE,
    PRECOMPUTED,
    GramCentres,
    GramFunction,
    GramScore,
    GramScoreParams,
    GraphCentres,
    Points,
)
from daskcluster.methods.kernel_kmeans.graph import (
    GraphGram,
    NeighbourGraph,
    graph_and_matrix,
    graph_centres,
    graph_footprint,
    weights_of,
)
from daskcluster.methods.kernel_kmeans.minibatch.algorithm import joined
from daskcluster.methods.kernel_kmeans.parameters import GRAPHS, is_graph
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.methods.kmeans.initial import GIVEN, checked_centres, warn_of_one_start
from daskcluster.models.fitted import FitResult
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows
from daskcluster.storage.document import stored_as, within
from daskcluster.typing import Dataset

HAVE_GAMMA = ("rbf", "laplacian", "polynomial")


def gram_of(estimator: Any, rows: ScaledPlacement) -> GramFunction:
    """Return the Gram function of an estimator; ``gamma="auto"`` takes a pass over the rows.

    With "auto", gamma is 1 / kappa, where kappa = 4 (sum of the features' variances) is twice the mean
    squared distance of two rows (the rule of Wang, Gittens and Mahoney 2019 for exp(-d^2 / kappa)). For
    the Laplacian kernel, whose distances are sums of absolute differences, it is 1 / sqrt(d kappa).
    """
    kernel = estimator.kernel
    if callable(kernel):
        return GramFunction(CALLABLE, function=kernel, parameters=estimator.kernel_params or {})
    if kernel in FUNCTIONS:
        return GramFunction(kernel, function=FUNCTIONS[kernel])
    gamma = 1.0
    if kernel in HAVE_GAMMA and estimator.gamma != "auto":
        gamma = estimator.gamma
    elif kernel in HAVE_GAMMA:
        d = rows.placement.dataset.n_features
        kappa = 4.0 * d * rows.known().mean_variance
        if kappa > 0.0:  # else all rows are equal
            gamma = 1.0 / np.sqrt(d * kappa) if kernel == "laplacian" else 1.0 / kappa
    if kernel == "polynomial":
        return GramFunction(kernel, float(gamma), int(estimator.degree), float(estimator.coef0))
    return GramFunction(kernel, float(gamma))


def check_square(estimator: Any, dataset: Dataset) -> None:
    """Refuse a precomputed matrix that is not square."""
    if dataset.n_rows != dataset.n_features:
        raise InvalidDataError(
            f"X of shape ({dataset.n_rows}, {dataset.n_features}) should be square for "
            f"kernel='precomputed' of {type(estimator).__name__}: the matrix of K(x, y) for all rows x, y."
        )


def seed_of_start(seed: int, start: int) -> int:
    """Return the seed of a start; the first one has the seed of the fit."""
    return Key(seed, "restart", start).derived_seed() if start else seed


def refuse_distances(centres: GramCentres) -> None:
    """Refuse distances to centres of a graph's kernel."""
    if isinstance(centres, GraphCentres):
        raise InvalidParameterError(
            f"kernel={centres.gram.name!r} is defined on the graph of the fitted rows: it can label other "
            "rows (predict), but their K(x, x) is not known, so there are no distances. Use inertia_ and "
            "summary() of the fit, or a kernel of two rows, such as 'rbf'."
        )


def given_numbers(init: Any, k: int, n_rows: int) -> np.ndarray:
    """Return the numbers of rows given as `init`, int64 (k,)."""
    numbers = np.asarray(init)
    whole = numbers.dtype.kind in "iu" and numbers.shape == (k,)
    if not whole or not ((numbers >= 0) & (numbers < n_rows)).all():
        raise InvalidParameterError(
            f"init={init!r} should be {k} row numbers in 0 to {n_rows - 1} with this kernel."
        )
    return numbers.astype(np.int64)


def given_centres(init: Any, dataset: Dataset, gram: GramFunction, k: int) -> list[Points]:
    """Return the centres given as `init`: rows (k, d); row numbers (k,) for matrices and graphs."""
    if gram.by_number:
        numbers = given_numbers(init, k, dataset.n_rows)
        return [Points(None, numbers[j : j + 1]) for j in range(k)]
    centres = checked_centres(init, k, dataset, compute_dtype(dataset.dtype))
    rows = ready_rows(SparseRows.of(centres) if csr_of(dataset) is not None else centres, gram)
    # Given centres are not rows of the dataset and get negative numbers.
    return [Points(rows[j : j + 1], np.array([-1 - j])) for j in range(k)]


def ready_rows(rows: Rows, gram: GramFunction) -> Rows:
    """Return rows in the form that the kernels need."""
    return gram.chunk(Chunk(rows)).computed()


def measure_by_gram(
    placement: Placement,
    centres: GramCentres,
    *,
    labels: np.ndarray | None = None,
    bound: float = 1.0,
) -> ScoreStatistics:
    """Return size, weight and cost of every cluster; OUT: labels, unless None.

    One pass; a second one if a weighted squared distance exceeds `bound` times 2^8, the headroom.
    """
    weights = placement.dataset.weights
    heaviest = 1.0 if weights is None else float(weights.max())
    bound = max(bound, np.finfo(np.float64).tiny) * HEADROOM * max(heaviest, 1.0)
    while True:
        params = GramScoreParams(centres, placement.dataset.n_rows, bound, heaviest, labels)
        found: GramScore = placement.reduce(GRAM_SCORE, params)
        if found.largest <= bound:
            return found.clusters
        bound = found.largest


Columns = Callable[[np.ndarray], np.ndarray]
"""Row numbers (m,) -> K(x, y) for all rows x and these rows y, float64 (n, m)."""


def chosen_rows(
    estimator: Any,
    columns: Columns,
    diagonal: Callable[[], np.ndarray],
    weights: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Return the numbers of the rows whose images are the initial centres, by the method of `init`."""
    k = estimator.n_clusters
    if estimator.init == "random":
        heavy = np.flatnonzero(weights > 0.0)
        pool = heavy if len(heavy) >= k else np.arange(len(weights))
        return Key(seed, "random rows").generator().choice(pool, k, replace=False)
    trials = estimator.n_local_trials
    return kernel_kmeans_plusplus(columns, diagonal(), weights, k, seed, n_local_trials=trials)


def kernel_kmeans_plusplus(
    columns: Columns,
    diagonal: np.ndarray,
    weights: np.ndarray | None,
    n_clusters: int,
    seed: int,
    *,
    n_local_trials: int | None = None,
) -> np.ndarray:
    """Choose rows by greedy D^2 sampling in the space of a Gram function.

    Parameters
    ----------
    columns : Columns
    diagonal : ndarray of shape (n,)
        K(x, x) of all rows.
    weights : ndarray of shape (n,), or None
    n_clusters : int
    seed : int
    n_local_trials : int, optional
        Candidates per step; default 2 + floor(log k).

    Returns
    -------
    ndarray of shape (k,), int64
        Row numbers. Once every row coincides with a chosen one, the rest are drawn at random.

    Notes
    -----
    Cost: n (1 + (k - 1) n_local_trials) Gram values; 8 n (2 + n_local_trials) bytes.
    """
    trials = n_local_trials or 2 + int(log(max(1, n_clusters)))
    mass = np.ones(len(diagonal)) if weights is None else weights
    chosen = [int(_draw(mass, 1, Key(seed, "first centre"))[0])]
    nearest = _distances(columns, diagonal, np.array(chosen))[:, 0]
    while len(chosen) < n_clusters:
        key = Key(seed, "D^2", len(chosen))
        weighted = mass * nearest
        if not weighted.sum() > 0.0:
            return _filled(chosen, mass, n_clusters, key)
        candidates = np.unique(_draw(weighted, trials, key))
        left = np.minimum(nearest[:, None], _distances(columns, diagonal, candidates))
        best = int((mass[:, None] * left).sum(axis=0).argmin())
        chosen.append(int(candidates[best]))
        nearest = left[:, best]
    return np.array(chosen, np.int64)


def _distances(columns: Columns, diagonal: np.ndarray, which: np.ndarray) -> np.ndarray:
    squares = diagonal[:, None] + diagonal[which] - 2.0 * columns(which)
    squares[which, np.arange(len(which))] = 0.0
    return np.asarray(np.maximum(squares, 0.0))


def _draw(mass: np.ndarray, m: int, key: Key) -> np.ndarray:
    """Draw `m` rows in proportion to their mass, by inverse CDF."""
    edges = np.cumsum(mass)
    found = np.searchsorted(edges, key.generator().random(m) * edges[-1], side="right")
    return np.asarray(found.clip(0, np.flatnonzero(mass > 0.0)[-1]))


def _filled(chosen: list[int], mass: np.ndarray, n_clusters: int, key: Key) -> np.ndarray:
    """Return `chosen` and random rows; for rows that all coincide with a chosen one."""
    rest = np.setdiff1d(np.flatnonzero(mass > 0.0), chosen)
    pool = rest if len(rest) >= n_clusters - len(chosen) else np.arange(len(mass))
    drawn = key.generator().choice(pool, n_clusters - len(chosen), replace=len(pool) < n_clusters)
    return np.concatenate([chosen, drawn]).astype(np.int64)


def kernel_footprint(dataset: Dataset, n_clusters: int, n_points: int) -> Footprint:
    """Return the memory that kernel k-means needs per thread: points and their panels."""
    n = dataset.n_rows
    row_bytes = 8 if n_points == 0 else max(8, dataset.bytes_of((0, n)) // n)
    return Footprint(thread_bytes=2 * n_points * row_bytes + 16 * (n_points + 1024 * n_clusters))


def full_footprint(dataset: Dataset, parameters: Mapping[str, Any]) -> Footprint:
    """Return the memory that kernel k-means on the full batch needs."""
    if is_graph(parameters["kernel"]):
        return graph_footprint(dataset, parameters)
    return kernel_footprint(dataset, int(parameters["n_clusters"]), dataset.n_rows)


@dataclass(frozen=True)
class KernelState:
    """State of a fit between two iterations.

    Attributes
    ----------
    restart : int
        Number of the current start.
    loop : FullState
        State of the current start.
    best : FullState or None
        Final state of the best of the previous starts.
    """

    restart: int = field(metadata=stored_as("start"))
    loop: FullState
    best: FullState | None = None

    def check(self, n_rows: int) -> None:
        """Refuse row and cluster numbers that are out of range."""
        self.loop.check(n_rows)
        if self.best is not None:
            self.best.check(n_rows)


class GramFit(Fit):
    """A `Fit` in the space of a Gram function."""

    graph: NeighbourGraph | None = None
    """The graph of the rows, if the kernel is that of a graph."""
    matrix: GraphGram
    """Its matrix."""

    def prepare(self) -> None:
        init, n_init = self.estimator.init, self.estimator.n_init
        self.method = str(init) if isinstance(init, str) else "array"
        warn_of_one_start(self.estimator, self.method, stacklevel=4)
        # "auto" is one start, because each takes n^2 Gram values or an extra pass to evaluate it.
        self.restarts = 1 if n_init == "auto" or self.method in GIVEN else int(n_init)

    def validation_rows(self) -> Dataset | None:
        """Refuse rows for a kernel that gives no K(x, x) of other rows."""
        kernel = self.estimator.kernel
        if self.estimator.validation is not None and (kernel == PRECOMPUTED or kernel in GRAPHS):
            raise InvalidParameterError(
                f"validation= needs distances of other rows, and with kernel={kernel!r} their K(x, x) is "
                "not known; leave it out, or use a kernel of two rows, such as 'rbf'."
            )
        return super().validation_rows()

    def measured(
        self, placement: Placement, centres: GramCentres, end: Any, costs: np.ndarray
    ) -> FitRun:
        """Return the final figures of a start that ended in `end`; `costs` are those of some rows."""
        labels, bound = self.kept_labels(placement), float(costs.max(initial=0.0))
        scores = measure_by_gram(placement, centres, labels=labels, bound=bound)
        return FitRun(FitResult.of(end, centres=centres), scores, labels)

    def with_graph(self, rows: ScaledPlacement) -> GraphGram:
        """Find the graph of the rows, and return its matrix."""
        self.graph, self.matrix = graph_and_matrix(self.estimator, rows, self.seed, self.callbacks)
        return self.matrix

    def measured_on_graph(self, found: GramCentres, end: Any, costs: np.ndarray) -> FitRun:
        """Return the final figures with the kernel of a graph; `costs` are those of all rows.

        Labels are those of `predict`, which depend only on the neighbours of a row.
        """
        assert self.graph is not None
        centres = graph_centres(found, self.matrix, self.graph)
        nearest = centres.relative_to(self.graph.adjacency, self.graph.twins).argmin(axis=1)
        labels, weights, k = nearest.astype(np.int32), weights_of(self.dataset), self.n_clusters
        totals = [np.bincount(labels, each, minlength=k) for each in (weights, weights * costs)]
        high = [np.stack([total, np.zeros(k)]) for total in totals]
        scores = ScoreStatistics(np.bincount(labels, minlength=k), *high)
        return FitRun(FitResult.of(end, centres=centres), scores, labels)


class KernelFit(GramFit):
    """One call of fit."""

    gram: GramMatrix
    weights: np.ndarray

    name = "kernel"

    def footprint(self) -> Footprint:
        return full_footprint(self.dataset, vars(self.estimator))

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the best start, evaluated."""
        estimator, self.weights = self.estimator, weights_of(self.dataset)
        if is_graph(estimator.kernel):
            self.gram = self.with_graph(rows)
            found = self._best()
            terms = [(Points(None, which), factors) for which, factors in found.members.terms]
            sums = joined(GramFunction(estimator.kernel), terms)
            centres = GramCentres(sums, found.members.norms)
            return self.measured_on_graph(centres, found.state, found.costs)
        if estimator.kernel == "precomputed" or callable(estimator.kernel):
            rows.known()  # looks for NaN
        self.gram = gram = StreamedGram(rows.placement, gram_of(estimator, rows))
        found = self._best()
        centres = gram.centres(found.members)
        return self.measured(rows.placement, centres, found.state, found.costs)

    def validated(self, rows: ScaledPlacement, members: Members) -> float:
        assert isinstance(self.gram, StreamedGram)
        return mean_cost(measure_by_gram(rows.placement, self.gram.centres(members)), rows)

    # -- starts ---------------------------------------------------------------------------------------

    def _best(self) -> FullResult:
        """Return the start with the lowest inertia."""
        n, shapes = self.dataset.n_rows, FullState.shapes(self.dataset.n_rows, self.n_clusters)
        both = {**within("loop", shapes), **within("best", shapes)}
        resumed = self.resumed(KernelState, both, lambda state: state.check(n))
        return self.best_restart(
            resumed,
            lambda state: restored(self.gram, state, self.weights),
            lambda found: found.inertia(self.weights),
        )

    def begin(self, restart: int, best: FullState | None) -> KernelState:
        seeds = self._seeds(seed_of_start(self.seed, restart))
        state = KernelState(restart, FullState(seeds), best)
        self.keep_step(state, state.loop)
        return state

    def finish(self, state: KernelState) -> tuple[FullState, FullResult]:
        found = full_batch(
            self.gram,
            state.loop,
            self.weights,
            self.limits(),
            tol=self.estimator.tol,
            keep=lambda loop: self.keep_step(replace(state, loop=loop), loop),
            validate=self.validate,
        )
        self.stopped = found.state.reason is StopReason.CALLBACK
        if self.restarts > 1:
            inertia = found.inertia(self.weights)
            publish(self.callbacks, StartEnded(state.restart, self.restarts, inertia))
        return found.state, found

    def _seeds(self, seed: int) -> np.ndarray:
        estimator, gram, began = self.estimator, self.gram, time.perf_counter()
        if self.method == "array":
            chosen = given_numbers(estimator.init, self.n_clusters, gram.n_rows)
        else:
            chosen = chosen_rows(estimator, gram.columns, lambda: gram.diagonal, self.weights, seed)
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        return np.asarray(chosen, np.int64)


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a `KernelKMeans` fit on `dataset`; graphs take a single pass."""
    n, k, max_iter = dataset.n_rows, int(parameters["n_clusters"]), int(parameters["max_iter"])
    check_enough_rows(dataset, k)
    restarts = 1 if parameters["n_init"] == "auto" else int(parameters["n_init"])
    blocks = -(-n // block_rows(dataset)) if parameters["kernel"] != "precomputed" else 1
    seeding = 1 + first_passes(parameters) + (k if parameters["init"] == "k-means++" else 1)
    return Plan(
        seeding=str(parameters["init"]),
        passes_seeding=seeding,
        restarts=restarts,
        passes_at_most=restarts * (seeding + 2 + max_iter * blocks) + 2,
        footprint=full_footprint(dataset, parameters),
        flop=pass_flop(dataset, n),
        commit_bytes=8 * (n + k) * min(restarts, 2),
    )


def first_passes(parameters: Mapping[str, Any]) -> int:
    """Return the number of passes before seeding: one for an automatic gamma or the check for NaN."""
    automatic = parameters["kernel"] in HAVE_GAMMA and parameters["gamma"] == "auto"
    return int(automatic or parameters["kernel"] in (PRECOMPUTED, *GRAPHS))


__getattr__ = moved(__name__, register_gram="daskcluster.extending:register_gram")
