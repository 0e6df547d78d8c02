"""Rows quantized to 8 bits, as their centres are (`daskcluster.kernels.quantized_centres`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.candidates import margins_of
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.quantized_centres import ROUNDED
from daskcluster.kernels.row_block import aligned


@kernel
def quantize_block(coordinates, mean, rests, words, at, described, errors, levels, shape):  # type: ignore[no-untyped-def]
    """Quantize a block of rows, by coordinate; OUT: words from `at` on, described.

    `coordinates` has room for the zeros that complete a quad. `described` are the lengths, margins and
    reach of `daskcluster.kernels.candidates`.
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


@emit.tile_intrinsic
def quantize_tile(
    typingctx: Any,
    block: Any,
    mean: Any,
    n_words: Any,
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
    heads: a level in each byte; sums: the squared length of each row about the mean, and of what quantizing
    takes from it.
    """
    if not emit.literals(vectors, width):
        return None
    lanes, rows = width.literal_value, vectors.literal_value * width.literal_value
    signature = types.void(
        block, mean, types.intp, numbers, types.int32, heads, types.intp, sums, vectors, width
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, nothing = emit.element(block), ir.Constant(emit.I64, 0)
        align, size = emit.bits(kind) // 8, emit.bits(emit.element(heads)) // 8
        stored = ir.VectorType(emit.element(heads), lanes)
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

        def several(q: Any, kept: list[Any]) -> list[Any]:
            t = builder.mul(q, ir.Constant(emit.I64, size))
            centres = [
                emit.splat(
                    builder,
                    builder.load(builder.gep(means, [builder.add(t, number)]), align=align),
                    lanes,
                )
                for number in (ir.Constant(emit.I64, i) for i in range(size))
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
                word = builder.trunc(word, stored) if size < 4 else word
                emit.store(builder, word, emit.step(builder, there, v * lanes), size * lanes)
            return kept

        start = [emit.zeros(kind, lanes)] * (2 * rows // lanes)
        found = emit.loop(builder, args[2], 1, start, lambda q, kept: several(q, list(kept)))
        for v in range(rows // lanes):
            for part in range(2):
                place = emit.step(builder, totals, part * rows + v * lanes)
                emit.store(builder, found[2 * v + part], place, lanes * align)
        return context.get_dummy_value()

    return signature, codegen
