"""Centres and rows quantized to 8 bits, packed for the search by bounds, and the errors of these bounds.

See `daskcluster.kernels.pruned_search`. Integer products are exact, so a bound is off only by what rows and
centres lose when they are quantized. Both losses are measured, and Cauchy-Schwarz bounds their effect.

What is quantized is either the features, or coordinates on a few axes, and the lengths of what these leave:
their product makes the sum an upper bound, once more by Cauchy-Schwarz. Coordinates are sums of products in
any order: the errors cover all orders, and labels are those of any axes.

Sums of features may have 16 bits (`daskcluster.kernels.dot_product.MADD_SHORT`): twice as many rows fit a
vector, and no instruction widens sums. They wrap around, so only the whole sum must fit 16 bits. By
Cauchy-Schwarz, it does for rows up to some length; longer ones are searched in full. Where the levels of
8 bits would allow only short rows, there are fewer levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from daskcluster.kernels import emit
from daskcluster.kernels.dot_product import LEVELS, LINE, MADD_SHORT, QUAD, LevelRange
from daskcluster.kernels.jit import kernel, read_only
from daskcluster.kernels.panels import Panels, Tile, panels_of, vector_width
from daskcluster.kernels.register_tile import all_scores_tile
from daskcluster.kernels.row_block import aligned

SEGMENT = 64
"""Features whose products are summed in one chain when points are projected; more would round more."""

_BLOCK_BYTES = 1 << 20
"""Bytes of centres that are projected at once."""

SECOND_ORDER = 1.01
"""Covers the products of errors, which bounds of the first order leave out."""

_SAFE_SHARE = 2.0**-8
"""Share of the largest number that squared lengths may have; beyond, bounds might overflow."""


class Errors(NamedTuple):
    """Worst-case errors; X is the length of a row, and C that of the longest centre, about the same point.

    Attributes
    ----------
    margin : float
        Error of scores, of bounds and of half a rough squared distance, over (X + C)^2 / 2.
    close : float
        Difference of two rough squared distances beyond which their order is certain, over (X + C)^2.
    largest : float
        C about the offset of the centres, at most.
    shift : float
        Distance of the point from that offset.
    tiny : float
        What underflow may add.
    most : float
        Squared lengths from here on might overflow.
    scale, top : float
        Units of bounds in one of scores, and more than any bound.
    """

    margin: float
    close: float
    largest: float
    shift: float
    tiny: float
    most: float
    scale: float
    top: float


def errors_of(
    d: int, kind: np.dtype[Any], largest: float, *, extra: float = 0.0, shift: float = 0.0
) -> Errors:
    """Return what candidates may be off by; `extra` is the error of bounds, over (X + C)^2 / 2.

    With u the unit of rounding:

    - the canonical score of d features errs by (d + 3) u (X C + C^2 / 2);
    - a rough squared distance errs by (d / 16 + 48) u (X + C)^2, which includes the rounding of the shift
      and of first terms. Squared lengths, summed in float64, add (2 d + 4) u64 (X + C)^2.

    Examples
    --------
    >>> found = errors_of(768, np.dtype("f4"), 4.0)
    >>> f"{found.margin:.0e} {found.close:.0e} {found.largest}"
    '1e-04 1e-04 4.0'
    """
    limits = np.finfo(kind)
    unit = float(limits.eps) / 2
    canonical, rough = (d + 3) * unit, (d / 16 + 48) * unit + (2 * d + 4) * 2.0**-53
    margin, close = (
        SECOND_ORDER * (2.0 * canonical + rough),
        SECOND_ORDER * 2.0 * (canonical + rough),
    )
    tiny, most = d * float(limits.tiny), _SAFE_SHARE * float(limits.max)
    return Errors(margin + extra, close, largest, shift, tiny, most, 1.0, np.inf)


@kernel
def margins_of(lengths, errors, margins, reach):  # type: ignore[no-untyped-def]
    """OUT: margins, reach: see `Bounded` and `BlockState`; without what quantizing the row takes."""
    for r in range(lengths.shape[0]):
        total = math.sqrt(lengths[r]) + errors.shift + errors.largest
        reach[r] = errors.close * total * total + errors.tiny
        margins[r] = 0.5 * errors.margin * total * total + errors.tiny


class Slack(NamedTuple):
    """Worst-case errors of projections.

    Attributes
    ----------
    square : float
        Error of the squared length that a projection leaves, over that of the row or centre.
    bound : float
        Error of a bound, over (X + C)^2 / 2; see `Errors`.
    """

    square: float
    bound: float


@dataclass(frozen=True)
class Projection:
    """Axes, and the centres projected onto them.

    Attributes
    ----------
    axes : ndarray of shape (d, m)
        Nearly orthonormal columns, in the dtype of the centres.
    heads : ndarray of shape (k, m)
        Coordinates of the shifted centres on the axes, from `project_points`.
    squares : ndarray of shape (k,), float64
        Squared lengths of the shifted centres, see `squared_lengths`.
    order : ndarray of shape (k,), int, optional
        An order in which the centres of a panel lie close together.
    """

    axes: np.ndarray
    heads: np.ndarray
    squares: np.ndarray
    order: np.ndarray | None = None

    def slack(self) -> Slack:
        """Return the errors of the axes.

        With u the unit of rounding, X = |x'| and C the largest |c'|:

        - the axes A are not quite orthonormal, by D = |A'A - I|, and the projection of a row or a centre
          errs by e = (segment + n_segments + 2) u |A|, as a share of its length. What is left of them is
          then not quite orthogonal to the axes, by (3 D + 2 e) X C in all;
        - the squared length of the rest errs by (D + 2 e + 4 (d + m) u64) X^2, and is raised by as much.

        Examples
        --------
        >>> axes = np.eye(768, 64, dtype=np.float32)
        >>> slack = Projection(axes, axes[:5], np.ones(5)).slack()
        >>> f"{slack.square:.0e} {slack.bound:.0e}"
        '8e-05 4e-04'
        """
        d, m = self.axes.shape
        unit, wide = float(np.finfo(self.axes.dtype).eps) / 2, self.axes.astype(np.float64)
        gaps = wide.T @ wide - np.eye(m)
        gram = math.sqrt(float(np.sum(gaps * gaps))) + m * d * 2.0**-52
        head = (SEGMENT + -(-d // SEGMENT) + 2) * unit * math.sqrt(m) * (1.0 + gram)
        square = SECOND_ORDER * (gram + 2.0 * head + 4 * (d + m) * 2.0**-53)
        return Slack(square, SECOND_ORDER * (3.0 * gram + 2.0 * head) + 4.0 * square)

    def rests(self, slack: float) -> np.ndarray:
        """Return the lengths that the projection leaves of the centres, never too small, (k,) float64.

        `slack` is that of squared lengths, from `slack`.
        """
        kept = np.square(self.heads, dtype=np.float64).sum(axis=1)
        found = np.maximum(self.squares - kept, 0.0) + slack * self.squares
        return np.asarray(np.sqrt(found))

    def pack(self, height: int) -> np.ndarray:
        """Return panels of the axes for each segment, (n_segments, n_panels, (SEGMENT + 1) * height)."""
        (d, m), kind = self.axes.shape, self.axes.dtype
        n_segments = -(-d // SEGMENT)
        packed = np.zeros((n_segments, -(-m // height), (SEGMENT + 1) * height), kind)
        for number in range(n_segments):
            part = self.axes[number * SEGMENT : (number + 1) * SEGMENT].T
            size = (part.shape[1] + 1) * height
            packed[number, :, :size] = panels_of(part, np.zeros(m, kind), height, 0.0)
        return packed


def shifted_blocks(points: np.ndarray, offset: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield runs of points less the offset, c' = fl(c - o), that stay in the cache, and where they are."""
    step = max(1, _BLOCK_BYTES // (points.shape[1] * points.itemsize))
    room = np.empty((min(step, len(points)), points.shape[1]), points.dtype)
    for first in range(0, len(points), step):
        part = slice(first, min(first + step, len(points)))
        yield part, np.subtract(points[part], offset, out=room[: part.stop - first])


@kernel
def squared_lengths(points, squares):  # type: ignore[no-untyped-def]
    """OUT: squares: |c'|^2 in the order of `daskcluster.kernels.panels.fill_panels`."""
    k, d = points.shape
    for j in range(k):
        total = 0.0
        for t in range(d):
            wide = np.float64(points[j, t])
            total += wide * wide
        squares[j] = total


def project_points(points: np.ndarray, axes: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Return the coordinates of points (k, d), less an offset, on axes (d, m), summed as for rows."""
    found = np.empty((len(points), axes.shape[1]), axes.dtype)
    for where, block in shifted_blocks(points, offset):
        total = block[:, :SEGMENT] @ axes[:SEGMENT]
        for first in range(SEGMENT, len(axes), SEGMENT):
            part = slice(first, first + SEGMENT)
            total += block[:, part] @ axes[part]
        found[where] = total
    return found


@kernel
def project_block(packed, d, axes, m, heads, rests, slack, shape):  # type: ignore[no-untyped-def]
    """Project a packed block of rows; OUT: heads (m * block,) and rests (block,), never too small."""
    vectors, width, _, height, _ = shape
    block, (_, n_panels, size) = vectors * width, axes.shape
    flat, places = axes.reshape(axes.size), np.zeros(SEGMENT, np.int64)
    part, squares = aligned(n_panels * height * block, packed), np.zeros(block)
    heads[: m * block] = 0.0
    for s in range(axes.shape[0]):
        count = min(SEGMENT, d - s * SEGMENT)
        rows = packed[s * SEGMENT * block :]
        for p in range(n_panels):
            all_scores_tile(
                rows, flat, (s * n_panels + p) * size, count, part, p * height * block,
                height, vectors, width, packed, places, 0,
            )  # fmt: skip
        for i in range(m * block):
            heads[i] += part[i]
        for t in range(count):
            for r in range(block):
                value = np.float64(rows[t * block + r])
                squares[r] += value * value
    rests[:] = squares
    for t in range(m):
        for r in range(block):
            value = np.float64(heads[t * block + r])
            rests[r] -= value * value
    for r in range(block):
        rests[r] = math.sqrt(max(rests[r], 0.0) + slack * squares[r])


MOST_SHORT = 1 << 16
"""With fewer centres, the numbers of their panels have 16 bits."""

_SPARE = 8
"""Sums that are not used, which covers the rounding of first terms."""
_FITTING = 0.98 * 2.0**16
"""Sums that long rows may have; levels are rounded."""
_LESS, _LEAST_SHARE = 0.97, 1 / 64
"""What is left of the levels if sums are too large, again and again, and the least that is tried."""
_HEIGHT = 5
"""Centres of the tile of AVX2: with more, LLVM spills sums."""


def integers_of(dot: int) -> np.dtype[Any]:
    """Return the type of the integers that an instruction multiplies and adds."""
    return np.dtype(np.int16 if dot == MADD_SHORT else np.int32)


def tile_of(tile: Tile, dot: int) -> Tile:
    """Return the tile of such integers."""
    short = dot == MADD_SHORT and tile.name == "avx2"
    height = min(tile.height, _HEIGHT) if short else tile.height
    return replace(tile, height=height, width=vector_width(integers_of(dot), tile.name))


def fitting_levels(dot: int, spread: float, extent: float, reach: float, n: int) -> LevelRange:
    """Return the levels of which sums fit the integers of an instruction.

    Parameters
    ----------
    dot : int
    spread, extent : float
        Range of the coordinates of rows, and the largest one of a centre.
    reach : float
        Length of a long row and of the longest centre, together.
    n : int
        Coordinates. Quantizing makes a row or centre longer, by a third of their root in steps at most.

    Examples
    --------
    >>> fitting_levels(MADD_SHORT, 8.0, 4.0, 8.0, 4), fitting_levels(MADD_SHORT, 8.0, 4.0, 32.0, 64)
    (LevelRange(row=127, centre=127, shift=0), LevelRange(row=61, centre=61, shift=0))
    """
    levels = LEVELS[dot]
    if dot != MADD_SHORT or not 0.0 < spread * extent * reach < np.inf:
        return levels
    share, root = 1.0, math.sqrt(n) / 3.0
    while share > _LEAST_SHARE:
        row, centre = max(2, int(levels.row * share)), max(1, int(levels.centre * share))
        step, step_c = spread / row, extent / centre
        length = reach + root * (step + 2.0 * step_c)
        if 0.5 * length * length <= _FITTING * step * step_c:
            break
        share *= _LESS
    return LevelRange(row, centre, 0)


def room_of(longest: float, lost: float, far: float, unit: float) -> tuple[float, int]:
    """Return the length of the longest row whose sums fit 16 bits, and what must be added to sums.

    A sum is ``(x.q - |c|^2 / 2) / unit``, x and q the quantized row and centre. So it is at least
    ``-|x| longest - far^2 / 2`` and at most ``|x|^2 / 2 + |x| lost``, over the unit.

    Parameters
    ----------
    longest, lost, far : float
        Length of the longest quantized centre, what quantizing takes from a centre, and length of the
        longest centre.
    unit : float

    Examples
    --------
    >>> room_of(4.0, 0.1, 4.0, 0.001)
    (7.382508436748481, 4771)
    """
    limits = np.iinfo(np.int16)
    room = (limits.max - limits.min - 2 * _SPARE) * unit
    half, below = longest + lost, 0.5 * far * far
    length = math.sqrt(max(half * half + 2.0 * (room - below), 0.0)) - half
    return length, limits.min + _SPARE + math.ceil((length * longest + below) / unit)


_MOST = 2.0**30
"""Sums up to here cannot overflow, with products of the same size."""

_FAR = 0.005
"""Share of the rows that may be clipped on each side, so that a few far ones do not set the levels."""

_AVERAGED = 4096
"""Centres, about, whose mean is the origin of the levels; any point near it would do."""

ROUNDED = 1.0 + 1e-9
"""Covers the rounding of float64 sums."""


class RowRange(NamedTuple):
    """The range in which the coordinates of most rows lie.

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


class RowLevels(NamedTuple):
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
        See `daskcluster.kernels.quantized.Slack`.
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
        See `daskcluster.kernels.quantized.Projection.pack`; empty if features are quantized.
    levels : RowLevels
    errors : Errors
    dot : int
        Instruction, see `daskcluster.kernels.dot_product`.
    tile : Tile
        Tile of the integers.
    """

    bounds: np.ndarray
    mean: np.ndarray
    axes: np.ndarray
    levels: RowLevels
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
    rows: RowRange,
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
    rows : RowRange
        Where the coordinates of rows are, from `range_of_rows`: between the first and the last level. What
        lies beyond is clipped, which bounds take into account. Any range is valid.
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
    levels = RowLevels(
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
    lows, highs = about.min(axis=1), about.max(axis=1)
    there = np.isfinite(lows) & np.isfinite(highs)
    lengths = np.sqrt(np.square(about, dtype=np.float64).sum(axis=1))
    some = lows[there], highs[there], lengths[np.isfinite(lengths)]
    low, high, longest = (
        float(np.quantile(values, share)) if len(values) else math.nan  # NaN if no row is finite
        for values, share in zip(some, (_FAR, 1.0 - _FAR, 1.0 - _FAR), strict=True)
    )
    return RowRange(low, high, longest, half)


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


@kernel
def quantize_block(coordinates, mean, rests, words, at, described, errors, levels, shape):  # type: ignore[no-untyped-def]
    """Quantize a block of rows, by coordinate; OUT: words from `at` on, described.

    `coordinates` has room for the zeros that complete a quad. `described` are the lengths, margins and
    reach of `daskcluster.kernels.pruned_search.BlockState`.
    """
    (lengths, margins, reach), vectors, width = described, shape[0], shape[1]
    block, n_words = vectors * width, mean.shape[0] // words.itemsize
    sums, numbers = aligned(2 * block, coordinates), aligned(4, coordinates)
    numbers[0], numbers[1] = levels.step, 1.0 / levels.step
    numbers[2], numbers[3] = -levels.zero, levels.most - levels.zero
    quantize_tile(
        coordinates,
        mean,
        n_words,
        numbers,
        levels.zero - levels.shift,
        words,
        at,
        sums,
        vectors,
        width,
    )
    for r in range(block):
        lengths[r] = np.float64(sums[r]) + rests[r] * rests[r]
    margins_of(lengths, errors, margins, reach)
    for r in range(block):
        square = np.float64(sums[r])
        length, lost = math.sqrt(square), math.sqrt(np.float64(sums[block + r]))
        length *= 1.0 + levels.rounding
        lost += levels.rounding * (length + lost)
        error = lost * levels.longest + length * levels.lost + 0.5 * levels.rounding * square
        if levels.m > 0:
            level = np.ceil(0.5 * rests[r] / levels.rest_step)
            if not level <= levels.most:
                error += (
                    2.0 * rests[r] * levels.most_rest
                    - 4.0 * levels.most * levels.rest_step * levels.most_rest
                )
                level = np.float64(levels.most)
            byte = (np.int64(level) - levels.shift) & 255
            words[at + n_words * block + r] = np.int32(np.uint32(byte * 0x01010101))
        margins[r] += error * ROUNDED + levels.slack
        if levels.far < np.inf:
            lengths[r] += levels.origin
            if not length + lost <= levels.far:
                # Its sums might wrap around: it is searched in full.
                lengths[r] = np.inf
                for q in range(n_words):
                    words[at + q * block + r] = np.int32(levels.zero) * np.int32(0x0101)


@emit.tile_intrinsic(literals="vectors width", int32="zero")
def quantize_tile(builder, block, mean, n_words, numbers, zero, heads, at, sums, vectors, width):  # type: ignore[no-untyped-def]
    """Quantize a block of rows: ``level = rint((x - mean) / step)``, clipped, plus `zero`.

    `numbers` are the step, its inverse, and the least and the largest level before `zero` is added. OUT:
    heads: a level in each byte; sums: the squared length of each row about the mean, and of what quantizing
    takes from it.
    """
    lanes, rows = width, vectors * width
    kind = block.type.pointee
    align, size = emit.bits(kind) // 8, emit.bits(heads.type.pointee) // 8
    stored = ir.VectorType(heads.type.pointee, lanes)
    integers, floats = ir.VectorType(emit.I32, lanes), ir.VectorType(kind, lanes)
    target = builder.gep(heads, [at])
    step, inverse, least, most = (
        emit.splat(builder, builder.load(emit.step(builder, numbers, i), align=align), lanes)
        for i in range(4)
    )
    base = emit.splat(builder, zero, lanes)
    name = f"v{lanes}f{emit.bits(kind)}"

    def feature(place: Any, centre: Any, total: Any, lost: Any) -> tuple[Any, Any, Any]:
        about = builder.fsub(emit.load(builder, place, kind, lanes, lanes * align), centre)
        level = emit.call(builder, f"llvm.rint.{name}", floats, [builder.fmul(about, inverse)])
        level = builder.select(builder.fcmp_ordered(">", level, least), level, least)  # NaN: least
        level = builder.select(builder.fcmp_ordered("<", level, most), level, most)
        gap = builder.fsub(about, builder.fmul(level, step))
        whole = builder.add(builder.fptosi(level, integers), base)
        whole = builder.and_(whole, ir.Constant(integers, [255] * lanes))
        return whole, emit.fma(builder, about, about, total), emit.fma(builder, gap, gap, lost)

    def several(q: Any, kept: list[Any]) -> list[Any]:
        t = builder.mul(q, ir.Constant(emit.I64, size))
        means = builder.gep(mean, [t])
        centres = [
            emit.splat(builder, builder.load(emit.step(builder, means, i), align=align), lanes)
            for i in range(size)
        ]
        here = builder.gep(block, [builder.mul(t, ir.Constant(emit.I64, rows))])
        there = builder.gep(target, [builder.mul(q, ir.Constant(emit.I64, rows))])
        for v in range(rows // lanes):
            word = ir.Constant(integers, [0] * lanes)
            for i, centre in enumerate(centres):
                place = emit.step(builder, here, i * rows + v * lanes)
                whole, kept[2 * v], kept[2 * v + 1] = feature(
                    place, centre, kept[2 * v], kept[2 * v + 1]
                )
                word = builder.or_(word, builder.shl(whole, ir.Constant(integers, [8 * i] * lanes)))
            word = builder.trunc(word, stored) if size < 4 else word
            emit.store(builder, word, emit.step(builder, there, v * lanes), size * lanes)
        return kept

    start = [emit.zeros(kind, lanes)] * (2 * rows // lanes)
    found = emit.loop(builder, n_words, 1, start, lambda q, kept: several(q, list(kept)))
    for v in range(rows // lanes):
        for part in range(2):
            place = emit.step(builder, sums, part * rows + v * lanes)
            emit.store(builder, found[2 * v + part], place, lanes * align)
