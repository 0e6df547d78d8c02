"""Example rows of each cluster (nearest and farthest) and the distribution of distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import SCORE, AssignParams, ScoreStatistics, score_block
from daskcluster.chunkwise.labelled import PickedRows
from daskcluster.chunkwise.statistics import Reduction
from daskcluster.elementary import exp2, log2
from daskcluster.sparse_rows import Rows, join_rows

BINS_PER_OCTAVE = 4
"""Bins of the histogram of distances: each ends at 2^(1/4) times its start."""
_LEAST_OCTAVE, _MOST_OCTAVE = -64, 64
_LEAST_SORTED = 16_384
N_BINS = 1 + (_MOST_OCTAVE - _LEAST_OCTAVE) * BINS_PER_OCTAVE


@dataclass(frozen=True)
class ExamineParams:
    """What to find.

    Attributes
    ----------
    score : AssignParams
        Centres, and scale of the sums.
    most : int
        Number of nearest, and of farthest, rows per cluster.
    keeps_rows : bool
        Keep the rows themselves, too.
    sample : ndarray of int64, ascending
        Rows to return with their clusters.
    """

    score: AssignParams
    most: int = 5
    keeps_rows: bool = False
    sample: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass
class RankedRows:
    """Some rows of every cluster, sorted by cluster, distance and row.

    Attributes
    ----------
    labels : ndarray of shape (p,), int32
    sqdist : ndarray of shape (p,), float64
        Squared distance to the row's own centre.
    rows : ndarray of shape (p,), int64
        Global indices.
    values : Rows of shape (p, d), optional
        The rows, as stored.
    """

    labels: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    sqdist: np.ndarray = field(default_factory=lambda: np.empty(0))
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    values: Rows | None = None

    def first(self, most: int, *, farthest: bool) -> RankedRows:
        """Return the `most` nearest, or farthest, rows of every cluster.

        Examples
        --------
        >>> import numpy as np
        >>> found = RankedRows(np.array([1, 0, 1, 1]), np.array([4.0, 0, 1, 9]), np.arange(4))
        >>> found.first(2, farthest=True).rows
        array([1, 3, 0])
        """
        rank = -self.sqdist if farthest else self.sqdist
        order = np.lexsort((self.rows, rank, self.labels))
        labels = self.labels[order]
        place = np.arange(len(labels)) - np.searchsorted(labels, labels, side="left")
        return self.at(order[place < most])

    def at(self, places: np.ndarray) -> RankedRows:
        """Return the rows at these places."""
        values = None if self.values is None else self.values[places]
        return RankedRows(self.labels[places], self.sqdist[places], self.rows[places], values)

    def with_(self, others: Sequence[RankedRows]) -> RankedRows:
        """Return the rows of all, unsorted."""
        every = (self, *others)
        values = [one.values for one in every if one.values is not None]
        return RankedRows(
            np.concatenate([one.labels for one in every]),
            np.concatenate([one.sqdist for one in every]),
            np.concatenate([one.rows for one in every]),
            join_rows(values) if values else None,
        )

    def of(self, cluster: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of one cluster, and their distances (not squared)."""
        part = self._part(cluster)
        return self.rows[part], np.sqrt(self.sqdist[part])

    def values_of(self, cluster: int) -> Rows | None:
        """Return the rows of one cluster as stored; None if they were not kept."""
        return None if self.values is None else self.values[self._part(cluster)]

    def _part(self, cluster: int) -> slice:
        return slice(*np.searchsorted(self.labels, [cluster, cluster + 1]).tolist())

    def last_of_full(self, n_clusters: int, most: int, missing: float) -> np.ndarray:
        """Return the squared distance of the last of `most` rows by cluster, or `missing` for fewer."""
        ends = np.searchsorted(self.labels, np.arange(n_clusters), side="right")
        full = np.diff(ends, prepend=0) >= most
        found = np.full(n_clusters, missing)
        found[full] = self.sqdist[ends[full] - 1]
        return found


