"""Centres of mini-batch kernel k-means as sliding windows of batches (Algorithm 2)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from daskcluster.methods.kernel.chunkwise.centres import GramCentres
from daskcluster.methods.kernel.chunkwise.gram import GramFunction, GramSums, Points, join_points
from daskcluster.methods.minibatch.chunkwise.batch import Batch
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
        points = self.points
        return [
            Mean(
                Points(
                    None if points.rows is None else points.rows[i : i + 1],
                    points.indices[i : i + 1],
                ),
                np.ones(1),
            )
            for i in range(len(self))
        ]


@dataclass
class Window:
    """One centre: a weighted sum of the means of the last batches.

    Parameters
    ----------
    first : Points
        The point whose image is the initial centre.
    norm : float
        K(x, x) of that point.
    truncation : int or None
        tau: batches are dropped as long as at least tau points remain. None drops nothing.
    normalize : bool
        After the first drop, scale the coefficients so that they sum to one.

    Attributes
    ----------
    means : list of Mean
        Oldest first.
    factors : ndarray of shape (L,)
        Coefficient of each mean.
    products : ndarray of shape (L, L)
        Inner products of the means.
    """

    first: Points
    norm: float
    truncation: int | None
    normalize: bool = True
    means: list[Mean] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.means = [Mean(self.first, np.ones(1))]
        self.factors = np.ones(1)
        self.products = np.array([[self.norm]])
        self._has_first = True

    @classmethod
    def standing(
        cls,
        means: list[Mean],
        factors: np.ndarray,
        products: np.ndarray,
        truncation: int | None,
        *,
        normalize: bool,
        has_first: bool,
    ) -> Window:
        """Return a window with the given attributes."""
        window = cls(means[0].points, 0.0, truncation, normalize)
        window.means, window.factors, window.products = means, factors, products
        window._has_first = has_first
        return window

    @property
    def has_first(self) -> bool:
        """Whether the initial centre is still part of the window."""
        return self._has_first

    @property
    def n_points(self) -> int:
        """Number of rows of batches in the window, without the initial centre."""
        return sum(map(len, self.means)) - self._has_first

    @property
    def coefficients(self) -> np.ndarray:
        """Coefficient of each mean, after normalization, (L,)."""
        total = self.factors.sum()
        if self._has_first or not self.normalize or not total > 0.0:
            return self.factors
        return np.asarray(self.factors / total)

    @property
    def squared_norm(self) -> float:
        """<C, C>."""
        c = self.coefficients
        return float((c[:, None] * self.products * c).sum())

    def sums(self, gram: GramFunction, added: Sequence[Mean]) -> GramSums:
        """Return the sums of K over each mean of the window, and over those that are `added`."""
        means = [*self.means, *added]
        sizes = [len(each) for each in means]
        return GramSums(
            gram,
            join_points([each.points for each in means]),
            np.concatenate([each.shares for each in means]),
            np.repeat(np.arange(len(means)), sizes),
            len(means),
        )

    def move(self, added: Sequence[Mean], factors: np.ndarray, products: np.ndarray) -> None:
        """Move the centre towards a batch, and drop means that are no longer needed.

        Parameters
        ----------
        added : sequence of m Mean
            Of all rows of the batch, or of each.
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
        oldest, left = int(self._has_first), self.n_points
        first = oldest
        while left - len(self.means[first]) >= self.truncation:
            left -= len(self.means[first])
            first += 1
        if first == oldest:
            return
        self.means = self.means[first:]
        self.factors, self.products = self.factors[first:], self.products[first:, first:]
        self._has_first = False

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

    def means(self, labels: np.ndarray, k: int, gram: GramFunction) -> dict[int, Mean]:
        """Return the means of the clusters that have rows of some weight."""
        found = {}
        for j in range(k):
            which = np.flatnonzero((labels == j) & (self.weights > 0.0))
            if len(which):
                weights = self.weights[which]
                found[j] = Mean(self.points(which, gram), weights / weights.sum())
        return found


