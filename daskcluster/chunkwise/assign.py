"""Chunkwise assignment: nearest centres, sufficient statistics, distances and labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.chunkwise.exact_sum import Grids, Scale
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.chunkwise.statistics import Additive, FarthestRows, KMeansStatistics, Reduction
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
    search: FixedSearch | None = None


class _PreparedAssignment:
    def __init__(self, params: AssignParams) -> None:
        self.params = params
        self.centres = PreparedCentres(params.centres, search=params.search)
        self.grids, self.distances = Grids.of(params.scale), params.scale.distances(params.centres)


def _room(block: Chunk, params: AssignParams) -> np.ndarray:
    """Return the array for the labels of `block`."""
    if params.labels is None:
        return np.empty(block.n_rows, np.int32)
    return params.labels[block.start : block.stop]


def _label(block: Chunk, prepared: _PreparedAssignment) -> np.ndarray:
    labels = _room(block, prepared.params)
    if not prepared.params.labelled:
        prepared.centres.nearest(block.rows, labels)
    return labels


# -- S and v of the nearest centres: one Lloyd pass -------------------------------------------------


def _zero_statistics(prepared: _PreparedAssignment) -> KMeansStatistics:
    k, d = prepared.params.centres.shape
    scale = prepared.params.scale
    return KMeansStatistics.zero(k, d, weighted=scale.weighted, two_grids=scale.two_grids)


def _assign_chunk(chunk: Chunk, prepared: _PreparedAssignment, into: KMeansStatistics) -> None:
    params, centres, grids = prepared.params, prepared.centres, prepared.grids
    centres.expect(chunk.n_rows)
    for block in chunk.blocks() if into.sums_low is None else chunk.cache_blocks():
        labels = _room(block, params)
        if params.labelled and not params.changes:
            grids.add(block.rows, labels, block.weights, into)
        elif into.sums_low is None:
            sums = grids.sums.high, into.sums, into.counts
            centres.nearest_and_sum(block.rows, labels, *sums, moving=params.changes)
        elif not params.changes:
            centres.nearest(block.rows, labels)
            grids.add(block.rows, labels, block.weights, into)
        else:
            old = labels.copy()
            centres.nearest(block.rows, labels)
            which = np.flatnonzero(labels != old)
            weights = None if block.weights is None else block.weights[which]
            grids.move(block.rows, which, weights, old[which], labels[which], into)


ASSIGN = Reduction(
    name="assign",
    prepare=_PreparedAssignment,
    zero=_zero_statistics,
    chunk=_assign_chunk,
)
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


def _zero_score(prepared: _PreparedAssignment) -> ScoreStatistics:
    k = len(prepared.params.centres)
    return ScoreStatistics(np.zeros(k, np.int64), np.zeros((2, k)), np.zeros((2, k)))


def _distances(block: Chunk, labels: np.ndarray, prepared: _PreparedAssignment) -> np.ndarray:
    distances = np.empty(block.n_rows)
    prepared.centres.sqdist_to_assigned(block.rows, labels, distances)
    return distances


def _score_chunk(chunk: Chunk, prepared: _PreparedAssignment, into: ScoreStatistics) -> None:
    params = prepared.params
    prepared.centres.expect(chunk.n_rows)
    for block in chunk.cache_blocks(least=params.centres.dtype):
        score_block(block, prepared, into)


def score_block(
    block: Chunk, prepared: _PreparedAssignment, into: ScoreStatistics
) -> tuple[np.ndarray, np.ndarray]:
    """Add rows to the statistics of their clusters; return their labels and squared distances."""
    labels = _label(block, prepared)
    sqdist = _distances(block, labels, prepared)
    costs = sqdist
    into.sizes += np.bincount(labels, minlength=len(into.sizes))
    if block.weights is not None:
        costs = sqdist * block.weights
        accumulate_values(block.weights, labels, prepared.grids.weights, *into.weights)
    accumulate_values(costs, labels, prepared.distances, *into.costs)
    return labels, sqdist


SCORE = Reduction(
    name="score",
    prepare=_PreparedAssignment,
    zero=_zero_score,
    chunk=_score_chunk,
)
"""`AssignParams` -> `ScoreStatistics`."""


# -- the farthest rows, for empty clusters ----------------------------------------------------------


def _zero_farthest(prepared: _PreparedAssignment) -> FarthestRows:
    centres = prepared.params.centres
    return FarthestRows.zero(prepared.params.most, centres.shape[1], centres.dtype)


def _farthest_chunk(chunk: Chunk, prepared: _PreparedAssignment, into: FarthestRows) -> None:
    most = prepared.params.most
    prepared.centres.expect(chunk.n_rows)
    for block in chunk.cache_blocks():
        labels = _label(block, prepared)
        distances = _distances(block, labels, prepared)
        weights = np.ones(block.n_rows) if block.weights is None else block.weights
        # A row without weight never becomes a centre.
        kept = np.flatnonzero((weights > 0.0) & (distances >= into.least))
        kept = kept[np.argsort(-distances[kept], kind="stable")[:most]]
        into.combine(
            FarthestRows(
                most,
                distances[kept],
                block.start + kept,
                labels[kept],
                weights[kept],
                block.rows[kept],
            )
        )


FARTHEST = Reduction(
    name="farthest rows",
    prepare=_PreparedAssignment,
    zero=_zero_farthest,
    chunk=_farthest_chunk,
)
"""`AssignParams` -> the `most` `FarthestRows` from their nearest centres."""


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
        return lambda chunk: self.compute(replace(chunk, normalize=self.normalize), prepared)


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
        centres.nearest(block.rows, labels[block.start - chunk.start : block.stop - chunk.start])
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
        out = found[block.start - chunk.start : block.stop - chunk.start]
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


def _prepare_costs(sets: tuple[AssignParams, ...]) -> list[_PreparedAssignment]:
    return [_PreparedAssignment(params) for params in sets]


def _zero(prepared: list[_PreparedAssignment]) -> list[ScoreStatistics]:
    return [_zero_score(each) for each in prepared]


def _costs_chunk(
    chunk: Chunk, prepared: list[_PreparedAssignment], into: list[ScoreStatistics]
) -> None:
    for piece in chunk.pieces():  # so that the rows stay in the CPU cache for all sets
        for each, statistics in zip(prepared, into, strict=True):
            _score_chunk(piece, each, statistics)


def _combine(first: list[ScoreStatistics], second: list[ScoreStatistics]) -> list[ScoreStatistics]:
    return [one.combine(other) for one, other in zip(first, second, strict=True)]


COSTS = Reduction(
    name="costs", prepare=_prepare_costs, zero=_zero, chunk=_costs_chunk, combine=_combine
)
"""A tuple of `AssignParams` -> a list of `ScoreStatistics`."""
