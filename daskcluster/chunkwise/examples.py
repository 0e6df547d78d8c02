"""Example rows of each cluster (nearest and farthest) and the distribution of distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import SCORE, AssignParams, ScoreStatistics, score_block
from daskcluster.chunkwise.statistics import Reduction
from daskcluster.elementary import exp2, log2

BINS_PER_OCTAVE = 4
"""Bins of the histogram of distances: each ends 2^(1/4) times as far out as it begins."""
_LEAST_OCTAVE, _MOST_OCTAVE = -64, 64
_LEAST_SORTED = 16_384
N_BINS = 1 + (_MOST_OCTAVE - _LEAST_OCTAVE) * BINS_PER_OCTAVE


@dataclass(frozen=True)
class ExamineParams:
    """Centres and scale of the sums, and how many rows of each cluster are wanted at either end."""

    score: AssignParams
    most: int = 5


@dataclass
class RankedRows:
    """Some rows of every cluster, in the order of clusters and then of distance; ties by row.

    Attributes
    ----------
    labels : ndarray of shape (p,), int32
    sqdist : ndarray of shape (p,), float64
        To the row's own centre.
    rows : ndarray of shape (p,), int64
        Global indices.
    """

    labels: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    sqdist: np.ndarray = field(default_factory=lambda: np.empty(0))
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

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
        order = order[place < most]
        return RankedRows(self.labels[order], self.sqdist[order], self.rows[order])

    def with_(self, others: Sequence[RankedRows]) -> RankedRows:
        """Return the rows of all, in no order."""
        every = (self, *others)
        return RankedRows(
            np.concatenate([one.labels for one in every]),
            np.concatenate([one.sqdist for one in every]),
            np.concatenate([one.rows for one in every]),
        )

    def of(self, cluster: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of one cluster, and their distances (not squared)."""
        first, last = np.searchsorted(self.labels, [cluster, cluster + 1])
        return self.rows[first:last], np.sqrt(self.sqdist[first:last])


class Examples:
    """Rows of every cluster at either end, among those that were added.

    Parameters
    ----------
    most : int
        Rows of each cluster at either end.

    Attributes
    ----------
    nearest, farthest : RankedRows
        Up to `most` rows of each cluster.
    histogram : ndarray of shape (513,), int64
        Rows by their distance to their centre: at 0, then in bins of a quarter of an octave.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.histogram = np.zeros(N_BINS, np.int64)
        self._nearest, self._farthest = RankedRows(), RankedRows()
        self._added: list[RankedRows] = []

    def add(self, found: RankedRows) -> None:
        """Add rows, which need not be ranked."""
        self.histogram += np.bincount(_bins(found.sqdist), minlength=N_BINS)
        self._added.append(found)
        # Sorting takes the ranked rows along: wait until there are as many new ones.
        if sum(len(one.rows) for one in self._added) > max(_LEAST_SORTED, len(self._nearest.rows)):
            self._rank()

    def combine(self, other: Examples) -> Examples:
        near, far = self.nearest.with_([other.nearest]), self.farthest.with_([other.farthest])
        self._nearest = near.first(self.most, farthest=False)
        self._farthest = far.first(self.most, farthest=True)
        self.histogram += other.histogram
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

    def __getstate__(self) -> dict[str, Any]:
        self._rank()  # what travels is small
        return vars(self)


@dataclass(frozen=True)
class ClusterExamples:
    """Examples of clusters, and some of the rows themselves.

    Attributes
    ----------
    found : Examples
        Of all clusters.
    rows : dict of int to ndarray of shape (d,)
        By their indices, the examples of those clusters that were asked for.
    """

    found: Examples
    rows: dict[int, np.ndarray]


def histogram_edges() -> np.ndarray:
    """Return where bins 1, 2, ... of the histogram begin, and where the last one ends."""
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
    """Size, weight and cost of every cluster, and examples of its rows."""

    scores: ScoreStatistics
    examples: Examples

    def combine(self, other: Examined) -> Examined:
        self.scores.combine(other.scores)
        self.examples.combine(other.examples)
        return self


def _prepare(params: ExamineParams) -> tuple[ExamineParams, Any]:
    return params, SCORE.prepare(params.score)


def _zero(prepared: tuple[ExamineParams, Any]) -> Examined:
    params, scoring = prepared
    return Examined(SCORE.zero(scoring), Examples(params.most))


def _examine_chunk(chunk: Chunk, prepared: tuple[ExamineParams, Any], into: Examined) -> None:
    params, scoring = prepared
    for block in chunk.cache_blocks(least=params.score.centres.dtype):
        labels, sqdist = score_block(block, scoring, into.scores)
        into.examples.add(RankedRows(labels, sqdist, np.arange(block.start, block.stop)))


EXAMINE = Reduction(
    name="examples",
    prepare=_prepare,
    zero=_zero,
    chunk=_examine_chunk,
    combine=Examined.combine,
)
"""`ExamineParams` -> `Examined`."""
