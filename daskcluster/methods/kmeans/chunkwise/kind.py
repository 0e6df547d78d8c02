"""`BoundKind`: everything in which kinds of bounds differ; drift; costs of passes.

Drift is the distance that centres moved since a bound was set, by which bounds are relaxed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.kernels.distance import sqdist_to_assigned
from daskcluster.kernels.tile import nearest, pack
from daskcluster.methods.kmeans.chunkwise.bounded import BoundedParams
from daskcluster.methods.kmeans.kernels.elkan import half_distances

_SAFE = 1e-9
"""More than the rounding of any sum here, relatively."""
_WORN = 0.03
"""Share of a half gap that may be lost before it is measured again."""
REPAID = 8
"""Gaps are measured again once rows have computed this many times as many distances."""
_MOST = 1e15
"""Scores of centres beyond might overflow in float32."""


class Drift:
    """Sum of the steps of every centre.

    Parameters
    ----------
    centres : ndarray of shape (k, d)
        Starting positions.
    groups : sequence of ndarray of int
        Centres whose longest step counts for all of them.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        Current positions.
    of_groups : ndarray of shape (g,), float64
        Accumulated drift of each group.
    """

    def __init__(self, centres: np.ndarray, groups: Sequence[np.ndarray] = ()) -> None:
        self.centres = centres
        self.groups = tuple(groups)
        self.of_groups = np.zeros(len(self.groups))
        self._own = np.zeros(len(centres))

    def move(self, centres: np.ndarray) -> None:
        """Take one step."""
        steps = lengths(self.centres, centres) * (1.0 + _SAFE)
        self.centres = centres
        self._own += steps
        for number, group in enumerate(self.groups):
            self.of_groups[number] += steps[group].max()

    def table(self, gaps: Gaps) -> np.ndarray:
        """Return the drift of each centre and the half gaps, as kernels take them: shape (2, k)."""
        return np.stack([self._own, gaps.of(self.centres)])


class Gaps:
    """Half gaps of the current centres, computed once for all users of bounds.

    While centres have moved little since then, or rows have computed few distances, the largest possible
    loss is subtracted instead.
    """

    def __init__(self) -> None:
        self._n_distances = 0.0
        self._centres: np.ndarray | None = None
        self._halves = np.empty(0)
        self._between: np.ndarray | None = None
        self._measured: tuple[np.ndarray, np.ndarray] | None = None

    def of(self, centres: np.ndarray) -> np.ndarray:
        """Return `half_gaps` of centres that are never changed in place."""
        if self._centres is not centres:
            self._centres, self._halves, self._between = centres, self._of(centres), None
        return self._halves

    def note(self, n_distances: float) -> None:
        """Note how many distances from rows to centres a pass has computed."""
        self._n_distances += n_distances

    def between(self, centres: np.ndarray) -> np.ndarray:
        """Return lower bounds of half the distances between centres, (k, k), float32; a centre's own: inf.

        Centres are never changed in place; `of` follows from these.
        """
        if self._centres is not centres or self._between is None:
            halves = half_distances(centres)
            least = halves.min(axis=1).astype(np.float64)
            self._halves = np.where(least < _MOST, least, 0.0)
            self._centres, self._between = centres, halves
        return self._between

    def _of(self, centres: np.ndarray) -> np.ndarray:
        if self._measured is not None:
            before, halves = self._measured
            moved = lengths(before, centres) * (1.0 + _SAFE)
            lost = 0.5 * (moved + moved.max())
            would_cost = REPAID * len(centres) ** 2
            if self._n_distances < would_cost or (lost <= _WORN * halves).all():
                return np.asarray((halves - lost) * (1.0 - _SAFE))
        halves = half_gaps(centres)
        self._measured, self._n_distances = (centres, halves), 0
        return halves


def lengths(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the distance that each centre moved, shape (k,), float64."""
    k = len(before)
    squared = np.empty(k)
    sqdist_to_assigned(after, before, np.arange(k, dtype=np.int32), squared)
    return np.asarray(np.sqrt(squared, out=squared))


def half_gaps(centres: np.ndarray) -> np.ndarray:
    """Return a lower bound of half the distance of each centre to the nearest other one."""
    k = len(centres)
    first, second = np.empty(k, np.int32), np.empty(k, np.int32)
    panels = pack(centres)
    nearest(centres, panels, first, second)
    other = np.where(first == np.arange(k), second, first)
    gaps = centres.astype(np.float64) - centres[other]
    squared = (gaps * gaps).sum(axis=1)
    # Another centre may be nearer by a difference that scores cannot resolve.
    wide = centres.astype(np.float64) - panels.offset
    far = np.sqrt((wide * wide).sum(axis=1).max())
    squared -= 16 * (centres.shape[1] + 4) * np.finfo(centres.dtype).eps * far * far
    halves = 0.5 * np.sqrt(np.maximum(squared, 0.0)) * (1.0 - _SAFE)
    return np.where((other >= 0) & np.isfinite(halves) & (far < _MOST), halves, 0.0)


