"""Rows with labels: sums and spreads of clusters, picked rows, and those with the smallest keys of each.

Rows are chosen by key: the nearest, the farthest, by score or at random.

Keys are a function of a row and its number, and equal keys are ordered by row. So the rows that are found
depend on neither chunks nor workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.chunkwise.exact_sum import Grids, Scale
from daskcluster.chunkwise.statistics import (
    Additive,
    ExactScalar,
    KMeansStatistics,
    Reduction,
    StatefulReduction,
)
from daskcluster.kernels.accumulate import accumulate_values, sum_on_grid
from daskcluster.randomness import Key
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


class _Sums:
    def __init__(self, params: SumsParams) -> None:
        self.params = params
        self.find, self.grids = params.labels.ready(), Grids.of(params.scale)

    def zero(self) -> KMeansStatistics:
        scale = self.params.scale
        k, d = self.params.n_clusters, len(scale.max_abs)
        return KMeansStatistics.zero(k, d, weighted=scale.weighted, two_grids=True)

    def add(self, chunk: Chunk, into: KMeansStatistics) -> None:
        numbers = self.find(chunk)
        for block in chunk.cache_blocks():
            labels = numbers[block.place_in(chunk)]
            self.grids.add(block.rows, labels, block.weights, into)


LABELLED_SUMS = Reduction("sums of clusters", prepare=_Sums)
"""`SumsParams` -> `KMeansStatistics` of the labelled clusters."""

MEAN = replace(LABELLED_SUMS, name="mean")
"""The same for the mean of all rows, with `OneCluster`."""


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
class Spreads(Additive):
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


class _Spread:
    def __init__(self, params: SpreadParams) -> None:
        scale, means = params.scale, params.means
        self.params, self.find = params, params.labels.ready()
        self.means = PreparedCentres(means)
        self.ranked = PreparedCentres(means.astype(np.float64 if scale.wide else np.float32))
        self.grids = scale.lengths(means), scale.distances(means), scale.weights

    def zero(self) -> Spreads:
        k = len(self.params.means)
        return Spreads(np.zeros((2, k)), np.zeros((2, k)))

    def add(self, chunk: Chunk, into: Spreads) -> None:
        numbers = self.find(chunk)
        lengths_grid, squares_grid, silhouettes_grid = self.grids
        for block in chunk.cache_blocks():
            labels = numbers[block.place_in(chunk)]
            squares, lengths = self._distances(block, labels, halved=chunk.normalize)
            weights = 1.0 if block.weights is None else block.weights
            accumulate_values(lengths * weights, labels, lengths_grid, *into.lengths)
            accumulate_values(squares * weights, labels, squares_grid, *into.squares)
            if self.params.compare:
                values = self._simplified(block, labels, lengths, halved=chunk.normalize)
                into.silhouettes.add(*sum_on_grid(values * weights, silhouettes_grid))

    def _distances(
        self, block: Chunk, labels: np.ndarray, *, halved: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the squared distances of rows to these means, and the distances."""
        squares = np.empty(block.n_rows)
        self.means.sqdist_to_assigned(block.rows, labels, squares)
        # For rows of length one, 1 - cos is half the squared distance.
        return squares, 0.5 * squares if halved else np.sqrt(squares)

    def _simplified(
        self, block: Chunk, labels: np.ndarray, own: np.ndarray, *, halved: bool
    ) -> np.ndarray:
        """Return (b - a) / max(a, b) of every row; 0 in clusters of one row."""
        nearest, second = np.empty(block.n_rows, np.int32), np.empty(block.n_rows, np.int32)
        self.ranked.nearest(block.rows, nearest, second)
        other = np.where(nearest == labels, second, nearest)
        _, between = self._distances(block, other, halved=halved)
        larger = np.maximum(own, between)
        values = (between - own) / np.where(larger > 0.0, larger, 1.0)
        return np.where(self.params.alone[labels], 0.0, values)


SPREADS = Reduction("distances to means", prepare=_Spread)
"""`SpreadParams` -> `Spreads`."""


# -- some rows with their labels ------------------------------------------------------------------------


@dataclass(frozen=True)
class PickParams:
    """Rows to pick: `indices` is int64, ascending."""

    labels: RowLabels
    indices: np.ndarray


@dataclass
class PickedRows(Additive):
    """Picked rows and their cluster numbers, by position in `indices`."""

    parts: list[tuple[int, Rows, np.ndarray]] = field(default_factory=list)

    def joined(self) -> tuple[Rows, np.ndarray]:
        """Return all rows and their cluster numbers, in the order of the indices."""
        parts = sorted(self.parts, key=lambda part: part[0])
        rows = join_rows([rows for _, rows, _ in parts])
        return rows, np.concatenate([numbers for _, _, numbers in parts])


