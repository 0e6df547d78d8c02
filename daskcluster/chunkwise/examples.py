"""Rows that show what a cluster is: its nearest and its farthest, and how distances are spread."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.reduction import Reduction
from daskcluster.chunkwise.survey import refuse_bad

BINS_PER_OCTAVE = 4
"""Of the histogram of distances: a bin ends 2^(1/4) times as far as it begins."""
_LEAST_OCTAVE, _MOST_OCTAVE = -64, 64
N_BINS = 1 + (_MOST_OCTAVE - _LEAST_OCTAVE) * BINS_PER_OCTAVE


@dataclass(frozen=True)
class ExampleParams:
    """Centres, and how many rows of each cluster are wanted at either end.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        In the compute dtype of the rows.
    unit : bool
        Rows are scaled to length one first.
    most : int
    """

    centres: np.ndarray
    unit: bool = False
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

    def with_(self, other: RankedRows) -> RankedRows:
        """Return the rows of both, in no order."""
        return RankedRows(
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.sqdist, other.sqdist]),
            np.concatenate([self.rows, other.rows]),
        )

    def of(self, cluster: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of one cluster, and their distances (not squared)."""
        first, last = np.searchsorted(self.labels, [cluster, cluster + 1])
        return self.rows[first:last], np.sqrt(self.sqdist[first:last])


@dataclass
class Examples:
    """What a pass for examples found.

    Attributes
    ----------
    most : int
    nearest, farthest : RankedRows
        Up to `most` rows of each cluster.
    histogram : ndarray of shape (513,), int64
        Rows by their distance to their centre: at 0, then in bins of a quarter of an octave.
    """

    most: int
    nearest: RankedRows = field(default_factory=RankedRows)
    farthest: RankedRows = field(default_factory=RankedRows)
    histogram: np.ndarray = field(default_factory=lambda: np.zeros(N_BINS, np.int64))

    def combine(self, other: Examples) -> Examples:
        self.nearest = self.nearest.with_(other.nearest).first(self.most, farthest=False)
        self.farthest = self.farthest.with_(other.farthest).first(self.most, farthest=True)
        self.histogram += other.histogram
        return self


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
    return np.exp2(_LEAST_OCTAVE + np.arange(N_BINS) / BINS_PER_OCTAVE)


def _bins(sqdist: np.ndarray) -> np.ndarray:
    bins = np.zeros(len(sqdist), np.int64)
    away = sqdist > 0.0
    octave = np.floor(np.log2(sqdist[away]) * (BINS_PER_OCTAVE / 2)).astype(np.int64)
    bins[away] = np.clip(octave - _LEAST_OCTAVE * BINS_PER_OCTAVE + 1, 1, N_BINS - 1)
    return bins


def _prepare(params: ExampleParams) -> tuple[ExampleParams, PreparedCentres]:
    return params, PreparedCentres(params.centres)


def _zero(prepared: tuple[ExampleParams, PreparedCentres]) -> Examples:
    return Examples(prepared[0].most)


def _examples_chunk(
    chunk: Chunk, prepared: tuple[ExampleParams, PreparedCentres], into: Examples
) -> None:
    params, centres = prepared
    labels, sqdist = np.empty(chunk.n_rows, np.int32), np.empty(chunk.n_rows)
    for block in chunk.cache_blocks(unit=params.unit):
        refuse_bad(block)
        part = slice(block.start - chunk.start, block.stop - chunk.start)
        centres.nearest(block.rows, labels[part])
        centres.sqdist_to_assigned(block.rows, labels[part], sqdist[part])
    found = RankedRows(labels, sqdist, np.arange(chunk.start, chunk.stop))
    into.combine(Examples(params.most, found, found, np.bincount(_bins(sqdist), minlength=N_BINS)))


EXAMPLES = Reduction(
    name="examples",
    prepare=_prepare,
    zero=_zero,
    chunk=_examples_chunk,
    combine=Examples.combine,
)
"""`ExampleParams` -> `Examples`."""
