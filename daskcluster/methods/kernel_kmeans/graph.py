"""Gram matrices of neighbour graphs (k-nn and heat kernel) as sparse products, their model, and their fits.

With A the adjacency matrix (symmetric, with loops) and D its row sums, the k-nn kernel is D^-1 A D^-1,
and the heat kernel is exp(-t L) with L = I - D^-1/2 A D^-1/2 (Chung 1997; the paper prints it without its
minus sign). The heat kernel is a dense matrix, but kernel k-means only needs products with it:
exp(-t) times the Taylor series of exp(t D^-1/2 A D^-1/2). For t = 1, the terms fall below 10^-13 of the
sum after some twenty terms. For long times, at which exp(-t) underflows, it is a product of heat kernels
for shorter times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from daskcluster.elementary import exp
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidDataError, InvalidParameterError, ModelFormatError
from daskcluster.events import Callback, Notice, publish
from daskcluster.methods.kernel_kmeans.chunkwise import (
    GramCentres,
    GramFunction,
    GramSums,
    GraphCentres,
    Neighbourhoods,
    Pairs,
    Points,
    nearest,
    nth_of_each,
    rounding,
    rows_for_callers,
    squared_gaps,
    squared_lengths,
)
from daskcluster.methods.kernel_kmeans.model import KernelKMeansModel, row_arrays, support_arrays
from daskcluster.methods.minibatch.batches import order_bytes, whole
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, join_rows
from daskcluster.storage.document import check_numbers
from daskcluster.typing import Dataset

EXACT_ROWS = 12_000
"""Largest number of rows for which K(x, x) of the heat kernel is exact; it is estimated for more."""
PROBES = 64
COLUMNS = 512
_LEFT_OUT = 1e-13
_LONGEST = 64.0
"""Longest time of a single Taylor series; longer times are split."""


@dataclass
class GraphGram:
    """The k-nn kernel, or with `heat_time` the heat kernel, of a graph.

    Parameters
    ----------
    adjacency : scipy.sparse array of shape (n, n), float64, CSR
        Ones where rows are neighbours: symmetric, with loops. Only ones give the same bits on every
        machine, because SciPy's compiler decides whether products are rounded before they are added.
    heat_time : float or None
    seed : int
        Seed of the probes that estimate the diagonal of a large heat kernel. A probe is a vector z of
        random signs; K(x, x) is the mean of z * Kz, with a standard error of ``sqrt(2 / 64)`` times the
        length of the rest of the row. Seeding and inertia use the estimate, labels do not.
    n_values : int
        Number of Gram values used so far.
    """

    adjacency: Any
    heat_time: float | None = None
    seed: int = 0
    n_values: int = 0

    def __post_init__(self) -> None:
        degrees = np.asarray(self.adjacency.sum(axis=1)).ravel()
        self._scale = 1.0 / (degrees if self.heat_time is None else np.sqrt(degrees))

    @property
    def n_rows(self) -> int:
        return int(self.adjacency.shape[0])

    @property
    def is_estimated(self) -> bool:
        """Whether K(x, x) is estimated."""
        return self.heat_time is not None and self.n_rows > EXACT_ROWS

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Return K times `vectors` (n, m)."""
        return self._step(vectors) if self.heat_time is None else self._heat(vectors)[0]

    def spread(self, vectors: np.ndarray) -> np.ndarray:
        """Return the contribution of an edge from a new row to each row, for `vectors` (n, m).

        This is D^-1 V for the k-nn kernel and D^-1/2 U V for the heat kernel, with K = exp(-t) + S U; see
        `daskcluster.methods.kernel_kmeans.chunkwise.GraphCentres`.
        """
        beyond = vectors if self.heat_time is None else self._heat(vectors)[1]
        return np.asarray(self._scale[:, None] * beyond)

    def _step(self, vectors: np.ndarray, factor: float = 1.0) -> np.ndarray:
        """Return `factor` times S V, with S = D^-1 A D^-1 or D^-1/2 A D^-1/2 and V = `vectors` (n, m)."""
        scale = self._scale[:, None]
        found = self.adjacency @ (scale * vectors)
        found *= factor * scale
        return np.asarray(found)

    def _heat(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return K V and U V, where K = exp(-t) + S U."""
        t = float(self.heat_time or 0.0)
        n_pieces = max(1, math.ceil(t / _LONGEST))
        piece, beyond = t / n_pieces, np.zeros_like(vectors)
        for _ in range(n_pieces):
            step = self._beyond(vectors, piece)
            rest = float(exp(-piece))
            beyond = rest * beyond + step
            vectors = rest * vectors + self._step(step)
        return vectors, beyond

    def _beyond(self, vectors: np.ndarray, t: float) -> np.ndarray:
        """Return sum over m >= 1 of e^-t t^m / m! S^(m-1) V."""
        rest, order = float(exp(-t)), 1
        weight = t * rest
        left = 1.0 - rest - weight
        term = weight * vectors
        total = term.copy()
        while left > _LEFT_OUT and (order < t or weight > _LEFT_OUT):
            order += 1
            term = self._step(term, t / order)
            weight *= t / order
            left -= weight
            total += term
        return np.asarray(total)

    @cached_property
    def diagonal(self) -> np.ndarray:
        """K(x, x), float64 (n,)."""
        if self.heat_time is None:
            return np.asarray(self.adjacency.diagonal() * self._scale**2)
        n = self.n_rows
        if self.is_estimated:
            words = Key(self.seed, "heat kernel").words(0, n)
            bits = (words[:, None] >> np.arange(PROBES, dtype=np.uint64)) & np.uint64(1)
            signs = bits * 2.0 - 1.0
            return np.asarray(np.maximum((signs * self.apply(signs)).mean(axis=1), 0.0))
        found = np.empty(n)
        for first in range(0, n, COLUMNS):
            which = np.arange(first, min(first + COLUMNS, n))
            found[which] = self.columns(which)[which, np.arange(len(which))]
        return found

    def columns(self, which: np.ndarray) -> np.ndarray:
        vectors = np.zeros((self.n_rows, len(which)))
        vectors[which, np.arange(len(which))] = 1.0
        return self.apply(vectors)

    def product(
        self, rows: np.ndarray, factors: np.ndarray, groups: np.ndarray, n_groups: int
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function of row numbers; see `daskcluster.methods.kernel_kmeans.chunkwise.GramOperator`.

        Cost: for the k-nn kernel, the edges of the rows in C and of those that are asked for. The heat
        kernel is applied to all of C first, at the cost of an iteration on the full batch.
        """
        from scipy.sparse import csr_array

        where, shape = (rows, groups), (self.n_rows, n_groups)
        if self.heat_time is not None:
            whole = self.apply(csr_array((factors, where), shape=shape).toarray())
            return lambda which: whole[which]
        scaled = csr_array((factors * self._scale[rows], where), shape=shape)

        def rows_of_product(which: np.ndarray) -> np.ndarray:
            found = (self.adjacency[which] @ scaled).toarray()
            found *= self._scale[which, None]
            return np.asarray(found)

        return rows_of_product

    def sums(self, factors: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
        vectors = np.zeros((self.n_rows, n_groups))
        vectors[np.arange(self.n_rows), groups] = factors
        self.n_values += self.adjacency.nnz
        return self.apply(vectors)


KNN, HEAT = "knn", "heat"


@dataclass(frozen=True, eq=False)
class GraphKMeansModel(KernelKMeansModel):
    """A fitted kernel k-means with a graph's kernel.

    See `daskcluster.methods.kernel_kmeans.chunkwise.GraphCentres`.

    Attributes
    ----------
    supports, columns, starts
        All rows of the fit, in their order.
    rows, clusters, coefficients
        Number, cluster and coefficient of each row that is part of a centre.
    radii : ndarray of shape (n,), float64
        Squared distance of each row to its last neighbour.
    spread : ndarray of shape (n, k), float64
        As in `GraphCentres`.
    n_neighbors : int
    heat_time : float
        t of the heat kernel.

    Raises
    ------
    ModelFormatError
        A value is invalid.
    """

    kind: ClassVar[str] = "graph-kmeans"
    kernels: ClassVar[tuple[str, ...]] = (KNN, HEAT)

    radii: np.ndarray
    spread: np.ndarray
    n_neighbors: int
    heat_time: float

    def __post_init__(self) -> None:
        super().__post_init__()
        n, k = self.n_supports, self.n_clusters
        if self.radii.shape != (n,) or self.spread.shape != (n, k):
            raise ModelFormatError(
                f"radii and spread should have shapes ({n},) and ({n}, {k}), got {self.radii.shape} and "
                f"{self.spread.shape}."
            )
        if not (np.isfinite(self.radii).all() and (self.radii >= 0.0).all()):
            raise ModelFormatError("radii should be finite and >= 0.")
        if not np.isfinite(self.spread).all():
            raise ModelFormatError("spread should be finite.")
        check_numbers("rows", self.rows, n)
        if not (1 <= self.n_neighbors <= n and self.heat_time > 0.0):
            raise ModelFormatError(
                f"n_neighbors should be in 1 to {n}, got {self.n_neighbors!r}, and heat_time > 0, got "
                f"{self.heat_time!r}."
            )

    @property
    def n_supports(self) -> int:
        return int(self.radii.size)

    def gram_centres(self) -> GraphCentres:
        """Return the centres in the form that rows are compared with."""
        points = Points(None, self.rows)
        sums = GramSums(self.gram, points, self.coefficients, self.clusters, self.n_clusters)
        known = Neighbourhoods(self.support_rows(), self.radii, self.n_neighbors)
        time = self.heat_time if self.kernel == HEAT else None
        return GraphCentres(sums, self.norms, known, self.spread, time)

    def facts(self) -> dict[str, Any]:
        found = {**super().facts(), "n_neighbors": self.n_neighbors}
        del found["gamma"]
        return found | ({"heat_time": self.heat_time} if self.kernel == HEAT else {})


def graph_arrays(centres: GraphCentres, n_features: int) -> dict[str, Any]:
    """Return the fields of a model that describe its centres and its graph."""
    known, sums = centres.neighbourhoods, centres.sums
    points = Points(known.points[sums.points.indices], sums.points.indices)
    placed = GramSums(sums.gram, points, sums.factors, sums.groups, sums.n_groups)
    return {
        **support_arrays(GramCentres(placed, centres.norms), n_features),
        **row_arrays(known.points),
        "radii": known.radii,
        "spread": centres.spread,
        "n_neighbors": known.n_neighbors,
        "heat_time": 1.0 if centres.heat_time is None else centres.heat_time,
    }


SPARE = 8
"""Extra neighbours requested from scikit-learn, for ties and pairs that its rounding may swap."""
_MOST_TIES = 32
"""Largest mean number of neighbours per row, in multiples of `n_neighbors`; more are refused."""


@dataclass(frozen=True)
class NeighbourGraph:
    """Rows, their neighbours, and their twins: rows at distance zero, including the row itself.

    Attributes
    ----------
    neighbourhoods : Neighbourhoods
    adjacency, twins : CSR arrays of shape (n, n), float64
        Ones for pairs of neighbours and of twins; symmetric.
    """

    neighbourhoods: Neighbourhoods
    adjacency: Any
    twins: Any


def neighbour_graph(dataset: Dataset, n_neighbors: int) -> NeighbourGraph:
    """Return the graph in which two rows are neighbours if either is among the nearest of the other.

    scikit-learn finds candidates, with trees if there are few features. Exact distances then decide
    (`daskcluster.methods.kernel_kmeans.chunkwise`), and all ties are neighbours. A row is its own
    neighbour.

    Parameters
    ----------
    dataset : Dataset
        Its rows are read into memory, with a second copy during the search for candidates.
    n_neighbors : int
        Number of nearest rows, including the row itself.

    Raises
    ------
    InvalidParameterError
        There are fewer than `n_neighbors` rows.
    InvalidDataError
        Too many rows are equal.
    """
    if n_neighbors > dataset.n_rows:
        raise InvalidParameterError(
            f"n_neighbors={n_neighbors} should be <= n_samples={dataset.n_rows} (each row counts as its "
            "own neighbour); pass a smaller n_neighbors."
        )
    blocks = [block.rows for block in whole(dataset).blocks()]
    points = join_rows(blocks)[np.arange(dataset.n_rows)]  # a copy: the caller may change its rows
    found, radii = _nearest(points, n_neighbors)
    directed = found.matrix(dataset.n_rows)
    both = directed.maximum(directed.T).tocsr()
    both.sort_indices()
    twins = found.take(found.gaps == 0.0).matrix(dataset.n_rows)
    return NeighbourGraph(Neighbourhoods(points, radii, n_neighbors), both, twins)


def _nearest(points: Rows, n_neighbors: int) -> tuple[Pairs, np.ndarray]:
    """Return the same as ``nearest(points, points)``, by candidates where these certainly suffice."""
    from sklearn.neighbors import NearestNeighbors  # deferred: workers do not need it

    n, wanted = len(points), min(n_neighbors + SPARE, len(points))
    wide = rows_for_callers(points.astype(np.float64))
    search = NearestNeighbors(n_neighbors=wanted).fit(wide)
    candidates = search.kneighbors(wide, return_distance=False)
    i, j = np.repeat(np.arange(n), wanted), np.sort(candidates, axis=1).ravel()
    gaps = squared_gaps(points, i, points, j)
    radii = nth_of_each(i, gaps, n, n_neighbors)
    lengths = squared_lengths(points)
    beyond = radii + rounding(lengths, lengths, points.shape[1])
    sure = (gaps.reshape(n, wanted).max(axis=1) > beyond) | (wanted == n)
    kept = sure[i] & (gaps <= radii[i])
    parts = [(i[kept], j[kept], gaps[kept])]
    unsure, total = np.flatnonzero(~sure), int(kept.sum())
    for which in np.array_split(unsure, -(-len(unsure) // 256)) if len(unsure) else []:
        found, radii[which] = nearest(points[which], points, n_neighbors)
        parts.append((which[found.rows], found.points, found.gaps))
        total += len(found.rows)
        _refuse_ties(total, n_neighbors, n)
    i, j, gaps = map(np.concatenate, zip(*parts, strict=True))
    order = np.lexsort((j, i))
    return Pairs(n, i[order], j[order], gaps[order]), radii


def _refuse_ties(n_pairs: int, n_neighbors: int, n_rows: int) -> None:
    if n_pairs > _MOST_TIES * n_neighbors * n_rows:
        raise InvalidDataError(
            f"too many rows are alike: {n_pairs:,} pairs of {n_rows:,} rows are as near as the "
            f"n_neighbors={n_neighbors} nearest, over {_MOST_TIES} times as many as without ties. Pass "
            "each distinct row once, with its count as sample_weight, or use a kernel of two rows, such "
            "as 'rbf'."
        )


def graph_and_matrix(
    estimator: Any, rows: ScaledPlacement, seed: int, callbacks: Sequence[Callback]
) -> tuple[NeighbourGraph, GraphGram]:
    """Return the graph of the rows of a fit and its Gram matrix. Two passes: NaN, and the rows."""
    rows.known()  # looks for NaN
    graph = neighbour_graph(rows.placement.dataset, int(estimator.n_neighbors))
    heat = float(estimator.heat_time) if estimator.kernel == HEAT else None
    gram = GraphGram(graph.adjacency, heat, seed)
    if gram.is_estimated:
        text = (
            f"K(x, x) of the heat kernel is an estimate for {gram.n_rows:,} rows; seeding and inertia "
            "use it, labels do not."
        )
        publish(callbacks, Notice(text))
    return graph, gram


def graph_centres(centres: GramCentres, gram: GraphGram, graph: NeighbourGraph) -> GraphCentres:
    """Return centres of rows of a graph, each row once a centre, so that they label new rows too."""
    found = centres.sums
    where = found.points.indices, found.groups
    # Without the matrix, which new rows do not need.
    sums = GramSums(
        GramFunction(found.gram.name), found.points, found.factors, found.groups, centres.k
    )
    coefficients = np.zeros((gram.n_rows, centres.k))
    coefficients[where] = sums.factors
    spread = gram.spread(coefficients)
    return GraphCentres(sums, centres.norms, graph.neighbourhoods, spread, gram.heat_time)


def graph_footprint(dataset: Dataset, parameters: Mapping[str, Any]) -> Footprint:
    """Return the memory that a fit with the kernel of a graph needs, unless many rows tie.

    It holds the rows, read and copied, and in float64 for the search of neighbours; some twenty numbers for
    each neighbour; and six numbers for each row and column that a product with the matrix has.
    """
    n, n_neighbors = dataset.n_rows, int(parameters["n_neighbors"])
    columns = int(parameters["n_clusters"])
    if parameters["kernel"] == HEAT:
        columns = max(columns, COLUMNS if n <= EXACT_ROWS else PROBES)
    row_bytes = 16 * dataset.n_features + order_bytes(dataset)
    taken = n * (row_bytes + 160 * (n_neighbors + SPARE) + 48 * columns)
    return Footprint(home_bytes=taken + (0 if dataset.in_memory else dataset.bytes_of((0, n))))


def weights_of(dataset: Dataset) -> np.ndarray:
    """Return the weights of rows, float64 (n,); ones if there are none."""
    weights = dataset.weights
    return np.ones(dataset.n_rows) if weights is None else np.asarray(weights, float)
