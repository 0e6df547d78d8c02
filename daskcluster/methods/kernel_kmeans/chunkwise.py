"""Kernel k-means on a chunk: Gram functions of rows and points, and distances to centres in their space.

With the kernel of a graph, rows have neighbours: pairs at most as far apart as one of them is from its
g-th nearest row. Distances estimated from products and norms only rule pairs out. The other pairs are
decided by differences in float64, which are bit-identical from either side, and all ties are neighbours. So
neighbours do not depend on the rounding of products, on the order of the rows, or on chunks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.chunkwise.centres import csr
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.chunkwise.statistics import Reduction
from daskcluster.elementary import exp
from daskcluster.errors import InvalidDataError
from daskcluster.kernels.accumulate import accumulate_values
from daskcluster.kernels.jit import read_only
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.methods.kernel_kmeans import kernels
from daskcluster.sparse_rows import Rows, SparseRows, join_rows

_TERMS = {
    "rbf": kernels.SQUARE,
    "laplacian": kernels.ABSOLUTE,
    "polynomial": kernels.PRODUCT,
    "linear": kernels.PRODUCT,
    "cosine": kernels.PRODUCT,
}
VECTOR_GRAMS = tuple(_TERMS)
"""Names of the Gram functions that compiled kernels compute."""
FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Registered Gram functions, by name; see `daskcluster.methods.kernel_kmeans.fit.register_gram`."""
PRECOMPUTED = "precomputed"
CALLABLE = "callable"

_VALUES_BYTES = 8 << 20
"""Bytes of Gram values that a callable returns at a time, or of CSR rows that are made dense."""
_NONE: Mapping[str, Any] = MappingProxyType({})


