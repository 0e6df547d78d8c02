"""Intrinsics on rows: additions on a grid, and squared distances in the canonical order.

Lanes hold features. Rows and centres are converted to float64 first, so differences and squares of float32
values have negligible errors. There are eight lanes on any CPU: LLVM splits them over narrower registers,
which does not change rounding.

Rows processed together share the loads for a feature, their sums are added in registers before they are
written to memory, and their lanes are folded together. No bit changes: on the grids, the order of additions
is free, and the distance of each row has the order of `squared_distance`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.sum_grid import emit_rounded, emit_split

_LANES = 8
_LINE_BYTES = 64
_CHAINS = 4
"""Number of independent sums of a rough distance, which hide the latency of FMAs."""


def _load_wide(builder: Any, place: Any, lanes: int) -> Any:
    """Load `lanes` elements as a float64 vector."""
    kind = place.type.pointee
    return _wide(builder, emit.load(builder, place, kind, lanes, emit.bits(kind) // 8))


def _wide(builder: Any, values: Any) -> Any:
    """Return a vector as float64."""
    if emit.bits(values.type.element) == 64:
        return values
    return builder.fpext(values, ir.VectorType(emit.F64, values.type.count))


def _add_to(builder: Any, place: Any, value: Any) -> None:
    total = emit.load(builder, place, emit.F64, value.type.count, 8)
    emit.store(builder, builder.fadd(total, value), place, 8)


def _along_row(builder: Any, d: Any, body: Callable[[Any, int], None]) -> None:
    """Emit `body` (first feature, lanes) for d features: by eights, a four, and one by one."""
    done = ir.Constant(emit.I64, 0)
    for lanes in (_LANES, _LANES // 2, 1):
        stop = builder.and_(d, ir.Constant(emit.I64, -lanes))

        def part(t: Any, _: list[Any], lanes: int = lanes, done: Any = done) -> list[Any]:
            body(builder.add(done, t), lanes)
            return []

        emit.loop(builder, builder.sub(stop, done), lanes, [], part)
        done = stop


Parts = Callable[[Any, int], tuple[Any, ...]]
"""Called with a feature and a number of lanes; returns what is added from there on, on each grid."""


def _rounded(builder: Any, row: Any, shift: Any) -> Parts:
    """Return the values of a row, rounded to one grid."""

    def parts(t: Any, lanes: int) -> tuple[Any, ...]:
        both = (_load_wide(builder, builder.gep(place, [t]), lanes) for place in (row, shift))
        return (emit_rounded(builder, *both),)

    return parts


def _split(builder: Any, row: Any, weight: Any, shifts: tuple[Any, Any]) -> Parts:
    """Return ``weight * row[t:]``, split on two grids."""

    def parts(t: Any, lanes: int) -> tuple[Any, ...]:
        value = _load_wide(builder, builder.gep(row, [t]), lanes)
        value = builder.fmul(value, emit.splat(builder, weight, lanes))
        grid = [_load_wide(builder, builder.gep(place, [t]), lanes) for place in shifts]
        return emit_split(builder, value, *grid)

    return parts


def _sum_parts(
    builder: Any, d: Any, parts: Parts, sums: tuple[Any, ...], target: Any, source: Any = None
) -> None:
    """Emit the addition of parts to ``sums[target:]``, and their subtraction from ``sums[source:]``."""
    old = () if source is None else [builder.gep(each, [source]) for each in sums]
    new = [builder.gep(each, [target]) for each in sums]

    def body(t: Any, lanes: int) -> None:
        found = parts(t, lanes)
        for place, part in zip(old, found, strict=False):
            less = builder.fsub(emit.zeros(emit.F64, lanes), part)
            _add_to(builder, builder.gep(place, [t]), less)
        for place, part in zip(new, found, strict=True):
            _add_to(builder, builder.gep(place, [t]), part)

    _along_row(builder, d, body)


@emit.vector_intrinsic()
def add_on_grid(builder, rows, at, shift, sums, sums_at, d):  # type: ignore[no-untyped-def]
    """``sums[sums_at + t] += (rows[at + t] + shift[t]) - shift[t]`` for t < d."""
    parts = _rounded(builder, builder.gep(rows, [at]), shift)
    _sum_parts(builder, d, parts, (sums,), sums_at)


@emit.vector_intrinsic()
def move_on_grid(builder, rows, at, shift, sums, source, target, d):  # type: ignore[no-untyped-def]
    """Subtract the terms of `add_on_grid` from ``sums[source:]`` and add them to ``sums[target:]``."""
    parts = _rounded(builder, builder.gep(rows, [at]), shift)
    _sum_parts(builder, d, parts, (sums,), target, source)


@emit.vector_intrinsic()
def add_on_grids(builder, rows, at, weight, grid, sums, low_sums, sums_at, d):  # type: ignore[no-untyped-def]
    """Add weighted values on two grids, as `add_on_grid` does on one."""
    parts = _split(builder, builder.gep(rows, [at]), weight, grid)
    _sum_parts(builder, d, parts, (sums, low_sums), sums_at)


@emit.vector_intrinsic()
def move_on_grids(builder, rows, at, weight, grid, sums, low_sums, source, target, d):  # type: ignore[no-untyped-def]
    """Move weighted values on two grids, as `move_on_grid` does on one."""
    parts = _split(builder, builder.gep(rows, [at]), weight, grid)
    _sum_parts(builder, d, parts, (sums, low_sums), target, source)


@emit.vector_intrinsic()
def fetch_row(builder, rows, at, d):  # type: ignore[no-untyped-def]
    """Prefetch ``rows[at : at + d]``, which may be beyond the array."""
    step = _LINE_BYTES * 8 // emit.bits(rows.type.pointee)
    source = builder.gep(rows, [at])

    def line(t: Any, _: list[Any]) -> list[Any]:
        emit.prefetch(builder, builder.gep(source, [t]), level=2)
        return []

    emit.loop(builder, d, step, [], line)
    # Rows are rarely aligned to lines, so the last element may be in one more line.
    last = builder.sub(d, ir.Constant(emit.I64, 1))
    emit.prefetch(builder, builder.gep(source, [last]), level=2)


@emit.vector_intrinsic(returns=types.float64)
def squared_distance(builder, rows, at, centres, centre_at, d):  # type: ignore[no-untyped-def]
    """Return |x - c|^2 of d features from ``rows[at]`` and ``centres[centre_at]`` on, float64.

    The canonical order: groups of eight features alternate between two sets of eight lanes, one FMA each;
    then lanes are added, first halves to second halves; at most seven remaining features form one chain.
    """
    places = builder.gep(rows, [at]), builder.gep(centres, [centre_at])
    return _sum_of_squares(builder, places, d, _LANES, 2, _load_wide, emit.F64)


@emit.vector_intrinsic(returns=types.float64)
def rough_squared_distance(builder, rows, at, centres, centre_at, d):  # type: ignore[no-untyped-def]
    """Return |x - c|^2 as `squared_distance` does, summed in the rows' dtype: twice as fast for float32.

    Groups of a cache line's features are added to four vectors in turn; see `rough_error`.
    """
    places = builder.gep(rows, [at]), builder.gep(centres, [centre_at])
    kind = rows.type.pointee
    align = emit.bits(kind) // 8

    def load(builder: Any, place: Any, lanes: int) -> Any:
        return emit.load(builder, place, kind, lanes, align)

    found = _sum_of_squares(builder, places, d, _LINE_BYTES // align, _CHAINS, load, kind)
    return found if emit.bits(kind) == 64 else builder.fpext(found, emit.F64)


def _sum_of_squares(
    builder: Any,
    places: tuple[Any, Any],
    d: Any,
    lanes: int,
    chains: int,
    load: Callable[[Any, Any, int], Any],
    kind: Any,
) -> Any:
    """Emit the squared distance of d features from two places on, in so many sums of so many lanes."""

    def square(t: Any, total: Any, lanes: int = lanes) -> Any:
        pair = (load(builder, builder.gep(place, [t]), lanes) for place in places)
        return _square(builder, total, *pair)

    def group(t: Any, sums: list[Any]) -> list[Any]:
        steps = [builder.add(t, ir.Constant(emit.I64, lanes * i)) for i in range(chains)]
        return [square(at, total) for at, total in zip(steps, sums, strict=True)]

    def single(t: Any, sums: list[Any]) -> list[Any]:
        return [square(builder.add(groups, t), sums[0])]

    def one(t: Any, sums: list[Any]) -> list[Any]:
        return [square(builder.add(whole, t), sums[0], 1)]

    groups = builder.and_(d, ir.Constant(emit.I64, -lanes * chains))
    whole = builder.and_(d, ir.Constant(emit.I64, -lanes))
    zero = emit.zeros(kind, lanes)
    first, *others = emit.loop(builder, groups, lanes * chains, [zero] * chains, group)
    (total,) = emit.loop(builder, builder.sub(whole, groups), lanes, [first], single)
    for other in others:
        total = builder.fadd(total, other)
    (rest,) = emit.loop(builder, builder.sub(d, whole), 1, [emit.zeros(kind, 1)], one)
    total = builder.fadd(emit.fold_lanes(builder, total), rest)
    return builder.extract_element(total, ir.Constant(emit.I32, 0))


_GROUP = 4
"""Rows at a time. Their two times eight lanes fill the registers of AVX2, and half of those of AVX-512."""

PREFETCH_DISTANCE = 1024
"""Prefetch distance in values; the CPU's own prefetchers cannot follow several rows at once."""