class _Pick:
    def __init__(self, params: PickParams) -> None:
        self.indices, self.find = params.indices, params.labels.ready()

    def zero(self) -> PickedRows:
        return PickedRows()

    def add(self, chunk: Chunk, into: PickedRows) -> None:
        first, last = np.searchsorted(self.indices, (chunk.start, chunk.stop))
        if first == last:
            return
        at = self.indices[first:last] - chunk.start
        rows = chunk.rows[at]
        for block in Chunk(rows, chunk.start).blocks():
            refuse_bad(block)
        into.parts.append((int(first), rows, self.find(chunk)[at]))


PICK = Reduction("sample", prepare=_Pick)
"""`PickParams` -> `PickedRows`."""


_LEAST_SORTED = 16_384
RANKED_BYTES = 60
"""Memory of a row that is kept: its label, key and number, and copies of them while they are sorted."""


@dataclass
class SmallestKeys:
    """Up to `most` rows of each cluster, sorted by cluster, key and row.

    Attributes
    ----------
    most : ndarray of shape (k,), int64
    below : ndarray of shape (k,), float64
        Keys of a cluster that are not below this are left out.
    labels : ndarray of shape (m,), int32
    keys : ndarray of shape (m,), float64
    rows : ndarray of shape (m,), int64
        Global indices.
    values : Rows of shape (m, d), optional
        The rows as stored, if they were added.
    """

    most: np.ndarray
    below: np.ndarray
    labels: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    keys: np.ndarray = field(default_factory=lambda: np.empty(0))
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    values: Rows | None = None
    _pending: list[tuple[np.ndarray, np.ndarray, np.ndarray, Rows | None]] = field(
        default_factory=list
    )

    def add(
        self, labels: np.ndarray, keys: np.ndarray, rows: np.ndarray, values: Rows | None = None
    ) -> None:
        """Add rows with their clusters and keys."""
        kept = np.flatnonzero(keys < self.below[labels])
        some = None if values is None else values[kept]
        self._pending.append((labels[kept], keys[kept], rows[kept], some))
        # Each sort includes the rows found so far, so wait until there are as many new ones.
        least = _LEAST_SORTED if values is None else _LEAST_SORTED // 16
        if sum(len(part[2]) for part in self._pending) > max(least, len(self.rows)):
            self.settle()

    def combine(self, other: Self) -> Self:
        other.settle()
        self._pending.append((other.labels, other.keys, other.rows, other.values))
        return self.settle()

    def settle(self) -> Self:
        """Sort in the rows that were added, and leave out those that are no longer needed."""
        if not self._pending:
            return self
        every = [(self.labels, self.keys, self.rows, self.values), *self._pending]
        labels, keys, rows = (np.concatenate([part[i] for part in every]) for i in range(3))
        values = [part[3] for part in every if part[3] is not None]
        self._pending = []
        order = np.lexsort((rows, keys, labels))
        labels, keys = labels[order], keys[order]
        counts = np.bincount(labels, minlength=len(self.most))
        firsts = np.cumsum(counts) - counts
        kept = np.arange(len(labels)) - firsts[labels] < self.most[labels]
        self.labels, self.keys, self.rows = labels[kept], keys[kept], rows[order[kept]]
        self.values = join_rows(values)[order[kept]] if values else None
        # The last of a full cluster may still give way to an equal key of an earlier row.
        full = np.flatnonzero((counts >= self.most) & (self.most > 0))
        last = keys[firsts[full] + self.most[full] - 1]
        self.below = self.below.copy()
        self.below[full] = np.minimum(self.below[full], np.nextafter(last, np.inf))
        return self

    def __getstate__(self) -> dict[str, Any]:
        return vars(self.settle())  # pickle only the rows that are needed


@dataclass(frozen=True)
class Ranking:
    """Rule by which the rows of a cluster are ranked, the first ones first.

    Attributes
    ----------
    how : {"random", "nearest", "farthest", "score"}
        By score: the largest row weights first.
    key : Key, optional
        Key of the random numbers.
    centres : ndarray of shape (k, d), optional
        In the compute dtype of the rows.
    """

    how: str
    key: Key | None = None
    centres: np.ndarray | None = None


