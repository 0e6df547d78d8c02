"""The search by bounds that is cheapest for centres and rows, if any pays.

Labels do not depend on it (`daskcluster.kernels.pruned_search`), nor on its axes, which are computed from
the centres alone. A sample of rows shows how many centres the bounds of each form would leave: by counts,
not by clocks. Costs are in multiply-adds of the tile in float32: the constants are measured times, divided
by that of a multiply-add.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from daskcluster.kernels import tile
from daskcluster.kernels.dot_product import (
    MADD,
    MADD_SHORT,
    QUAD,
    SDOT,
    VNNI,
    best_dot,
)
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import Panels, common_offset
from daskcluster.kernels.pruned_search import UNDECIDED, WINNERS, PrunedCentres, nearest_pruned
from daskcluster.kernels.quantized import (
    MOST_SHORT,
    Errors,
    Projection,
    RowRange,
    errors_of,
    first_terms,
    fitting_levels,
    project_points,
    quantize_centres,
    range_of_rows,
    shifted_blocks,
    squared_lengths,
)

_SAMPLED_ROWS, _SAMPLED_BOUNDS = 128, 1 << 22
"""Most rows, and most bounds, of the sample. Of few rows, some have many centres left."""
_BOUNDS_AT_ONCE = 5
"""Numbers for each bound of the sample, at most: scores, bounds of coordinates, and what is computed."""

_PRODUCT = {MADD: 0.48, MADD_SHORT: 0.26, VNNI: 0.24, SDOT: 0.3}
"""Cost of a product, in each instruction."""
_BOUND, _ROW, _FEATURE = 1.0, 3300, 30
"""Costs of a bound, a row, and a feature of a row, besides products."""
_LOOKED, _LOOKED_FEATURE = 1500, 14
_BOUNDED, _BOUNDED_FEATURE = 420, 0.55
_MEASURED, _MEASURED_FEATURE = 800, 17
"""Costs of a panel that is looked through, of a second bound, and of a centre that is measured."""

_CACHE, _FAR = 1 << 25, 2.0
"""Bytes of quantized features that a cache has room for. Reading more takes longer, by up to so much."""

MOST_LEFT = 20
"""Rows for which more than one centre of so many is left are searched in full."""

_RANGE = 1.3
"""The range of the coordinates of most rows, over that of a typical row."""
_UNEVEN = 1.25
"""The largest loss of a centre, over what is expected of losses that are uniform."""


@dataclass(frozen=True)
class Sample:
    """Some rows, less the offset of the centres, and their scores with all centres.

    Attributes
    ----------
    offset : ndarray of shape (d,)
    centres : ndarray of shape (k, d)
        As they are: less the offset, they would fill as much memory again.
    squares : ndarray of shape (k,), float64
        |c'|^2.
    rows : ndarray of shape (m, d)
    lengths : ndarray of shape (m,), float64
        |x'|^2.
    scores : ndarray of shape (m, k)
    """

    offset: np.ndarray
    centres: np.ndarray
    squares: np.ndarray
    rows: np.ndarray
    lengths: np.ndarray
    scores: np.ndarray

    @property
    def is_finite(self) -> bool:
        """False if lengths or scores overflow, or a row is not finite."""
        return bool(np.isfinite(self.lengths).all() and np.isfinite(self.scores).all())

    def shifted(self, most: int) -> np.ndarray:
        """Return every so many of the centres, at most `most`, less the offset."""
        return np.asarray(every_so_many(self.centres, most) - self.offset)

    def limits(self, errors: Errors) -> np.ndarray:
        """Return the bounds below which centres cannot be nearest to a row, without errors of bounds."""
        total = np.square(np.sqrt(self.lengths) + errors.largest)
        return np.asarray(self.scores.max(axis=1) - 0.5 * errors.margin * total)


def sample_of(centres: np.ndarray, rows: np.ndarray, offset: np.ndarray) -> Sample:
    """Return a sample of rows, and their scores.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    rows : ndarray of shape (n, d), dtype of the centres
    offset : ndarray of shape (d,)
        See `daskcluster.kernels.panels.common_offset`.
    """
    k = len(centres)
    some = every_so_many(rows, _sampled_rows(k)) - offset
    squares, scores = np.empty(k), np.empty((len(some), k), centres.dtype)
    for part, shifted in shifted_blocks(centres, offset):
        squared_lengths(shifted, squares[part])
        scores[:, part] = some @ shifted.T
    scores -= (0.5 * squares).astype(centres.dtype)
    lengths = np.square(some, dtype=np.float64).sum(axis=1)
    return Sample(offset, centres, squares, some, lengths, scores)


def sample_bytes(n_clusters: int, itemsize: int) -> int:
    """Return the most memory of scores and bounds of a sample."""
    return _sampled_rows(n_clusters) * n_clusters * _BOUNDS_AT_ONCE * itemsize


def _sampled_rows(n_clusters: int) -> int:
    return max(1, min(_SAMPLED_ROWS, _SAMPLED_BOUNDS // n_clusters))


def every_so_many(points: np.ndarray, most: int) -> np.ndarray:
    """Return every so many of the points, at most `most`."""
    count = min(len(points), most)
    return points[np.arange(count) * len(points) // count]


@kernel
def count_left(bounds, rests, limits, best, scores, left, panels, n_groups, found):  # type: ignore[no-untyped-def]
    """Count what bounds of coordinates leave; OUT: found (`Left`).

    `bounds` lack the product of `rests`, those of the rows and those of the centres. Rows begin with lower
    limits, since the centres with the largest bound in each of some groups are measured first. On average,
    they raise them halfway: what both limits leave is averaged.
    """
    (of_rows, of_centres), (m, k) = rests, bounds.shape
    size, upper = k // n_groups, np.empty(k, bounds.dtype)
    met, met_first = np.full(panels.max() + 1, -1), np.full(panels.max() + 1, -1)
    for i in range(m):
        for j in range(k):
            upper[j] = bounds[i, j] + of_rows[i] * of_centres[j]
        start = -np.inf
        for g in range(n_groups):
            place = g * size
            for j in range(g * size, (g + 1) * size):
                place = j if upper[j] > upper[place] else place
            start = max(start, scores[i, place])
        first = limits[i] - best[i] + start
        for j in range(k):
            if upper[j] >= first:
                p, sure = panels[j], upper[j] >= limits[i]
                found.bounded[i] += 1.0 if sure else 0.5
                if met_first[p] != i:
                    met_first[p] = i
                    found.looked[i] += 0.5
                if sure:
                    found.measured[i] += left[i, j]
                    if met[p] != i:
                        met[p] = i
                        found.looked[i] += 0.5


class Left(NamedTuple):
    """The centres that bounds leave of each row of a sample, (m,) each.

    Attributes
    ----------
    looked : ndarray
        Panels that are looked through.
    bounded, measured : ndarray
        Centres that need a second bound, and that are measured.
    """

    looked: np.ndarray
    bounded: np.ndarray
    measured: np.ndarray


def search_cost(sample: Sample, left: Left, n: int, dot: int) -> float:
    """Return the cost of the search per row, with n coordinates in the first bounds."""
    k, d = sample.centres.shape
    cost = (
        left.looked * (_LOOKED + _LOOKED_FEATURE * n * _distance(k * n))
        + left.bounded * (_BOUNDED + _BOUNDED_FEATURE * d * _distance(k * d))
        + left.measured * (_MEASURED + _MEASURED_FEATURE * d)
    )
    # A row with more centres left is given up.
    cost = np.where(left.measured > k // MOST_LEFT, np.minimum(cost, k * d) + k * d, cost)
    multiplied = QUAD * -(-n // QUAD)
    return _ROW + _FEATURE * d + k * (_PRODUCT[dot] * multiplied + _BOUND) + float(cost.mean())


def _distance(size: int) -> float:
    return 1.0 + min(size / _CACHE, _FAR)


def expected_loss(about: np.ndarray, extent: float, longest: float, dot: int) -> np.ndarray:
    """Return by how much quantizing may lower bounds, for rows about the mean of the centres, (m,).

    `extent` is the largest coordinate of a centre about the mean, and `longest` the length of the longest.
    """
    spread = np.sqrt(about.shape[1] / 12)
    reach = _RANGE * float(np.median(about.max(axis=1)) - np.median(about.min(axis=1)))
    lengths = np.sqrt(np.square(about, dtype=np.float64).sum(axis=1))
    n, far = about.shape[1], float(lengths.max()) + longest
    levels = fitting_levels(dot, reach, extent, far, n)
    lost, rest = spread * reach / levels.row, _UNEVEN * spread * extent / levels.centre
    return np.asarray(lost * (longest + rest) + lengths * rest)


_LEAST_PROJECTED, _LEAST_FEATURES = 512, 48
"""Below these, another search is always faster."""
_SIZES = (16, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of axes that are tried, rounded up to whole panels."""
_MOST_AXES, _MANY_CENTRES = 128, 8192
"""Finding more axes pays for many centres only."""
_SAMPLED_CENTRES, _PROBED_CENTRES, _PROBED_AXES = 1024, 256, 24
_OVERSAMPLED = 8
"""Vectors of the randomised subspace iteration (Halko, Martinsson, Tropp 2011, algorithm 4.4)."""
_LEAST_PROBED, _LEAST_SHARE = 0.3, 0.5
"""Centres whose axes hold less of their squared lengths have no structure to use: first of the few axes of
a probe, which costs little, and then of all axes."""