Extra = Callable[[Any, list[Any], list[Any]], None]
"""Called with a feature, the rows' stored values from there on, and the same values as float64."""


@emit.vector_intrinsic(literals="count")
def measure_rows(builder, count, rows, at, point, d, out, out_at):  # type: ignore[no-untyped-def]
    """``out[out_at + r] = |x_r - p|^2`` for `count` (1 or 4) rows of d features from ``rows[at]`` on."""
    found = _distances(builder, builder.gep(rows, [at]), point, d, count, None)
    emit.store(builder, found, builder.gep(out, [out_at]), 8)


@emit.vector_intrinsic(literals="count")
def measure_and_add_rows(builder, count, rows, at, point, d, out, out_at, shift, sums, largest):  # type: ignore[no-untyped-def]
    """Like `measure_rows`, but also sum the rows on a grid and update `largest` with their bit patterns.

    `largest` has d values of the dtype of the rows. Without sign bits, the patterns order like the numbers,
    with NaN and infinity above all others.
    """

    def extra(t: Any, raw: list[Any], wide: list[Any]) -> None:
        _add_up(builder, builder.gep(shift, [t]), builder.gep(sums, [t]), wide)
        _raise(builder, builder.gep(largest, [t]), raw)

    found = _distances(builder, builder.gep(rows, [at]), point, d, count, extra)
    emit.store(builder, found, builder.gep(out, [out_at]), 8)


