"""Mini-batch kernel k-means with the kernel of a graph of neighbours.

The squared distance of row x to centre C_j is K(x, x) - 2 (K c_j)_x + c_j' K c_j, with c_j the coefficients
of the centre in the rows of the fit. One product of K with the k columns c_j, at the rows of the batch and
of the centres, gives them all. So no inner products of batches are kept, and K is never formed:

- the k-nn kernel is a sparse matrix, of which a step reads only the rows that it needs;
- a row of the heat kernel has an entry for every row that a walk can reach, and b rows would cost more
  than k columns. So a step computes the product with all rows, by the series of
  `daskcluster.methods.kernel.graph.GraphGram`, whose remainder is below 10^-13 of the sum.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.engine.engine import Placement
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import FitRun
from daskcluster.methods.kernel.chunkwise.centres import GraphCentres, clamped
from daskcluster.methods.kernel.chunkwise.gram import GramFunction, Points
from daskcluster.methods.kernel.graph import (
    GraphGram,
    Terms,
    coefficients_of,
    graph_and_matrix,
    graph_centres,
    graph_footprint,
    graph_labels,
    graph_scores,
    weights_of,
)
from daskcluster.methods.kernel.minibatch.algorithm import KernelResult
from daskcluster.methods.kernel.minibatch.centres import (
    GramBatch,
    Mean,
    MovingGramCentres,
    MovingWindows,
    Window,
    merged,
)
from daskcluster.methods.kernel.minibatch.fit import End, MiniBatchKernelFit
from daskcluster.methods.kernel.minibatch.state import StartState
from daskcluster.sparse_rows import Rows


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
        return np.asarray(self.matrix.diagonal()[indices])


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

    _products: _Products | None = None

    @property
    def function(self) -> GraphFunction:
        assert isinstance(self.gram, GraphFunction)
        return self.gram

    def terms(self) -> Terms:
        """Return the rows of each centre, each row once, and their coefficients."""
        return [_terms(window) for window in self.windows]

    def products(self) -> _Products:
        """Return the products with the current centres."""
        if self._products is None:
            self._products = _Products.of(self.function.matrix, self.terms())
        return self._products

    def centres(self) -> GraphCentres:
        function = self.function
        terms, norms = self.terms(), self.products().squares
        return graph_centres(terms, norms, function.matrix, function.graph, function.name)

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

    def footprint(self) -> Footprint:
        return graph_footprint(self.dataset, vars(self.estimator), self.room_bytes)

    def gram(self, rows: ScaledPlacement) -> GramFunction:
        graph, matrix = graph_and_matrix(self.estimator, rows, self.seed, self.callbacks)
        return GraphFunction(str(self.estimator.kernel), graph=graph, matrix=matrix)

    def columns(self, sample: GramBatch, gram: GramFunction, which: np.ndarray) -> np.ndarray:
        assert isinstance(gram, GraphFunction)
        numbers = sample.indices
        return np.asarray(gram.matrix.columns(numbers[which])[numbers])

    def standing(
        self, gram: GramFunction, first: list[Points], norms: np.ndarray, placement: Placement
    ) -> MovingGramCentres:
        return GraphWindows.start(gram, first, norms, self.truncation, **self.window_options())

    def moving(
        self, rows: ScaledPlacement, gram: GramFunction, state: StartState
    ) -> MovingGramCentres:
        moving = self.restored_windows(gram, state)
        return GraphWindows(moving.gram, moving.windows, moving.n_threads, moving.cut)

    def evaluated(self, rows: ScaledPlacement, end: End) -> FitRun:
        """Return one start, evaluated on all rows, which are in memory."""
        centres, function = end.centres, end.moving.gram
        assert isinstance(centres, GraphCentres)
        assert isinstance(function, GraphFunction)
        assert isinstance(end.moving, GraphWindows)
        products = end.moving.products().at(np.arange(self.dataset.n_rows))
        nearest = (centres.norms - 2.0 * products).min(axis=1)
        costs = clamped(function.matrix.diagonal() + nearest)
        labels = graph_labels(centres, function.graph)
        scores = graph_scores(costs, labels, weights_of(self.dataset), self.n_clusters)
        return FitRun(KernelResult.of(centres, end.state.steps), scores, labels)