class Examples:
    """The nearest and farthest added rows of every cluster.

    Parameters
    ----------
    n_clusters : int
    most : int
        Number of nearest, and of farthest, rows per cluster.
    keeps_rows : bool
        Keep the rows themselves, too.

    Attributes
    ----------
    nearest, farthest : RankedRows
        Up to `most` rows of each cluster.
    histogram : ndarray of shape (513,), int64
        Number of rows by distance to their centre: 0, then bins of a quarter octave.
    """

    def __init__(self, n_clusters: int, most: int, *, keeps_rows: bool = False) -> None:
        self.n_clusters, self.most, self.keeps_rows = n_clusters, most, keeps_rows
        self.histogram = np.zeros(N_BINS, np.int64)
        self._nearest, self._farthest = RankedRows(), RankedRows()
        self._added: list[RankedRows] = []
        self._limits: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, labels: np.ndarray, sqdist: np.ndarray, start: int, rows: Rows) -> None:
        """Add contiguous rows, the first of which has the global index `start`."""
        self.histogram += np.bincount(_bins(sqdist), minlength=N_BINS)
        if self._limits is None:
            places = np.arange(len(labels))
        else:
            near, far = (limit[labels] for limit in self._limits)
            places = np.flatnonzero((sqdist <= near) | (sqdist >= far))
        found = RankedRows(labels[places], sqdist[places], start + places)
        if self.keeps_rows:  # only of few: a block may be as large as all that is returned
            near_rows = found.first(self.most, farthest=False).rows
            far_rows = found.first(self.most, farthest=True).rows
            kept = np.union1d(near_rows, far_rows) - start
            found = RankedRows(labels[kept], sqdist[kept], start + kept, rows[kept])
        self._added.append(found)
        # Each sort includes the rows ranked so far, so wait until there are as many new ones.
        least = _LEAST_SORTED // 16 if self.keeps_rows else _LEAST_SORTED
        if sum(len(one.rows) for one in self._added) > max(least, len(self._nearest.rows)):
            self._rank()

    def combine(self, other: Examples) -> Examples:
        near, far = self.nearest.with_([other.nearest]), self.farthest.with_([other.farthest])
        self._nearest = near.first(self.most, farthest=False)
        self._farthest = far.first(self.most, farthest=True)
        self.histogram += other.histogram
        self._limits = None
        return self

    @property
    def nearest(self) -> RankedRows:
        self._rank()
        return self._nearest

    @property
    def farthest(self) -> RankedRows:
        self._rank()
        return self._farthest

    def _rank(self) -> None:
        if not self._added:
            return
        self._nearest = self._nearest.with_(self._added).first(self.most, farthest=False)
        self._farthest = self._farthest.with_(self._added).first(self.most, farthest=True)
        self._added = []
        self._limits = (
            self._nearest.last_of_full(self.n_clusters, self.most, np.inf),
            self._farthest.last_of_full(self.n_clusters, self.most, -np.inf),
        )

    def __getstate__(self) -> dict[str, Any]:
        self._rank()  # pickle only the ranked rows
        return vars(self) | {"_limits": None}


@dataclass(frozen=True)
class ClusterExamples:
    """Examples of clusters, and some of the rows themselves.

    Attributes
    ----------
    found : Examples
        Examples of all clusters.
    rows : dict of int to ndarray of shape (d,)
        Example rows of the requested clusters, by row index.
    ids : dict of int to str
        Their ids, if rows have any.
    """

    found: Examples
    rows: dict[int, np.ndarray]
    ids: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """A uniform sample of rows, with their clusters.

    Attributes
    ----------
    rows : Rows of shape (m, d)
        As they are clustered: scaled, and of length one for the cosine metric.
    labels : ndarray of shape (m,), int32
    n_rows : int
        Number of rows that it was drawn from.
    weighted : bool
        Whether these have weights; the sample has none.
    metric : str
    """

    rows: Rows
    labels: np.ndarray
    n_rows: int
    weighted: bool = False
    metric: str = "euclidean"


def histogram_edges() -> np.ndarray:
    """Return the starts of bins 1, 2, ... of the histogram, and the end of the last one."""
    return exp2(_LEAST_OCTAVE + np.arange(N_BINS) / BINS_PER_OCTAVE)


def _bins(sqdist: np.ndarray) -> np.ndarray:
    bins = np.zeros(len(sqdist), np.int64)
    away = sqdist > 0.0
    octave = np.floor(log2(sqdist[away]) * (BINS_PER_OCTAVE / 2)).astype(np.int64)
    bins[away] = np.clip(octave - _LEAST_OCTAVE * BINS_PER_OCTAVE + 1, 1, N_BINS - 1)
    return bins


# -- figures and examples of clusters, in one pass ---------------------------------------------------


@dataclass
class Examined:
    """Size, weight and cost of every cluster, examples of its rows, and a sample of all rows."""

    scores: ScoreStatistics
    examples: Examples
    sample: PickedRows = field(default_factory=PickedRows)

    def combine(self, other: Examined) -> Examined:
        self.scores.combine(other.scores)
        self.examples.combine(other.examples)
        self.sample.combine(other.sample)
        return self


def _prepare(params: ExamineParams) -> tuple[ExamineParams, Any]:
    return params, SCORE.prepare(params.score)


def _zero(prepared: tuple[ExamineParams, Any]) -> Examined:
    params, scoring = prepared
    k = len(params.score.centres)
    return Examined(SCORE.zero(scoring), Examples(k, params.most, keeps_rows=params.keeps_rows))


def _examine_chunk(chunk: Chunk, prepared: tuple[ExamineParams, Any], into: Examined) -> None:
    params, scoring = prepared
    every = np.empty(chunk.n_rows, np.int32)
    for block in chunk.cache_blocks(least=params.score.centres.dtype):
        labels, sqdist = score_block(block, scoring, into.scores)
        first, last = block.start - chunk.start, block.stop - chunk.start
        every[first:last] = labels
        into.examples.add(labels, sqdist, block.start, chunk.rows[first:last])
    first, last = np.searchsorted(params.sample, (chunk.start, chunk.stop))
    if first < last:
        at = params.sample[first:last] - chunk.start
        into.sample.parts.append((int(first), chunk.rows[at], every[at]))


EXAMINE = Reduction(
    name="examples",
    prepare=_prepare,
    zero=_zero,
    chunk=_examine_chunk,
)
"""`ExamineParams` -> `Examined`."""