ORDERED_AXES = 24
"""Axes along which centres are ordered."""

_PROJECTED_AT_ONCE = 64
"""Axes onto which centres are projected in one go, because reading the centres takes as long."""

_PROJECTED = 2.0
"""Cost of a feature of a row for each axis."""


def most_axes(n_clusters: int, n_features: int) -> int:
    """Return the largest number of axes that is tried; 0 where projections never pay."""
    if n_clusters < _LEAST_PROJECTED or n_features < _LEAST_FEATURES:
        return 0
    return min(n_features // 3, _MOST_AXES if n_clusters < _MANY_CENTRES else _SIZES[-1])


def plan_projection(
    sample: Sample, left: np.ndarray, height: int, dot: int
) -> tuple[float, Projection] | None:
    """Return the cheapest projection, and the cost of a search per row; None without structure to use.

    Parameters
    ----------
    sample : Sample
    left : ndarray of shape (m, k), bool
        Centres that bounds of quantized features leave.
    height : int
        Centres of a panel.
    dot : int
        Instruction that multiplies quantized coordinates.

    Notes
    -----
    Cost: about the time of searching 32 + 2 m rows, m the number of axes (at most 256).
    """
    k, d = sample.centres.shape
    sizes = sorted({-(-m // height) * height for m in _SIZES if m <= most_axes(k, d)})
    some = sample.shifted(_PROBED_CENTRES)
    if not sizes or principal_axes(some, _PROBED_AXES, _LEAST_PROBED) is None:
        return None
    axes = principal_axes(sample.shifted(_SAMPLED_CENTRES), sizes[-1], _LEAST_SHARE)
    if axes is None:
        return None
    whole = Projection(axes, np.empty((k, sizes[-1]), axes.dtype), sample.squares)
    costs, order = _costs(sample, left, whole, sizes, height, dot)
    m = min(costs, key=lambda m: (costs[m], m))
    axes, heads = (np.ascontiguousarray(some[:, :m]) for some in (axes, whole.heads))
    return costs[m], Projection(axes, heads, sample.squares, order)


def principal_axes(points: np.ndarray, most: int, least: float) -> np.ndarray | None:
    """Return the axes of the largest second moments, (d, most), if they hold a share `least` of all.

    The moments are about zero, as scores are, and not about the mean.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(99, 9)) * 0.5 ** np.arange(9)
    >>> axes = principal_axes(points, 2, 0.5)
    >>> bool(abs(axes[0, 0]) > 0.9), principal_axes(points, 2, 0.99) is None
    (True, True)
    """
    d = points.shape[1]
    total = float(np.square(points, dtype=np.float64).sum())
    if not 0.0 < total < np.inf:
        return None
    start = np.random.default_rng(0).standard_normal((d, min(d, most + _OVERSAMPLED)))
    basis = np.linalg.qr(points.T @ (points @ start.astype(points.dtype)))[0]
    inside = points @ basis
    values, turn = np.linalg.eigh((inside.T @ inside).astype(np.float64))
    if not values[::-1][:most].sum() >= least * total:
        return None
    return (basis.astype(np.float64) @ turn[:, ::-1][:, :most]).astype(points.dtype)


def _costs(
    sample: Sample, left: np.ndarray, whole: Projection, sizes: list[int], height: int, dot: int
) -> tuple[dict[int, float], np.ndarray]:
    """Return the cost per row with each number of axes, up to the cheapest and beyond, and the order.

    OUT: whole.heads: the coordinates of the centres on the axes that were tried.
    """
    (k, d), kind = sample.centres.shape, whole.axes.dtype
    rest, about = sample.squares.copy(), sample.rows @ whole.axes
    coordinates, kept, lengths = about.copy(), np.zeros(len(about)), np.zeros(k)
    bounds = np.repeat((-0.5 * rest).astype(kind)[None], len(about), axis=0)
    known = 0
    largest = float(np.sqrt(rest.max()))
    limits = sample.limits(errors_of(d, kind, largest, extra=whole.slack().bound))
    costs, before, extent, order = dict[int, float](), 0, 0.0, np.arange(k)
    best, panels = sample.scores.max(axis=1), np.arange(k) // height
    for m in sizes:
        if known < m:
            here = slice(known, next(n for n in sizes[::-1] if n <= max(m, _PROJECTED_AT_ONCE)))
            axes, known = np.ascontiguousarray(whole.axes[:, here]), here.stop
            whole.heads[:, here] = project_points(sample.centres, axes, sample.offset)
        found, part = whole.heads[:, before:m], coordinates[:, before:m]
        mean = found.mean(axis=0)
        bounds += part @ found.T
        kept += np.square(part, dtype=np.float64).sum(axis=1)
        about[:, before:m] -= mean
        extent = max(extent, _move_lengths(found, mean, rest, lengths))
        if before == 0:
            order = close_together(found, height)
            panels[order] = np.arange(k) // height
        rests = tuple(
            np.sqrt(np.maximum(some, 0.0)).astype(kind) for some in (sample.lengths - kept, rest)
        )
        loss = expected_loss(about[:, :m], extent, float(np.sqrt(lengths.max())), dot)
        there = Left(*np.zeros((3, len(about))))
        count_left(
            bounds, rests, limits - loss, best, sample.scores, left, panels, WINNERS, there
        )  # fmt: skip
        costs[m] = search_cost(sample, there, m + 4, dot) + _PROJECTED * m * d
        before = m
        if costs[m] > 1.05 * min(costs.values()):
            break
    return costs, order


@kernel
def _move_lengths(found, mean, rest, lengths):  # type: ignore[no-untyped-def]
    """Take squared lengths of coordinates from `rest`, IN/OUT, and add those about the mean to `lengths`.

    Return the largest coordinate about the mean.
    """
    most = 0.0
    for j in range(len(found)):
        square, around = 0.0, 0.0
        for t in range(len(mean)):
            value, gap = np.float64(found[j, t]), np.float64(found[j, t] - mean[t])
            square += value * value
            around += gap * gap
            most = max(most, abs(gap))
        rest[j] -= square
        lengths[j] += around
    return most


def close_together(heads: np.ndarray, size: int) -> np.ndarray:
    """Return an order of points in which each run of `size` lies close together, (k,) int64.

    They are halved again and again along the axis with the largest variance, of the first few.

    Examples
    --------
    >>> import numpy as np
    >>> close_together(np.array([[0.0], [9.0], [1.0], [8.0]]), 2).tolist()
    [0, 2, 3, 1]
    """
    order = np.arange(len(heads))
    _halve(np.ascontiguousarray(heads[:, :ORDERED_AXES]), size, order)
    return order


@kernel
def _halve(points, size, order):  # type: ignore[no-untyped-def]
    # OUT: order. Halves of halves wait in a stack.
    waiting, n_waiting = np.empty((64, 2), np.int64), 1
    waiting[0] = 0, len(points)
    while n_waiting > 0:
        n_waiting -= 1
        first, last = waiting[n_waiting]
        n_runs = -(-(last - first) // size)
        if n_runs <= 1:
            continue
        here = order[first:last].copy()
        best, axis = -1.0, 0
        for t in range(points.shape[1]):
            total, square = 0.0, 0.0
            for i in here:
                total += points[i, t]
                square += points[i, t] * points[i, t]
            spread = square - total * total / len(here)
            best, axis = (spread, t) if spread > best else (best, axis)
        keys = np.empty(len(here), points.dtype)
        for i in range(len(here)):
            keys[i] = points[here[i], axis]
        order[first:last] = here[np.argsort(keys, kind="mergesort")]
        middle = first + n_runs // 2 * size
        waiting[n_waiting] = first, middle
        waiting[n_waiting + 1] = middle, last
        n_waiting += 2


_LEAST_CENTRES, _LEAST_SCORES = 128, 1 << 14
"""With fewer centres, or products for a row, the search of all centres is over before any bound pays."""
_LEAST_ROWS, _LEAST_PRODUCTS = 512, 1 << 27
"""The search of fewer rows, or products, would not repay the sample."""
_LEAST_EXPECTED, _EXPECTED_CENTRES = 1500, 7_000_000
"""A sample repays itself from so many rows on: these, and so many over the number of centres. It takes as
long as 7,400, 5,300, 3,000 and 1,700 rows in the tile of AVX-512, for 512, 1,000, 4,096 and 16,384 centres
of 768 features, and saves 54, 64, 78 and 90 % of the others."""
LEAST_PACKED = 512
"""With fewer rows in all, packed centres alone take longer than they save."""
LEVELLED_ROWS, _PROJECTED_ROWS = 4096, 1024
"""Rows, at most, whose coordinates set the levels of quantized ones; fewer where they must be projected."""
_SHIFTED_CENTRES = 4096
"""Centres, at most, whose extent stands for that of all while costs are counted."""
_LEAST_GAIN = 0.75
_GIVEN_UP = 0.25
"""Largest share of rows that the search may give up before it is given up itself."""

_ALONE = threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute with one thread of BLAS: the others would spin on the cores of the threads that search."""
    with _ALONE, _blas().limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
        yield


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


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
    """A search by bounds as a sample of rows chose it, the same for other centres and elsewhere.

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

    @one_blas_thread()
    def pack(
        self,
        centres: np.ndarray,
        panels: Panels,
        projection: Projection | None = None,
    ) -> PrunedCentres | None:
        """Return centres packed for it; None if they have no levels.

        Their `projection` onto the axes is computed unless it is given.
        """
        dot, heads = best_dot(panels.tile.name), None
        if self.features is None or not dot:
            return None
        if self.short and dot == MADD:
            dot = MADD_SHORT
        if projection is None and self.axes is not None:
            projection = _projected(centres, self.axes, panels)
        order = None if projection is None else projection.order
        if projection is not None and self.heads is not None:
            heads = quantize_centres(centres, panels, self.heads, dot, projection, order)
        features = quantize_centres(
            centres, panels, self.features, dot, order=order, in_lines=heads is not None
        )
        if features is None or (heads is None) != (projection is None):
            return None
        return PrunedCentres(centres, panels.offset, first_terms(panels), features, heads, order)


def _projected(centres: np.ndarray, axes: np.ndarray, panels: Panels) -> Projection:
    axes = axes.astype(centres.dtype, copy=False)
    heads, squares = project_points(centres, axes, panels.offset), np.empty(len(centres))
    for part, shifted in shifted_blocks(centres, panels.offset):
        squared_lengths(shifted, squares[part])
    return Projection(axes, heads, squares, close_together(heads, panels.tile.height))


def fixed_search(centres: np.ndarray, rows: np.ndarray) -> FixedSearch | None:
    """Return the search by bounds that is cheapest for rows like these; None for few centres.

    Examples
    --------
    >>> import numpy as np
    >>> centres = np.random.default_rng(0).normal(size=(60, 60)).astype(np.float32)
    >>> fixed_search(centres, centres) is None
    True

    Notes
    -----
    Cost: the time of comparing some thousand rows with all centres, see `repays_sample`.
    """
    return sampled_search(centres, rows)[0] if may_pay(centres) else None


def may_pay(centres: np.ndarray) -> bool:
    """Return whether there are enough centres and features for a search by bounds."""
    k, d = centres.shape
    return search_bytes(k, d, centres.dtype) > 0


def repays_sample(centres: np.ndarray, n_rows: int, expected: int | None = None) -> bool:
    """Return whether so many rows took long enough to make a sample, if so many are `expected` in all."""
    if expected is not None and expected < _LEAST_EXPECTED + _EXPECTED_CENTRES // len(centres):
        return False
    return n_rows >= _LEAST_ROWS and n_rows * centres.size >= _LEAST_PRODUCTS


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


@one_blas_thread()
def sampled_search(centres: np.ndarray, rows: np.ndarray) -> tuple[FixedSearch, Projection | None]:
    """Return the search that is cheapest for rows like these, and the centres on its axes if it has any."""
    offset = common_offset(centres)
    (k, d), suited = centres.shape, tile.working_tile(len(centres), centres.dtype)
    dot, height = best_dot(suited.name), suited.height
    if not dot:
        return FixedSearch(), None
    sample, whole = sample_of(centres, rows, offset), k * d * centres.itemsize / 4
    if not sample.is_finite:
        return FixedSearch(), None
    (cost, left), projection = _by_features(sample, height, dot), None
    projected = plan_projection(sample, left, height, dot)
    if projected is not None and projected[0] < cost:
        cost, projection = projected
    short = False
    if dot == MADD and k < MOST_SHORT:
        shortened = _by_features(sample, height, MADD_SHORT)[0]
        if shortened < cost:
            cost, short, projection = shortened, True, None
    if not cost < _LEAST_GAIN * whole:
        return FixedSearch(), None
    axes, heads = None, None
    if projection is not None:
        few = every_so_many(rows, _PROJECTED_ROWS)
        axes, heads = projection.axes, range_of_rows(few, centres, offset, projection)
    features = range_of_rows(every_so_many(rows, LEVELLED_ROWS), centres, offset, None)
    return FixedSearch(cost / whole, axes, features, heads, short), projection


def _by_features(sample: Sample, height: int, dot: int) -> tuple[float, np.ndarray]:
    """Return the cost per row with bounds of features, and which centres they leave, (m, k), bool.

    Bounds are taken to be the scores; what quantizing may take from them lowers the limits.
    """
    (k, d), some = sample.centres.shape, sample.shifted(_SHIFTED_CENTRES)
    mean = some.mean(axis=0)
    some -= mean
    longest = float(np.sqrt(np.square(some).sum(axis=1).max()))
    loss = expected_loss(sample.rows - mean, float(np.abs(some).max()), longest, dot)
    limits = sample.limits(errors_of(d, mean.dtype, float(np.sqrt(sample.squares.max()))))
    left = sample.scores >= (limits - loss)[:, None]
    n_left = left.sum(axis=1)
    n_panels = np.logical_or.reduceat(left, np.arange(0, k, height), axis=1).sum(axis=1)
    return search_cost(sample, Left(n_panels, 0 * n_left, n_left), d, dot), left