_FMA = 0.0085
"""One product of one feature of one row and one centre, in the tile of AVX-512."""
_SLOWER = {"avx512": 1.0, "avx2": 1.65, "neon": 4.0, "portable": 4.0}
"""The same in other tiles, on one CPU; see `tile_slowness`."""
_PREPARE = 0.05
"""Per feature of a row in a pass over all: packing it for the tile, adding it to a sum."""
_MEASURE = 1.4
"""Per feature of a visited row: measuring it against its own centre, packing, moving."""
_READ = 0.03
_FETCH = 0.13
"""Per byte of a row that is read in order, and out of order."""
_DECODE = 4.0
"""Per byte of a row that is read from its store, out of core."""
_PLAIN_ROW, _FILTERED_ROW, _TOUCHED_ROW = 3.2, 5.2, 100.0
_WINNER, _RUNNER_UP = 0.02, 0.45
"""Per centre: keeping the best, and the best two."""


def tile_slowness(dtype: np.dtype[Any], tile: str) -> float:
    """Return the time of a product in a tile, relative to float32 in the tile of AVX-512.

    Examples
    --------
    >>> tile_slowness(np.dtype("float64"), "avx512")
    2.0
    """
    return _SLOWER[tile] * dtype.itemsize / 4


@dataclass(frozen=True)
class Counts:
    """Work of a pass, as shares of the rows.

    Attributes
    ----------
    touched : float
        Rows visited.
    distances : float
        Distances to centres, per row of the dataset.
    read : float
        Rows that must be read from their store.
    """

    touched: float
    distances: float
    read: float = 1.0


@dataclass(frozen=True)
class CostModel:
    """Size of the problem: features, centres, bytes of a row, centres in a group, rows to read again.

    `slowness` is what products take, in that of float32 in the tile of AVX-512, and `pruned` the cost of
    comparing a row with all centres, as a share of that of the tile (`daskcluster.chunkwise.pruned`).
    """

    d: int
    k: int
    row_bytes: int
    group: int
    reads: bool = False
    slowness: float = 1.0
    pruned: float = 1.0

    def plain(self) -> float:
        """Return the cost of a row in a pass over all rows and centres."""
        read = self.row_bytes * _READ + self.decode(1.0)
        return _PLAIN_ROW + self.d * _PREPARE + self.pruned * self.met(self.k, _WINNER) + read

    def all_fail(self) -> float:
        """Return the cost of a row within one lower bound where no bound holds."""
        return self.one_bound(Counts(1.0, 1.0 + self.k))

    def one_bound(self, counts: Counts) -> float:
        """Return the cost of a row within one lower bound."""
        met = max(0.0, counts.distances - counts.touched)
        looked = counts.touched * (_TOUCHED_ROW + self.fetch())
        tile = self.met(met, _RUNNER_UP)
        return _FILTERED_ROW + looked + tile + self.decode(counts.read)

    def gaps(self) -> float:
        """Return the cost of the distances between all centres."""
        return self.slowness * self.k * self.k * self.d * _FMA

    def met(self, centres: float, keeping: float) -> float:
        """Return the cost of that many centres in the tile; `keeping` is that of keeping the best."""
        return self.slowness * centres * (self.d * _FMA + keeping)

    def decode(self, share: float) -> float:
        """Return the cost of reading this share of the rows from their store."""
        return share * self.row_bytes * _DECODE if self.reads else 0.0

    def fetch(self) -> float:
        """Return the cost of moving a visited row, and of measuring it against its own centre."""
        return self.d * _MEASURE + self.row_bytes * _FETCH


@dataclass(frozen=True, eq=False)
class BoundKind:
    """A kind of bounds; `daskcluster.methods.kmeans.bounds.register_bounds` makes it an ``algorithm``.

    Attributes
    ----------
    name : str
        In ``algorithm=``, on the command line and in events.
    row_bytes : callable (n_clusters, dtype) -> int
        Bytes of a row's state: its label, an upper bound and the lower ones.
    step : callable (BoundedParams, Drift, Gaps) -> (StatefulReduction, params)
        The pass that brings labels and bounds up to date, and what it is called with.
    cost : callable (CostModel, Counts) -> float
        Nanoseconds of a row in such a pass, by its counts.
    groups : callable (centres) -> tuple of ndarray of int32
        Groups of centres that have a lower bound of their own; none by default.
    pairwise : bool
        A pass uses the distances between all centres.
    suits : callable (n_features, n_clusters, dtype) -> bool
        Whether ``algorithm="auto"`` considers it; by default it does not.
    may_win : callable (CostModel) -> bool
        Whether it is worth trying there; by default it is.
    excludes_others : bool
        Where it suits, no other kind is tried.
    """

    name: str
    row_bytes: Callable[[int, np.dtype[Any]], int]
    step: Callable[[BoundedParams, Drift, Gaps], tuple[StatefulReduction, Any]]
    cost: Callable[[CostModel, Counts], float]
    groups: Callable[[np.ndarray], tuple[np.ndarray, ...]] = lambda centres: ()
    pairwise: bool = False
    suits: Callable[[int, int, np.dtype[Any]], bool] = lambda n_features, n_clusters, dtype: False
    may_win: Callable[[CostModel], bool] = lambda shape: True
    excludes_others: bool = False

    def __str__(self) -> str:
        return self.name
