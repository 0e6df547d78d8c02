"""Scans of the largest bounds of panels: one number for each panel and row of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.jit import kernel

WINNERS = 8
"""Panels of a row that are looked through first: the best of those numbered 0, 8, ..., of 1, 9, ..."""


@emit.vector_intrinsic
def best_panels(
    typingctx: Any,
    maxima: Any,
    at: Any,
    first: Any,
    n_panels: Any,
    every: Any,
    winner: Any,
    winner_at: Any,
    vectors: Any,
    width: Any,
) -> Any:
    """Find the panel with the largest bound of each row among panels first, first + every, ...

    ``maxima[at + p * block + r]`` is that of panel p and row r. Ties go to the first panel. OUT: winner,
    in the type of bounds: from `winner_at` on panels, -1 for none, and ``every * block`` further their
    bounds.
    """
    if not emit.literals(vectors, width):
        return None
    lanes, rows = width.literal_value, vectors.literal_value * width.literal_value
    signature = types.void(
        maxima, types.intp, types.intp, types.intp, types.intp, winner, types.intp, vectors, width
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = emit.element(maxima)
        align = emit.bits(kind) // 8
        source = emit.pointer(context, builder, maxima, args[0], args[1])
        target = emit.pointer(context, builder, winner, args[5], args[6])
        bounds = builder.gep(target, [builder.mul(args[4], ir.Constant(emit.I64, rows))])

        def panel(i: Any, kept: list[Any]) -> list[Any]:
            p = builder.add(args[2], builder.mul(i, args[4]))
            place = builder.gep(source, [builder.mul(p, ir.Constant(emit.I64, rows))])
            number = emit.splat(builder, builder.trunc(p, kind), lanes)
            found = []
            for v in range(rows // lanes):
                value = emit.load(
                    builder, emit.step(builder, place, v * lanes), kind, lanes, lanes * align
                )
                best, at = kept[2 * v], kept[2 * v + 1]
                wins = emit.compare(builder, ">", value, best)
                found += [
                    builder.select(wins, value, best), builder.select(wins, number, at)
                ]  # fmt: skip
            return found

        none = [
            ir.Constant(ir.VectorType(kind, lanes), [emit.least(kind)] * lanes),
            ir.Constant(ir.VectorType(kind, lanes), [-1] * lanes),
        ]
        span = builder.sub(builder.add(args[3], args[4]), builder.add(args[2], emit.I64(1)))
        kept = emit.loop(builder, builder.sdiv(span, args[4]), 1, none * (rows // lanes), panel)
        for v in range(rows // lanes):
            for value, place in ((kept[2 * v + 1], target), (kept[2 * v], bounds)):
                emit.store(builder, value, emit.step(builder, place, v * lanes), align)
        return context.get_dummy_value()

    return signature, codegen


@emit.vector_intrinsic
def rows_reaching(
    typingctx: Any, maxima: Any, at: Any, limits: Any, vectors: Any, width: Any
) -> Any:
    """Return the rows of a block whose bound in a panel reaches their limit, as the bits of an integer."""
    if not emit.literals(vectors, width):
        return None
    lanes, rows = width.literal_value, vectors.literal_value * width.literal_value
    signature = types.int64(maxima, types.intp, limits, vectors, width)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, nothing = emit.element(maxima), ir.Constant(emit.I64, 0)
        align = emit.bits(kind) // 8
        source = emit.pointer(context, builder, maxima, args[0], args[1])
        wanted = emit.pointer(context, builder, limits, args[2], nothing)
        mask: Any = ir.Constant(emit.I64, 0)
        for first in range(0, rows, lanes):
            value, limit = (
                emit.load(builder, emit.step(builder, place, first), kind, lanes, align)
                for place in (source, wanted)
            )
            reached = emit.compare(builder, ">=", value, limit)
            part = builder.zext(builder.bitcast(reached, ir.IntType(lanes)), emit.I64)
            mask = builder.or_(mask, builder.shl(part, ir.Constant(emit.I64, first)))
        return mask

    return signature, codegen


@emit.vector_intrinsic
def lowest_bit(typingctx: Any, mask: Any) -> Any:
    """Return the position of the lowest bit of a nonzero integer."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


@kernel
def find_winners(maxima, at, n_panels, winner, vectors, width):  # type: ignore[no-untyped-def]
    """Find `WINNERS` panels of each row, the best one first; OUT: winner (2 * WINNERS * block,).

    It has the panels, then their bounds.
    """
    block = vectors * width
    size = WINNERS * block
    for g in range(WINNERS):
        best_panels(maxima, at, g, n_panels, WINNERS, winner, g * block, vectors, width)
    for g in range(1, WINNERS):
        for r in range(block):  # no branch, so that vectors do this
            place = g * block + r
            p, bound, best, most = winner[place], winner[size + place], winner[r], winner[size + r]
            wins = bound > most
            winner[r], winner[place] = p if wins else best, best if wins else p
            winner[size + r], winner[size + place] = (
                bound if wins else most, most if wins else bound
            )  # fmt: skip


@kernel
def take_winners(maxima, at, winner, first, limits, vectors, width):  # type: ignore[no-untyped-def]
    """Return the rows whose winner, listed from `first` on, reaches their limit, as the bits of an integer.

    Their maxima become too low to be found again.
    """
    block = vectors * width
    found = rows_reaching(winner, WINNERS * block + first, limits, vectors, width)
    mask, least = found, np.iinfo(maxima.dtype).min
    while mask != 0:
        r = lowest_bit(mask)
        mask &= mask - 1
        maxima[at + winner[first + r] * block + r] = least
    return found
