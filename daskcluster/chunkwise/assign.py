"""Chunkwise assignment: nearest centres, sufficient statistics, distances and labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.chunkwise.exact_sum import Grids, Scale
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.chunkwise.statistics import Additive, KMeansStatistics, LeastRows, Reduction
from daskcluster.fingerprint import NO_MATTER
from daskcluster.kernels.accumulate import accumulate_values


@dataclass(frozen=True)
class AssignParams:
    """Centres to assign to, and the scale of the sums.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    scale : Scale
    labels : ndarray of shape (n,), int32, or None
        Array of labels by global row index (only within one process).
    labelled : bool
        `labels` already belong to `centres`, so rows are not labelled again.
    changes : bool
        `labels` belong to earlier centres, and the statistics are the changes caused by rows that change
        clusters. Only in `ASSIGN`.
    most : int
        Number of farthest rows to find, in `FARTHEST`.
    search : FixedSearch, optional
        As for `PreparedCentres`.
    """

    centres: np.ndarray
    scale: Scale
    labels: np.ndarray | None = None
    labelled: bool = False
    changes: bool = False
    most: int = 0
    search: FixedSearch | None = field(default=None, metadata=NO_MATTER)


class PreparedAssignment:
    """Prepared `AssignParams`."""

    def __init__(self, params: AssignParams) -> None:
        self.params = params
        self.centres = PreparedCentres(params.centres, search=params.search)
        self.grids = Grids.of(params.scale)

    def room(self, block: Chunk) -> np.ndarray:
        """Return the array for the labels of `block`."""
        if self.params.labels is None:
            return np.empty(block.n_rows, np.int32)
        return self.params.labels[block.start : block.stop]

    def measure(self, block: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels of rows, and the squared distances to their centres."""
        labels, distances = self.room(block), np.empty(block.n_rows)
        if not self.params.labelled:
            self.centres.nearest(block.rows, labels)
        self.centres.sqdist_to_assigned(block.rows, labels, distances)
        return labels, distances


# -- S and v of the nearest centres: one Lloyd pass -------------------------------------------------


class _Assign(PreparedAssignment):
    def zero(self) -> KMeansStatistics:
        (k, d), scale = self.params.centres.shape, self.params.scale
        return KMeansStatistics.zero(k, d, weighted=scale.weighted, two_grids=scale.two_grids)

    def add(self, chunk: Chunk, into: KMeansStatistics) -> None:
        params, centres, grids = self.params, self.centres, self.grids
        centres.expect(chunk.n_rows)
        for block in chunk.blocks() if into.sums_low is None else chunk.cache_blocks():
            labels = self.room(block)
            if into.sums_low is None and not params.labelled:
                sums = grids.sums.high, into.sums, into.counts
                centres.nearest_and_sum(block.rows, labels, *sums, moving=params.changes)
                continue
            old = labels.copy() if params.changes else labels
            if not params.labelled:
                centres.nearest(block.rows, labels)
            if params.changes:
                which = np.flatnonzero(labels != old)
                weights = None if block.weights is None else block.weights[which]
                grids.move(block.rows, which, weights, old[which], labels[which], into)
            else:
                grids.add(block.rows, labels, block.weights, into)


ASSIGN = Reduction("assign", prepare=_Assign)
"""`AssignParams` -> `KMeansStatistics` of the nearest centres, or their changes."""


# -- labels and inertia, by direct differences ------------------------------------------------------


@dataclass
class ScoreStatistics(Additive):
    """Size, weight and cost of every cluster under given centres, exact on two grids.

    Attributes
    ----------
    sizes : ndarray of shape (k,), int64
        Rows nearest to each centre.
    weights, costs : ndarray of shape (2, k)
        Their total weight, and weighted sum of squared distances: high and low parts.
    """

    sizes: np.ndarray
    weights: np.ndarray
    costs: np.ndarray

    @property
    def inertia(self) -> float:
        return float(self.costs[0].sum() + self.costs[1].sum())

    def cluster_weights(self, *, weighted: bool) -> np.ndarray:
        """Return the weight of every cluster, float64 (k,); its size if rows have no weights."""
        return self.weights.sum(axis=0) if weighted else self.sizes.astype(np.float64)


