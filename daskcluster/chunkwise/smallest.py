"""The rows of every cluster with the smallest keys: the nearest, the farthest, by score or at random.

Keys are a function of a row and its number, and equal keys are ordered by row. So the rows that are found
depend on neither chunks nor workers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.labelled import Numbers, RowLabels
from daskcluster.chunkwise.statistics import Reduction, StatefulReduction
from daskcluster.randomness import Key

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
    """

    most: np.ndarray
    below: np.ndarray
    labels: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    keys: np.ndarray = field(default_factory=lambda: np.empty(0))
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    _pending: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    _n_pending: int = 0

    def add(self, labels: np.ndarray, keys: np.ndarray, rows: np.ndarray) -> None:
        """Add rows with their clusters and keys."""
        kept = np.flatnonzero(keys < self.below[labels])
        self._pending.append((labels[kept], keys[kept], rows[kept]))
        self._n_pending += len(kept)
        # Each sort includes the rows found so far, so wait until there are as many new ones.
        if self._n_pending > max(_LEAST_SORTED, len(self.rows)):
            self.settle()

    def combine(self, other: SmallestKeys) -> SmallestKeys:
        other.settle()
        self._pending.append((other.labels, other.keys, other.rows))
        self.settle()
        return self

    def settle(self) -> None:
        """Sort in the rows that were added, and leave out those that are no longer needed."""
        if not self._pending:
            return
        every = [(self.labels, self.keys, self.rows), *self._pending]
        labels, keys, rows = (np.concatenate(parts) for parts in zip(*every, strict=True))
        self._pending, self._n_pending = [], 0
        order = np.lexsort((rows, keys, labels))
        labels, keys, rows = labels[order], keys[order], rows[order]
        counts = np.bincount(labels, minlength=len(self.most))
        firsts = np.cumsum(counts) - counts
        kept = np.arange(len(labels)) - firsts[labels] < self.most[labels]
        self.labels, self.keys, self.rows = labels[kept], keys[kept], rows[kept]
        # The last of a full cluster may still give way to an equal key of an earlier row.
        full = np.flatnonzero((counts >= self.most) & (self.most > 0))
        last = keys[firsts[full] + self.most[full] - 1]
        self.below = self.below.copy()
        self.below[full] = np.minimum(self.below[full], np.nextafter(last, np.inf))

    def __getstate__(self) -> dict[str, Any]:
        self.settle()  # pickle only the rows that are needed
        return vars(self)


@dataclass(frozen=True)
class Ranking:
    """Rule by which the rows of a cluster are ranked, the first ones first.

    Attributes
    ----------
    how : {"random", "nearest", "farthest", "score"}
        By score: the largest row weights first.
    key : Key, optional
        Of the random numbers.
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
class Choice:
    """Sizes of the clusters, int64 (k,), and the rows that were chosen.

    Rows without weight are in no cluster, unless weights are the scores.
    """

    sizes: np.ndarray
    chosen: SmallestKeys

    def combine(self, other: Choice) -> Choice:
        self.sizes += other.sizes
        self.chosen.combine(other.chosen)
        return self


@dataclass(frozen=True)
class _Prepared:
    params: ChoiceParams
    find: Numbers
    centres: PreparedCentres | None


def _prepare(params: ChoiceParams) -> _Prepared:
    centres = params.ranking.centres
    prepared = None if centres is None else PreparedCentres(centres)
    return _Prepared(params, params.labels.ready(), prepared)


def _zero(prepared: _Prepared) -> Choice:
    most, below = prepared.params.most, prepared.params.below
    limits = np.full(len(most), np.inf) if below is None else below
    chosen = SmallestKeys(most, np.where(most > 0, limits, -np.inf))
    return Choice(np.zeros(len(most), np.int64), chosen)


def _labels(chunk: Chunk, prepared: _Prepared) -> np.ndarray:
    """Return the clusters of rows, -1 for those in none."""
    labels = prepared.find(chunk)
    if chunk.weights is None or prepared.params.ranking.how == "score":
        return labels
    return np.where(chunk.weights > 0.0, labels, np.int32(-1))


def _add(into: Choice, labels: np.ndarray, keys: np.ndarray | None, start: int) -> None:
    """Add contiguous rows, the first of which has the global index `start`; without keys, count them."""
    rows = np.flatnonzero(labels >= 0)
    into.sizes += np.bincount(labels[rows], minlength=len(into.sizes))
    if keys is not None:
        into.chosen.add(labels[rows], keys[rows], start + rows)


def _choose(chunk: Chunk, prepared: _Prepared, into: Choice, labels: np.ndarray) -> None:
    _add(into, labels, _keys(chunk, prepared, labels), chunk.start)


def _keys(chunk: Chunk, prepared: _Prepared, labels: np.ndarray) -> np.ndarray | None:
    ranking = prepared.params.ranking
    if not prepared.params.most.any():
        return None
    if ranking.how == "random":
        assert ranking.key is not None
        return ranking.key.uniforms(chunk.start, chunk.stop)
    if ranking.how == "score":
        assert chunk.weights is not None
        return -chunk.weights
    assert prepared.centres is not None
    some, sqdist = np.maximum(labels, 0), np.empty(chunk.n_rows)
    for block in chunk.cache_blocks(least=prepared.centres.array.dtype):
        part = slice(block.start - chunk.start, block.stop - chunk.start)
        prepared.centres.sqdist_to_assigned(block.rows, some[part], sqdist[part])
    return sqdist if ranking.how == "nearest" else -sqdist


def _choose_chunk(chunk: Chunk, prepared: _Prepared, into: Choice) -> None:
    _choose(chunk, prepared, into, _labels(chunk, prepared))


CHOOSE = Reduction(
    name="choose rows",
    prepare=_prepare,
    zero=_zero,
    chunk=_choose_chunk,
    combine=Choice.combine,
)
"""`ChoiceParams` -> `Choice`."""


# -- the same with labels that are kept between calls ---------------------------------------------------


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


def _unlabelled(n_rows: int, prepared: _Prepared) -> LabelState:
    return LabelState(np.empty(n_rows, np.int32), np.zeros(1, np.int64))


def _label(chunk: Chunk, prepared: _Prepared, state: LabelState) -> None:
    state.labels[:] = _labels(chunk, prepared)
    state.origin[0] = chunk.start - state.first


def _choose_again(chunk: Chunk, prepared: _Prepared, into: Choice, state: LabelState) -> None:
    _choose(chunk, prepared, into, state.labels)


def _choose_unread(prepared: _Prepared, into: Choice, state: LabelState) -> np.ndarray | None:
    """Choose by keys that are known without the rows; return which rows to read."""
    params = prepared.params
    key = params.ranking.key
    if params.ranking.how != "random" or key is None or not params.most.any():
        return None
    start, n_rows = int(state.origin[0]), len(state.labels)
    _add(into, state.labels, key.uniforms(start, start + n_rows), start)
    return np.zeros(n_rows, bool)


CHOOSE_AGAIN = StatefulReduction(
    name="choose rows",
    row_bytes=4,
    prepare=_prepare,
    zero=_zero,
    fresh=_unlabelled,
    rebuild=_label,
    chunk=_choose_again,
    combine=Choice.combine,
    filter_rows=_choose_unread,
)
"""`CHOOSE`, with labels as state: later calls label no row, and read none to choose at random."""
