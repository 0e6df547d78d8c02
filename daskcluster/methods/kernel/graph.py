"""Gram matrices of neighbour graphs (k-nn and heat kernel) as sparse products, and their model.

With A the adjacency matrix (symmetric, with loops) and D its row sums, the k-nn kernel is D^-1 A D^-1,
and the heat kernel exp(-t L) of L = I - D^-1/2 A D^-1/2 (Chung 1997; the paper prints it without its
minus sign). The heat kernel is a dense matrix, but kernel k-means only asks for products with it:
exp(-t) times the Taylor series of exp(t D^-1/2 A D^-1/2), whose terms fall below 10^-13 of the sum
after some twenty for t = 1. Of long times, for which exp(-t) vanishes, it is a product of shorter ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskcluster.elementary import exp
from daskcluster.errors import InvalidDataError, InvalidParameterError, ModelFormatError
from daskcluster.methods.kernel.chunkwise.centres import GramCentres, GraphCentres
from daskcluster.methods.kernel.chunkwise.gram import (
    GramSums,
    Points,
    rows_for_callers,
    squared_lengths,
)
from daskcluster.methods.kernel.chunkwise.neighbours import (
    Neighbourhoods,
    Pairs,
    nearest,
    nth_of_each,
    rounding,
    squared_gaps,
)
from daskcluster.methods.kernel.minibatch.centres import Meter
from daskcluster.methods.kernel.model import KernelKMeansModel, row_arrays, support_arrays
from daskcluster.methods.minibatch.batches import whole
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, join_rows
from daskcluster.storage.document import read_count, read_number
from daskcluster.typing import Dataset

EXACT_ROWS = 12_000
"""Up to so many rows K(x, x) of the heat kernel is computed; above it is estimated."""
_PROBES = 64
_COLUMNS = 512
_LEFT_OUT = 1e-13
_LONGEST = 64.0
"""Heat of longer times is made of several pieces."""


@dataclass
class GraphGram:
    """The k-nn kernel, or with `heat_time` the heat kernel, of a graph.

    Parameters
    ----------
    adjacency : scipy.sparse array of shape (n, n), float64, CSR
        Ones where rows are neighbours: symmetric, with loops. Products with ones alone are the same bits on
        every machine; whether SciPy rounds a product before it adds it is up to its compiler.
    heat_time : float or None
    seed : int
        Of the probes that estimate the diagonal of a large heat kernel: signs z at random, of whose
        z * Kz the mean is K(x, x), with a standard error of ``sqrt(2 / 64)`` times the length of the
        rest of the row. Labels do not depend on it, only seeding and inertia do.
    """

    adjacency: Any
    heat_time: float | None = None
    seed: int = 0
    meter: Meter = field(default_factory=Meter)
    _own: np.ndarray | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        degrees = np.asarray(self.adjacency.sum(axis=1)).ravel()
        self._scale = 1.0 / (degrees if self.heat_time is None else np.sqrt(degrees))

    @property
    def n_rows(self) -> int:
        return int(self.adjacency.shape[0])

    @property
    def is_estimated(self) -> bool:
        """K(x, x) is estimated."""
        return self.heat_time is not None and self.n_rows > EXACT_ROWS

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Return K times vectors (n, m)."""
        began = time.perf_counter()
        found = self._step(vectors) if self.heat_time is None else self._heat(vectors)[0]
        self.meter.seconds += time.perf_counter() - began
        return np.asarray(found)

    def spread(self, vectors: np.ndarray) -> np.ndarray:
        """Return what the edges of a row from elsewhere bring of vectors (n, m).

        See `daskcluster.methods.kernel.chunkwise.centres`.
        """
        beyond = vectors if self.heat_time is None else self._heat(vectors)[1]
        return np.asarray(self._scale[:, None] * beyond)

    def _step(self, vectors: np.ndarray, factor: float = 1.0) -> np.ndarray:
        """Return S times vectors (n, m) times a factor, of S = D^-1 A D^-1 or D^-1/2 A D^-1/2."""
        scale = self._scale[:, None]
        found = self.adjacency @ (scale * vectors)
        found *= factor * scale
        return np.asarray(found)

    def _heat(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return K V and U V, of K = exp(-t) + S U."""
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

    def diagonal(self) -> np.ndarray:
        if self._own is None:
            self._own = self._diagonal()
        return self._own

    def _diagonal(self) -> np.ndarray:
        if self.heat_time is None:
            return np.asarray(self.adjacency.diagonal() * self._scale**2)
        n = self.n_rows
        if self.is_estimated:
            words = Key(self.seed, "heat kernel").words(0, n)
            signs = (
                (words[:, None] >> np.arange(_PROBES, dtype=np.uint64)) & np.uint64(1)
            ) * 2.0 - 1.0
            return np.asarray(np.maximum((signs * self.apply(signs)).mean(axis=1), 0.0))
        found = np.empty(n)
        for first in range(0, n, _COLUMNS):
            which = np.arange(first, min(first + _COLUMNS, n))
            found[which] = self.columns(which)[which, np.arange(len(which))]
        return found

    def columns(self, which: np.ndarray) -> np.ndarray:
        vectors = np.zeros((self.n_rows, len(which)))
        vectors[which, np.arange(len(which))] = 1.0
        return self.apply(vectors)

    def sums(self, factors: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
        vectors = np.zeros((self.n_rows, n_groups))
        vectors[np.arange(self.n_rows), groups] = factors
        self.meter.n_values += self.adjacency.nnz
        return self.apply(vectors)


KNN, HEAT = "knn", "heat"


@dataclass(frozen=True, eq=False)
class GraphKMeansModel(KernelKMeansModel):
    """A fitted kernel k-means whose kernel is that of a graph.

    See `daskcluster.methods.kernel.chunkwise.centres`.

    Attributes
    ----------
    supports, columns, starts
        All rows of the fit, in their order.
    rows, clusters, coefficients
        Which of them make up the centres, in which cluster, and how much.
    radii : ndarray of shape (n,), float64
        Squared distance of each row to its last neighbour.
    spread : ndarray of shape (n, k), float64
    n_neighbors : int
    heat_time : float
        Of the heat kernel.

    Raises
    ------
    ModelFormatError
        A value breaks a rule.
    """

    kind: ClassVar[str] = "graph-kmeans"
    kernels: ClassVar[tuple[str, ...]] = (KNN, HEAT)
    array_names: ClassVar[frozenset[str]] = KernelKMeansModel.array_names | {"radii", "spread"}

    radii: np.ndarray
    spread: np.ndarray
    n_neighbors: int
    heat_time: float

    def __post_init__(self) -> None:
        super().__post_init__()
        n, k = self.n_supports, self.n_clusters
        if self.radii.shape != (n,) or self.spread.shape != (n, k):
            raise ModelFormatError(
                f"radii of shape {self.radii.shape} and spread of shape {self.spread.shape} should be "
                f"({n},) and ({n}, {k})."
            )
        if not (np.isfinite(self.radii).all() and (self.radii >= 0.0).all()):
            raise ModelFormatError("radii should be finite and >= 0.")
        if not np.isfinite(self.spread).all():
            raise ModelFormatError("spread should be finite.")
        if not ((self.rows >= 0) & (self.rows < n)).all():
            raise ModelFormatError(f"numbers of rows should be in 0 to {n - 1}.")
        if not (1 <= self.n_neighbors <= n and self.heat_time > 0.0):
            raise ModelFormatError(
                f"n_neighbors={self.n_neighbors!r} should be in 1 to {n}, heat_time={self.heat_time!r} "
                "above 0."
            )

    @property
    def n_supports(self) -> int:
        return int(self.radii.size)

    def gram_centres(self) -> GraphCentres:
        """Return the centres as rows are compared with them."""
        points = Points(None, self.rows)
        sums = GramSums(self.gram, points, self.coefficients, self.clusters, self.n_clusters)
        known = Neighbourhoods(self.support_rows(), self.radii, self.n_neighbors)
        time = self.heat_time if self.kernel == HEAT else None
        return GraphCentres(sums, self.norms, known, self.spread, time)

    def own(self) -> dict[str, Any]:
        return {**super().own(), "n_neighbors": self.n_neighbors, "heat_time": self.heat_time}

    def facts(self) -> dict[str, Any]:
        found = {**super().facts(), "n_neighbors": self.n_neighbors}
        del found["gamma"]
        return found | ({"heat_time": self.heat_time} if self.kernel == HEAT else {})

    @classmethod
    def own_parts(cls, body: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **super().own_parts(body),
            "n_neighbors": read_count(body, "n_neighbors"),
            "heat_time": read_number(body, "heat_time"),
        }


def graph_arrays(centres: GraphCentres, n_features: int) -> dict[str, Any]:
    """Return the fields of a model that say what its centres are, and the graph around them."""
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


_SPARE = 8
"""Neighbours more than wanted that scikit-learn is asked for: ties, and what its rounding may swap."""
_MOST_TIES = 32
"""Times `n_neighbors`: more neighbours a row, on average, are not a graph of neighbours any more."""


@dataclass(frozen=True)
class NeighbourGraph:
    """Rows, their neighbours, and their twins, which are at no distance at all (each row among them).

    Attributes
    ----------
    neighbourhoods : Neighbourhoods
    adjacency, twins : CSR arrays of shape (n, n), float64
        Ones; symmetric.
    """

    neighbourhoods: Neighbourhoods
    adjacency: Any
    twins: Any


def neighbour_graph(dataset: Dataset, n_neighbors: int) -> NeighbourGraph:
    """Return the graph in which two rows are neighbours if either is among the nearest of the other.

    scikit-learn finds candidates, by trees where there are few features; exact distances decide
    (`daskcluster.methods.kernel.chunkwise.neighbours`), and ties are all in. A row is its own neighbour.

    Parameters
    ----------
    dataset : Dataset
        Its rows are read into memory, twice over while candidates are sought.
    n_neighbors : int
        The row itself among them.

    Raises
    ------
    InvalidParameterError
        There are fewer rows.
    InvalidDataError
        Too many rows are alike.
    """
    if n_neighbors > dataset.n_rows:
        raise InvalidParameterError(
            f"n_neighbors={n_neighbors} should be <= n_samples={dataset.n_rows}: a row is its own "
            "neighbour; pass fewer."
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
    """Return what `nearest` does of all points, from candidates where these are sure to suffice."""
    from sklearn.neighbors import NearestNeighbors  # workers open graphs and do not need it

    n, wanted = len(points), min(n_neighbors + _SPARE, len(points))
    wide = rows_for_callers(points.astype(np.float64))
    candidates = (
        NearestNeighbors(n_neighbors=wanted).fit(wide).kneighbors(wide, return_distance=False)
    )
    i, j = np.repeat(np.arange(n), wanted), np.sort(candidates, axis=1).ravel()
    gaps = squared_gaps(points, i, points, j)
    radii = nth_of_each(i, gaps, n, n_neighbors)
    lengths = squared_lengths(points)
    beyond = radii + rounding(lengths, lengths, points.shape[1])
    sure = (gaps.reshape(n, wanted).max(axis=1) > beyond) | (wanted == n)
    kept = sure[i] & (gaps <= radii[i])
    parts = [Pairs(n, i[kept], j[kept], gaps[kept])]
    unsure, total = np.flatnonzero(~sure), int(kept.sum())
    for which in np.array_split(unsure, -(-len(unsure) // 256)) if len(unsure) else []:
        found, radii[which] = nearest(points[which], points, n_neighbors)
        parts.append(Pairs(n, which[found.rows], found.points, found.gaps))
        total += len(found.rows)
        _refuse_ties(total, n_neighbors, n)
    return _in_order(parts), radii


def _refuse_ties(n_pairs: int, n_neighbors: int, n_rows: int) -> None:
    if n_pairs > _MOST_TIES * n_neighbors * n_rows:
        raise InvalidDataError(
            f"more than {n_pairs:,} pairs of {n_rows:,} rows are as near as the n_neighbors={n_neighbors} "
            f"nearest, {_MOST_TIES} times as many as without ties: rows are alike. Give each distinct "
            "row once, with sample_weight, or a kernel of two rows, such as 'rbf'."
        )


def _in_order(parts: list[Pairs]) -> Pairs:
    rows, points, gaps = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("rows", "points", "gaps")
    )
    order = np.lexsort((points, rows))
    return Pairs(parts[0].n_rows, rows[order], points[order], gaps[order])
