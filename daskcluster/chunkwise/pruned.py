"""The search by bounds that is cheapest for centres and rows, if any pays.

Labels do not depend on it (`daskcluster.kernels.pruned_search`). A sample of rows shows how many centres
the bounds of each form would leave: by counts, not by clocks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from daskcluster.chunkwise.bound_costs import (
    MOST_LEFT,
    Left,
    Sample,
    close_together,
    every_so_many,
    expected_loss,
    most_axes,
    panels_with,
    plan_projection,
    sample_bytes,
    sample_of,
    search_cost,
)
from daskcluster.kernels import tile
from daskcluster.kernels.candidates import UNDECIDED, errors_of
from daskcluster.kernels.dot_product import MADD, MADD_SHORT, best_dot
from daskcluster.kernels.panels import Panels, common_offset
from daskcluster.kernels.pruned_search import PrunedCentres, nearest_pruned
from daskcluster.kernels.quantized import (
    MOST_SHORT,
    Projection,
    RowRange,
    first_terms,
    project_points,
    quantize_centres,
    range_of_rows,
    shifted_blocks,
    squared_lengths,
)

_LEAST_CENTRES, _LEAST_SCORES = 128, 1 << 14
"""With fewer centres, or products for a row, the search of all centres is over before any bound pays."""
_LEAST_ROWS, _LEAST_PRODUCTS = 512, 1 << 27
"""The search of fewer rows, or products, would not repay the sample."""
_LEAST_EXPECTED, _LEAST_PACKED = 3072, 512
"""With fewer rows in all, the sample and packed centres, or these alone, take longer than they save: as
long as 1,400 and 500 rows in the tile of AVX2, for 4,096 centres of 768 features."""
LEVELLED_ROWS, _PROJECTED_ROWS = 4096, 1024
"""Rows, at most, whose coordinates set the levels of quantized ones; fewer where they must be projected."""
_SAMPLED_CENTRES = 4096
"""Centres, at most, whose extent stands for that of all while costs are counted."""
_LEAST_GAIN = 0.75
_GIVEN_UP = 0.25
"""Largest share of rows that the search may give up before it is given up itself."""

_MOST_SHARE = 0.5
"""A search that saves less leaves bounds of groups too wide to keep."""

_ALONE = threading.Lock()


class PrunedSearch:
    """The search by bounds for one set of centres.

    Parameters
    ----------
    packed : PrunedCentres
    """

    def __init__(self, packed: PrunedCentres) -> None:
        self._packed = packed
        self._most = len(packed.centres) // MOST_LEFT
        self._rows, self._given_up = 0, 0

    @property
    def pays(self) -> bool:
        """False once too many rows needed the search of all centres."""
        return self._rows < _LEAST_ROWS or self._given_up <= _GIVEN_UP * self._rows

    def nearest(
        self,
        rows: np.ndarray,
        labels: np.ndarray,
        second: np.ndarray | None = None,
        scores: np.ndarray | None = None,
    ) -> np.ndarray:
        """Label rows, once or twice; return which of them need the search of all centres."""
        nearest_pruned(rows, self._packed, self._most, labels, second, scores)
        left = np.flatnonzero(labels == UNDECIDED)
        self._rows += len(labels)
        self._given_up += len(left)
        return left


@dataclass(frozen=True)
class FixedSearch:
    """What a search by bounds takes from a sample of rows, to be the same for other centres and elsewhere.

    Attributes
    ----------
    share : float
        Cost as a share of that of all centres.
    axes : ndarray of shape (d, m), or None
    features : RowRange or None
        None if no search pays.
    heads : RowRange or None
        That of coordinates on the axes.
    short : bool
        Sums have 16 bits where that is possible.
    """

    share: float = 1.0
    axes: np.ndarray | None = None
    features: RowRange | None = None
    heads: RowRange | None = None
    short: bool = False

    @property
    def pays(self) -> bool:
        return self.features is not None

    @property
    def bounds_groups(self) -> bool:
        """Whether it sets bounds of groups that are narrow enough to keep."""
        # The panels of sums of 16 bits have another height.
        return self.pays and not self.short and self.share <= _MOST_SHARE

    def pack(
        self, centres: np.ndarray, panels: Panels, groups: tuple[np.ndarray, ...] = ()
    ) -> PrunedCentres | None:
        """Return centres packed for it, group by group if there are any; None if they have no levels."""
        dot, projection = best_dot(panels.tile.name), None
        if self.features is None or not dot:
            return None
        if self.short and dot == MADD:
            dot = MADD_SHORT
        order = np.concatenate(groups) if groups else None
        with one_blas_thread():
            if self.axes is not None:
                axes = self.axes.astype(centres.dtype, copy=False)
                heads = project_points(centres, axes, panels.offset)
                squares = np.empty(len(centres))
                for part, shifted in shifted_blocks(centres, panels.offset):
                    squared_lengths(shifted, squares[part])
                projection = Projection(axes, heads, squares)
                order = close_together(heads, panels.tile.height) if order is None else order
            return _pack(centres, panels, (self.features, self.heads), dot, projection, order)


def fixed_search(centres: np.ndarray, rows: np.ndarray) -> FixedSearch | None:
    """Return the search by bounds that is cheapest for rows like these; None for few centres.

    Examples
    --------
    >>> import numpy as np
    >>> centres = np.random.default_rng(0).normal(size=(60, 60)).astype(np.float32)
    >>> fixed_search(centres, centres) is None
    True
    """
    if not may_pay(centres):
        return None
    offset = common_offset(centres)
    with one_blas_thread():
        plan = _plan(centres, rows, offset)
        if plan is None:
            return FixedSearch()
        heads, axes = None, None
        if plan.projection is not None:
            axes, few = plan.projection.axes, every_so_many(rows, _PROJECTED_ROWS)
            heads = range_of_rows(few, centres, offset, plan.projection)
        features = range_of_rows(every_so_many(rows, LEVELLED_ROWS), centres, offset, None)
        return FixedSearch(plan.share, axes, features, heads, plan.dot == MADD_SHORT)


class GroupSearch:
    """The search by bounds that also bounds the distances to groups of centres.

    Shared by the threads of a task. Centres are packed on first use.

    Parameters
    ----------
    search : FixedSearch
        One that bounds groups.
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    groups : tuple of ndarray of int
        Centres of each group; all groups but the last have the same size.
    """

    def __init__(
        self, search: FixedSearch, centres: np.ndarray, groups: tuple[np.ndarray, ...]
    ) -> None:
        self.share = search.share
        self.size, self.n_groups = len(groups[0]), len(groups)
        self._search, self._centres, self._groups = search, centres, groups
        self._lock, self._packed = threading.Lock(), list[PrunedCentres | None]()

    def bound(self, rows: np.ndarray, labels: np.ndarray, lower: np.ndarray) -> bool:
        """Label and bound rows, see `nearest_pruned`; return False if centres have no levels."""
        with self._lock:
            if not self._packed:
                self._packed.append(self._pack())
        packed = self._packed[0]
        if packed is None:
            return False
        most = len(self._centres) // MOST_LEFT
        nearest_pruned(rows, packed, most, labels, groups=(self.size, lower))
        return True

    def _pack(self) -> PrunedCentres | None:
        panels = tile.pack(
            self._centres, tile=tile.working_tile(len(self._centres), self._centres.dtype)
        )
        # On another processor than the one that formed the groups, they may not be whole panels.
        if self.size % panels.tile.height:
            return None
        return self._search.pack(self._centres, panels, self._groups)


def pruned_search(centres: np.ndarray, panels: Panels, rows: np.ndarray) -> PrunedSearch | None:
    """Return the search by bounds that is cheapest for rows like these; None if none pays.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    panels : Panels
        The same centres.
    rows : ndarray of shape (n, d), dtype of the centres

    Notes
    -----
    Cost: about the time of comparing a thousand rows with all centres.
    """
    with one_blas_thread():
        plan = _plan(centres, rows, panels.offset)
        packed = None if plan is None else plan.pack(centres, panels, rows)
    return None if packed is None else PrunedSearch(packed)


def may_pay(centres: np.ndarray) -> bool:
    """Return whether there are enough centres and features for a search by bounds."""
    k, d = centres.shape
    return search_bytes(k, d, centres.dtype) > 0


def repays_sample(centres: np.ndarray, n_rows: int, expected: int | None = None) -> bool:
    """Return whether so many rows took long enough to make a sample, if so many are `expected` in all."""
    if expected is not None and expected < _LEAST_EXPECTED:
        return False
    return n_rows >= _LEAST_ROWS and n_rows * centres.size >= _LEAST_PRODUCTS


def repays_packing(expected: int | None) -> bool:
    """Return whether so many rows repay the centres packed for a search that is known."""
    return expected is None or expected >= _LEAST_PACKED


def search_bytes(n_clusters: int, n_features: int, dtype: np.dtype[Any]) -> int:
    """Return the most memory that a search by bounds takes; 0 where none pays.

    Bounds of a sample while the forms are compared, and quantized centres.

    Examples
    --------
    >>> search_bytes(1000, 768, np.dtype("f4")), search_bytes(10, 16, np.dtype("f4"))
    (5904000, 0)
    """
    if n_clusters < _LEAST_CENTRES or n_clusters * n_features < _LEAST_SCORES:
        return 0
    coordinates = 2 * most_axes(n_clusters, n_features) * dtype.itemsize
    centres = n_clusters * (3 * n_features + coordinates + 16)
    return centres + sample_bytes(n_clusters, dtype.itemsize)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute with one thread of BLAS: the others would spin on the cores of the threads that search."""
    with _ALONE, _blas().limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
        yield


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@dataclass(frozen=True)
class _Plan:
    """A search that pays: its cost as a share of that of all centres, and axes and order, if it has any."""

    share: float
    dot: int
    projection: Projection | None
    order: np.ndarray | None

    def pack(self, centres: np.ndarray, panels: Panels, rows: np.ndarray) -> PrunedCentres | None:
        """Return the centres packed for it."""
        ranges = every_so_many(rows, LEVELLED_ROWS), every_so_many(rows, _PROJECTED_ROWS)
        return _pack(centres, panels, ranges, self.dot, self.projection, self.order)


