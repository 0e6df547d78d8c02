"""Kernel k-means on a chunk: distances of rows to centres in the space of a Gram function.

With the kernel of a graph, rows have neighbours: pairs at most as far apart as one of them is from its
g-th nearest row. Distances estimated from products and norms only rule pairs out. The other pairs are
decided by differences in float64, which are bit-identical from either side, and all ties are neighbours. So
neighbours do not depend on the rounding of products, on the order of the rows, or on chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.chunkwise.statistics import Reduction
from daskcluster.elementary import exp
from daskcluster.kernels.accumulate import accumulate_values
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.methods.kernel.chunkwise.gram import (
    GramFunction,
    GramSums,
    row_cuts,
    rows_for_callers,
    squared_lengths,
)
from daskcluster.sparse_rows import Rows, SparseRows

_ESTIMATES = 4 << 20
"""Number of products computed at a time."""
_DIFFERENCES = 4 << 20
"""Number of differences of features computed at a time."""
_PANEL = 4096


@dataclass(frozen=True)
class Pairs:
    """Pairs of neighbours, sorted by rows and then by points.

    Attributes
    ----------
    n_rows : int
    rows, points : ndarrays of shape (p,), int64
    gaps : ndarray of shape (p,), float64
        Squared distances.
    """

    n_rows: int
    rows: np.ndarray
    points: np.ndarray
    gaps: np.ndarray

    def take(self, which: np.ndarray) -> Pairs:
        """Return some of the pairs."""
        return Pairs(self.n_rows, self.rows[which], self.points[which], self.gaps[which])

    def matrix(self, n_points: int) -> Any:
        """Return a CSR array (n_rows, n_points) with ones at the pairs."""
        from scipy.sparse import csr_array

        ends = np.searchsorted(self.rows, np.arange(self.n_rows + 1))
        return csr_array((np.ones(len(self.rows)), self.points, ends), (self.n_rows, n_points))


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """The rows of a fit and the radii of their neighbourhoods.

    Attributes
    ----------
    points : Rows, shape (n, d)
        Ready for the kernels.
    radii : ndarray of shape (n,), float64
        Squared distance of each to its g-th nearest row; the row itself is the first.
    n_neighbors : int
        g.

    Examples
    --------
    The new row 5 lies within the radius of 9, so 9 is a neighbour too.

    >>> import numpy as np
    >>> points = np.array([[3.0], [4.0], [9.0]])
    >>> known = Neighbourhoods(points, nearest(points, points, 2)[1], 2)
    >>> known.radii
    array([ 1.,  1., 25.])
    >>> known.pairs(np.array([[5.0]])).points
    array([0, 1, 2])
    """

    points: Rows
    radii: np.ndarray
    n_neighbors: int
    norms: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norms", squared_lengths(self.points))

    def pairs(self, rows: Rows) -> Pairs:
        """Return the points that are neighbours of rows; `rows` are ready for the kernels.

        A point is a neighbour if it is among the g nearest points of the row, or if the row is within the
        radius of the point. So rows of the fit have the same neighbours as in the fit.

        Notes
        -----
        Cost: n distances per row. Memory: about 100 MB, plus the pairs.
        """
        step = max(1, _ESTIMATES // max(1, len(self.points)))
        parts = []
        for first in range(0, len(rows), step):
            part = like(rows[first : first + step], self.points)
            found, own = _candidates(part, self, self.radii)
            kept = found.gaps <= np.maximum(own[found.rows], self.radii[found.points])
            parts.append((first, found.take(kept)))
        return _joined(parts, len(rows))


def nearest(rows: Rows, points: Rows, n_neighbors: int) -> tuple[Pairs, np.ndarray]:
    """Return the `n_neighbors` nearest points of every row, and the squared distance of the last of them.

    Points at the same distance as the last one are included.

    Parameters
    ----------
    rows, points : Rows
        Both dense or both CSR.
    n_neighbors : int

    Returns
    -------
    Pairs
    ndarray of shape (n,), float64
    """
    known = Neighbourhoods(points, np.empty(0), n_neighbors)
    step, parts, radii = max(1, _ESTIMATES // len(points)), [], np.empty(len(rows))
    for first in range(0, len(rows), step):
        found, own = _candidates(rows[first : first + step], known, None)
        radii[first : first + step] = own
        parts.append((first, found.take(found.gaps <= own[found.rows])))
    return _joined(parts, len(rows)), radii


def _joined(parts: list[tuple[int, Pairs]], n_rows: int) -> Pairs:
    if not parts:
        return Pairs(0, np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    rows = np.concatenate([first + part.rows for first, part in parts])
    points = np.concatenate([part.points for _, part in parts])
    return Pairs(n_rows, rows, points, np.concatenate([part.gaps for _, part in parts]))


def _candidates(
    rows: Rows, known: Neighbourhoods, radii: np.ndarray | None
) -> tuple[Pairs, np.ndarray]:
    """Return pairs that include all neighbours, and each row's squared distance to its g-th nearest."""
    g, own = known.n_neighbors, squared_lengths(rows)
    estimates = _estimates(rows, own, known)
    slack = rounding(own, known.norms, known.points.shape[1])
    threshold = (np.partition(estimates, g - 1, axis=1)[:, g - 1] + slack)[:, None]
    if radii is not None:
        threshold = np.maximum(threshold, radii + slack[:, None])
    i, j = np.nonzero(estimates <= threshold)
    gaps = squared_gaps(rows, i, known.points, j)
    return Pairs(len(rows), i, j, gaps), nth_of_each(i, gaps, len(rows), g)


