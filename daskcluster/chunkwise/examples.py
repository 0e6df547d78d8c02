"""Example rows of each cluster: the nearest and the farthest."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import AssignParams, Score, ScoreStatistics
from daskcluster.chunkwise.labelled import PickedRows, SmallestKeys
from daskcluster.chunkwise.statistics import Additive, Reduction
from daskcluster.sparse_rows import Rows


@dataclass(frozen=True)
class ExamineParams:
    """Centres, and which examples of their clusters to find.

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
class RankedRows(SmallestKeys):
    """The nearest rows of every cluster; or the farthest, whose keys are negative squared distances."""

    @property
    def sqdist(self) -> np.ndarray:
        return np.abs(self.keys)

    def of(self, cluster: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of one cluster, and their distances (not squared)."""
        part = self._part(cluster)
        return self.rows[part], np.sqrt(self.sqdist[part])

    def values_of(self, cluster: int) -> Rows | None:
        """Return the rows of one cluster as stored; None if they were not kept."""
        return None if self.values is None else self.values[self._part(cluster)]

    def _part(self, cluster: int) -> slice:
        return slice(*np.searchsorted(self.labels, [cluster, cluster + 1]).tolist())


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
    """

    def __init__(self, n_clusters: int, most: int, *, keeps_rows: bool = False) -> None:
        self.most, self.keeps_rows = most, keeps_rows
        counts, below = np.full(n_clusters, most), np.full(n_clusters, np.inf if most else -np.inf)
        self._nearest, self._farthest = RankedRows(counts, below), RankedRows(counts, below)

    def add(self, labels: np.ndarray, sqdist: np.ndarray, start: int, rows: Rows) -> None:
        """Add contiguous rows, the first of which has the global index `start`."""
        found = start + np.arange(len(labels)), rows if self.keeps_rows else None
        self._nearest.add(labels, sqdist, *found)
        self._farthest.add(labels, -sqdist, *found)

    def combine(self, other: Examples) -> Examples:
        self._nearest.combine(other.nearest)
        self._farthest.combine(other.farthest)
        return self

    @property
    def nearest(self) -> RankedRows:
        return self._nearest.settle()

    @property
    def farthest(self) -> RankedRows:
        return self._farthest.settle()


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


# -- figures and examples of clusters, in one pass ---------------------------------------------------


@dataclass
class Examined(Additive):
    """Size, weight and cost of every cluster, examples of its rows, and a sample of all rows."""

    scores: ScoreStatistics
    examples: Examples
    sample: PickedRows = field(default_factory=PickedRows)


class _Examine:
    def __init__(self, params: ExamineParams) -> None:
        self.params, self.scoring = params, Score(params.score)

    def zero(self) -> Examined:
        params = self.params
        k = len(params.score.centres)
        examples = Examples(k, params.most, keeps_rows=params.keeps_rows)
        return Examined(self.scoring.zero(), examples)

    def add(self, chunk: Chunk, into: Examined) -> None:
        params, every = self.params, np.empty(chunk.n_rows, np.int32)
        for block in chunk.cache_blocks(least=params.score.centres.dtype):
            labels, sqdist = self.scoring.add_block(block, into.scores)
            place = block.place_in(chunk)
            every[place] = labels
            into.examples.add(labels, sqdist, block.start, chunk.rows[place])
        first, last = np.searchsorted(params.sample, (chunk.start, chunk.stop))
        if first < last:
            at = params.sample[first:last] - chunk.start
            into.sample.parts.append((int(first), chunk.rows[at], every[at]))


EXAMINE = Reduction("examples", prepare=_Examine)
"""`ExamineParams` -> `Examined`."""
