"""`BoundKind`: everything in which Hamerly's, Yinyang's and Elkan's bounds differ; and costs of passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.methods.kmeans.chunkwise.bounded import BoundedParams
from daskcluster.methods.kmeans.drift import Drift, Gaps

_FMA = 0.018
"""One product of one feature of one row and one centre, in the tile of AVX-512."""
_SLOWER = {"avx512": 1.0, "avx2": 1.65, "neon": 4.0, "portable": 4.0}
"""The same in other tiles, on one CPU; see `tile_slowness`."""
_PREPARE = 0.27
"""Per feature of a row in a pass over all: packing it for the tile, adding it to a sum."""
_MEASURE = 0.4
"""Per feature of a visited row: measuring it against its own centre, packing, moving."""
_READ = 0.03
_FETCH = 0.13
"""Per byte of a row that is read in order, and out of order."""
_DECODE = 4.0
"""Per byte of a row that is read from its store, out of core."""
_PLAIN_ROW, _FILTERED_ROW, _TOUCHED_ROW = 3.5, 7.0, 15.0
_SPARSE_ROW, _SPARSE_MEASURE, _SPARSE_FETCH, _SPARSE_FMA = 30.0, 2.8, 0.6, 0.06
"""Of sparse rows: per row; per value measured against a centre; per value that meets all, and centre."""
_WINNER, _RUNNER_UP = 0.1, 0.6
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
    searched : float
        Rows that a search by bounds labels, which counts all their distances.
    """

    touched: float
    distances: float
    read: float = 1.0
    searched: float = 0.0


@dataclass(frozen=True)
class Shape:
    """Size of the problem: features, centres, bytes of a row, centres in a group, rows to read again.

    `slowness` is what products take, in that of float32 in the tile of AVX-512, and `pruned` the cost of
    comparing a row with all centres, as a share of that of the tile (`daskcluster.chunkwise.pruned`);
    `bounds_groups` as for `FixedSearch`.
    """

    d: int
    k: int
    row_bytes: int
    group: int
    reads: bool = False
    slowness: float = 1.0
    pruned: float = 1.0
    bounds_groups: bool = False

    def plain(self) -> float:
        """Return the cost of a row in a pass over all rows and centres."""
        read = self.row_bytes * _READ + self.decode(1.0)
        return _PLAIN_ROW + self.d * _PREPARE + self.search() + read

    def search(self) -> float:
        """Return the cost of comparing a row with all centres, by bounds where they pay."""
        return self.pruned * self.met(self.k, _WINNER)

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


@dataclass(frozen=True)
class SparseShape(Shape):
    """`Shape` of sparse rows, which store `entries` values on average."""

    entries: float = 0.0

    def met(self, centres: float, keeping: float) -> float:
        """Return the cost of that many centres in the search; `keeping` is that of keeping the best."""
        share = centres / self.k
        return share * (self.entries * self._entry() + self.slowness * self.k * keeping)

    def plain(self) -> float:
        """Return the cost of a row in a pass over all rows and centres."""
        return _SPARSE_ROW + self.met(self.k, _WINNER) + self.decode(1.0)

    def fetch(self) -> float:
        """Return the cost of measuring a visited row against its own centre."""
        return self.entries * _SPARSE_MEASURE

    def _entry(self) -> float:
        return _SPARSE_FETCH + self.slowness * self.k * _SPARSE_FMA


def _no_groups(centres: np.ndarray) -> tuple[np.ndarray, ...]:
    return ()


def _one(n_groups: int, n_clusters: int) -> tuple[int, ...]:
    return ()


def _never(n_features: int, n_clusters: int, dtype: np.dtype[Any]) -> bool:
    return False


def _always(shape: Shape) -> bool:
    return True


def _comparison(shape: Shape) -> float:
    return shape.all_fail()


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
    cost : callable (Shape, Counts) -> float
        Nanoseconds of a row in such a pass, by its counts.
    groups : callable (centres) -> tuple of ndarray of int32
        Groups of centres that have a lower bound of their own; none by default.
    n_lower : callable (n_groups, n_clusters) -> tuple of int
        Shape of the lower bounds of a row; one bound by default.
    pairwise : bool
        A pass uses the distances between all centres.
    suits : callable (n_features, n_clusters, dtype) -> bool
        Whether ``algorithm="auto"`` considers it; by default it does not.
    may_win : callable (Shape) -> bool
        Whether it is worth trying there; by default it is.
    excludes_others : bool
        Where it suits, no other kind is tried.
    searches : bool
        Takes a `FixedSearch`: new bounds cost about as much as a pass.
    setting : callable (Shape) -> float
        Nanoseconds of a row to set new bounds; by default, those of a full comparison.
    """

    name: str
    row_bytes: Callable[[int, np.dtype[Any]], int]
    step: Callable[[BoundedParams, Drift, Gaps], tuple[StatefulReduction, Any]]
    cost: Callable[[Shape, Counts], float]
    groups: Callable[[np.ndarray], tuple[np.ndarray, ...]] = _no_groups
    n_lower: Callable[[int, int], tuple[int, ...]] = _one
    pairwise: bool = False
    suits: Callable[[int, int, np.dtype[Any]], bool] = _never
    may_win: Callable[[Shape], bool] = _always
    excludes_others: bool = False
    searches: bool = False
    setting: Callable[[Shape], float] = _comparison

    def __str__(self) -> str:
        return self.name
