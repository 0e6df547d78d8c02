"""Mini-batch kernel k-means (B. Jourdan and G. Schwartzman, "Mini-batch kernel k-means", 2024).

A step labels a batch of rows with their nearest centres in the space of the Gram function, and each
centre moves towards the mean of its rows: C <- (1 - alpha) C + alpha cm(B). Centres are stored as windows
of the last batches (Algorithm 2), at a cost independent of n, or as means of the rows of all batches
(Algorithm 1, whose inner products with all rows are computed for the rows of each batch instead).

Inner products are P_xj = <phi(x), C_j> and Q_j = <C_j, C_j>: the step C <- (1 - a) C + a cm(B) updates
``Q <- (1 - a)^2 Q + 2 a (1 - a) mean P_yj + a^2 mean M_yj``, with M_xj the mean of K(x, y) over the
cluster's rows y of the batch, means over the same rows y, and P from before the step.

Differences from the paper: batches are drawn without replacement, pass after pass, unless ``replacement``
asks for the paper's draws; a fit stops early when a step improves its own batch by *less* than tol (the
paper's test has the other sign).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from daskcluster.estimators.loop import Limits, Stepped, run_loop
from daskcluster.events import KernelStepEnded, StopReason
from daskcluster.kernels.jit import read_only
from daskcluster.methods.kernel_kmeans import kernels
from daskcluster.methods.kernel_kmeans.chunkwise import (
    GramCentres,
    GramFunction,
    GramSums,
    Points,
    join_points,
    nearest_of,
    row_cuts,
)
from daskcluster.methods.minibatch.batches import Batches
from daskcluster.methods.minibatch.chunkwise import Batch
from daskcluster.sparse_rows import Rows


@dataclass(frozen=True, eq=False)
class Mean:
    """The weighted mean of the images of some points.

    Attributes
    ----------
    points : Points
    shares : ndarray of shape (m,), float64
        Weights of the points, which sum to one.
    """

    points: Points
    shares: np.ndarray

    def __len__(self) -> int:
        return len(self.shares)


@dataclass
class Window:
    """One centre: a weighted sum of the means of the last batches.

    Parameters
    ----------
    means : list of Mean
        Oldest first.
    factors : ndarray of shape (L,)
        Coefficient of each mean.
    products : ndarray of shape (L, L)
        Inner products of the means.
    truncation : int or None
        tau: batches are dropped as long as at least tau points remain. None drops nothing; then the window
        is a single mean of all its points.
    normalize : bool
        After the first drop, scale the coefficients so that they sum to one.
    has_first : bool
        Whether the initial centre is still part of the window.
    """

    means: list[Mean]
    factors: np.ndarray
    products: np.ndarray
    truncation: int | None
    normalize: bool = True
    has_first: bool = True

    @property
    def n_points(self) -> int:
        """Number of rows of batches in the window, without the initial centre."""
        return sum(map(len, self.means)) - self.has_first

    @property
    def coefficients(self) -> np.ndarray:
        """Coefficient of each mean, after normalization, (L,)."""
        total = self.factors.sum()
        if self.has_first or not self.normalize or not total > 0.0:
            return self.factors
        return np.asarray(self.factors / total)

    @property
    def squared_norm(self) -> float:
        """<C, C>."""
        c = self.coefficients
        return float((c[:, None] * self.products * c).sum())

    def move(self, added: Mean, alpha: float, products: np.ndarray) -> None:
        """Move the centre towards a batch, and drop means that are no longer needed.

        Parameters
        ----------
        added : Mean
            The mean of the rows of the batch.
        alpha : float
            Its coefficient, in (0, 1].
        products : ndarray of shape (L + 1,)
            Inner products of `added` with the means of the window and with itself.
        """
        size = len(self.means)
        grown = np.empty((size + 1, size + 1))
        grown[:size, :size] = self.products
        grown[size], grown[:, size] = products, products
        self.products = grown
        self.factors = np.append(self.factors * (1.0 - alpha), alpha)
        self.means.append(added)
        if self.truncation is None:
            square = np.array([[self.squared_norm]])
            self.means, self.factors = [Mean(*merged(*self.terms()))], np.ones(1)
            self.products = square
        else:
            self._drop(self.truncation)

    def _drop(self, truncation: int) -> None:
        oldest, left = int(self.has_first), self.n_points
        first = oldest
        while left - len(self.means[first]) >= truncation:
            left -= len(self.means[first])
            first += 1
        if first == oldest:
            return
        self.means = self.means[first:]
        self.factors, self.products = self.factors[first:], self.products[first:, first:]
        self.has_first = False

    def terms(self) -> tuple[Points, np.ndarray]:
        """Return the points of the centre and their coefficients, without points of coefficient zero."""
        pairs = [
            (mean.points, c * mean.shares)
            for mean, c in zip(self.means, self.coefficients, strict=True)
            if c > 0.0
        ]
        return join_points([points for points, _ in pairs]), np.concatenate([c for _, c in pairs])


def joined(gram: GramFunction, centres: list[tuple[Points, np.ndarray]]) -> GramSums:
    """Return the sums of several centres, each given by its points and their coefficients."""
    sizes = [len(points) for points, _ in centres]
    return GramSums(
        gram,
        join_points([points for points, _ in centres]),
        np.concatenate([factors for _, factors in centres]),
        np.repeat(np.arange(len(centres)), sizes),
        len(centres),
    )


def merged(points: Points, factors: np.ndarray) -> tuple[Points, np.ndarray]:
    """Return the points of a centre, each row once, with the sum of its coefficients."""
    _, first, home = np.unique(points.indices, return_index=True, return_inverse=True)
    totals = np.bincount(home, factors, minlength=len(first))
    kept = totals > 0.0
    return points.take(first[kept]), totals[kept]


@dataclass(frozen=True, eq=False)
class GramBatch:
    """The rows of a step, ready for the kernels.

    Attributes
    ----------
    rows : Rows, shape (b, d)
        For the kernel of a graph, the row numbers.
    indices : ndarray of shape (b,), int64
        Their global row numbers.
    weights, diagonal : ndarray of shape (b,), float64
        Row weights, and K(x, x).
    """

    rows: Rows
    indices: np.ndarray
    weights: np.ndarray
    diagonal: np.ndarray

    @classmethod
    def of(cls, batch: Batch, indices: np.ndarray, gram: GramFunction, dtype: Any) -> GramBatch:
        rows: Rows = indices
        if gram.operator is None:
            ready = replace(batch, normalize=gram.normalize).ready(dtype)
            rows = ready.rows[ready.listed]
        return cls(rows, indices, batch.listed_weights(), gram.diagonal(rows, indices))

    def __len__(self) -> int:
        return len(self.indices)

    def points(self, which: np.ndarray, gram: GramFunction) -> Points:
        """Return some rows as points of `gram`."""
        rows = None if gram.by_number else self.rows[which]
        return Points(rows, self.indices[which])

    def members(self, labels: np.ndarray, k: int) -> dict[int, np.ndarray]:
        """Return the rows of some weight of each cluster that has such rows, in ascending order."""
        heavy = np.flatnonzero(self.weights > 0.0)
        rows = heavy[np.argsort(labels[heavy], kind="stable")]
        ends = np.cumsum(np.bincount(labels[heavy], minlength=k)).tolist()
        return {j: rows[a:b] for j, (a, b) in enumerate(pairwise([0, *ends])) if b > a}

    def mean(self, which: np.ndarray, gram: GramFunction) -> Mean:
        """Return the mean of some rows."""
        weights = self.weights[which]
        return Mean(self.points(which, gram), weights / weights.sum())


@dataclass
class MovingWindows:
    """Centres as windows of the last batches.

    Parameters
    ----------
    gram : GramFunction
    windows : list of k Window
    n_threads : int
    n_values, seconds
        Number of Gram values computed so far, and the seconds that it took.

    Notes
    -----
    Cost of a step: at most b k (tau + b) Gram values to label the batch, and b^2 for the products of the
    new means with themselves. Their products with older means follow from the sums over each mean that
    labelling keeps of a row's own centre. Memory: k (tau + b) rows. Without truncation, the rows of all
    batches take the place of k (tau + b).

    The matrix of a graph is multiplied with the coefficients of the centres instead, which gives their
    norms too. So their windows have no products of means (zeros).
    """

    gram: GramFunction
    windows: list[Window]
    n_threads: int = 1
    n_values: int = 0
    seconds: float = 0.0
    _centres: GramCentres | None = None
    _kept: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    _pool: ThreadPoolExecutor | None = None

    @classmethod
    def start(
        cls,
        gram: GramFunction,
        first: Sequence[Points],
        norms: np.ndarray,
        truncation: int | None,
        *,
        normalize: bool = True,
        n_threads: int = 1,
    ) -> Self:
        """Return centres at one point each.

        Parameters
        ----------
        gram : GramFunction
        first : sequence of Points
        norms : ndarray of shape (k,)
            K(x, x) of these points.
        truncation, normalize
            As in `Window`.
        n_threads
            As in `MovingWindows`.
        """
        one = np.ones(1)
        windows = [
            Window([Mean(point, one)], one, np.array([[float(norm)]]), truncation, normalize)
            for point, norm in zip(first, norms, strict=True)
        ]
        return cls(gram, windows, n_threads)

    @property
    def k(self) -> int:
        return len(self.windows)

    @property
    def n_points(self) -> int:
        """Number of points that make up the centres."""
        return sum(window.n_points for window in self.windows)

    def centres(self) -> GramCentres:
        """Return the centres as weighted sums of points; for graphs each row once."""
        terms = [window.terms() for window in self.windows]
        if self.gram.operator is None:
            norms = np.array([window.squared_norm for window in self.windows])
            return GramCentres(joined(self.gram, terms), norms)
        if self._centres is None:
            sums = joined(self.gram, [merged(*each) for each in terms])
            self._centres = GramCentres(sums, sums.squared_norms())
        return self._centres

    def relative(self, batch: GramBatch) -> np.ndarray:
        """Return Q - 2 P of a batch, float64 (b, k); `move` may follow."""
        began, found = time.perf_counter(), np.empty((len(batch), self.k))
        if self.gram.operator is not None:
            found = self.centres().relative(batch.rows)
            self.n_values += found.size
            self.seconds += time.perf_counter() - began
            return found
        lengths = np.array([len(window.means) for window in self.windows])
        means = [mean for window in self.windows for mean in window.means]
        sums = joined(self.gram, [(mean.points, mean.shares) for mean in means])
        factors = np.concatenate([window.coefficients for window in self.windows])
        every = np.arange(len(factors))
        homes, starts = np.repeat(np.arange(self.k), lengths), np.cumsum(lengths) - lengths
        norms = np.array([window.squared_norm for window in self.windows])
        self._kept = kept = np.empty((len(batch), lengths.max()))

        def part(cut: slice) -> None:
            for inner in row_cuts(cut.stop - cut.start, len(every)):
                some = slice(cut.start + inner.start, cut.start + inner.stop)
                values = sums(batch.rows[some])
                kernels.add_columns(read_only(values), every, factors, homes, found[some])
                found[some] = norms - 2.0 * found[some]
                own = starts[found[some].argmin(axis=1)][:, None] + np.arange(kept.shape[1])
                kept[some] = np.take_along_axis(values, own.clip(max=len(every) - 1), axis=1)

        self._together(part, len(batch))
        self.n_values += len(batch) * len(sums.points)
        self.seconds += time.perf_counter() - began
        return found

    def move(self, batch: GramBatch, labels: np.ndarray, alphas: np.ndarray) -> None:
        """Move each centre towards the mean of its rows; clusters without rows have alpha 0.

        `labels` are those of the last `relative`, which was that of the batch.
        """
        began, members = time.perf_counter(), batch.members(labels, self.k)
        means = {j: batch.mean(which, self.gram) for j, which in members.items()}
        products: dict[int, np.ndarray] = {}

        def cross(some: slice) -> None:
            for j in list(means)[some]:
                alone = np.zeros(len(means[j]), np.int64)
                sums = GramSums(self.gram, means[j].points, means[j].shares, alone, 1)
                own = sums(batch.rows[members[j]])
                old = self._kept[members[j], : len(self.windows[j].means)]
                products[j] = (means[j].shares[:, None] * np.hstack([old, own])).sum(axis=0)

        if self.gram.operator is None:
            self._together(cross, len(means))
            self.n_values += sum(len(mean) ** 2 for mean in means.values())
        else:
            products = {j: np.zeros(len(self.windows[j].means) + 1) for j in means}
        self._centres = None
        self.seconds += time.perf_counter() - began
        for j, mean in means.items():
            self.windows[j].move(mean, alphas[j], products[j])

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Hold helping threads while the context lasts, if more than one may be used."""
        with ThreadPoolExecutor(max(1, self.n_threads - 1), "daskcluster-gram") as self._pool:
            try:
                yield
            finally:
                self._pool = None

    def _together(self, work: Callable[[slice], None], n: int) -> None:
        """Do `work` on slices of `n` items, this thread on the first and helping threads on the others."""
        n_threads = 1 if self._pool is None else self.n_threads
        edges = np.linspace(0, n, n_threads + 1).astype(int).tolist()
        first, *others = (slice(a, b) for a, b in pairwise(edges))
        waiting = [self._pool.submit(work, each) for each in others] if self._pool else []
        work(first)
        for each in waiting:
            each.result()


