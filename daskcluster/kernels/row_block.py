"""Blocks of rows packed for the tiles: transposed, one row per SIMD lane.

A *block* of ``vectors * width`` rows is stored feature by feature, minus the common offset, so that one
vector instruction processes `width` rows. Blocks start at a cache line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from daskcluster.kernels import emit
from daskcluster.kernels.jit import kernel

_LANE_BITS = 128
"""Transposition works within lanes of this many bits, where shuffles are cheapest."""

_ALIGN = 64


def lanes_of(dtype: np.dtype[Any]) -> int:
    """Return the number of elements per lane; rows with fewer features are packed one by one."""
    return _LANE_BITS // 8 // dtype.itemsize


@kernel
def aligned(size, like):  # type: ignore[no-untyped-def]
    """Return uninitialised scratch with the dtype of `like`, aligned to a cache line."""
    scratch = np.empty(size + _ALIGN, like.dtype)
    skip = (-scratch.ctypes.data % _ALIGN) // scratch.itemsize
    return scratch[skip : skip + size]


@kernel
def first_row(first, block, n):  # type: ignore[no-untyped-def]
    """Return the start of the block of row `first`; the last block repeats earlier rows to be complete."""
    return max(0, min(first, n - block))


def _transpose_lanes(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose the small square in each 128-bit lane of 2 or 4 vectors."""
    size, lanes = len(rows), rows[0].type.count

    def zip_pairs(a: Any, b: Any, first: int, run: int) -> Any:
        # Take runs of `run` elements alternately from a and b, starting at `first` in each lane.
        picks: list[int] = []
        for lane in range(0, lanes, size):
            for at in range(first, first + size // 2, run):
                picks += range(lane + at, lane + at + run)
                picks += range(lanes + lane + at, lanes + lane + at + run)
        return emit.shuffle(builder, a, b, picks)

    if size == 2:
        return [zip_pairs(rows[0], rows[1], first, 1) for first in (0, 1)]
    low = [zip_pairs(rows[i], rows[i + 1], 0, 1) for i in (0, 2)]
    high = [zip_pairs(rows[i], rows[i + 1], 2, 1) for i in (0, 2)]
    return [zip_pairs(a, b, first, 2) for a, b in (low, high) for first in (0, 2)]


@emit.vector_intrinsic(literals="vectors width")
def pack_block(builder, rows, first, d, offset, out, out_at, vectors, width):  # type: ignore[no-untyped-def]
    """Store a block of rows, minus the offset, transposed.

    ``out[out_at + t * block + r] = rows[(first + r) * d + t] - offset[t]`` for t < d and
    r < block = ``vectors * width``. The flat array must contain all these rows, and d must be at least a
    lane's elements.
    """
    corner, target = builder.gep(rows, [builder.mul(first, d)]), builder.gep(out, [out_at])
    starts = [builder.mul(d, ir.Constant(emit.I64, row)) for row in range(vectors * width)]
    _store_transposed(builder, corner, starts, d, offset, target, width)


@emit.vector_intrinsic(literals="vectors width")
def pack_listed(builder, rows, listed, first, d, offset, out, out_at, vectors, width):  # type: ignore[no-untyped-def]
    """Like `pack_block`, for the rows whose numbers are listed from ``listed[first]`` on."""
    numbers, target = builder.gep(listed, [first]), builder.gep(out, [out_at])
    places = [emit.step(builder, numbers, row) for row in range(vectors * width)]
    starts = [builder.mul(d, builder.load(place)) for place in places]
    _store_transposed(builder, rows, starts, d, offset, target, width)


def _store_transposed(
    builder: Any,
    corner: Any,
    starts: list[Any],
    d: Any,
    offsets: Any,
    target: Any,
    lanes: int,
) -> None:
    """Emit the loop of `pack_block` over features, for rows that start at ``corner[starts]``."""
    kind, block = corner.type.pointee, len(starts)
    size, align = _LANE_BITS // emit.bits(kind), emit.bits(kind) // 8
    last = builder.sub(d, ir.Constant(emit.I64, size))

    def columns(first: int, source: Any, shift: Any) -> list[Any]:
        turned = []
        for q in range(size):
            places = [
                builder.gep(source, [starts[row]]) for row in range(first + q, first + lanes, size)
            ]
            parts = [emit.load(builder, place, kind, size, align) for place in places]
            turned.append(builder.fsub(emit.concatenate(builder, parts), shift))
        return _transpose_lanes(builder, turned)

    def features(step: Any, _: list[Any]) -> list[Any]:
        # The last step may repeat features.
        t = builder.select(builder.icmp_signed("<", step, last), step, last)
        shift = emit.load(builder, builder.gep(offsets, [t]), kind, size, align)
        shift = emit.concatenate(builder, [shift] * (lanes // size))
        place = builder.gep(target, [builder.mul(t, ir.Constant(emit.I64, block))])
        for first in range(0, block, lanes):
            turned = columns(first, builder.gep(corner, [t]), shift)
            for u, column in enumerate(turned):
                at = emit.step(builder, place, u * block + first)
                emit.store(builder, column, at, lanes * align)
        return []

    emit.loop(builder, d, size, [], features)


# Numba keeps a tuple of integers in a kernel's closure literal, also in functions that it is passed to.
# These functions index flat arrays: views of rows would cost reference counting at every call.


@kernel
def pack_rows(rows, n, d, first, offset, packed, at, shape):  # type: ignore[no-untyped-def]
    """Like `pack_block`, for any number of rows and features; lanes beyond the last row repeat it.

    `shape` begins with (vectors, width, lanes), where `lanes` elements fill 128 bits.
    """
    vectors, width, lanes = shape[0], shape[1], shape[2]
    block = vectors * width
    if d < lanes or n < block:
        for r in range(block):
            row = min(first + r, n - 1) * d
            for t in range(d):
                packed[at + t * block + r] = rows[row + t] - offset[t]
    else:
        pack_block(rows, first, d, offset, packed, at, vectors, width)


@kernel
def pack_listed_rows(rows, listed, d, offset, packed, shape):  # type: ignore[no-untyped-def]
    """Like `pack_rows`, for the listed rows, as many as fill a block."""
    vectors, width, lanes = shape[0], shape[1], shape[2]
    block = vectors * width
    if d >= lanes:
        pack_listed(rows, listed, 0, d, offset, packed, 0, vectors, width)
        return
    for r in range(block):
        for t in range(d):
            packed[t * block + r] = rows[listed[r] * d + t] - offset[t]
