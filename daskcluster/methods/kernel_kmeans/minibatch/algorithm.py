"""Mini-batch kernel k-means (B. Jourdan and G. Schwartzman, "Mini-batch kernel k-means", 2024).

A step labels a batch of rows with their nearest centres in the space of the Gram function, and each
centre moves towards the mean of its rows: C <- (1 - alpha) C + alpha cm(B). Centres are stored either as
windows of the last batches (Algorithm 2, `MovingWindows`), at a cost independent of n, or as inner
products with all rows (Algorithm 1, `MovingProducts`).

Inner products are P_xj = <phi(x), C_j> and Q_j = <C_j, C_j>: the step C <- (1 - a) C + a cm(B) updates, for
every row x, ``P <- (1 - a) P + a M`` with M_xj the mean of K(x, y) over the cluster's rows y of the batch,
and ``Q <- (1 - a)^2 Q + 2 a (1 - a) mean P_yj + a^2 mean M_yj``, with means over the same rows y and P from
before the step.

Differences from the paper: batches are drawn without replacement, pass after pass, unless ``replacement``
asks for the paper's draws; a fit stops early when a step improves its own batch by *less* than tol (the
paper's test has the other sign).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np

from daskcluster.data.writer import ArraySink
from daskcluster.engine.engine import Placement
from daskcluster.estimators.loop import Limits, Stepped, run_loop
from daskcluster.events import KernelStepEnded, StopReason
from daskcluster.methods.kernel_kmeans import kernels
from daskcluster.methods.kernel_kmeans.chunkwise import (
    GramCentres,
    GramFunction,
    GramSums,
    Points,
    gram_sum_rows,
    join_points,
    nearest_of,
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
        return len(self.points)

    def single(self) -> list[Mean]:
        """Return a mean for each point."""
        return [Mean(self.points.take(slice(i, i + 1)), np.ones(1)) for i in range(len(self))]


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
        tau: batches are dropped as long as at least tau points remain. None drops nothing.
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

    def move(self, added: Sequence[Mean], factors: np.ndarray, products: np.ndarray) -> None:
        """Move the centre towards a batch, and drop means that are no longer needed.

        Parameters
        ----------
        added : sequence of m Mean
            Means of all rows of the batch, or of each.
        factors : ndarray of shape (m,)
            Their coefficients, which sum to alpha in (0, 1].
        products : ndarray of shape (m, L + m)
            Inner products of `added` with the means of the window and with each other.
        """
        size = len(self.means)
        grown = np.empty((size + len(added),) * 2)
        grown[:size, :size] = self.products
        grown[size:], grown[:size, size:] = products, products[:, :size].T
        self.products = grown
        self.factors = np.append(self.factors * (1.0 - factors.sum()), factors)
        self.means.extend(added)
        self._drop()

    def _drop(self) -> None:
        if self.truncation is None:
            return
        oldest, left = int(self.has_first), self.n_points
        first = oldest
        while left - len(self.means[first]) >= self.truncation:
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


def sums_over(gram: GramFunction, means: Collection[Mean]) -> GramSums:
    """Return the sums of K over each of several means."""
    return joined(gram, [(mean.points, mean.shares) for mean in means])


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


KEPT_BYTES = 32 << 20
"""Bytes of the sums over each mean that labelling a batch keeps, at most."""
_ROWS_OF_MEAN = 4
"""Rows of a mean, on average, from which on keeping pays: a sum costs as much as some two values."""


@dataclass(frozen=True, eq=False)
class GramBatch:
    """The rows of a step, ready for the kernels.

    Attributes
    ----------
    rows : Rows, shape (b, d)
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
        ready = replace(batch, normalize=gram.normalize).ready(dtype)
        rows = ready.rows[ready.listed]
        return cls(rows, indices, batch.listed_weights(), gram.diagonal(rows, indices))

    def __len__(self) -> int:
        return len(self.indices)

    def points(self, which: np.ndarray, gram: GramFunction) -> Points:
        """Return some rows as points of `gram`."""
        rows = None if gram.is_precomputed else self.rows[which]
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

    def means(self, labels: np.ndarray, k: int, gram: GramFunction) -> dict[int, Mean]:
        """Return the means of the clusters that have rows of some weight."""
        return {j: self.mean(which, gram) for j, which in self.members(labels, k).items()}