def _distances(builder: Any, x: Any, p: Any, d: Any, n: int, extra: Extra | None) -> Any:
    """Emit the loop over n rows; return their squared distances to the point, a vector of n."""
    kind = x.type.pointee
    align = emit.bits(kind) // 8
    rows = [builder.gep(x, [builder.mul(d, ir.Constant(emit.I64, r))]) for r in range(n)]

    def eight(t: Any, sums: list[Any]) -> list[Any]:
        raw = [emit.load(builder, builder.gep(row, [t]), kind, _LANES, align) for row in rows]
        point = _load_wide(builder, builder.gep(p, [t]), _LANES)
        wide = [_wide(builder, values) for values in raw]
        grown = [_square(builder, *pair, point) for pair in zip(sums, wide, strict=True)]
        if extra is not None:
            extra(t, raw, wide)
        return grown

    def two(t: Any, sums: list[Any]) -> list[Any]:
        prefetched = builder.add(t, ir.Constant(emit.I64, _LANES))
        return [*eight(t, sums[:n]), *eight(prefetched, sums[n:])]

    def one(t: Any, rest: list[Any]) -> list[Any]:
        t = builder.add(whole, t)
        raw = ir.Constant(ir.VectorType(kind, n), ir.Undefined)
        for r, row in enumerate(rows):
            number = builder.load(builder.gep(row, [t]))
            raw = builder.insert_element(raw, number, ir.Constant(emit.I32, r))
        value = builder.load(builder.gep(p, [t]))
        point = _wide(builder, emit.splat(builder, value, n))
        wide = _wide(builder, raw)
        if extra is not None:
            extra(t, *([emit.shuffle(builder, v, v, [r]) for r in range(n)] for v in (raw, wide)))
        return [_square(builder, rest[0], wide, point)]

    pairs = builder.and_(d, ir.Constant(emit.I64, -2 * _LANES))
    whole = builder.and_(d, ir.Constant(emit.I64, -_LANES))
    zero, left = emit.zeros(emit.F64, _LANES), builder.sub(whole, pairs)
    sums = emit.loop(builder, pairs, 2 * _LANES, [zero] * (2 * n), two)
    even = emit.loop(
        builder, left, _LANES, sums[:n], lambda t, sums: eight(builder.add(pairs, t), sums)
    )
    both = [builder.fadd(*pair) for pair in zip(even, sums[n:], strict=True)]
    (rest,) = emit.loop(builder, builder.sub(d, whole), 1, [emit.zeros(emit.F64, n)], one)
    return builder.fadd(_fold(builder, both), rest)