@dataclass
class Meter:
    """Number of Gram values computed, and the seconds that it took."""

    n_values: int = 0
    seconds: float = 0.0


class MovingGramCentres(Protocol):
    """Centres in the space of a Gram function that batches move."""

    gram: GramFunction
    meter: Meter

    @property
    def k(self) -> int: ...
    @property
    def n_points(self) -> int:
        """Number of points that make up the centres."""
        ...

    def relative(self, batch: GramBatch) -> np.ndarray:
        """Return Q - 2 P of a batch, float64 (b, k)."""
        ...

    def move(self, batch: GramBatch, labels: np.ndarray, alphas: np.ndarray) -> None:
        """Move each centre towards the mean of its rows; clusters without rows have alpha 0."""
        ...

    def centres(self) -> GramCentres:
        """Return the centres as weighted sums of points."""
        ...


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
    Cost of a step: at most b k (tau + b) Gram values to label the batch, and b (tau + b) + b^2 for the
    inner products of the new means. Memory: k (tau + b) rows.
    """

    gram: GramFunction
    windows: list[Window]
    n_threads: int = 1
    cut: bool = False
    meter: Meter = field(default_factory=Meter)
    _centres: GramCentres | None = None

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
    ) -> MovingWindows:
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
        windows = [
            Window(point, float(norm), truncation, normalize)
            for point, norm in zip(first, norms, strict=True)
        ]
        return cls(gram, windows, n_threads, cut)

    @property
    def k(self) -> int:
        return len(self.windows)

    @property
    def n_points(self) -> int:
        return sum(window.n_points for window in self.windows)

    def centres(self) -> GramCentres:
        if self._centres is None:
            sums = joined(self.gram, [window.terms() for window in self.windows])
            norms = np.array([window.squared_norm for window in self.windows])
            self._centres = GramCentres(sums, norms)
        return self._centres

    def relative(self, batch: GramBatch) -> np.ndarray:
        centres, found = self.centres(), np.empty((len(batch), self.k))
        began, cuts = time.perf_counter(), _shares_of(len(batch), self.n_threads)

        def part(cut: slice) -> None:
            found[cut] = centres.relative(batch.rows[cut])

        _in_threads(part, cuts)
        self._count(began, len(batch) * len(centres.sums.points))
        return found

    def move(self, batch: GramBatch, labels: np.ndarray, alphas: np.ndarray) -> None:
        means = batch.means(labels, self.k, self.gram)
        began = time.perf_counter()
        added = {j: mean.single() if self.cut else [mean] for j, mean in means.items()}
        sums = {j: self.windows[j].sums(self.gram, parts) for j, parts in added.items()}
        products: dict[int, np.ndarray] = {}

        def cross(j: int) -> None:
            which = np.flatnonzero((labels == j) & (batch.weights > 0.0))
            found = sums[j](batch.rows[which])
            together = (means[j].shares[:, None] * found).sum(axis=0)
            products[j] = found if self.cut else together[None]

        _in_threads(cross, list(means), self.n_threads)
        self._count(began, sum(len(mean) * len(sums[j].points) for j, mean in means.items()))
        for j, mean in means.items():
            shares = mean.shares if self.cut else np.ones(1)
            self.windows[j].move(added[j], alphas[j] * shares, products[j])
        self._centres = None

    def _count(self, began: float, n_values: int) -> None:
        self.meter.n_values += n_values
        self.meter.seconds += time.perf_counter() - began


def _shares_of(n: int, n_threads: int) -> list[slice]:
    edges = np.linspace(0, n, n_threads + 1).astype(int)
    return [slice(a, b) for a, b in pairwise(edges.tolist()) if b > a]


def _in_threads(work: Any, parts: Sequence[Any], n_threads: int | None = None) -> None:
    """Run ``work(part)`` for all parts, at most `n_threads` at a time (default: all at once)."""
    n_threads = len(parts) if n_threads is None else n_threads
    if n_threads < 2 or len(parts) < 2:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(n_threads, thread_name_prefix="daskcluster-gram") as pool:
        list(pool.map(work, parts))