class GramOperator(Protocol):
    """The matrix of K(x, y) for known rows, which is multiplied with columns and not read."""

    @property
    def diagonal(self) -> np.ndarray:
        """K(x, x), float64 (n,)."""

    def product(
        self, rows: np.ndarray, factors: np.ndarray, groups: np.ndarray, n_groups: int
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function that maps row numbers (m,) to these rows of K C, float64 (m, n_groups).

        C (n, n_groups) has `factors` at (`rows`, `groups`), and zeros elsewhere.
        """


@dataclass(frozen=True)
class GramFunction:
    """A Mercer kernel K.

    Attributes
    ----------
    name : str
        rbf: exp(-gamma |x - y|^2); laplacian: exp(-gamma |x - y|_1); polynomial:
        (gamma x.y + coef0)^degree; linear: x.y; cosine: x.y of rows scaled to length one;
        precomputed: the rows are those of the matrix K; callable; or the kernel of a graph.
    gamma, degree, coef0
    function : callable (X, Y, **parameters) -> ndarray of shape (len(X), len(Y))
        The function of ``"callable"`` or of a registered name.
    parameters : mapping
        Further arguments of `function`.
    operator : GramOperator or None
        The matrix of a graph; then rows are given by their numbers, an array of int64.
    """

    name: str = "rbf"
    gamma: float = 1.0
    degree: int = 1
    coef0: float = 0.0
    function: Callable[..., Any] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    operator: GramOperator | None = None

    @property
    def normalize(self) -> bool:
        """Whether rows are scaled to length one first."""
        return self.name == "cosine"

    def chunk(self, chunk: Chunk) -> Chunk:
        """Return a chunk whose rows are normalized if the function needs it."""
        return replace(chunk, normalize=self.normalize)

    @property
    def is_precomputed(self) -> bool:
        return self.name == PRECOMPUTED

    @property
    def by_number(self) -> bool:
        """Whether points are row numbers alone."""
        return self.is_precomputed or self.operator is not None

    @property
    def is_function(self) -> bool:
        """Whether values come from `function`."""
        return self.name == CALLABLE or self.function is not None

    @property
    def term(self) -> int:
        """The kind of term that the kernels sum over features."""
        return _TERMS[self.name]

    @property
    def numbers(self) -> tuple[float, float, int]:
        """Scale, shift and degree, the arguments of the kernels."""
        if self.name == "polynomial":
            return float(self.gamma), float(self.coef0), int(self.degree)
        return (1.0 if self.term == kernels.PRODUCT else -float(self.gamma)), 0.0, 1

    def diagonal(self, rows: Rows, indices: np.ndarray) -> np.ndarray:
        """Return K(x, x) of rows that are ready for the kernels, float64 (n,).

        Parameters
        ----------
        rows : Rows, shape (n, d)
        indices : ndarray of shape (n,)
            Their global row numbers: the columns of the diagonal in precomputed rows.
        """
        if self.operator is not None:
            return self.operator.diagonal[indices]
        if self.name in ("rbf", "laplacian"):
            return np.ones(len(rows))
        if self.is_precomputed:
            return np.array([float(rows[i][at]) for i, at in enumerate(indices)])
        if self.is_function:
            ones = (self.values(rows[i : i + 1], rows[i : i + 1]) for i in range(len(rows)))
            return np.array([float(one[0, 0]) for one in ones])
        squares = squared_lengths(rows)
        if self.name == "polynomial":
            base = self.gamma * squares + self.coef0
            found = base.copy()
            for _ in range(1, self.degree):
                found *= base
            return found
        return squares

    def values(self, rows: Rows, points: Rows) -> np.ndarray:
        """Return the checked values of the callable on rows and points, float64 (n, m)."""
        assert self.function is not None
        found = self.function(rows_for_callers(rows), rows_for_callers(points), **self.parameters)
        values = np.ascontiguousarray(found, np.float64)
        if values.shape != (len(rows), len(points)) or not np.isfinite(values).all():
            raise InvalidDataError(
                f"kernel(X, Y) returned shape {values.shape}, or values that are not finite, for "
                f"{len(rows)} and {len(points)} rows; it should return a finite array of shape "
                "(len(X), len(Y))."
            )
        return values


def squared_lengths(rows: Rows) -> np.ndarray:
    """Return squared Euclidean lengths, float64 (n,)."""
    if isinstance(rows, SparseRows):
        found, filled = np.zeros(len(rows)), np.diff(rows.indptr) > 0
        if filled.any():
            squares = rows.data.astype(np.float64) ** 2
            found[filled] = np.add.reduceat(squares, rows.offsets[:-1][filled])
        return found
    wide = rows.astype(np.float64, copy=False)
    return np.asarray((wide * wide).sum(axis=1))


def rows_for_callers(rows: Rows) -> Any:
    """Return rows in the form that functions of users take: an array, or a SciPy CSR array."""
    if not isinstance(rows, SparseRows):
        return rows
    from scipy.sparse import csr_array

    return csr_array((rows.data, rows.indices, rows.offsets), shape=rows.shape)


@dataclass(frozen=True, eq=False)
class Points:
    """Rows that a Gram function is evaluated at.

    Attributes
    ----------
    rows : Rows, shape (m, d), or None
        Ready for the kernels (`daskcluster.chunk.Chunk.blocks`); None for precomputed values and graphs.
    indices : ndarray of shape (m,), int64
        Their global row numbers: columns of precomputed values.
    """

    rows: Rows | None
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, which: np.ndarray | slice) -> Points:
        """Return some of the points: a copy, or a view of a slice."""
        rows = None if self.rows is None else self.rows[which]
        return Points(rows, self.indices[which])


def join_points(parts: Sequence[Points]) -> Points:
    """Return the concatenation of points."""
    indices = np.concatenate([part.indices for part in parts])
    rows = [part.rows for part in parts if part.rows is not None]
    return Points(join_rows(rows) if rows else None, indices)


@dataclass(eq=False)
class GramSums:
    """Sums over groups of points: ``S_g(x) = sum over y in g of factor(y) K(x, y)``.

    Threads of a task share it. Packed points are not pickled.

    Parameters
    ----------
    gram : GramFunction
    points : Points
    factors : ndarray of shape (m,), float64
    groups : ndarray of shape (m,), int64
    n_groups : int
    """

    gram: GramFunction
    points: Points
    factors: np.ndarray
    groups: np.ndarray
    n_groups: int

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._panels: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return GramSums, (self.gram, self.points, self.factors, self.groups, self.n_groups)

    def __call__(self, rows: Rows, out: np.ndarray | None = None) -> np.ndarray:
        """Return S of rows that are ready for the kernels, float64 (n, n_groups); OUT: out."""
        if out is None:
            out = np.empty((len(rows), self.n_groups))
        if len(self.points) == 0:
            out[:] = 0.0
        elif self.gram.operator is not None:
            out[:] = self._made("product", rows.dtype)(rows)
        elif self.gram.is_precomputed or self.gram.is_function:
            self._sum_values(rows, out)
        elif isinstance(rows, SparseRows):
            points = self._made("csr", rows.dtype)
            given = self.factors, self.groups.astype(np.int64), self.gram.term, self.gram.numbers
            kernels.gram_sums_sparse(csr(rows), csr(points), *given, rows.n_features, out)
        else:
            panels = self._made("panels", rows.dtype)
            kernels.gram_sums(
                rows, panels, self.factors, self.groups, self.gram.term, self.gram.numbers, out
            )
        return out

    def squared_norms(self) -> np.ndarray:
        """Return ``<S_g, S_g> = sum over y in g of factor(y) S_g(y)``, (n_groups,), for known rows."""
        own = self(self.points.indices)[np.arange(len(self.points)), self.groups]
        return np.bincount(self.groups, self.factors * own, minlength=self.n_groups)

    def _sum_values(self, rows: Rows, out: np.ndarray) -> None:
        columns, width = self.points.indices, rows.shape[1]
        if not self.gram.is_precomputed:
            columns, width = np.arange(len(self.points)), len(self.points)
        elif not isinstance(rows, SparseRows):
            kernels.add_columns(read_only(rows), columns, self.factors, self.groups, out)
            return
        step = max(1, _VALUES_BYTES // (8 * width))
        for first in range(0, len(rows), step):
            part, found = rows[first : first + step], out[first : first + step]
            if self.gram.is_precomputed:
                assert isinstance(part, SparseRows)
                values = part.toarray()
            else:
                kind = "csr" if isinstance(part, SparseRows) else "dense"
                values = self.gram.values(part, self._made(kind, part.dtype))
            kernels.add_columns(read_only(values), columns, self.factors, self.groups, found)

    def _made(self, kind: str, dtype: np.dtype[Any]) -> Any:
        """Return the points in the form `kind` ("csr", "panels" or "dense") and dtype. Made once.

        "product" is their product with the matrix of a graph.
        """
        with self._lock:
            if (kind, dtype) not in self._panels:
                self._panels[kind, dtype] = self._make(kind, dtype)
            return self._panels[kind, dtype]

    def _make(self, kind: str, dtype: np.dtype[Any]) -> Any:
        if self.gram.operator is not None:
            where = self.points.indices, self.factors, self.groups
            return self.gram.operator.product(*where, self.n_groups)
        rows = self.points.rows
        assert rows is not None
        if kind == "csr":
            rows = rows if isinstance(rows, SparseRows) else SparseRows.of(rows)
            return rows.astype(dtype)
        dense = rows.toarray() if isinstance(rows, SparseRows) else rows
        dense = np.ascontiguousarray(dense, dtype)
        return kernels.pack_points(dense) if kind == "panels" else dense


def row_cuts(n_rows: int, n_groups: int) -> Iterator[slice]:
    """Yield slices of rows whose sums take at most a few megabytes."""
    step = max(32, _VALUES_BYTES // (8 * max(1, n_groups)) // 32 * 32)
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))


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

    @cached_property
    def norms(self) -> np.ndarray:
        """Squared lengths of the points."""
        return squared_lengths(self.points)

    def pairs(self, rows: Rows) -> Pairs:
        """Return the points that are neighbours of rows; `rows` are ready for the kernels.

        A point is a neighbour if it is among the g nearest points of the row, or if the row is within the
        radius of the point. So rows of the fit have the same neighbours as in the fit.

        Notes
        -----
        Cost: n distances per row. Memory: about 100 MB, plus the pairs.
        """
        step = max(1, _ESTIMATES // max(1, len(self.points)))
        parts, g = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))], self.n_neighbors
        for first in range(0, len(rows), step):
            part = like(rows[first : first + step], self.points)
            lengths = squared_lengths(part)
            estimates = _estimates(part, lengths, self)
            slack = rounding(lengths, self.norms, self.points.shape[1])
            threshold = np.partition(estimates, g - 1, axis=1)[:, g - 1] + slack
            reached = np.maximum(threshold[:, None], self.radii + slack[:, None])
            i, j = np.nonzero(estimates <= reached)
            gaps = squared_gaps(part, i, self.points, j)
            own = nth_of_each(i, gaps, len(part), g)
            kept = gaps <= np.maximum(own[i], self.radii[j])
            parts.append((first + i[kept], j[kept], gaps[kept]))
        return Pairs(len(rows), *map(np.concatenate, zip(*parts, strict=True)))


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
    found = Neighbourhoods(points, np.zeros(len(points)), n_neighbors).pairs(rows)
    starts = np.searchsorted(found.rows, np.arange(len(rows)))
    return found, np.maximum.reduceat(found.gaps, starts)


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


def nearest_of(relative: np.ndarray, diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest centre of every row, int64 (n,), and the squared distance to it.

    `relative` (n, k) are the squared distances minus K(x, x), which is `diagonal` (n,). Negative ones
    (rounding, or not a Mercer kernel) count as 0.
    """
    labels = relative.argmin(axis=1)
    return labels, np.maximum(diagonal + relative[np.arange(len(labels)), labels], 0.0)


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
        found[place] = np.sqrt(np.maximum(model.relative(block.rows) + own[:, None], 0.0))
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
    model, clusters, n = params.model, into.clusters, params.n_rows
    for block, _ in _blocks(chunk, model):
        own = model.gram.diagonal(block.rows, np.arange(block.start, block.stop))
        for cut in row_cuts(block.n_rows, model.k):
            part = block.slice(cut.start, cut.stop)
            nearest, costs = nearest_of(model.relative(part.rows), own[cut])
            labels, weights = nearest.astype(np.int32), part.weights
            if params.labels is not None:
                params.labels[part.start : part.stop] = labels
            clusters.sizes += np.bincount(labels, minlength=len(clusters.sizes))
            if weights is not None:
                costs = costs * weights
                grid = SumGrid.of(params.max_weight, n)
                accumulate_values(weights, labels, grid, *clusters.weights)
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