@dataclass(frozen=True)
class KernelSteps:
    """The steps so far.

    Attributes
    ----------
    seen : ndarray of shape (k,), float64
        Total weight of the rows of each cluster, over all batches.
    history, reason
        See `daskcluster.estimators.loop.LoopState`.
    """

    seen: np.ndarray
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None


def learning_rates(rate: str, counts: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return alpha of every cluster: sqrt(b_j / b), or b_j / (v_j + b_j); 0 without rows.

    Parameters
    ----------
    rate : {"sqrt", "count"}
    counts : ndarray of shape (k,)
        b_j, the weight of each cluster's rows in the batch.
    seen : ndarray of shape (k,)
        v_j, the weight of its rows in earlier batches.

    Examples
    --------
    >>> import numpy as np
    >>> learning_rates("sqrt", np.array([1.0, 3.0, 0.0]), np.zeros(3)).round(3)
    array([0.5  , 0.866, 0.   ])
    """
    alphas = np.zeros(len(counts))
    filled = counts > 0.0
    divisor = counts.sum() if rate == "sqrt" else (seen + counts)[filled]
    alphas[filled] = counts[filled] / divisor
    return np.sqrt(alphas) if rate == "sqrt" else alphas


def minibatch_kernel(
    batches: Batches,
    moving: MovingWindows,
    steps: KernelSteps,
    limits: Limits,
    *,
    rate: str,
    dtype: Any,
    tol: float = 0.0,
    keep: Callable[[KernelSteps], None] | None = None,
    validate: Callable[[MovingWindows], float] | None = None,
) -> KernelSteps:
    """Move centres by one batch after another.

    Parameters
    ----------
    batches : Batches
    moving : MovingWindows
    steps : KernelSteps
        Earlier steps; `moving` are the centres after them and `batches` those that follow.
    limits : Limits
        Its callbacks hear a `KernelStepEnded` for each batch.
    rate : {"sqrt", "count"}
    dtype : dtype
        Dtype in which rows are computed.
    tol : float
        Stop when a step lowers the mean cost of its batch by less than this; 0 never stops.
    keep : callable (steps) -> None, optional
        Called after each step with all steps so far.
    validate : callable (moving) -> float, optional
        Evaluates the new centres; its time does not count.

    Returns
    -------
    KernelSteps
        All steps; `moving` are the centres after them.

    Raises
    ------
    InvalidDataError
        A row of a batch is not finite.
    """

    def step(state: KernelSteps) -> Stepped[KernelSteps]:
        values, seconds = moving.n_values, moving.seconds
        drawn = batches.next()
        batches.refuse_bad(drawn)
        batch = GramBatch.of(drawn, batches.rows_of_last(), moving.gram, dtype)
        labels, costs = _nearest(moving, batch)
        counts = np.bincount(labels, batch.weights, minlength=moving.k)
        moving.move(batch, labels, learning_rates(rate, counts, state.seen))
        reason = None
        if tol > 0.0:
            improvement = _mean(costs, batch) - _mean(_nearest(moving, batch)[1], batch)
            reason = StopReason.TOLERANCE if improvement < tol else None
        facts = {
            "inertia": float((batch.weights * costs).sum()),
            "shift": 0.0,
            "n_touched": len(batch),
            "n_distances": moving.n_values - values,
            "batch_size": len(batch),
            "n_points": moving.n_points,
            "gram_seconds": moving.seconds - seconds,
        }
        weight = float(batch.weights.sum())
        return Stepped(replace(state, seen=state.seen + counts), facts, weight, reason=reason)

    of_state = None if validate is None else lambda _: validate(moving)
    return run_loop(step, steps, KernelStepEnded, limits, keep=keep, validate=of_state)


def _nearest(moving: MovingWindows, batch: GramBatch) -> tuple[np.ndarray, np.ndarray]:
    return nearest_of(moving.relative(batch), batch.diagonal)


def _mean(costs: np.ndarray, batch: GramBatch) -> float:
    weight = batch.weights.sum()
    return float((batch.weights * costs).sum() / weight) if weight > 0.0 else 0.0
