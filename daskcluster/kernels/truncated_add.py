"""Adding the rows of a block to the sums of their clusters, features in the lanes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit

_LANES = 8


@emit.vector_intrinsic
def add_rows(
    typingctx: Any,
    rows: Any,
    taken: Any,
    here: Any,
    d: Any,
    weights: Any,
    posterior: Any,
    costs: Any,
    index: Any,
    count: Any,
    scale: Any,
    add: Any,
    squares: Any,
    grids: Any,
    both: Any,
    sums: Any,
    low_sums: Any,
    totals: Any,
    shares: Any,
    places: Any,
    block: Any,
    two: Any,
) -> Any:
    """Add the first `here` rows of a block to the `count` clusters that each has a posterior of.

    With w = ``weights[r] * posterior``, where that is above zero: ``sums[c * d + t] += on_grid(w * x[t])``
    for t < d, rounded once, and the residuals to `low_sums` with `two` = 1; and ``totals[4 * c:]`` get the
    high parts of w and of ``w * squared``, then their low parts, where squared is ``squares * (cost -
    add[c]) / scale[c]``. `grids` has d shifts, then those of the residuals, `both` two and two. `shares`
    and `places` are scratch of `count` elements. A part of a row is widened once and goes to all its sums.
    """
    if not emit.literals(block, two):
        return None
    signature = types.void(
        rows, taken, types.intp, types.intp, weights, posterior, costs, index, types.intp, scale,
        add, types.float64, grids, both, sums, low_sums, totals, shares, places, block, two,
    )  # fmt: skip
    arrays = {
        "x": (rows, 0), "taken": (taken, 1), "weights": (weights, 4), "posterior": (posterior, 5),
        "costs": (costs, 6), "index": (index, 7), "scale": (scale, 9), "add": (add, 10),
        "grids": (grids, 12), "both": (both, 13), "sums": (sums, 14), "low": (low_sums, 15),
        "totals": (totals, 16), "shares": (shares, 17), "places": (places, 18),
    }  # fmt: skip

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zero = ir.Constant(emit.I64, 0)
        bases = {
            name: emit.pointer(context, builder, array_type, args[at], zero)
            for name, (array_type, at) in arrays.items()
        }
        low_grid = builder.gep(bases["grids"], [args[3]])
        whole = builder.and_(args[3], ir.Constant(emit.I64, -_LANES))
        add_totals = _totals(builder, bases, args[11])

        def one_row(r: Any, _: list[Any]) -> list[Any]:
            row = builder.load(builder.gep(bases["taken"], [r]))
            weight = builder.load(builder.gep(bases["weights"], [r]))

            def rank(a: Any, found: list[Any]) -> list[Any]:
                at = builder.add(builder.mul(a, ir.Constant(emit.I64, block.literal_value)), r)
                w = builder.fmul(weight, builder.load(builder.gep(bases["posterior"], [at])))
                counts = builder.fcmp_ordered(">", w, ir.Constant(emit.F64, 0.0))
                with builder.if_then(counts):
                    c = builder.sext(builder.load(builder.gep(bases["index"], [at])), emit.I64)
                    builder.store(w, builder.gep(bases["shares"], [found[0]]))
                    place = builder.gep(bases["places"], [found[0]])
                    builder.store(builder.mul(c, args[3]), place)
                    add_totals(w, builder.load(builder.gep(bases["costs"], [at])), c)
                return [builder.add(found[0], builder.zext(counts, emit.I64))]

            (n_shares,) = emit.loop(builder, args[8], 1, [zero], rank)
            source = builder.gep(bases["x"], [builder.mul(row, args[3])])
            spread = _spread(builder, bases, source, low_grid, n_shares, bool(two.literal_value))
            emit.loop(builder, whole, _LANES, [], spread(zero, _LANES))
            emit.loop(builder, builder.sub(args[3], whole), 1, [], spread(whole, 1))
            return []

        emit.loop(builder, args[2], 1, [], one_row)
        return context.get_dummy_value()

    return signature, codegen


def _wide(builder: Any, value: Any) -> Any:
    return value if value.type == emit.F64 else builder.fpext(value, emit.F64)


def _totals(builder: Any, bases: dict[str, Any], squares: Any) -> Any:
    """Return what adds w and w * squared to the totals of a cluster: high parts, then low parts."""
    first = emit.load(builder, bases["both"], emit.F64, 2, 8)
    second = emit.load(builder, emit.step(builder, bases["both"], 2), emit.F64, 2, 8)

    def add_totals(w: Any, cost: Any, c: Any) -> None:
        scale, add = (
            _wide(builder, builder.load(builder.gep(bases[n], [c]))) for n in ("scale", "add")
        )
        squared = builder.fdiv(builder.fsub(_wide(builder, cost), add), scale)
        squared = builder.fmul(squares, squared)
        pair = [emit.splat(builder, value, 1) for value in (w, builder.fmul(w, squared))]
        values = emit.concatenate(builder, pair)
        high = builder.fsub(builder.fadd(values, first), first)
        rest = builder.fsub(values, high)
        low = builder.fsub(builder.fadd(rest, second), second)
        place = builder.gep(bases["totals"], [builder.mul(c, ir.Constant(emit.I64, 4))])
        total = emit.load(builder, place, emit.F64, 4, 8)
        added = builder.fadd(total, emit.concatenate(builder, [high, low]))
        emit.store(builder, added, place, 8)

    return add_totals


def _spread(
    builder: Any, bases: dict[str, Any], source: Any, low_grid: Any, n_shares: Any, two: bool
) -> Any:
    """Return the body of a loop over parts of a row, each of which goes to all sums."""
    kind = source.type.pointee

    def add_at(base: Any, place: Any, value: Any) -> None:
        where = builder.gep(base, [place])
        old = emit.load(builder, where, emit.F64, value.type.count, 8)
        emit.store(builder, builder.fadd(old, value), where, 8)

    def part(start: Any, lanes: int) -> Any:
        def body(step: Any, _: list[Any]) -> list[Any]:
            t = builder.add(start, step)
            value = emit.load(builder, builder.gep(source, [t]), kind, lanes, emit.bits(kind) // 8)
            if kind != emit.F64:
                value = builder.fpext(value, ir.VectorType(emit.F64, lanes))
            first = emit.load(builder, builder.gep(bases["grids"], [t]), emit.F64, lanes, 8)
            second = emit.load(builder, builder.gep(low_grid, [t]), emit.F64, lanes, 8)

            def share(j: Any, _: list[Any]) -> list[Any]:
                factor = builder.load(builder.gep(bases["shares"], [j]))
                factor = emit.splat(builder, factor, lanes)
                place = builder.add(builder.load(builder.gep(bases["places"], [j])), t)
                high = builder.fsub(emit.fma(builder, value, factor, first), first)
                add_at(bases["sums"], place, high)
                if two:
                    rest = emit.fma(builder, value, factor, builder.fneg(high))
                    add_at(bases["low"], place, builder.fsub(builder.fadd(rest, second), second))
                return []

            emit.loop(builder, n_shares, 1, [], share)
            return []

        return body

    return part
