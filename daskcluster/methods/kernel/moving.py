"""Centres in the space of a Gram function, as batches move them; and the windows of Algorithm 2.

(B. Jourdan and G. Schwartzman, "Mini-batch kernel k-means", 2024.)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from daskcluster.methods.kernel.chunkwise.centres import GramCentres
from daskcluster.methods.kernel.chunkwise.gram import GramFunction, Points
from daskcluster.methods.kernel.window import Mean, Window, joined
from daskcluster.methods.minibatch.chunkwise.batch import Batch
from daskcluster.sparse_rows import Rows


@dataclass(frozen=True, eq=False)
class GramBatch:
    """Rows of a step, ready for the kernels.

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
    """How many Gram values were computed, and the seconds that took."""

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
        """Points that make up the centres, as far as they are kept."""
        ...

    def relative(self, batch: GramBatch) -> np.ndarray:
        """Return Q - 2 P of a batch, float64 (b, k)."""
        ...

    def move(self, batch: GramBatch, labels: np.ndarray, alphas: np.ndarray) -> None:
        """Move each centre towards the mean of its rows; alpha 0 for clusters without any."""
        ...

    def centres(self) -> GramCentres:
        """Return the centres as weighted sums of points."""
        ...


@dataclass
class MovingWindows:
    """Centres that are windows of the last batches (Algorithm 2).

    Parameters
    ----------
    gram : GramFunction
    windows : list of k Window
    n_threads : int

    Notes
    -----
    Cost of a step: at most b k (tau + b) Gram values to label the batch, and b (tau + b) + b^2 for the
    inner products of the new means. Memory: k (tau + b) rows.
    """

    gram: GramFunction
    windows: list[Window]
    n_threads: int = 1
    meter: Meter = field(default_factory=Meter)
    _centres: GramCentres | None = None

    @classmethod
    def start(
        cls,
        gram: GramFunction,
        first: Sequence[Points],
        norms: np.ndarray,
        truncation: int,
        *,
        normalize: bool = True,
        n_threads: int = 1,
    ) -> MovingWindows:
        """Return centres at one point each.

        Parameters
        ----------
        gram : GramFunction
        first : sequence of Points
        norms : ndarray of shape (k,)
            K of these with themselves.
        truncation, normalize
            Of all windows.
        n_threads : int
        """
        windows = [
            Window(point, float(norm), truncation, normalize)
            for point, norm in zip(first, norms, strict=True)
        ]
        return cls(gram, windows, n_threads)

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
        sums = {j: self.windows[j].sums(self.gram, mean) for j, mean in means.items()}
        products: dict[int, np.ndarray] = {}

        def cross(j: int) -> None:
            which = np.flatnonzero((labels == j) & (batch.weights > 0.0))
            found = sums[j](batch.rows[which])
            products[j] = (means[j].shares[:, None] * found).sum(axis=0)

        _in_threads(cross, list(means), self.n_threads)
        self._count(began, sum(len(mean) * len(sums[j].points) for j, mean in means.items()))
        for j, mean in means.items():
            self.windows[j].move(mean, float(alphas[j]), products[j])
        self._centres = None

    def _count(self, began: float, n_values: int) -> None:
        self.meter.n_values += n_values
        self.meter.seconds += time.perf_counter() - began


def _shares_of(n: int, n_threads: int) -> list[slice]:
    edges = np.linspace(0, n, n_threads + 1).astype(int)
    return [slice(a, b) for a, b in pairwise(edges.tolist()) if b > a]


def _in_threads(work: Any, parts: Sequence[Any], n_threads: int | None = None) -> None:
    """Run ``work(part)`` for all parts, at most `n_threads` (default: all) at a time."""
    n_threads = len(parts) if n_threads is None else n_threads
    if n_threads < 2 or len(parts) < 2:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(n_threads, thread_name_prefix="daskcluster-gram") as pool:
        list(pool.map(work, parts))