class Score(PreparedAssignment):
    """Prepared `AssignParams` of `SCORE`."""

    def __init__(self, params: AssignParams) -> None:
        super().__init__(params)
        self._costs = params.scale.distances(params.centres)

    def zero(self) -> ScoreStatistics:
        """Return the statistics of no rows."""
        k = len(self.params.centres)
        return ScoreStatistics(np.zeros(k, np.int64), np.zeros((2, k)), np.zeros((2, k)))

    def add(self, chunk: Chunk, into: ScoreStatistics) -> None:
        """Add a chunk to the statistics."""
        self.centres.expect(chunk.n_rows)
        for block in chunk.cache_blocks(least=self.params.centres.dtype):
            self.add_block(block, into)

    def add_block(self, block: Chunk, into: ScoreStatistics) -> tuple[np.ndarray, np.ndarray]:
        """Add rows to the statistics of their clusters; return their labels and squared distances."""
        labels, sqdist = self.measure(block)
        costs = sqdist
        into.sizes += np.bincount(labels, minlength=len(into.sizes))
        if block.weights is not None:
            costs = sqdist * block.weights
            accumulate_values(block.weights, labels, self.grids.weights, *into.weights)
        accumulate_values(costs, labels, self._costs, *into.costs)
        return labels, sqdist


SCORE = Reduction("score", prepare=Score)
"""`AssignParams` -> `ScoreStatistics`."""


# -- the farthest rows, for empty clusters ----------------------------------------------------------


class _Farthest(PreparedAssignment):
    def zero(self) -> LeastRows:
        labels, weights = np.empty(0, np.int32), np.empty(0)
        return LeastRows.zero(self.params.most, self.params.centres, labels, weights)

    def add(self, chunk: Chunk, into: LeastRows) -> None:
        self.centres.expect(chunk.n_rows)
        for block in chunk.cache_blocks():
            labels, distances = self.measure(block)
            weights = np.ones(block.n_rows) if block.weights is None else block.weights
            # A row without weight never becomes a centre.
            kept = np.flatnonzero((weights > 0.0) & (-distances <= into.limit))
            into.add(-distances, kept, block.start, block.rows, labels, weights)


FARTHEST = Reduction("farthest rows", prepare=_Farthest)
"""`AssignParams` -> `LeastRows`: the `most` rows farthest from their nearest centres.

Keys are negative squared distances; facts are labels and weights.
"""


# -- per-row results ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowFunction:
    """A function of rows under a fitted model: labels, distances, posteriors, densities.

    Attributes
    ----------
    compute : callable (chunk, prepared) -> ndarray of shape (n,) or (n, width)
        A module-level function, e.g. `label_rows`.
    params : object
        Plain values that travel to tasks.
    prepare : callable (params) -> prepared, optional
        Called once per task; None if `compute` takes `params`.
    dtype : dtype
        The dtype of the results. Each field of a structured one is an array of its own in a store.
    width : int
        The number of values per row; 0 for one.
    name : str
        The name of the pass in events.
    normalize : bool
        Rows are scaled to length one, for the cosine metric.
    """

    compute: Callable[[Chunk, Any], np.ndarray]
    params: Any
    prepare: Callable[[Any], Any] | None = None
    dtype: np.dtype[Any] = np.dtype(np.int32)  # noqa: RUF009 (a dtype never changes)
    width: int = 0
    name: str = "labels"
    normalize: bool = False

    def ready(self) -> Callable[[Chunk], np.ndarray]:
        """Return the function of a chunk, with prepared parameters; called once per task."""
        prepared = self.params if self.prepare is None else self.prepare(self.params)
        return lambda chunk: self.compute(
            replace(chunk, normalize=chunk.normalize or self.normalize), prepared
        )


@dataclass(frozen=True)
class RowParams:
    """Centres for per-row results; see `label_rows` and its siblings.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    most : int
        Number of nearest centres that `nearest_rows` returns; 0 for one, of shape (n,).
    parents : ndarray of shape (k,), int32, optional
        `label_rows` returns these in place of the clusters.
    search : FixedSearch, optional
        As for `PreparedCentres`.
    """

    centres: np.ndarray
    most: int = 0
    parents: np.ndarray | None = None
    search: FixedSearch | None = None


def prepare_rows(params: RowParams) -> tuple[RowParams, PreparedCentres]:
    """Prepare the centres, once per task."""
    return params, PreparedCentres(params.centres, search=params.search)


