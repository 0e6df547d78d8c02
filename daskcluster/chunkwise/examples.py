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
"""Bins of the histogram of distances: each ends at 2^(1/4) times its start."""
_LEAST_OCTAVE, _MOST_OCTAVE = -64, 64
_LEAST_SORTED = 16_384
N_BINS = 1 + (_MOST_OCTAVE - _LEAST_OCTAVE) * BINS_PER_OCTAVE


@dataclass(frozen=True)
class ExamineParams:
    """Centres, scale of the sums, and the number of nearest and farthest rows per cluster."""

    score: AssignParams
    most: int = 5


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
        """Return the rows of all, unsorted."""
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
    """The nearest and farthest added rows of every cluster.

    Parameters
    ----------
    most : int
        Number of nearest, and of farthest, rows per cluster.

    Attributes
    ----------
    nearest, farthest : RankedRows
        Up to `most` rows of each cluster.
    histogram : ndarray of shape (513,), int64
        Number of rows by distance to their centre: 0, then bins of a quarter octave.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.histogram = np.zeros(N_BINS, np.int64)
        self._nearest, self._farthest = RankedRows(), RankedRows()
        self._added: list[RankedRows] = []

    def add(self, found: RankedRows) -> None:
        """Add rows, in any order."""
        self.histogram += np.bincount(_bins(found.sqdist), minlength=N_BINS)
        self._added.append(found)
        # Each sort includes the rows ranked so far, so wait until there are as many new ones.
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
        self._rank()  # pickle only the ranked rows
        return vars(self)


@dataclass(frozen=True)
class ClusterExamples:
    """Examples of clusters, and some of the rows themselves.

    Attributes
    ----------
    found : Examples
        Examples of all clusters.
    rows : dict of int to ndarray of shape (d,)
        Example rows of the requested clusters, by row index.
    """

    found: Examples
    rows: dict[int, np.ndarray]


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
