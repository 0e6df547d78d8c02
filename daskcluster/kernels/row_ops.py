"""Intrinsics on single rows: additions on a grid, and squared distances in the canonical order.

Lanes hold features. Rows and centres are converted to float64 first, so differences and squares of float32
values have negligible errors. There are eight lanes on any CPU: LLVM splits them over narrower registers,
which does not change rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.sum_grid import emit_rounded, emit_split, pointers

_LANES = 8
_LINE_BYTES = 64
_CHAINS = 4
"""Number of independent sums of a rough distance, which hide the latency of FMAs."""


def _load_wide(builder: Any, place: Any, kind: Any, lanes: int) -> Any:
    """Load `lanes` elements as a float64 vector."""
    values = emit.load(builder, place, kind, lanes, emit.bits(kind) // 8)
    if emit.bits(kind) == 64:
        return values
    return builder.fpext(values, ir.VectorType(emit.F64, lanes))


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


@emit.vector_intrinsic
def add_on_grid(
    typingctx: Any, rows: Any, at: Any, shift: Any, sums: Any, sums_at: Any, d: Any
) -> Any:
    """``sums[sums_at + t] += (rows[at + t] + shift[t]) - shift[t]`` for t < d."""
    signature = types.void(rows, types.intp, shift, sums, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zero = ir.Constant(emit.I64, 0)
        source = emit.pointer(context, builder, rows, args[0], args[1])
        grid = emit.pointer(context, builder, shift, args[2], zero)
        total = emit.pointer(context, builder, sums, args[3], args[4])

        def body(t: Any, lanes: int) -> None:
            value = _load_wide(builder, builder.gep(source, [t]), emit.element(rows), lanes)
            first = _load_wide(builder, builder.gep(grid, [t]), emit.F64, lanes)
            _add_to(builder, builder.gep(total, [t]), emit_rounded(builder, value, first))

        _along_row(builder, args[5], body)
        return context.get_dummy_value()

    return signature, codegen


@emit.vector_intrinsic
def fetch_row(typingctx: Any, rows: Any, at: Any, d: Any) -> Any:
    """Prefetch ``rows[at : at + d]``, which may be beyond the array."""
    signature = types.void(rows, types.intp, types.intp)
    step = _LINE_BYTES * 8 // emit.bits(emit.element(rows))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source = emit.pointer(context, builder, rows, args[0], args[1])

        def line(t: Any, _: list[Any]) -> list[Any]:
            emit.prefetch(builder, builder.gep(source, [t]), level=2)
            return []

        emit.loop(builder, args[2], step, [], line)
        # Rows are rarely aligned to lines, so the last element may be in one more line.
        last = builder.sub(args[2], ir.Constant(emit.I64, 1))
        emit.prefetch(builder, builder.gep(source, [last]), level=2)
        return context.get_dummy_value()

    return signature, codegen


@emit.vector_intrinsic
def move_on_grid(
    typingctx: Any, rows: Any, at: Any, shift: Any, sums: Any, source: Any, target: Any, d: Any
) -> Any:
    """Subtract the terms of `add_on_grid` from ``sums[source:]`` and add them to ``sums[target:]``."""
    signature = types.void(rows, types.intp, shift, sums, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zero = ir.Constant(emit.I64, 0)
        row = emit.pointer(context, builder, rows, args[0], args[1])
        grid = emit.pointer(context, builder, shift, args[2], zero)
        old = emit.pointer(context, builder, sums, args[3], args[4])
        new = emit.pointer(context, builder, sums, args[3], args[5])

        def body(t: Any, lanes: int) -> None:
            value = _load_wide(builder, builder.gep(row, [t]), emit.element(rows), lanes)
            first = _load_wide(builder, builder.gep(grid, [t]), emit.F64, lanes)
            rounded = emit_rounded(builder, value, first)
            _add_to(builder, builder.gep(old, [t]), builder.fsub(_zeros(lanes), rounded))
            _add_to(builder, builder.gep(new, [t]), rounded)

        _along_row(builder, args[6], body)
        return context.get_dummy_value()

    return signature, codegen


def _zeros(lanes: int) -> Any:
    return ir.Constant(ir.VectorType(emit.F64, lanes), [0.0] * lanes)


@emit.vector_intrinsic
def add_on_grids(
    typingctx: Any,
    rows: Any,
    at: Any,
    weight: Any,
    grid: Any,
    sums: Any,
    low_sums: Any,
    sums_at: Any,
    d: Any,
) -> Any:
    """Add weighted values on two grids, as `add_on_grid` does on one."""
    signature = types.void(
        rows, types.intp, types.float64, grid, sums, low_sums, types.intp, types.intp
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source = emit.pointer(context, builder, rows, args[0], args[1])
        shifts = pointers(context, builder, grid, args[3])
        total = emit.pointer(context, builder, sums, args[4], args[6])
        low_total = emit.pointer(context, builder, low_sums, args[5], args[6])

        def body(t: Any, lanes: int) -> None:
            high, low = _split(builder, source, shifts, t, args[2], lanes)
            _add_to(builder, builder.gep(total, [t]), high)
            _add_to(builder, builder.gep(low_total, [t]), low)

        _along_row(builder, args[7], body)
        return context.get_dummy_value()

    return signature, codegen


@emit.vector_intrinsic
def move_on_grids(
    typingctx: Any,
    rows: Any,
    at: Any,
    weight: Any,
    grid: Any,
    sums: Any,
    low_sums: Any,
    source: Any,
    target: Any,
    d: Any,
) -> Any:
    """Move weighted values on two grids, as `move_on_grid` does on one."""
    signature = types.void(
        rows, types.intp, types.float64, grid, sums, low_sums, types.intp, types.intp, types.intp
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        row = emit.pointer(context, builder, rows, args[0], args[1])
        shifts = pointers(context, builder, grid, args[3])
        places = [
            emit.pointer(context, builder, array, value, offset)
            for offset in (args[6], args[7])
            for array, value in ((sums, args[4]), (low_sums, args[5]))
        ]

        def body(t: Any, lanes: int) -> None:
            high, low = _split(builder, row, shifts, t, args[2], lanes)
            old, old_low, new, new_low = (builder.gep(place, [t]) for place in places)
            _add_to(builder, old, builder.fsub(_zeros(lanes), high))
            _add_to(builder, old_low, builder.fsub(_zeros(lanes), low))
            _add_to(builder, new, high)
            _add_to(builder, new_low, low)

        _along_row(builder, args[8], body)
        return context.get_dummy_value()

    return signature, codegen


def _split(
    builder: Any, row: Any, shifts: tuple[Any, Any], t: Any, weight: Any, lanes: int
) -> tuple[Any, Any]:
    """Split ``weight * row[t:]`` on two grids."""
    value = _load_wide(builder, builder.gep(row, [t]), row.type.pointee, lanes)
    value = builder.fmul(value, emit.splat(builder, weight, lanes))
    grid = [_load_wide(builder, builder.gep(place, [t]), emit.F64, lanes) for place in shifts]
    return emit_split(builder, value, *grid)


@emit.vector_intrinsic
def squared_distance(
    typingctx: Any, rows: Any, at: Any, centres: Any, centre_at: Any, d: Any
) -> Any:
    """Return |x - c|^2 of d features from ``rows[at]`` and ``centres[centre_at]`` on, float64.

    The canonical order: groups of eight features alternate between two sets of eight lanes, one FMA each;
    then lanes are added, first halves to second halves; at most seven remaining features form one chain.
    """
    signature = types.float64(rows, types.intp, centres, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x = emit.pointer(context, builder, rows, args[0], args[1])
        c = emit.pointer(context, builder, centres, args[2], args[3])
        kinds = (emit.element(rows), emit.element(centres))

        def square(t: Any, total: Any, lanes: int) -> Any:
            a, b = (
                _load_wide(builder, builder.gep(place, [t]), kind, lanes)
                for place, kind in zip((x, c), kinds, strict=True)
            )
            gap = builder.fsub(a, b)
            return emit.fma(builder, gap, gap, total)

        def two(t: Any, sums: list[Any]) -> list[Any]:
            prefetched = builder.add(t, ir.Constant(emit.I64, _LANES))
            return [square(t, sums[0], _LANES), square(prefetched, sums[1], _LANES)]

        def eight(t: Any, sums: list[Any]) -> list[Any]:
            return [square(builder.add(pairs, t), sums[0], _LANES)]

        def one(t: Any, sums: list[Any]) -> list[Any]:
            return [square(builder.add(whole, t), sums[0], 1)]

        pairs = builder.and_(args[4], ir.Constant(emit.I64, -2 * _LANES))
        whole = builder.and_(args[4], ir.Constant(emit.I64, -_LANES))
        zero = ir.Constant(ir.VectorType(emit.F64, _LANES), [0.0] * _LANES)
        even, odd = emit.loop(builder, pairs, 2 * _LANES, [zero, zero], two)
        (even,) = emit.loop(builder, builder.sub(whole, pairs), _LANES, [even], eight)
        lanes = emit.fold_lanes(builder, builder.fadd(even, odd))
        (rest,) = emit.loop(
            builder,
            builder.sub(args[4], whole),
            1,
            [ir.Constant(ir.VectorType(emit.F64, 1), [0.0])],
            one,
        )
        return builder.extract_element(builder.fadd(lanes, rest), ir.Constant(emit.I32, 0))

    return signature, codegen


@emit.vector_intrinsic
def rough_squared_distance(
    typingctx: Any, rows: Any, at: Any, centres: Any, centre_at: Any, d: Any
) -> Any:
    """Return |x - c|^2 as `squared_distance` does, summed in the rows' dtype: twice as fast for float32.

    Groups of a cache line's features are added to four vectors in turn; see `rough_error`.
    """
    signature = types.float64(rows, types.intp, centres, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x = emit.pointer(context, builder, rows, args[0], args[1])
        c = emit.pointer(context, builder, centres, args[2], args[3])
        kind = emit.element(rows)
        align = emit.bits(kind) // 8
        line = _LINE_BYTES // align

        def square(t: Any, total: Any, lanes: int) -> Any:
            a, b = (
                emit.load(builder, builder.gep(place, [t]), kind, lanes, align) for place in (x, c)
            )
            gap = builder.fsub(a, b)
            return emit.fma(builder, gap, gap, total)

        def group(t: Any, sums: list[Any]) -> list[Any]:
            steps = [builder.add(t, ir.Constant(emit.I64, line * i)) for i in range(_CHAINS)]
            return [square(at, total, line) for at, total in zip(steps, sums, strict=True)]

        def single(t: Any, sums: list[Any]) -> list[Any]:
            return [square(builder.add(groups, t), sums[0], line)]

        def one(t: Any, sums: list[Any]) -> list[Any]:
            return [square(builder.add(whole, t), sums[0], 1)]

        groups = builder.and_(args[4], ir.Constant(emit.I64, -line * _CHAINS))
        whole = builder.and_(args[4], ir.Constant(emit.I64, -line))
        zero, nothing = (ir.Constant(ir.VectorType(kind, n), [0.0] * n) for n in (line, 1))
        first, *others = emit.loop(builder, groups, line * _CHAINS, [zero] * _CHAINS, group)
        (total,) = emit.loop(builder, builder.sub(whole, groups), line, [first], single)
        for other in others:
            total = builder.fadd(total, other)
        (rest,) = emit.loop(builder, builder.sub(args[4], whole), 1, [nothing], one)
        total = builder.fadd(emit.fold_lanes(builder, total), rest)
        found = builder.extract_element(total, ir.Constant(emit.I32, 0))
        return found if emit.bits(kind) == 64 else builder.fpext(found, emit.F64)

    return signature, codegen