def label_rows(chunk: Chunk, prepared: tuple[RowParams, PreparedCentres]) -> np.ndarray:
    """Return the index of the nearest centre of every row, or its parent, int32 (n,)."""
    params, centres = prepared
    labels = np.empty(chunk.n_rows, np.int32)
    centres.expect(chunk.n_rows)
    for block in chunk.cache_blocks(least=params.centres.dtype):
        refuse_bad(block)
        centres.nearest(block.rows, labels[block.place_in(chunk)])
    return labels if params.parents is None else params.parents[labels]


def distance_rows(chunk: Chunk, prepared: tuple[RowParams, PreparedCentres]) -> np.ndarray:
    """Return Euclidean distances to all centres in the rows' dtype, (n, k)."""
    params, centres = prepared
    parts = [
        np.sqrt(_all_distances(block, centres)).astype(params.centres.dtype)
        for block in chunk.cache_blocks(least=params.centres.dtype)
    ]
    return np.concatenate(parts)


def nearest_rows(chunk: Chunk, prepared: tuple[RowParams, PreparedCentres]) -> np.ndarray:
    """Return the `most` nearest centres of every row, ascending, as a structured array (n, most) or (n,).

    Fields are ``label`` (int32) and ``distance`` (Euclidean, in the rows' dtype). The first label is
    that of `label_rows`; ties go to the lowest index.
    """
    params, centres = prepared
    dtype = np.dtype([("label", np.int32), ("distance", params.centres.dtype)])
    found = np.empty((chunk.n_rows, max(1, params.most)), dtype)
    centres.expect(chunk.n_rows)
    for block in chunk.cache_blocks(least=params.centres.dtype):
        out = found[block.place_in(chunk)]
        # The label of a row is decided by the canonical score, also where rounding makes
        # another centre look as near: it goes first.
        first = np.empty(block.n_rows, np.int32)
        refuse_bad(block)
        centres.nearest(block.rows, first)
        if params.most <= 1:
            squares = np.empty(block.n_rows)
            centres.sqdist_to_assigned(block.rows, first, squares)
            out["label"][:, 0], out["distance"][:, 0] = first, np.sqrt(squares)
            continue
        distances = _all_distances(block, centres)
        order_by = distances.copy()
        order_by[np.arange(block.n_rows), first] = -1.0
        order = np.argsort(order_by, axis=1, kind="stable")[:, : params.most]
        out["label"] = order
        out["distance"] = np.sqrt(np.take_along_axis(distances, order, axis=1))
    return found if params.most else found[:, 0]


def nearest_label_rows(chunk: Chunk, prepared: tuple[RowParams, PreparedCentres]) -> np.ndarray:
    """Return the `most` nearest centres of every row, ascending, int32 (n, most); see `nearest_rows`."""
    return np.ascontiguousarray(nearest_rows(chunk, prepared)["label"])


def nearest_function(
    params: RowParams,
    n_nearest: int | None = None,
    *,
    distances: np.dtype[Any] | None = None,
    normalize: bool = False,
) -> RowFunction:
    """Return the function that finds labels of rows or their nearest centres, and distances to these.

    Parameters
    ----------
    params : RowParams
    n_nearest : int, optional
        The number of nearest centres; None for the label alone.
    distances : dtype, optional
        The dtype of distances. With it, results have the fields ``label`` and ``distance``.
    normalize : bool

    Examples
    --------
    >>> nearest_function(RowParams(np.eye(3))).width
    0
    >>> nearest_function(RowParams(np.eye(3)), 3, distances=np.dtype("f4")).dtype.names
    ('label', 'distance')
    """
    params = replace(params, most=n_nearest or 0)
    dtype: np.dtype[Any] = np.dtype(np.int32)
    compute = label_rows if n_nearest is None else nearest_label_rows
    if distances is not None:
        compute, dtype = nearest_rows, np.dtype([("label", np.int32), ("distance", distances)])
    return RowFunction(compute, params, prepare_rows, dtype, n_nearest or 0, normalize=normalize)


def _all_distances(block: Chunk, centres: PreparedCentres) -> np.ndarray:
    refuse_bad(block)
    distances = np.empty((block.n_rows, len(centres)))
    centres.sqdist_all(block.rows, distances)
    return distances