def _square(builder: Any, total: Any, values: Any, point: Any) -> Any:
    gap = builder.fsub(values, point)
    return emit.fma(builder, gap, gap, total)


def _fold(builder: Any, vectors: list[Any]) -> Any:
    """Add the lanes of each vector as `emit.fold_lanes` does; return the sums as one vector."""
    if len(vectors) == 1:
        return emit.fold_lanes(builder, vectors[0])
    # One addition folds halves of several vectors; lane r of the result belongs to vector r.
    lanes = _LANES
    parts = vectors
    while lanes > 1:
        half = lanes // 2
        joined = []
        for i in range(0, len(parts), 2) if len(parts) > 1 else (0,):
            pair = parts[i], parts[min(i + 1, len(parts) - 1)]
            size = pair[0].type.count * (2 if len(parts) > 1 else 1)
            low = [s + u for s in range(0, size, lanes) for u in range(half)]
            first = emit.shuffle(builder, *pair, low)
            second = emit.shuffle(builder, *pair, [u + half for u in low])
            joined.append(builder.fadd(first, second))
        parts, lanes = joined, half
    return parts[0]


def _add_up(builder: Any, grid: Any, total: Any, values: list[Any]) -> None:
    """Round values to the grid and add all of them to the total."""
    lanes = values[0].type.count
    shift = emit.load(builder, grid, emit.F64, lanes, 8)
    rounded = [emit_rounded(builder, value, shift) for value in values]
    found = reduce(builder.fadd, rounded)
    so_far = emit.load(builder, total, emit.F64, lanes, 8)
    emit.store(builder, builder.fadd(so_far, found), total, 8)


def _raise(builder: Any, place: Any, values: list[Any]) -> None:
    """Update the value at an address with the largest pattern of all values."""
    kind, lanes = values[0].type.element, values[0].type.count
    size = emit.bits(kind)
    pattern = ir.VectorType(ir.IntType(size), lanes)
    mask = ir.Constant(pattern, [(1 << (size - 1)) - 1] * lanes)

    def larger(a: Any, b: Any) -> Any:
        return builder.select(builder.icmp_signed(">", a, b), a, b)

    patterns = [builder.and_(builder.bitcast(value, pattern), mask) for value in values]
    so_far = builder.bitcast(emit.load(builder, place, kind, lanes, size // 8), pattern)
    most = reduce(larger, patterns, so_far)
    emit.store(builder, builder.bitcast(most, values[0].type), place, size // 8)


@emit.vector_intrinsic()
def add_masses(builder, masses, grid, sums, at):  # type: ignore[no-untyped-def]
    """Add eight masses on two grids to ``sums[at:]``: eight high, eight low."""
    total = builder.gep(sums, [at])
    value = emit.load(builder, masses, emit.F64, _LANES, 8)
    shifts = (emit.splat(builder, shift, _LANES) for shift in grid)
    for part, rounded in enumerate(emit_split(builder, value, *shifts)):
        place = emit.step(builder, total, part * _LANES)
        so_far = emit.load(builder, place, emit.F64, _LANES, 8)
        emit.store(builder, builder.fadd(so_far, rounded), place, 8)


@emit.vector_intrinsic(returns=types.boolean)
def any_below(builder, ranks, at, weights, sqdist, offset, slope):  # type: ignore[no-untyped-def]
    """Return True if ``ranks[at + u] < weights[u] * (offset + slope * sqdist[u])`` for any of eight u."""
    drawn = emit.load(builder, builder.gep(ranks, [at]), emit.I16, _LANES, 2)
    drawn = builder.uitofp(drawn, ir.VectorType(emit.F64, _LANES))
    weight, distance = (emit.load(builder, a, emit.F64, _LANES, 8) for a in (weights, sqdist))
    first, by = (emit.splat(builder, value, _LANES) for value in (offset, slope))
    rate = builder.fmul(weight, builder.fadd(first, builder.fmul(by, distance)))
    below = builder.fcmp_ordered("<", drawn, rate)
    return builder.icmp_unsigned(
        "!=", builder.bitcast(below, ir.IntType(_LANES)), ir.Constant(ir.IntType(_LANES), 0)
    )
