"""Centres packed for the tile: shifted by a common offset, in panels, each preceded by its initial terms.

A score is ``x'.c' - |c'|^2 / 2`` with x' = fl(x - o) and c' = fl(c - o). The offset o prevents a loss of
digits for data far from the origin. It depends only on the centres, so a row has the same label in a fit,
in a predict, and in any chunk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from daskcluster.kernels import dot_product, emit
from daskcluster.kernels.jit import kernel


@dataclass(frozen=True)
class Tile:
    """A register tile: `height` centres by `vectors` vectors of `width` rows."""

    name: str
    height: int
    vectors: int
    width: int

    @property
    def rows(self) -> int:
        return self.vectors * self.width


@dataclass(frozen=True)
class Panels:
    """Centres packed for one tile, in this process.

    Attributes
    ----------
    data : ndarray of shape (n_panels, (d + 1) * height)
        A panel is the `height` terms -|c'|^2 / 2, then `height` coordinates for each feature.
        Lanes beyond k have the first term -inf, which never wins.
    offset : ndarray of shape (d,)
        In the dtype of the centres.
    k, d : int
    tile : Tile
    """

    data: np.ndarray
    offset: np.ndarray
    k: int
    d: int
    tile: Tile

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype


_BYTES = {"avx512": 64, "avx2": 32, "neon": 16, "portable": 16}
_VECTORS = 2
_HEIGHTS = {
    # Sums, rows and one broadcast fit the registers: 32, 16 and 32 of them.
    "avx512": (14, 13, 12, 10, 8, 6),
    "avx2": (6, 5, 4),
    "neon": (13, 12, 10, 8, 6),
}
_PANEL_COST = 0.7
"""Cost of starting a panel, in centres; prefers higher tiles if waste is equal."""

_LINE = 64
"""Features of a centre packed at a time: float32 values in the cache lines that are fetched together."""

PORTABLE = Tile("portable", height=4, vectors=1, width=256)


def vector_width(dtype: np.dtype[Any], name: str) -> int:
    """Return the elements of a vector of instruction set `name`."""
    return _BYTES[name] // dtype.itemsize


@cache
def choose_tile(k: int, dtype: np.dtype[Any], name: str) -> Tile:
    """Return the tile of instruction set `name` that wastes the least on `k` centres."""
    if name == PORTABLE.name:
        return PORTABLE
    height = min(_HEIGHTS[name], key=lambda h: -(-k // h) * (h + _PANEL_COST))
    return Tile(name, height, _VECTORS, vector_width(dtype, name))


def common_offset(centres: np.ndarray) -> np.ndarray:
    """Return the offset that is subtracted from rows and centres before they are scored.

    It is the mean of the centres, rounded per feature to a multiple of a power of two that is at least
    their spread. So it is close enough to lose no digits, coarse enough that ``x - o`` is mostly exact, and
    exactly zero for centres around the origin.

    Parameters
    ----------
    centres : ndarray of shape (k, d)

    Returns
    -------
    ndarray of shape (d,)
        In the dtype of `centres`.

    Examples
    --------
    >>> import numpy as np
    >>> common_offset(np.array([[-1.0, 1000.2], [1.0, 1001.9]]))
    array([   0., 1002.])
    """
    offset = np.empty(centres.shape[1], centres.dtype)
    _offset_of(np.ascontiguousarray(centres), offset)
    return offset


@kernel
def _offset_of(centres, offset):  # type: ignore[no-untyped-def]
    # Loops in a fixed order, so that the offset has the same bits on every machine.
    k, d = centres.shape
    total, low, high = np.zeros(d), np.full(d, np.inf), np.full(d, -np.inf)
    for j in range(k):
        for t in range(d):
            value = np.float64(centres[j, t])
            total[t] += value
            low[t] = value if value < low[t] else low[t]
            high[t] = value if value > high[t] else high[t]
    for t in range(d):
        mean, spread = total[t] / k, high[t] - low[t]
        if spread > 0.0 and np.isfinite(spread):
            grid = math.ldexp(1.0, math.frexp(spread)[1])  # exact, unlike a logarithm
            mean = grid * np.rint(mean / grid)
        offset[t] = mean if np.isfinite(mean) else 0.0


@kernel
def fill_panels(centres, offset, data, height):  # type: ignore[no-untyped-def]
    """Write centres less the offset into panels; OUT: data, see `Panels`. Return |c'|^2, (k,) float64."""
    # Sequential float64 without contraction, so that first terms have the same bits on every machine.
    k, d = centres.shape
    norms = np.empty(k)
    # Fill lines of the panel in the cache and write each one once: they may be far apart.
    squares, lines = np.empty(height), np.empty(_LINE * height, data.dtype)
    for p in range(data.shape[0]):
        panel, first = data[p], p * height
        there = max(0, min(height, k - first))  # 0 in empty panels of a shorter group
        squares[:] = 0.0
        lines[:] = 0.0
        for start in range(0, d, _LINE):
            count = min(_LINE, d - start)
            shift = offset[start : start + count]
            for lane in range(there):
                centre = centres[first + lane, start : start + count]
                for t in range(count):
                    lines[t * height + lane] = centre[t] - shift[t]
            for t in range(count):  # one independent chain per lane
                line = lines[t * height : (t + 1) * height]
                for lane in range(height):
                    value = np.float64(line[lane])
                    squares[lane] += value * value
            for i in range(count * height):
                panel[(start + 1) * height + i] = lines[i]
        for lane in range(height):
            panel[lane] = -0.5 * squares[lane] if lane < there else -np.inf
        for lane in range(there):
            norms[first + lane] = squares[lane]
    return norms