def _pack(
    centres: np.ndarray,
    panels: Panels,
    ranges: tuple[np.ndarray | RowRange, np.ndarray | RowRange | None],
    dot: int,
    projection: Projection | None,
    order: np.ndarray | None,
) -> PrunedCentres | None:
    """Return packed centres; `ranges` are those of features and of coordinates, or rows for each."""
    heads = None
    if projection is not None:
        assert ranges[1] is not None
        heads = quantize_centres(centres, panels, ranges[1], dot, projection, order)
    features = quantize_centres(
        centres, panels, ranges[0], dot, order=order, in_lines=heads is not None
    )
    if features is None or (heads is None) != (projection is None):
        return None
    return PrunedCentres(centres, panels.offset, first_terms(panels), features, heads, order)


def _plan(centres: np.ndarray, rows: np.ndarray, offset: np.ndarray) -> _Plan | None:
    (k, d), suited = centres.shape, tile.working_tile(len(centres), centres.dtype)
    dot, height = best_dot(suited.name), suited.height
    if not dot:
        return None
    sample, whole = sample_of(centres, rows, offset), k * d * centres.itemsize / 4
    if not sample.is_finite:
        return None
    (cost, left), projection, order = _by_features(sample, height, dot), None, None
    projected = plan_projection(sample, left, height, dot)
    if projected is not None and projected[0] < cost:
        cost, projection, order = projected
    if dot == MADD and k < MOST_SHORT:
        short = _by_features(sample, height, MADD_SHORT)[0]
        if short < cost:
            cost, dot, projection, order = short, MADD_SHORT, None, None
    return _Plan(cost / whole, dot, projection, order) if cost < _LEAST_GAIN * whole else None


def _by_features(sample: Sample, height: int, dot: int) -> tuple[float, np.ndarray]:
    """Return the cost per row with bounds of features, and which centres they leave, (m, k), bool."""
    k, d = sample.centres.shape
    left = _left_by_features(sample, dot)
    n_left, panels = left.sum(axis=1), np.arange(k) // height
    there = Left(panels_with(left, panels), 0 * n_left, n_left)
    return search_cost(sample, there, d, dot), left


def _left_by_features(sample: Sample, dot: int) -> np.ndarray:
    """Return which centres the bounds of quantized features leave, (m, k), bool.

    Bounds are taken to be the scores; what quantizing may take from them lowers the limits.
    """
    some = sample.shifted(_SAMPLED_CENTRES)
    mean = some.mean(axis=0)
    some -= mean
    longest = float(np.sqrt(np.square(some).sum(axis=1).max()))
    loss = expected_loss(sample.rows - mean, float(np.abs(some).max()), longest, dot)
    limits = sample.limits(
        errors_of(some.shape[1], mean.dtype, float(np.sqrt(sample.squares.max())))
    )
    return np.asarray(sample.scores >= (limits - loss)[:, None])
