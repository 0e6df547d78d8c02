"""Centres quantized to 8 bits, packed for the search by bounds; the same for rows; and their errors.

See `daskcluster.kernels.pruned_search`. Integer products are exact, so a bound is off only by what rows and
centres lose when they are quantized. Both losses are measured, and Cauchy-Schwarz bounds their effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.candidates import Errors, errors_of, margins_of
from daskcluster.kernels.dot_product import LEVELS
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import Panels, Tile, vector_width
from daskcluster.kernels.row_block import aligned

_QUAD = 4
"""Features of a 32-bit integer."""

_MOST = 2.0**30
"""Sums up to here cannot overflow, with products of the same size."""

_FAR = 0.005
"""Share of the rows that may be clipped on each side, so that a few far ones do not set the levels."""

_TOP = 2.0**31 - 1
_ROUNDED = 1.0 + 1e-9
"""Covers the rounding of float64 sums."""


class Levels(NamedTuple):
    """How rows are quantized: coordinates about the mean of the centres are ``step * (level - zero)``.

    Attributes
    ----------
    step : float
    zero, most, shift : int
        The level of 0, the largest one, and what is subtracted from levels before they are stored.
    longest : float
        Length of the longest quantized centre.
    rest : float
        What quantizing takes from a centre, at most.
    slack : float
        What rounding first terms, limits and squared lengths may take from a bound.
    rounding : float
        Worst-case error of a row's squared length, as a share of it, and of the length that quantizing
        takes from the row, as a share of the row's length.
    """

    step: float
    zero: int
    most: int
    shift: int
    longest: float
    rest: float
    slack: float
    rounding: float


@dataclass(frozen=True)
class QuantizedCentres:
    """Quantized centres, packed for the search.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    offset : ndarray of shape (d,)
        See `daskcluster.kernels.panels.common_offset`.
    basis : ndarray of shape (4 * ceil(d / 4),)
        Mean of the centres less the offset, and zeros.
    bounds : ndarray of shape (n_panels, (ceil(d / 4) + 1) * height), int32
        Panels of the centres: first terms, then four features in each integer.
    first : ndarray of shape (k,)
        First terms -|c'|^2 / 2.
    errors : Errors
    coding : Levels
    dot : int
        Instruction, see `daskcluster.kernels.dot_product`.
    tile : Tile
    """

    centres: np.ndarray
    offset: np.ndarray
    basis: np.ndarray
    bounds: np.ndarray
    first: np.ndarray
    errors: Errors
    coding: Levels
    dot: int
    tile: Tile

    @property
    def features(self) -> int:
        """Integers of a bound."""
        return -(-self.centres.shape[1] // _QUAD)


def quantize_centres(
    centres: np.ndarray, panels: Panels, rows: np.ndarray, dot: int
) -> QuantizedCentres | None:
    """Quantize and pack centres; None if there are no levels for such rows.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    panels : Panels
        The same centres.
    rows : ndarray of shape (n, d), dtype of the centres
        Rows whose coordinates are between the first and the last level, but for the farthest of them. What
        lies beyond is clipped, which bounds take into account.
    dot : int
    """
    (k, d), asked, kind, tile = centres.shape, LEVELS[dot], centres.dtype, panels.tile
    tile = replace(tile, width=vector_width(np.dtype(np.int32), tile.name))
    quads = -(-d // _QUAD)
    mean = np.zeros(quads * _QUAD, kind)
    mean[:d] = centres.mean(axis=0, dtype=np.float64) - panels.offset
    low, high = _range_of(rows - panels.offset - mean[:d])
    step_c = _extent(panels.data, mean, k, d) / asked.centre
    step = (high - low) / (asked.row - 1)  # one level more than needed, so that 0 is one
    unit = step * step_c
    if not (
        0.0 < unit < np.inf and abs(low) < _MOST * step and d * asked.row * asked.centre < _MOST
    ):
        return None
    zero = math.ceil(-low / step)
    bounds = np.zeros((len(panels.data), (quads + 1) * tile.height), np.int32)
    numbers = step, step_c, zero - asked.shift
    most, rest, longest, far = _fill(panels.data, mean, numbers, k, d, bounds)
    first = np.ascontiguousarray(panels.data[:, : tile.height]).ravel()[:k]
    largest = math.sqrt(-2.0 * float(first.min()) * (1.0 + float(np.finfo(kind).eps)))
    rounding = (d + 8) * float(np.finfo(kind).eps)
    if not most < _MOST:
        return None
    errors = errors_of(d, kind, largest, 0.0, shift=math.sqrt(float(np.square(mean).sum())))
    errors = errors._replace(scale=1.0 / unit, top=_TOP)
    slack = 2.0 * unit + 0.5 * rounding * far * far
    levels = Levels(step, zero, asked.row, asked.shift, longest, rest, slack, rounding)
    return QuantizedCentres(centres, panels.offset, mean, bounds, first, errors, levels, dot, tile)


def _range_of(about: np.ndarray) -> tuple[float, float]:
    """Return the range of the coordinates of most rows; NaN if no row is finite."""
    lows, highs = about.min(axis=1), about.max(axis=1)
    there = np.isfinite(lows) & np.isfinite(highs)
    if not there.any():
        return math.nan, math.nan
    low, high = np.quantile(lows[there], _FAR), np.quantile(highs[there], 1.0 - _FAR)
    return float(low), float(high)


@kernel
def _extent(panels, mean, k, d):  # type: ignore[no-untyped-def]
    """Return the largest coordinate about the mean; infinity if any is NaN."""
    height, most = panels.shape[1] // (d + 1), 0.0
    found = np.zeros(height, panels.dtype)
    for p in range(panels.shape[0]):
        panel, there = panels[p], min(height, k - p * height)
        for t in range(d):
            for lane in range(there):
                value = abs(panel[(t + 1) * height + lane] - mean[t])
                found[lane] = found[lane] if value <= found[lane] else value
    for value in found:
        most = max(most, value) if value == value else np.inf
    return most


@kernel
def _fill(panels, mean, numbers, k, d, bounds):  # type: ignore[no-untyped-def]
    """OUT: bounds. Return the largest first term, loss, and lengths of a centre, quantized and not."""
    step, step_c, shift = numbers
    height, most, inverse = panels.shape[1] // (d + 1), 0.0, 1.0 / step_c
    rest, longest, far = 0.0, 0.0, 0.0
    square, lost, quantized = np.empty(height), np.empty(height), np.empty(height)
    total = np.empty(height)
    for p in range(panels.shape[0]):
        panel, bound, there = panels[p], bounds[p], min(height, k - p * height)
        square[:], lost[:], quantized[:], total[:] = 0.0, 0.0, 0.0, 0.0
        for t in range(d):
            line, centre = panel[(t + 1) * height : (t + 2) * height], mean[t]
            words, bits = (
                bound[(t // 4 + 1) * height : (t // 4 + 2) * height],
                np.int32(8 * (t % 4)),
            )
            for lane in range(there):
                value = np.float64(line[lane] - centre)
                level = np.rint(value * inverse)
                near = level * step_c
                gap = value - near
                square[lane] += value * value
                lost[lane] += gap * gap
                quantized[lane] += near * near
                total[lane] += level
                words[lane] |= (np.int32(level) & np.int32(255)) << bits
        for lane in range(height):
            bound[lane] = -_TOP
        for lane in range(there):
            value = -0.5 * square[lane] / (step * step_c) - shift * total[lane]
            most = max(most, abs(value)) if value == value else np.inf
            bound[lane] = np.int32(np.rint(value)) if most < _MOST else 0
            rest, longest = max(rest, lost[lane]), max(longest, quantized[lane])
            far = max(far, square[lane])
    return most, math.sqrt(rest) * _ROUNDED, math.sqrt(longest) * _ROUNDED, math.sqrt(far)


@kernel
def quantize_block(packed, d, mean, heads, at, described, errors, levels, shape):  # type: ignore[no-untyped-def]
    """Quantize a packed block of rows; OUT: heads from `at` on, described.

    `described` are the lengths, margins and reach of `daskcluster.kernels.candidates.BlockState`.
    """
    (lengths, margins, reach), vectors, width = described, shape[0], shape[1]
    block, quads = vectors * width, mean.shape[0] // _QUAD
    sums = aligned(2 * block, packed)
    packed[d * block :] = 0.0
    numbers = aligned(4, packed)
    numbers[0], numbers[1] = levels.step, 1.0 / levels.step
    numbers[2], numbers[3] = -levels.zero, levels.most - levels.zero
    quantize_tile(
        packed, mean, quads, numbers, levels.zero - levels.shift, heads, at, sums, vectors, width
    )
    lengths[:] = sums[:block]
    margins_of(lengths, errors, margins, reach)
    for r in range(block):
        length, lost = math.sqrt(lengths[r]), math.sqrt(np.float64(sums[block + r]))
        length *= 1.0 + levels.rounding
        lost += levels.rounding * (length + lost)
        error = lost * levels.longest + length * levels.rest + 0.5 * levels.rounding * lengths[r]
        margins[r] += error * _ROUNDED + levels.slack


@emit.tile_intrinsic
def quantize_tile(
    typingctx: Any,
    block: Any,
    mean: Any,
    quads: Any,
    numbers: Any,
    zero: Any,
    heads: Any,
    at: Any,
    sums: Any,
    vectors: Any,
    width: Any,
) -> Any:
    """Quantize a block of rows: ``level = rint((x - mean) / step)``, clipped, plus `zero`.

    `numbers` are the step, its inverse, and the least and the largest level before `zero` is added. OUT:
    heads: four levels in each integer; sums: the squared length of each row about the mean, and of what
    quantizing takes from it.
    """
    if not emit.literals(vectors, width):
        return None
    lanes, rows = width.literal_value, vectors.literal_value * width.literal_value
    signature = types.void(
        block, mean, types.intp, numbers, types.int32, heads, types.intp, sums, vectors, width
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, nothing = emit.element(block), ir.Constant(emit.I64, 0)
        align = emit.bits(kind) // 8
        integers, floats = ir.VectorType(emit.I32, lanes), ir.VectorType(kind, lanes)
        source = emit.pointer(context, builder, block, args[0], nothing)
        means = emit.pointer(context, builder, mean, args[1], nothing)
        given = emit.pointer(context, builder, numbers, args[3], nothing)
        target = emit.pointer(context, builder, heads, args[5], args[6])
        totals = emit.pointer(context, builder, sums, args[7], nothing)
        step, inverse, least, most = (
            emit.splat(builder, builder.load(emit.step(builder, given, i), align=align), lanes)
            for i in range(4)
        )
        base = emit.splat(builder, args[4], lanes)
        name = f"v{lanes}f{emit.bits(kind)}"

        def feature(place: Any, centre: Any, total: Any, lost: Any) -> tuple[Any, Any, Any]:
            about = builder.fsub(emit.load(builder, place, kind, lanes, lanes * align), centre)
            level = emit.call(builder, f"llvm.rint.{name}", floats, [builder.fmul(about, inverse)])
            level = builder.select(
                builder.fcmp_ordered(">", level, least), level, least
            )  # NaN: least
            level = builder.select(builder.fcmp_ordered("<", level, most), level, most)
            gap = builder.fsub(about, builder.fmul(level, step))
            whole = builder.add(builder.fptosi(level, integers), base)
            whole = builder.and_(whole, ir.Constant(integers, [255] * lanes))
            return whole, emit.fma(builder, about, about, total), emit.fma(builder, gap, gap, lost)

        def quad(q: Any, kept: list[Any]) -> list[Any]:
            t = builder.mul(q, ir.Constant(emit.I64, _QUAD))
            centres = [
                emit.splat(
                    builder,
                    builder.load(builder.gep(means, [builder.add(t, number)]), align=align),
                    lanes,
                )
                for number in (ir.Constant(emit.I64, i) for i in range(_QUAD))
            ]
            here = builder.gep(source, [builder.mul(t, ir.Constant(emit.I64, rows))])
            there = builder.gep(target, [builder.mul(q, ir.Constant(emit.I64, rows))])
            for v in range(rows // lanes):
                word = ir.Constant(integers, [0] * lanes)
                for i, centre in enumerate(centres):
                    place = emit.step(builder, here, i * rows + v * lanes)
                    whole, kept[2 * v], kept[2 * v + 1] = feature(
                        place, centre, kept[2 * v], kept[2 * v + 1]
                    )
                    word = builder.or_(
                        word, builder.shl(whole, ir.Constant(integers, [8 * i] * lanes))
                    )
                emit.store(builder, word, emit.step(builder, there, v * lanes), 4 * lanes)
            return kept

        start = [emit.zeros(kind, lanes)] * (2 * rows // lanes)
        found = emit.loop(builder, args[2], 1, start, lambda q, kept: quad(q, list(kept)))
        for v in range(rows // lanes):
            for part in range(2):
                place = emit.step(builder, totals, part * rows + v * lanes)
                emit.store(builder, found[2 * v + part], place, lanes * align)
        return context.get_dummy_value()

    return signature, codegen
