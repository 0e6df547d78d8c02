"""Dot products of 8-bit integers: four products are added to each 32-bit sum by one instruction, or three.

They take a quarter to half of the time of the same products in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.jit import TILE_FEATURES, cpu_features

QUAD = 4
"""8-bit integers of a 32-bit one."""

LINE = 16
"""32-bit integers of a cache line."""

NO_DOT, MADD, VNNI, SDOT, MADD_PAIRS, MADD_SHORT = range(6)
"""Instructions, as literals of kernels: none (products are not integers), PMADDUBSW and PMADDWD of AVX2,
VPDPBUSD of AVX-VNNI and AVX-512 VNNI, SDOT of ARM; of AVX2, with one PMADDWD for each two PMADDUBSW, or
with none: all integers have 16 bits, each has two products, and sums wrap around."""


class LevelRange(NamedTuple):
    """The integers that an instruction multiplies exactly.

    Attributes
    ----------
    row, centre : int
        Coordinates of rows are from 0 to `row`, those of centres from -centre to centre.
    shift : int
        Subtracted from coordinates of rows before they are stored, for instructions with signed operands.
    """

    row: int
    centre: int
    shift: int


LEVELS = {
    MADD: LevelRange(127, 127, 0),
    VNNI: LevelRange(255, 127, 0),
    SDOT: LevelRange(255, 127, 128),
    MADD_PAIRS: LevelRange(127, 64, 0),
    MADD_SHORT: LevelRange(127, 127, 0),
}
"""PMADDUBSW adds two products in 16 bits, so its rows have 7 bits; where four are added, centres have 7."""

_BYTES = {MADD: 32, VNNI: 32, SDOT: 16, MADD_PAIRS: 32, MADD_SHORT: 32}
_WIDE_BYTES = 64
"""Bytes of a vector; with AVX-512."""


def best_dot(tile: str) -> int:
    """Return the fastest instruction for a tile on this CPU; `NO_DOT` if there is none."""
    if tile == "portable":
        return NO_DOT
    there = cpu_features() | {part[1:] for part in TILE_FEATURES.split(",")}
    if there & {"avx512vnni", "avxvnni"}:
        return VNNI
    if "avx512bw" in there or ("avx2" in there and tile != "avx512"):
        return MADD
    return SDOT if "dotprod" in there else NO_DOT


def add_products(builder: Any, row: Any, centre: Any, total: Any, instruction: int) -> Any:
    """Return ``total + products`` for vectors whose 32-bit lanes hold four 8-bit integers."""
    return _in_parts(builder, [row, centre, total], instruction, _EMITTED[instruction])


def add_products_of_two(builder: Any, rows: Any, centres: Any, total: Any) -> Any:
    """Return ``total + products`` of two such vectors of a row and two of a centre, by `MADD_PAIRS`."""
    return _in_parts(builder, [*rows, *centres, total], MADD_PAIRS, _madd_pairs)


def _in_parts(
    builder: Any, vectors: list[Any], instruction: int, emitted: Callable[..., Any]
) -> Any:
    """Return the vector that `emitted` makes of these, in parts if the CPU has no vectors as wide."""
    widest = _BYTES[instruction]
    if instruction != SDOT and "avx512bw" in TILE_FEATURES:
        widest = _WIDE_BYTES
    lanes, widest = vectors[0].type.count, widest * 8 // emit.bits(vectors[0].type.element)
    if lanes <= widest:
        return emitted(builder, *vectors)
    parts = []
    for first in range(0, lanes, widest):
        places = range(first, first + widest)
        part = [emit.shuffle(builder, vector, vector, places) for vector in vectors]
        parts.append(emitted(builder, *part))
    return emit.concatenate(builder, parts)


@emit.vector_intrinsic(literals="dot", returns=types.int32)
def product_of_lines(builder, rows, at, centres, centre_at, size, dot):  # type: ignore[no-untyped-def]
    """Return the product of `size` integers from ``rows[at]`` and ``centres[centre_at]`` on.

    `size` is a multiple of `LINE`. These sums have 32 bits, also with `MADD_SHORT`.
    """
    instruction = MADD if dot == MADD_SHORT else dot
    places = builder.gep(rows, [at]), builder.gep(centres, [centre_at])

    def line(t: Any, sums: list[Any]) -> list[Any]:
        x, c = (emit.load(builder, builder.gep(p, [t]), emit.I32, LINE, 4) for p in places)
        return [add_products(builder, x, c, sums[0], instruction)]

    (total,) = emit.loop(builder, size, LINE, [emit.zeros(emit.I32, LINE)], line)
    name = f"llvm.vector.reduce.add.v{LINE}i32"
    return emit.call(builder, name, emit.I32, [total])


def _madd(builder: Any, row: Any, centre: Any, total: Any) -> Any:
    return _add_pairs(builder, _pairs(builder, row, centre), total)


def _madd_pairs(
    builder: Any, row: Any, next_: Any, centre: Any, next_centre: Any, total: Any
) -> Any:
    pairs = _pairs(builder, row, centre), _pairs(builder, next_, next_centre)
    return _add_pairs(builder, builder.add(*pairs), total)


def _pairs(builder: Any, row: Any, centre: Any) -> Any:
    """Emit the sums of two products each, in 16 bits."""
    size = row.type.count * emit.bits(row.type.element) // 8
    name = {16: "ssse3.pmadd.ub.sw.128", 32: "avx2.pmadd.ub.sw", 64: "avx512.pmaddubs.w.512"}[size]
    bytes_ = ir.VectorType(emit.I8, size)
    operands = [builder.bitcast(vector, bytes_) for vector in (row, centre)]
    return emit.call(builder, f"llvm.x86.{name}", ir.VectorType(emit.I16, size // 2), operands)


def _add_pairs(builder: Any, pairs: Any, total: Any) -> Any:
    """Emit ``total + pairs``: two 16-bit integers for each 32-bit sum."""
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[total.type.count]
    ones = ir.Constant(pairs.type, [1] * pairs.type.count)
    return builder.add(total, emit.call(builder, f"llvm.x86.{name}", total.type, [pairs, ones]))


def _madd_short(builder: Any, row: Any, centre: Any, total: Any) -> Any:
    return builder.add(total, _pairs(builder, row, centre))


def _vnni(builder: Any, row: Any, centre: Any, total: Any) -> Any:
    name = f"llvm.x86.avx512.vpdpbusd.{32 * total.type.count}"
    return emit.call(builder, name, total.type, [total, row, centre])


def _sdot(builder: Any, row: Any, centre: Any, total: Any) -> Any:
    bytes_ = ir.VectorType(emit.I8, 4 * total.type.count)
    operands = [builder.bitcast(vector, bytes_) for vector in (row, centre)]
    name = f"llvm.aarch64.neon.sdot.v{total.type.count}i32.v{bytes_.count}i8"
    return emit.call(builder, name, total.type, [total, *operands])


_EMITTED = {MADD: _madd, VNNI: _vnni, SDOT: _sdot, MADD_PAIRS: _madd, MADD_SHORT: _madd_short}
