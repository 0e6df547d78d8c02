"""Centres quantized to 8 bits, packed for the search by bounds, and the errors of these bounds.

See `daskcluster.kernels.pruned_search`. Integer products are exact, so a bound is off only by what rows and
centres lose when they are quantized. Both losses are measured, and Cauchy-Schwarz bounds their effect.

What is quantized is either the features, or coordinates on a few axes, and the lengths of what these leave:
their product makes the sum an upper bound, once more by Cauchy-Schwarz.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.candidates import Errors, errors_of
from daskcluster.kernels.dot_product import LINE, MADD_SHORT, QUAD
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import Panels, Tile, panels_of
from daskcluster.kernels.projected_centres import Projection, Slack, project_points
from daskcluster.kernels.short_sums import fitting_levels, integers_of, room_of, tile_of

_MOST = 2.0**30
"""Sums up to here cannot overflow, with products of the same size."""

_FAR = 0.005
"""Share of the rows that may be clipped on each side, so that a few far ones do not set the levels."""

_AVERAGED = 4096
"""Centres, about, whose mean is the origin of the levels; any point near it would do."""

ROUNDED = 1.0 + 1e-9
"""Covers the rounding of float64 sums."""


class RowRange(NamedTuple):
    """Where the coordinates of most rows are.

    Attributes
    ----------
    low, high : float
        About the mean of the centres.
    longest : float
        Length about that mean that few rows exceed.
    rest : float
        Half the length that a projection leaves of a typical row; 0 without one.
    """

    low: float
    high: float
    longest: float
    rest: float


class Levels(NamedTuple):
    """How rows are quantized: coordinates about the mean of the centres are ``step * (level - zero)``.

    Attributes
    ----------
    step : float
    zero, most, shift : int
        The level of 0, the largest one, and what is subtracted from levels before they are stored.
    longest : float
        Length of the longest quantized centre.
    lost : float
        What quantizing takes from a centre, at most.
    slack : float
        What rounding first terms, limits and squared lengths may take from a bound.
    rounding : float
        Worst-case error of a row's squared length, as a share of it, and of the length that quantizing
        takes from the row, as a share of the row's length.
    m : int
        Number of axes; 0 if features are quantized.
    rest_step, most_rest : float
        Step of the levels of rests, which are half the lengths that projections leave; and the largest one
        of a centre.
    square : float
        See `daskcluster.kernels.projected_centres.Slack`.
    far, origin : float
        Length of the longest row of which sums fit integers of 16 bits, and what squared lengths are raised
        by, since bounds are shifted to use these integers; 0 with 32 bits.
    """

    step: float
    zero: int
    most: int
    shift: int
    longest: float
    lost: float
    slack: float
    rounding: float
    m: int
    rest_step: float
    most_rest: float
    square: float
    far: float = np.inf
    origin: float = 0.0


@dataclass(frozen=True)
class QuantizedCentres:
    """Centres of which features or coordinates are quantized, packed for the search.

    Attributes
    ----------
    bounds : ndarray of shape (n_panels, (features + 1) * height), int32 or int16
        Panels of the centres: first terms, then a coordinate in each byte, and an integer with the rests.
        Or (n_panels * height, size), a line for each lane of the panels: coordinates, zeros up to a
        multiple of `daskcluster.kernels.dot_product.LINE`, and the first term.
    mean : ndarray
        Mean of the centres' coordinates, and zeros that complete an integer.
    axes : ndarray of shape (n_segments, n_axis_panels, size)
        See `daskcluster.kernels.projected_centres.Projection.pack`; empty if features are quantized.
    levels : Levels
    errors : Errors
    dot : int
        Instruction, see `daskcluster.kernels.dot_product`.
    tile : Tile
        Of the integers.
    """

    bounds: np.ndarray
    mean: np.ndarray
    axes: np.ndarray
    levels: Levels
    errors: Errors
    dot: int
    tile: Tile

    @property
    def features(self) -> int:
        """Integers of a bound."""
        return len(self.mean) // self.bounds.itemsize + (self.levels.m > 0)

    def packed(self) -> tuple[Any, ...]:
        """Return bounds, mean, features, levels and errors, as the search takes them."""
        return (
            read_only(self.bounds), read_only(self.mean), self.features, self.levels, self.errors
        )  # fmt: skip


def quantize_centres(
    centres: np.ndarray,
    panels: Panels,
    rows: np.ndarray | RowRange,
    dot: int,
    projection: Projection | None = None,
    order: np.ndarray | None = None,
    *,
    in_lines: bool = False,
) -> QuantizedCentres | None:
    """Quantize and pack centres; None if there are no levels for such rows.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    panels : Panels
        The same centres.
    rows : ndarray of shape (n, d), dtype of the centres, or RowRange
        Their coordinates are between the first and the last level, but for the farthest of them. What lies
        beyond is clipped, which bounds take into account. Any range is valid.
    dot : int
        `MADD_SHORT` only for features in panels.
    projection : Projection, optional
        Quantize coordinates on axes in place of features.
    order : ndarray of shape (k,), int, optional
        The centre in each lane. Default: 0, 1, ...
    in_lines : bool
        In lines, which are read one by one, in place of panels.
    """
    (k, d), kind, tile = centres.shape, centres.dtype, tile_of(panels.tile, dot)
    eps, rests = float(np.finfo(kind).eps), np.zeros(k)
    data, axes, slack, n = panels.data, np.empty((0, 0, 0), kind), Slack(0.0, 0.0), d
    if projection is not None:
        n = projection.axes.shape[1]
        data = panels_of(projection.heads, np.zeros(k, kind), panels.tile.height, 0.0)
        axes, slack = projection.pack(tile.height), projection.slack()
        rests = 0.5 * projection.rests(slack.square)
    each = integers_of(dot).itemsize
    n_words = -(-n // each)
    mean = np.zeros(n_words * each, kind)
    mean[:n] = _mean(centres, panels.offset, projection)
    if not isinstance(rows, RowRange):
        rows = range_of_rows(rows, centres, panels.offset, projection)
    low, high, long_row, half = rows
    extent, longest = _extent(data, mean, k, n)
    asked = fitting_levels(dot, high - low, extent, long_row + longest, n)
    step_c = extent / asked.centre
    step = (high - low) / (asked.row - 1)  # one level more than needed, so that 0 is one
    unit, most_rest = step * step_c, float(rests.max())
    is_small = abs(low) < _MOST * step and (n + QUAD) * asked.row * asked.centre < _MOST
    if not (0.0 < unit < np.inf and is_small and math.isfinite(half + most_rest)):
        return None
    # Rests of rows and centres have about the same levels, if those of centres have enough.
    rest_step_c = max(
        most_rest * ROUNDED / asked.centre, math.sqrt(unit * most_rest / half) if half else 0.0
    )
    zero = math.ceil(-low / step)
    shape = n_words + (projection is not None), tile.height, integers_of(dot)
    bounds, places, layout = _places(k, shape, order, in_lines)
    numbers = step, step_c, zero - asked.shift, rest_step_c, asked.shift
    most, lost, longest, far = _fill(data, mean, rests, numbers, n, bounds.ravel(), places, layout)
    if not most < _MOST:
        return None
    reach = np.inf, 0.0
    if dot == MADD_SHORT:
        length, origin = room_of(longest, lost, far, unit)
        if not (0.0 < length < np.inf and 0 <= zero <= asked.row):
            return None
        bounds.ravel()[places + layout[1]] += np.int16(origin)
        reach = length, 2.0 * origin * unit
    largest = math.sqrt(-2.0 * float(first_terms(panels).min()) * (1.0 + eps))
    shift = math.sqrt(float(np.square(mean, dtype=np.float64).sum())) * ROUNDED
    errors = errors_of(d, kind, largest, extra=slack.bound, shift=shift * (1.0 + slack.square))
    errors = errors._replace(scale=1.0 / unit, top=float(np.iinfo(bounds.dtype).max))
    rounding = (n + 8) * eps
    levels = Levels(
        step, zero, asked.row, asked.shift, longest, lost, 2.0 * unit + 0.5 * rounding * far * far,
        rounding, 0 if projection is None else n, unit / rest_step_c if rest_step_c else np.inf,
        most_rest, slack.square, *reach,
    )  # fmt: skip
    return QuantizedCentres(bounds, mean, axes, levels, errors, dot, tile)


def _mean(centres: np.ndarray, offset: np.ndarray, projection: Projection | None) -> np.ndarray:
    """Return the mean of the centres' coordinates, or of many of them."""
    points = centres if projection is None else projection.heads
    mean = np.empty(points.shape[1], centres.dtype)
    mean[:] = points[:: -(-len(points) // _AVERAGED)].mean(axis=0, dtype=np.float64)
    mean -= offset if projection is None else 0.0
    return mean


def range_of_rows(
    rows: np.ndarray, centres: np.ndarray, offset: np.ndarray, projection: Projection | None
) -> RowRange:
    """Return where the coordinates of most rows are, as `quantize_centres` takes it."""
    about, half = rows - offset, 0.0
    if projection is not None:
        heads = project_points(rows, projection.axes, offset)
        squares = np.square(about, dtype=np.float64).sum(axis=1) - np.square(
            heads, dtype=np.float64
        ).sum(axis=1)
        half, about = 0.5 * math.sqrt(max(float(np.nanmedian(squares)), 0.0)), heads
    about = about - _mean(centres, offset, projection)
    return RowRange(*_range_of(about), _long_row(about), half)


def _places(
    k: int, shape: tuple[int, int, np.dtype[Any]], order: np.ndarray | None, in_lines: bool
) -> tuple[np.ndarray, np.ndarray, tuple[int, int, int]]:
    """Return room for bounds, where each centre starts in it, and what follows from there.

    `shape` is (integers of a bound, height of the panels, type of the integers). Lanes without a centre
    have a first term that no bound has. The last are how far a centre's integers lie apart, and the
    distances from its start to its first term and to its first integer.
    """
    integers, height, kind = shape
    n_panels = -(-k // height)
    lanes = np.arange(n_panels * height)
    if in_lines:
        size = -(-(integers + 1) // LINE) * LINE
        bounds, layout = np.zeros((len(lanes), size), kind), (1, size - 1, 0)
        starts = lanes * size
    else:
        size = (integers + 1) * height
        bounds, layout = np.zeros((n_panels, size), kind), (height, 0, height)
        starts = lanes // height * size + lanes % height
    bounds.ravel()[starts[k:] + layout[1]] = -np.iinfo(kind).max
    places = starts[:k].copy()
    if order is not None:
        places[order] = starts[:k]
    return bounds, places, layout


def first_terms(panels: Panels) -> np.ndarray:
    """Return the first terms -|c'|^2 / 2 of all scores, (k,)."""
    return np.ascontiguousarray(panels.data[:, : panels.tile.height]).ravel()[: panels.k]


def _range_of(about: np.ndarray) -> tuple[float, float]:
    """Return the range of the coordinates of most rows; NaN if no row is finite."""
    lows, highs = about.min(axis=1), about.max(axis=1)
    there = np.isfinite(lows) & np.isfinite(highs)
    if not there.any():
        return math.nan, math.nan
    low, high = np.quantile(lows[there], _FAR), np.quantile(highs[there], 1.0 - _FAR)
    return float(low), float(high)


def _long_row(about: np.ndarray) -> float:
    """Return the length of a row that few are longer than; NaN if no row is finite."""
    lengths = np.sqrt(np.square(about, dtype=np.float64).sum(axis=1))
    there = np.isfinite(lengths)
    return float(np.quantile(lengths[there], 1.0 - _FAR)) if there.any() else math.nan


@kernel
def _extent(panels, mean, k, d):  # type: ignore[no-untyped-def]
    """Return the largest coordinate about the mean, infinity if any is NaN; and the largest length."""
    height, most = panels.shape[1] // (d + 1), 0.0
    found, longest, square = np.zeros(height, panels.dtype), 0.0, np.empty(height)
    for p in range(panels.shape[0]):
        panel, there = panels[p], min(height, k - p * height)
        square[:] = 0.0
        for t in range(d):
            for lane in range(there):
                value = abs(panel[(t + 1) * height + lane] - mean[t])
                found[lane] = found[lane] if value <= found[lane] else value
                square[lane] += np.float64(value) * value
        longest = max(longest, square[:there].max())
    for value in found:
        most = max(most, value) if value == value else np.inf
    return most, math.sqrt(longest)


@kernel
def _fill(panels, mean, rests, numbers, d, bounds, places, layout):  # type: ignore[no-untyped-def]
    """OUT: bounds. Return the largest first term, loss, and lengths of a centre, quantized and not.

    `places` and `layout` are those of `_places`.
    """
    step, step_c, shift, rest_step, rest_shift = numbers
    height, most, inverse = panels.shape[1] // (d + 1), 0.0, 1.0 / step_c
    most_lost, longest, far, each = 0.0, 0.0, 0.0, bounds.itemsize
    n_words = -(-d // each)
    square, lost, quantized = np.empty(height), np.empty(height), np.empty(height)
    total, packed = np.empty(height), np.empty(n_words * height, np.int32)
    stride, head, body = layout
    for p in range(panels.shape[0]):
        panel, there = panels[p], min(height, len(places) - p * height)
        square[:], lost[:], quantized[:], total[:] = 0.0, 0.0, 0.0, 0.0
        packed[:] = 0
        for t in range(d):
            line, centre = panel[(t + 1) * height : (t + 2) * height], mean[t]
            words, bits = (
                packed[t // each * height : (t // each + 1) * height], np.int32(8 * (t % each))
            )  # fmt: skip
            for lane in range(there):
                value = np.float64(line[lane]) - np.float64(centre)
                level = np.rint(value * inverse)
                near = level * step_c
                gap = value - near
                square[lane] += value * value
                lost[lane] += gap * gap
                quantized[lane] += near * near
                total[lane] += level
                words[lane] |= (np.int32(level) & np.int32(255)) << bits
        for lane in range(there):
            place, value = places[p * height + lane], rests[p * height + lane]
            for q in range(n_words):
                bounds[place + body + q * stride] = packed[q * height + lane]
            level = np.ceil(value / rest_step) if value > 0.0 else 0.0
            if value > 0.0:  # the same level four times
                bounds[place + body + n_words * stride] = np.int32(level) * np.int32(0x01010101)
            value = -0.5 * (square[lane] + 4.0 * value * value) / (step * step_c)
            value += 4.0 * rest_shift * level - shift * total[lane]
            most = max(most, abs(value)) if value == value else np.inf
            bounds[place + head] = np.int32(np.rint(value)) if most < _MOST else 0
            most_lost, longest = max(most_lost, lost[lane]), max(longest, quantized[lane])
            far = max(far, square[lane])
    return most, math.sqrt(most_lost) * ROUNDED, math.sqrt(longest) * ROUNDED, math.sqrt(far)