def _estimates(rows: Rows, lengths: np.ndarray, known: Neighbourhoods) -> np.ndarray:
    wide, found = _wide(rows), np.empty((len(rows), len(known.points)))
    for first in range(0, len(known.points), _PANEL):
        panel = _wide(known.points[first : first + _PANEL])
        products = wide @ panel.T
        products = products if isinstance(products, np.ndarray) else products.toarray()
        found[:, first : first + _PANEL] = products
    found *= -2.0
    found += lengths[:, None]
    found += known.norms
    return found


def rounding(lengths: np.ndarray, norms: np.ndarray, n_features: int) -> np.ndarray:
    """Return twice a bound of the error of an estimated squared distance, for each row."""
    unit = np.finfo(np.float64).eps
    return np.asarray(4.0 * unit * (n_features + 8) * (lengths + norms.max(initial=0.0)))


def nth_of_each(rows: np.ndarray, values: np.ndarray, n_rows: int, nth: int) -> np.ndarray:
    """Return the `nth` smallest value of each row; `rows` ascend, and each has at least `nth` values."""
    order = np.lexsort((values, rows))
    return np.asarray(values[order][np.searchsorted(rows, np.arange(n_rows)) + nth - 1])


def squared_gaps(rows: Rows, i: np.ndarray, points: Rows, j: np.ndarray) -> np.ndarray:
    """Return squared distances of pairs, float64 (p,): bit-identical if rows and points are swapped."""
    found = np.empty(len(i))
    step = max(1, _DIFFERENCES // max(1, rows.shape[1]))
    for first in range(0, len(i), step):
        cut = slice(first, first + step)
        gap = _wide(rows[i[cut]]) - _wide(points[j[cut]])
        found[cut] = np.asarray((gap * gap).sum(axis=1)).ravel()
    return found


def like(rows: Rows, points: Rows) -> Rows:
    """Return rows in the form of `points`: an array or CSR."""
    if isinstance(points, SparseRows):
        return rows if isinstance(rows, SparseRows) else SparseRows.of(rows)
    return rows.toarray() if isinstance(rows, SparseRows) else rows


def _wide(rows: Rows) -> Any:
    return rows_for_callers(rows.astype(np.float64))


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


def nearest_of(relative: np.ndarray, diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest centre of every row, int64 (n,), and the squared distance to it.

    `relative` (n, k) are the squared distances minus K(x, x), which is `diagonal` (n,).
    """
    labels = relative.argmin(axis=1)
    return labels, clamped(diagonal + relative[np.arange(len(labels)), labels])


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
    labels, costs = nearest_of(model.relative(rows), diagonal)
    return labels.astype(np.int32), costs


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


GRAM_SCORE = Reduction(name="score", zero=_zero, chunk=_score_chunk)
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
        from scipy.sparse import csr_array

        degrees = np.diff(adjacency.indptr)[:, None].astype(np.float64)
        found = adjacency @ self.spread
        if self.heat_time is None:
            return np.asarray(self.norms - 2.0 * (found / degrees))
        found /= np.sqrt(degrees)
        count = np.maximum(np.diff(twins.indptr), 1)[:, None]
        where = self.sums.points.indices, self.sums.groups
        coefficients = csr_array((self.sums.factors, where), shape=self.spread.shape)
        found += float(exp(-self.heat_time)) * ((twins @ coefficients).toarray() / count)
        return np.asarray(self.norms - 2.0 * found)
