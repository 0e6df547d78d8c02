"""Kernel k-means on a chunk: distances of rows to centres in the space of a Gram function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.chunkwise.statistics import Reduction
from daskcluster.elementary import exp
from daskcluster.kernels.accumulate import accumulate_values
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.methods.kernel.chunkwise.gram import GramFunction, GramSums, row_cuts
from daskcluster.methods.kernel.chunkwise.neighbours import Neighbourhoods
from daskcluster.sparse_rows import Rows


@dataclass(frozen=True, eq=False)
class GramCentres:
    """Centres C_j, each a weighted sum of images of points.

    Attributes
    ----------
    sums : GramSums
        P_xj = <phi(x), C_j>, a group for each centre.
    norms : ndarray of shape (k,), float64
        Q_j = <C_j, C_j>.
    """

    sums: GramSums
    norms: np.ndarray

    @property
    def gram(self) -> GramFunction:
        return self.sums.gram

    @property
    def k(self) -> int:
        return len(self.norms)

    def relative(self, rows: Rows) -> np.ndarray:
        """Return Q_j - 2 P_xj, float64 (n, k): squared distances minus K(x, x)."""
        found = self.sums(rows)
        return np.asarray(self.norms - 2.0 * found)

    def label(self, rows: Rows) -> np.ndarray:
        """Return the nearest centre of every row, int32 (n,); lowest index on ties."""
        parts = [self.relative(rows[cut]).argmin(axis=1) for cut in row_cuts(len(rows), self.k)]
        return np.concatenate(parts).astype(np.int32)


def clamped(squares: np.ndarray) -> np.ndarray:
    """Return squared distances, with negative ones (rounding, or not a Mercer kernel) set to 0."""
    return np.asarray(np.maximum(squares, 0.0))


# -- results for rows -------------------------------------------------------------------------------


def _blocks(chunk: Chunk, model: Any) -> Iterator[tuple[Chunk, slice]]:
    for block in model.gram.chunk(chunk).cache_blocks():
        refuse_bad(block)
        yield block, slice(block.start - chunk.start, block.stop - chunk.start)


def label_by_gram(chunk: Chunk, model: GramCentres) -> np.ndarray:
    """Return the nearest centre of every row, int32 (n,)."""
    labels = np.empty(chunk.n_rows, np.int32)
    for block, place in _blocks(chunk, model):
        labels[place] = model.label(block.rows)
    return labels


def gram_distance_rows(chunk: Chunk, model: GramCentres) -> np.ndarray:
    """Return distances in the space of the Gram function to all centres, float64 (n, k)."""
    found = np.empty((chunk.n_rows, model.k))
    for block, place in _blocks(chunk, model):
        own = model.gram.diagonal(block.rows, np.arange(block.start, block.stop))
        found[place] = np.sqrt(clamped(model.relative(block.rows) + own[:, None]))
    return found


def gram_sum_rows(chunk: Chunk, sums: GramSums) -> np.ndarray:
    """Return the sums of a `GramSums` for every row, float64 (n, n_groups)."""
    found = np.empty((chunk.n_rows, sums.n_groups))
    for block, place in _blocks(chunk, sums):
        sums(block.rows, found[place])
    return found


def gram_diagonal_rows(chunk: Chunk, sums: GramSums) -> np.ndarray:
    """Return K(x, x) of every row, float64 (n,)."""
    found = np.empty(chunk.n_rows)
    for block, place in _blocks(chunk, sums):
        found[place] = sums.gram.diagonal(block.rows, np.arange(block.start, block.stop))
    return found


# -- labels and inertia -----------------------------------------------------------------------------


@dataclass(frozen=True)
class GramScoreParams:
    """Params of the pass that evaluates centres.

    Attributes
    ----------
    model : GramCentres
    n_rows : int
    bound : float
        Bound of weighted squared distances. If a row exceeds it (see `GramScore.largest`), the sums are
        invalid, and the pass has to be repeated with that bound.
    max_weight : float
    labels : ndarray of shape (n,), int32, or None
        OUT. Labels by global row index (only within one process).
    """

    model: GramCentres
    n_rows: int
    bound: float
    max_weight: float = 1.0
    labels: np.ndarray | None = None


@dataclass
class GramScore:
    """Size, weight and cost of every cluster, and the largest weighted squared distance."""

    clusters: ScoreStatistics
    largest: float = 0.0

    def combine(self, other: GramScore) -> GramScore:
        self.clusters.combine(other.clusters)
        self.largest = max(self.largest, other.largest)
        return self


def _zero(params: GramScoreParams) -> GramScore:
    k = params.model.k
    return GramScore(ScoreStatistics(np.zeros(k, np.int64), np.zeros((2, k)), np.zeros((2, k))))


def _score_chunk(chunk: Chunk, params: GramScoreParams, into: GramScore) -> None:
    model = params.model
    for block, _ in _blocks(chunk, model):
        own = model.gram.diagonal(block.rows, np.arange(block.start, block.stop))
        for cut in row_cuts(block.n_rows, model.k):
            part = block.slice(cut.start, cut.stop)
            labels, costs = nearest_by_gram(model, part.rows, own[cut])
            if params.labels is not None:
                params.labels[part.start : part.stop] = labels
            _add(part.weights, labels, costs, params, into)


def nearest_by_gram(
    model: GramCentres, rows: Rows, diagonal: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest centre of every row, int32 (n,), and the squared distance to it."""
    relative = model.relative(rows)
    labels = relative.argmin(axis=1).astype(np.int32)
    return labels, clamped(diagonal + relative[np.arange(len(labels)), labels])