@dataclass(frozen=True)
class ChoiceParams:
    """Clusters of the rows, and how many rows of each to choose.

    Attributes
    ----------
    labels : RowLabels
    ranking : Ranking
    most : ndarray of shape (k,), int64
        All zero: rows are only counted.
    below : ndarray of shape (k,), float64, optional
        See `SmallestKeys`.
    """

    labels: RowLabels
    ranking: Ranking
    most: np.ndarray
    below: np.ndarray | None = None


@dataclass
class Choice(Additive):
    """Sizes of the clusters, int64 (k,), and the rows that were chosen.

    Rows without weight are in no cluster, unless weights are the scores.
    """

    sizes: np.ndarray
    chosen: SmallestKeys

    def add(self, labels: np.ndarray, keys: np.ndarray | None, start: int) -> None:
        """Add contiguous rows, of which `start` is the first's global index; without keys, count them."""
        rows = np.flatnonzero(labels >= 0)
        self.sizes += np.bincount(labels[rows], minlength=len(self.sizes))
        if keys is not None:
            self.chosen.add(labels[rows], keys[rows], start + rows)


@dataclass(frozen=True)
class LabelState:
    """Clusters of the rows of a work item, -1 for those in none, and the numbers of these rows.

    Attributes
    ----------
    labels : ndarray of shape (n,), int32
    origin : ndarray of shape (1,), int64
        Global index of the first row of the work item; shared by all views.
    first : int
        The first row of this view, within the work item.
    """

    labels: np.ndarray
    origin: np.ndarray
    first: int = 0

    @property
    def nbytes(self) -> int:
        return int(self.labels.nbytes)

    def rows(self, first: int, last: int) -> LabelState:
        """Return a view of rows `first` to `last`."""
        return LabelState(self.labels[first:last], self.origin, self.first + first)


class _Choose:
    def __init__(self, params: ChoiceParams) -> None:
        centres = params.ranking.centres
        self.params, self.find = params, params.labels.ready()
        self.centres = None if centres is None else PreparedCentres(centres)

    def zero(self) -> Choice:
        most, below = self.params.most, self.params.below
        limits = np.full(len(most), np.inf) if below is None else below
        chosen = SmallestKeys(most, np.where(most > 0, limits, -np.inf))
        return Choice(np.zeros(len(most), np.int64), chosen)

    def fresh(self, n_rows: int) -> LabelState:
        return LabelState(np.empty(n_rows, np.int32), np.zeros(1, np.int64))

    def rebuild(self, chunk: Chunk, state: LabelState) -> None:
        state.labels[:] = self._labels(chunk)
        state.origin[0] = chunk.start - state.first

    def add(self, chunk: Chunk, into: Choice, state: LabelState | None = None) -> None:
        labels = self._labels(chunk) if state is None else state.labels
        into.add(labels, self._keys(chunk, labels), chunk.start)

    def _labels(self, chunk: Chunk) -> np.ndarray:
        """Return the clusters of rows, -1 for those in none."""
        labels = self.find(chunk)
        if chunk.weights is None or self.params.ranking.how == "score":
            return labels
        return np.where(chunk.weights > 0.0, labels, np.int32(-1))

    def _keys(self, chunk: Chunk, labels: np.ndarray) -> np.ndarray | None:
        ranking = self.params.ranking
        if not self.params.most.any():
            return None
        if ranking.how == "random":
            assert ranking.key is not None
            return ranking.key.uniforms(chunk.start, chunk.stop)
        if ranking.how == "score":
            assert chunk.weights is not None
            return -chunk.weights
        assert self.centres is not None
        some, sqdist = np.maximum(labels, 0), np.empty(chunk.n_rows)
        for block in chunk.cache_blocks(least=self.centres.array.dtype):
            part = block.place_in(chunk)
            self.centres.sqdist_to_assigned(block.rows, some[part], sqdist[part])
        return sqdist if ranking.how == "nearest" else -sqdist


def _choose_unread(prepared: _Choose, into: Choice, state: LabelState) -> np.ndarray | None:
    """Choose by keys that are known without the rows; return which rows to read."""
    params = prepared.params
    key = params.ranking.key
    if params.ranking.how != "random" or key is None or not params.most.any():
        return None
    start, n_rows = int(state.origin[0]), len(state.labels)
    into.add(state.labels, key.uniforms(start, start + n_rows), start)
    return np.zeros(n_rows, bool)


CHOOSE = Reduction("choose rows", prepare=_Choose)
"""`ChoiceParams` -> `Choice`."""

CHOOSE_AGAIN = StatefulReduction("choose rows", 4, prepare=_Choose, filter_rows=_choose_unread)
"""`CHOOSE`, with labels as state: later calls label no row, and read none to choose at random."""