def panels_of(features: np.ndarray, first: np.ndarray, height: int, never: float) -> np.ndarray:
    """Return panels of points (k, d) with these first terms; lanes beyond k have the first term `never`."""
    k, d = features.shape
    n_panels = -(-k // height)
    whole = np.zeros((n_panels * height, d + 1), features.dtype)
    whole[:, 0] = never
    whole[:k, 0], whole[:k, 1:] = first, features
    panels = whole.reshape(n_panels, height, d + 1).transpose(0, 2, 1)
    return np.ascontiguousarray(panels).reshape(n_panels, -1)


@emit.vector_intrinsic(literals="height", returns=types.int32)
def place_in_panel(builder, block, block_at, panel, panel_at, features, best, at, height, rows):  # type: ignore[no-untyped-def]
    """Return the first of the `height` centres of a panel that scores ``best[at]``: 0, 1, ...

    `block_at` is the position of the row's first feature in a block of `rows` rows. The scores are
    bit-identical to those of `score_tile`, with centres in the lanes. So if ``best[at]`` came from this
    panel, one score equals it: NaN never wins, and -inf never beats the initial value. If none is equal,
    return the last centre, since callers index with the result.
    """
    kind, lanes = block.type.pointee, 1 << (height - 1).bit_length()
    row, start = builder.gep(block, [block_at]), builder.gep(panel, [panel_at])

    def line(t: Any) -> Any:
        place = builder.gep(start, [builder.mul(t, ir.Constant(emit.I64, height))])
        return emit.load_first(builder, place, kind, lanes, height)

    def grow(t: Any, total: list[Any]) -> list[Any]:
        x = builder.load(builder.gep(row, [builder.mul(t, rows)]))
        coordinates = line(builder.add(t, ir.Constant(emit.I64, 1)))
        return [emit.fma(builder, emit.splat(builder, x, lanes), coordinates, total[0])]

    (scores,) = emit.loop(builder, features, 1, [line(ir.Constant(emit.I64, 0))], grow)
    wanted = emit.splat(builder, builder.load(builder.gep(best, [at])), lanes)
    return emit.first_lane(builder, builder.fcmp_ordered("==", scores, wanted), height - 1)


_CHAINS = 4
"""Number of independent sums of `scores_in_panel`, which hide the latency of products."""


@emit.vector_intrinsic(literals="height dot", int32="limit", returns=types.int64)
def scores_in_panel(  # type: ignore[no-untyped-def]
    builder, block, block_at, panel, panel_at, features, out, height, rows, limit, dot
):
    """Store the integer scores of one row and the `height` centres of a panel.

    Return which of them reach the limit, as the bits of an integer. OUT: out: its size is the next power of
    two, or fills 128 bits. `block_at` and `rows` as for `place_in_panel`, `dot` as for
    `daskcluster.kernels.register_tile.panel_maxima_tile`.
    """
    kind = block.type.pointee
    lanes = max(1 << (height - 1).bit_length(), 128 // emit.bits(kind))
    row, start = builder.gep(block, [block_at]), builder.gep(panel, [panel_at])
    first = emit.load_first(builder, start, kind, lanes, height)
    zero = emit.zeros(kind, lanes)

    def grow(t: Any, total: Any) -> Any:
        x = builder.load(builder.gep(row, [builder.mul(t, rows)]))
        x = emit.splat(builder, x, lanes)
        at = builder.mul(builder.add(t, ir.Constant(emit.I64, 1)), ir.Constant(emit.I64, height))
        line = emit.load_first(builder, builder.gep(start, [at]), kind, lanes, height)
        return dot_product.add_products(builder, x, line, total, dot)

    def several(t: Any, sums: list[Any]) -> list[Any]:
        steps = [builder.add(t, ir.Constant(emit.I64, i)) for i in range(_CHAINS)]
        return [grow(step, total) for step, total in zip(steps, sums, strict=True)]

    whole = builder.and_(features, ir.Constant(emit.I64, -_CHAINS))
    total, *others = emit.loop(builder, whole, _CHAINS, [first] + [zero] * (_CHAINS - 1), several)
    (total,) = emit.loop(
        builder, builder.sub(features, whole), 1, [total],
        lambda t, sums: [grow(builder.add(whole, t), sums[0])],
    )  # fmt: skip
    for other in others:
        total = builder.add(total, other)
    emit.store(builder, total, out, emit.bits(kind) // 8)
    limit = limit if kind == emit.I32 else builder.trunc(limit, kind)
    reached = emit.compare(builder, ">=", total, emit.splat(builder, limit, lanes))
    mask = builder.zext(builder.bitcast(reached, ir.IntType(lanes)), emit.I64)
    return builder.and_(mask, ir.Constant(emit.I64, (1 << height) - 1))