@dataclass
class Meter:
    """Number of Gram values computed, and the seconds that it took."""

    n_values: int = 0
    seconds: float = 0.0


@dataclass
class MovingWindows:
    """Centres as windows of the last batches (Algorithm 2).

    Parameters
    ----------
    gram : GramFunction
    windows : list of k Window
    n_threads : int
    cut : bool
        Rows are dropped one by one, not batch by batch: a full window has tau rows exactly.

    Notes
    -----
    Cost of a step: at most b k (tau + b) Gram values to label the batch, and b^2 for the products of the
    new means with themselves. Their products with older means follow from the sums over each mean that
    labelling keeps. Where that would cost more than it saves (means of few rows, precomputed values), they
    take b (tau + b) values more. Memory: k (tau + b) rows, and `KEPT_BYTES` at most.
    """

    gram: GramFunction
    windows: list[Window]
    n_threads: int = 1
    cut: bool = False
    meter: Meter = field(default_factory=Meter)
    _centres: GramCentres | None = None
    _kept: tuple[GramBatch, np.ndarray] | None = None
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
        cut: bool = False,
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
        n_threads, cut
            As in `MovingWindows`.
        """
        one = np.ones(1)
        windows = [
            Window([Mean(point, one)], one, np.array([[float(norm)]]), truncation, normalize)
            for point, norm in zip(first, norms, strict=True)
        ]
        return cls(gram, windows, n_threads, cut)

    @property
    def k(self) -> int:
        return len(self.windows)

    @property
    def n_points(self) -> int:
        """Number of points that make up the centres."""
        return sum(window.n_points for window in self.windows)

    def centres(self) -> GramCentres:
        """Return the centres as weighted sums of points."""
        if self._centres is None:
            sums = joined(self.gram, [window.terms() for window in self.windows])
            norms = np.array([window.squared_norm for window in self.windows])
            self._centres = GramCentres(sums, norms)
        return self._centres

    def relative(self, batch: GramBatch) -> np.ndarray:
        """Return Q - 2 P of a batch, float64 (b, k)."""
        began, found = time.perf_counter(), np.empty((len(batch), self.k))
        self._kept = None
        means = [mean for window in self.windows for mean in window.means]
        if self._keeps(len(batch), means):
            sums, kept = sums_over(self.gram, means), np.empty((len(batch), len(means)))
            factors = np.concatenate([window.coefficients for window in self.windows])
            homes = np.repeat(np.arange(self.k), [len(window.means) for window in self.windows])
            norms = np.array([window.squared_norm for window in self.windows])
            self._kept = batch, kept

            def part(cut: slice) -> None:
                sums(batch.rows[cut], kept[cut])
                kernels.add_columns(kept[cut], np.arange(len(means)), factors, homes, found[cut])
                found[cut] = norms - 2.0 * found[cut]

        else:
            centres = self.centres()
            sums = centres.sums

            def part(cut: slice) -> None:
                found[cut] = centres.relative(batch.rows[cut])

        self._together(part, len(batch))
        self.meter.n_values += len(batch) * len(sums.points)
        self.meter.seconds += time.perf_counter() - began
        return found

    def _keeps(self, n_rows: int, means: list[Mean]) -> bool:
        """Whether labelling keeps the sums of the rows over each mean, for `move`."""
        pays = sum(map(len, means)) >= _ROWS_OF_MEAN * len(means)
        possible = not (self.cut or self.gram.is_precomputed)
        return possible and pays and 8 * n_rows * len(means) <= KEPT_BYTES

    def move(self, batch: GramBatch, labels: np.ndarray, alphas: np.ndarray) -> None:
        """Move each centre towards the mean of its rows; clusters without rows have alpha 0."""
        began, members = time.perf_counter(), batch.members(labels, self.k)
        if not members:
            return
        means = {j: batch.mean(which, self.gram) for j, which in members.items()}
        added = {j: mean.single() if self.cut else [mean] for j, mean in means.items()}
        if self._kept is not None and self._kept[0] is batch:
            products = self._kept_cross(members, means, self._kept[1])
        else:
            products = self._cross(batch, members, means, added)
        self.meter.seconds += time.perf_counter() - began
        for j, mean in means.items():
            shares = mean.shares if self.cut else np.ones(1)
            self.windows[j].move(added[j], alphas[j] * shares, products[j])
        self._centres = self._kept = None

    def _kept_cross(
        self, members: dict[int, np.ndarray], means: dict[int, Mean], kept: np.ndarray
    ) -> dict[int, np.ndarray]:
        """Return the products of new means with those of their windows and themselves, (1, L + 1)."""
        sums = sums_over(self.gram, means.values())
        within = np.empty((len(sums.points), 1))
        self._together(partial(sums.own, out=within), len(means))
        self.meter.n_values += sum(len(mean) ** 2 for mean in means.values())
        edges = np.cumsum([0, *(len(window.means) for window in self.windows)]).tolist()
        ends = np.cumsum([len(mean) for mean in means.values()])
        products = {}
        for (j, mean), found in zip(means.items(), np.split(within, ends[:-1]), strict=True):
            old = kept[members[j], edges[j] : edges[j + 1]]
            products[j] = (mean.shares[:, None] * np.hstack([old, found])).sum(axis=0)[None]
        return products

    def _cross(
        self,
        batch: GramBatch,
        members: dict[int, np.ndarray],
        means: dict[int, Mean],
        added: dict[int, list[Mean]],
    ) -> dict[int, np.ndarray]:
        """Return the products of `added` with the means of their windows and each other, (m, L + m)."""
        sums = {
            j: sums_over(self.gram, self.windows[j].means + parts) for j, parts in added.items()
        }
        products: dict[int, np.ndarray] = {}

        def cross(some: slice) -> None:
            for j in list(means)[some]:
                found = sums[j](batch.rows[members[j]])
                together = (means[j].shares[:, None] * found).sum(axis=0)
                products[j] = found if self.cut else together[None]

        self._together(cross, len(means))
        self.meter.n_values += sum(len(mean) * len(sums[j].points) for j, mean in means.items())
        return products

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
        first, *others = (slice(a, b) for a, b in pairwise(edges) if b > a)
        waiting = [self._pool.submit(work, each) for each in others] if self._pool else []
        work(first)
        for each in waiting:
            each.result()


def kept_bytes(n_rows: int, n_points: int) -> int:
    """Return the bytes that labelling a batch of `n_rows` keeps at most, if windows have `n_points`."""
    return min(KEPT_BYTES, 8 * n_rows * n_points // _ROWS_OF_MEAN)


@dataclass
class MovingProducts:
    """Centres as inner products with all rows; no batch is ever dropped.

    Parameters
    ----------
    gram : GramFunction
    terms : list of k lists of pairs
        Points of each centre and their coefficients: the initial point, then those of each batch.
    squares : ndarray of shape (k,)
        Q.
    products : ndarray of shape (n, k)
        P.
    placement : Placement
        All rows.

    Notes
    -----
    Cost of a step: a pass with n b Gram values. Memory: 16 n k bytes, and the rows of all batches so far,
    which make up the model.
    """

    gram: GramFunction
    terms: list[list[tuple[Points, np.ndarray]]]
    squares: np.ndarray
    products: np.ndarray
    placement: Placement
    meter: Meter = field(default_factory=Meter)

    @classmethod
    def start(
        cls, gram: GramFunction, first: Sequence[Points], norms: np.ndarray, placement: Placement
    ) -> MovingProducts:
        """Return centres at one point each; `norms` (k,) are their K(x, x). One pass."""
        starts = [(point, np.ones(1)) for point in first]
        squares = np.array(norms, np.float64)
        self = cls(gram, [[start] for start in starts], squares, np.empty((0, 0)), placement)
        self.products = self._over_all_rows(joined(gram, starts))
        return self

    @property
    def k(self) -> int:
        return len(self.squares)

    @property
    def n_points(self) -> int:
        return sum(len(points) for terms in self.terms for points, _ in terms[1:])

    def relative(self, batch: GramBatch) -> np.ndarray:
        return np.asarray(self.squares - 2.0 * self.products[batch.indices])

    def move(self, batch: GramBatch, labels: np.ndarray, alphas: np.ndarray) -> None:
        means = batch.means(labels, self.k, self.gram)
        if not means:
            return
        sums = sums_over(self.gram, means.values())
        # Clusters without a mean have empty sums.
        fresh = self._over_all_rows(
            replace(sums, groups=np.array(list(means))[sums.groups], n_groups=self.k)
        )
        for j, mean in means.items():
            a, old, rows = float(alphas[j]), self.products[:, j], mean.points.indices
            inside = float((mean.shares * fresh[rows, j]).sum())
            across = float((mean.shares * old[rows]).sum())
            self.squares[j] = (
                (1.0 - a) ** 2 * self.squares[j] + 2.0 * a * (1.0 - a) * across + a * a * inside
            )
            old *= 1.0 - a
            old += a * fresh[:, j]
            for _, factors in self.terms[j]:
                factors *= 1.0 - a
            self.terms[j].append((mean.points, a * mean.shares))

    def threads(self) -> nullcontext[None]:
        """Return a context without threads: those of the engine do the passes."""
        return nullcontext()

    def centres(self) -> GramCentres:
        return GramCentres(
            joined(self.gram, [merged(terms) for terms in self.terms]), self.squares.copy()
        )

    def _over_all_rows(self, sums: GramSums) -> np.ndarray:
        began = time.perf_counter()
        found = np.empty((self.placement.dataset.n_rows, self.k))
        self.placement.map_rows(gram_sum_rows, ArraySink(found), sums, name="inner products")
        self.meter.seconds += time.perf_counter() - began
        self.meter.n_values += len(found) * len(sums.points)
        return found


MovingGramCentres = MovingWindows | MovingProducts
"""Centres in the space of a Gram function that batches move."""


def merged(terms: list[tuple[Points, np.ndarray]]) -> tuple[Points, np.ndarray]:
    """Return the points of a centre, each row once, with the sum of its coefficients."""
    points = join_points([points for points, _ in terms])
    factors = np.concatenate([factors for _, factors in terms])
    _, first, home = np.unique(points.indices, return_index=True, return_inverse=True)
    totals = np.bincount(home, factors, minlength=len(first))
    kept = totals > 0.0
    return points.take(first[kept]), totals[kept]


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
    moving: MovingGramCentres,
    steps: KernelSteps,
    limits: Limits,
    *,
    rate: str,
    dtype: Any,
    tol: float = 0.0,
    keep: Callable[[KernelSteps], None] | None = None,
    validate: Callable[[MovingGramCentres], float] | None = None,
) -> KernelSteps:
    """Move centres by one batch after another.

    Parameters
    ----------
    batches : Batches
    moving : MovingGramCentres
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
        before = Meter(moving.meter.n_values, moving.meter.seconds)
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
            "n_distances": moving.meter.n_values - before.n_values,
            "batch_size": len(batch),
            "n_points": moving.n_points,
            "gram_seconds": moving.meter.seconds - before.seconds,
        }
        weight = float(batch.weights.sum())
        return Stepped(replace(state, seen=state.seen + counts), facts, weight, reason=reason)

    of_state = None if validate is None else lambda _: validate(moving)
    return run_loop(step, steps, KernelStepEnded, limits, keep=keep, validate=of_state)


def _nearest(moving: MovingGramCentres, batch: GramBatch) -> tuple[np.ndarray, np.ndarray]:
    return nearest_of(moving.relative(batch), batch.diagonal)


def _mean(costs: np.ndarray, batch: GramBatch) -> float:
    weight = batch.weights.sum()
    return float((batch.weights * costs).sum() / weight) if weight > 0.0 else 0.0