def _add(
    weights: np.ndarray | None,
    labels: np.ndarray,
    costs: np.ndarray,
    params: GramScoreParams,
    into: GramScore,
) -> None:
    clusters, n = into.clusters, params.n_rows
    clusters.sizes += np.bincount(labels, minlength=len(clusters.sizes))
    if weights is not None:
        costs = costs * weights
        accumulate_values(weights, labels, SumGrid.of(params.max_weight, n), *clusters.weights)
    into.largest = max(into.largest, float(costs.max(initial=0.0)))
    accumulate_values(costs, labels, SumGrid.of(params.bound, n), *clusters.costs)


GRAM_SCORE = Reduction(name="score", zero=_zero, chunk=_score_chunk, combine=GramScore.combine)
"""`GramScoreParams` -> `GramScore`."""


@dataclass(frozen=True, eq=False)
class GraphCentres(GramCentres):
    """Centres C_j, each a weighted sum of images of the rows of a graph.

    A new row is connected to its neighbours in the graph, whose degrees stay the same.

    Attributes
    ----------
    neighbourhoods : Neighbourhoods
    spread : ndarray of shape (n, k), float64
        The contribution of an edge to each row: D^-1 times the coefficients of the centres for the k-nn
        kernel, D^-1/2 U times them for the heat kernel exp(-t) + S U.
    heat_time : float or None
        t of the heat kernel; None for the k-nn kernel.
    """

    neighbourhoods: Neighbourhoods
    spread: np.ndarray
    heat_time: float | None = None

    def relative(self, rows: Rows) -> np.ndarray:
        pairs = self.neighbourhoods.pairs(rows)
        n = len(self.spread)
        twins = pairs.take(pairs.gaps == 0.0)
        return self.relative_to(pairs.matrix(n), twins.matrix(n))

    def relative_to(self, adjacency: Any, twins: Any) -> np.ndarray:
        """Return Q_j - 2 P_xj of rows with known neighbours, float64 (m, k).

        Parameters
        ----------
        adjacency, twins : CSR arrays of shape (m, n)
            Ones where rows are neighbours, and where they are at distance zero.
        """
        degrees = np.diff(adjacency.indptr)[:, None].astype(np.float64)
        found = adjacency @ self.spread
        if self.heat_time is None:
            return np.asarray(self.norms - 2.0 * (found / degrees))
        found /= np.sqrt(degrees)
        count = np.maximum(np.diff(twins.indptr), 1)[:, None]
        found += float(exp(-self.heat_time)) * ((twins @ self._coefficients()).toarray() / count)
        return np.asarray(self.norms - 2.0 * found)

    def _coefficients(self) -> Any:
        """Return the coefficients of rows in centres, a CSR array (n, k)."""
        from scipy.sparse import csr_array

        sums = self.sums
        where = sums.points.indices, sums.groups
        return csr_array((sums.factors, where), shape=self.spread.shape)
