"""Centres of mini-batch kernel k-means as sliding windows of batches (Algorithm 2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from daskcluster.methods.kernel import kernels
from daskcluster.methods.kernel.chunkwise.centres import GramCentres
from daskcluster.methods.kernel.chunkwise.gram import GramFunction, GramSums, Points, join_points
from daskcluster.methods.kernel.minibatch.windows import Mean, Window, sums_over
from daskcluster.methods.minibatch.chunkwise import Batch
from daskcluster.sparse_rows import Rows

KEPT_BYTES = 32 << 20
"""Bytes of the sums over each mean that labelling a batch keeps, at most."""
_ROWS_OF_MEAN = 4
"""Rows of a mean, on average, from which on keeping pays: a sum costs as much as some two values."""


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

    def threads(self) -> AbstractContextManager[None]:
        """Hold the threads that help in steps while the context lasts."""
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
        self,
        members: dict[int, np.ndarray],
        means: dict[int, Mean],
        kept: np.ndarray,
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
        first, *others = _shares_of(n, 1 if self._pool is None else self.n_threads)
        waiting = [self._pool.submit(work, each) for each in others] if self._pool else []
        work(first)
        for each in waiting:
            each.result()


def kept_bytes(n_rows: int, n_points: int) -> int:
    """Return the bytes that labelling a batch of `n_rows` keeps at most, if windows have `n_points`."""
    return min(KEPT_BYTES, 8 * n_rows * n_points // _ROWS_OF_MEAN)


def _shares_of(n: int, n_threads: int) -> list[slice]:
    edges = np.linspace(0, n, n_threads + 1).astype(int)
    return [slice(a, b) for a, b in pairwise(edges.tolist()) if b > a]
