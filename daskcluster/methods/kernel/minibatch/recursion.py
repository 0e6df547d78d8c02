"""Centres of mini-batch kernel k-means as inner products with all rows (Algorithm 1).

With P_xj = <phi(x), C_j> and Q_j = <C_j, C_j>, the step C <- (1 - a) C + a cm(B) updates, for every row x,
``P <- (1 - a) P + a M`` with M_xj the mean of K(x, y) over the cluster's rows y of the batch, and ``Q <-
(1 - a)^2 Q + 2 a (1 - a) mean P_yj + a^2 mean M_yj``, with means over the same rows y and P from before
the step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.data.ids import chosen_rows
from daskcluster.data.sink import ArraySink
from daskcluster.engine.engine import Placement
from daskcluster.methods.kernel.chunkwise.centres import GramCentres, gram_sum_rows
from daskcluster.methods.kernel.chunkwise.gram import GramFunction, GramSums, Points, join_points
from daskcluster.methods.kernel.initial import given_centres, ready_rows
from daskcluster.methods.kernel.minibatch.centres import GramBatch, Meter, joined
from daskcluster.methods.kernel.minibatch.windows import Mean
from daskcluster.methods.minibatch.algorithm import refuse_bad_batch
from daskcluster.methods.minibatch.chunkwise import Batch
from daskcluster.sparse_rows import join_rows
from daskcluster.typing import Dataset


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
        fresh = self._over_all_rows(_sums_of(means, self.k, self.gram))
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


def _sums_of(means: dict[int, Mean], k: int, gram: GramFunction) -> GramSums:
    """Return the sums over the means of clusters; clusters without a mean have empty sums."""
    return GramSums(
        gram,
        join_points([mean.points for mean in means.values()]),
        np.concatenate([mean.shares for mean in means.values()]),
        np.repeat(list(means), [len(mean) for mean in means.values()]),
        k,
    )


def merged(terms: list[tuple[Points, np.ndarray]]) -> tuple[Points, np.ndarray]:
    """Return the points of a centre, each row once, with the sum of its coefficients."""
    points = join_points([points for points, _ in terms])
    factors = np.concatenate([factors for _, factors in terms])
    _, first, home = np.unique(points.indices, return_index=True, return_inverse=True)
    totals = np.bincount(home, factors, minlength=len(first))
    kept = totals > 0.0
    return points.take(first[kept]), totals[kept]


@dataclass(frozen=True)
class NumberedRows:
    """Reads rows by their numbers again, for a resumed fit.

    Parameters
    ----------
    dataset : Dataset
    gram : GramFunction
    dtype : dtype
        Dtype in which rows are computed.
    init : object
        The parameter of the estimator; number -1 - j stands for its j-th given centre.
    n_clusters : int
    """

    dataset: Dataset
    gram: GramFunction
    dtype: Any
    init: Any
    n_clusters: int

    def batch(self, numbers: np.ndarray) -> GramBatch:
        """Return rows in the form of a batch."""
        weights = self.dataset.weights
        weights = None if weights is None else np.asarray(weights, np.float64)[numbers]
        batch = Batch(chosen_rows(self.dataset, numbers), np.arange(len(numbers)), weights)
        refuse_bad_batch(batch, lambda position: int(numbers[position]), "")
        return GramBatch.of(batch, numbers, self.gram, self.dtype)

    def points(self, numbers: np.ndarray) -> Points:
        """Return rows, and given centres, as points."""
        if self.gram.is_precomputed:
            return Points(None, numbers)
        inside = numbers >= 0
        n_inside = int(inside.sum())
        parts = (
            [ready_rows(chosen_rows(self.dataset, numbers[inside]), self.gram)] if n_inside else []
        )
        if n_inside < len(numbers):
            given = given_centres(self.init, self.dataset, self.gram, self.n_clusters)
            parts += [point.rows for point in given if point.rows is not None]
        # The j-th given centre, number -1 - j, comes j places after the rows that were read.
        places = np.where(inside, np.cumsum(inside) - 1, n_inside - 1 - numbers)
        return Points(join_rows(parts)[places], numbers)
