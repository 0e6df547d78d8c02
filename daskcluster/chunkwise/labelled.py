"""Statistics of clusters for rows that already have labels: sums, spreads, selected rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.chunkwise.exact_sum import Grids, Scale
from daskcluster.chunkwise.statistics import ExactScalar, KMeansStatistics, Reduction
from daskcluster.kernels.accumulate import accumulate_values, sum_on_grid
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.sparse_rows import Rows, join_rows

Numbers = Callable[[Chunk], np.ndarray]
"""(chunk) -> cluster number of every row, int32 (n,), writeable and contiguous."""


class RowLabels(Protocol):
    """Source of the cluster numbers of rows; picklable."""

    def ready(self) -> Numbers:
        """Return the function that finds the cluster numbers of a chunk; called once per task."""
        ...


@dataclass(frozen=True)
class RenumberedLabels:
    """Labels with other numbers: i becomes ``numbers[i]``."""

    labels: RowLabels
    numbers: np.ndarray

    def ready(self) -> Numbers:
        """Return the function that finds the new numbers."""
        find, numbers = self.labels.ready(), self.numbers.astype(np.int32)
        return lambda chunk: numbers[find(chunk)]


@dataclass(frozen=True)
class OneCluster:
    """All rows in cluster 0, for passes that need no labels."""

    def ready(self) -> Numbers:
        """Return the function that returns zeros."""
        return lambda chunk: np.zeros(chunk.n_rows, np.int32)


# -- sums and weights of every cluster ----------------------------------------------------------------


@dataclass(frozen=True)
class SumsParams:
    """Labels and scale of the sums; `scale` bounds the rows."""

    labels: RowLabels
    n_clusters: int
    scale: Scale


@dataclass(frozen=True)
class _PreparedSums:
    params: SumsParams
    find: Numbers
    grids: Grids


def _prepare_sums(params: SumsParams) -> _PreparedSums:
    return _PreparedSums(params, params.labels.ready(), Grids.of(params.scale))


def _zero_sums(prepared: _PreparedSums) -> KMeansStatistics:
    params = prepared.params
    scale = params.scale
    d = len(scale.max_abs)
    return KMeansStatistics.zero(params.n_clusters, d, weighted=scale.weighted, two_grids=True)


def _sums_chunk(chunk: Chunk, prepared: _PreparedSums, into: KMeansStatistics) -> None:
    numbers = prepared.find(chunk)
    for block in chunk.cache_blocks():
        labels = numbers[block.start - chunk.start : block.stop - chunk.start]
        prepared.grids.add(block.rows, labels, block.weights, into)


LABELLED_SUMS = Reduction(
    name="sums of clusters",
    prepare=_prepare_sums,
    zero=_zero_sums,
    chunk=_sums_chunk,
    combine=KMeansStatistics.combine,
)
"""`SumsParams` -> `KMeansStatistics` of the labelled clusters."""


# -- distances of rows to the means of clusters ---------------------------------------------------------


@dataclass(frozen=True)
class SpreadParams:
    """Cluster means and labels.

    Attributes
    ----------
    labels : RowLabels
    means : ndarray of shape (k, d), float64
    alone : ndarray of shape (k,), bool
        Which clusters have a single row.
    scale : Scale
    compare : bool
        Also compute the distance of every row to the nearest mean of another cluster.
    """

    labels: RowLabels
    means: np.ndarray
    alone: np.ndarray
    scale: Scale
    compare: bool = False


@dataclass
class Spreads:
    """Distances of the rows of every cluster from its mean, exact on two grids.

    Attributes
    ----------
    lengths, squares : ndarray of shape (2, k)
        Weighted sums of distances, and of squared Euclidean distances: high and low parts.
    silhouettes : ExactScalar
        Weighted sum of the rows' simplified silhouettes, if `compare` was set.
    """

    lengths: np.ndarray
    squares: np.ndarray
    silhouettes: ExactScalar = field(default_factory=ExactScalar)

    def combine(self, other: Spreads) -> Spreads:
        self.lengths += other.lengths
        self.squares += other.squares
        self.silhouettes.combine(other.silhouettes)
        return self


@dataclass(frozen=True)
class _PreparedSpread:
    params: SpreadParams
    find: Numbers
    means: PreparedCentres
    ranked: PreparedCentres
    grids: tuple[SumGrid, SumGrid, SumGrid]
    """Of lengths, of squares and of silhouettes."""


def _prepare_spread(params: SpreadParams) -> _PreparedSpread:
    scale = params.scale
    dtype = np.float64 if scale.wide else np.float32
    return _PreparedSpread(
        params,
        params.labels.ready(),
        PreparedCentres(params.means),
        PreparedCentres(params.means.astype(dtype)),
        (scale.lengths(params.means), scale.distances(params.means), scale.weights),
    )


def _zero_spread(prepared: _PreparedSpread) -> Spreads:
    k = len(prepared.params.means)
    return Spreads(np.zeros((2, k)), np.zeros((2, k)))


def _spread_chunk(chunk: Chunk, prepared: _PreparedSpread, into: Spreads) -> None:
    params, numbers = prepared.params, prepared.find(chunk)
    lengths_grid, squares_grid, silhouettes_grid = prepared.grids
    halved = chunk.normalize
    for block in chunk.cache_blocks():
        labels = numbers[block.start - chunk.start : block.stop - chunk.start]
        squares = np.empty(block.n_rows)
        prepared.means.sqdist_to_assigned(block.rows, labels, squares)
        lengths = _lengths(squares, halved)
        weights = 1.0 if block.weights is None else block.weights
        accumulate_values(lengths * weights, labels, lengths_grid, *into.lengths)
        accumulate_values(squares * weights, labels, squares_grid, *into.squares)
        if params.compare:
            values = _simplified(block, labels, lengths, prepared, halved)
            into.silhouettes.add(*sum_on_grid(values * weights, silhouettes_grid))


def _lengths(squares: np.ndarray, halved: bool) -> np.ndarray:
    # For rows of length one, 1 - cos is half the squared distance.
    return np.asarray(0.5 * squares if halved else np.sqrt(squares))


def _simplified(
    block: Chunk, labels: np.ndarray, own: np.ndarray, prepared: _PreparedSpread, halved: bool
) -> np.ndarray:
    """Return (b - a) / max(a, b) of every row; 0 in clusters of one row."""
    nearest, second = np.empty(block.n_rows, np.int32), np.empty(block.n_rows, np.int32)
    prepared.ranked.nearest_two(block.rows, nearest, second)
    squares = np.empty(block.n_rows)
    other = np.where(nearest == labels, second, nearest)
    prepared.means.sqdist_to_assigned(block.rows, other, squares)
    between = _lengths(squares, halved)
    larger = np.maximum(own, between)
    values = (between - own) / np.where(larger > 0.0, larger, 1.0)
    return np.where(prepared.params.alone[labels], 0.0, values)


SPREADS = Reduction(
    name="distances to means",
    prepare=_prepare_spread,
    zero=_zero_spread,
    chunk=_spread_chunk,
    combine=Spreads.combine,
)
"""`SpreadParams` -> `Spreads`."""


# -- some rows with their labels ------------------------------------------------------------------------


@dataclass(frozen=True)
class PickParams:
    """Rows to pick: `indices` is int64, ascending."""

    labels: RowLabels
    indices: np.ndarray


@dataclass
class PickedRows:
    """Picked rows and their cluster numbers, by position in `indices`."""

    parts: list[tuple[int, Rows, np.ndarray]] = field(default_factory=list)

    def combine(self, other: PickedRows) -> PickedRows:
        self.parts += other.parts
        return self

    def joined(self) -> tuple[Rows, np.ndarray]:
        """Return all rows and their cluster numbers, in the order of the indices."""
        parts = sorted(self.parts, key=lambda part: part[0])
        rows = join_rows([rows for _, rows, _ in parts])
        return rows, np.concatenate([numbers for _, _, numbers in parts])


def _prepare_pick(params: PickParams) -> tuple[PickParams, Numbers]:
    return params, params.labels.ready()


def _zero_pick(prepared: tuple[PickParams, Numbers]) -> PickedRows:
    return PickedRows()


def _pick_chunk(chunk: Chunk, prepared: tuple[PickParams, Numbers], into: PickedRows) -> None:
    params, find = prepared
    first, last = np.searchsorted(params.indices, (chunk.start, chunk.stop))
    if first == last:
        return
    at = params.indices[first:last] - chunk.start
    rows = chunk.rows[at]
    for block in Chunk(rows, chunk.start).blocks():
        refuse_bad(block)
    into.parts.append((int(first), rows, find(chunk)[at]))


PICK = Reduction(
    name="sample",
    prepare=_prepare_pick,
    zero=_zero_pick,
    chunk=_pick_chunk,
    combine=PickedRows.combine,
)
"""`PickParams` -> `PickedRows`."""
