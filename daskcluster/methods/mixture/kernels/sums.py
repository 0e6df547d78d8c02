"""Sums of the M-step: add rows to clusters, rounded to grids so that sums are exact."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from daskcluster.kernels import emit
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.sum_grid import SumGrid, emit_split, emit_split_product, split
from daskcluster.methods.mixture.kernels.candidates import BLOCK
from daskcluster.methods.mixture.kernels.mahalanobis import add_products

_LANES = 8
_WIDE = 4 * _LANES
"""Features per step: four independent vectors, whose latencies overlap."""


@emit.vector_intrinsic(literals="block two")
def add_rows(  # type: ignore[no-untyped-def]
    builder,
    rows,
    taken,
    here,
    d,
    weights,
    posterior,
    costs,
    index,
    count,
    scale,
    add,
    squares,
    plain,
    grid,
    both,
    sums,
    low_sums,
    totals,
    shares,
    places,
    block,
    two,
):
    """Add the first `here` rows of a block to their clusters; each row has posteriors of `count` clusters.

    With w = ``weights[r] * posterior``, for w > 0: ``sums[c * d + t] += on_grid(w * x[t])`` for t < d,
    rounded once; with `two` = 1 the residuals are added to `low_sums`. ``totals[4 * c:]`` get the high
    parts of w and ``w * squared``, then their low parts, where squared is ``squares * (cost - add[c]) /
    scale[c]``, or the cost itself if all clusters are `plain`. `grid` is a `SumGrid` with d shifts in each
    part, `both` one with two. `shares` and `places` are scratch of `count` elements. Each part of a row is
    widened once and added to the sums of all its clusters.
    """
    zero = ir.Constant(emit.I64, 0)
    wide, whole = (builder.and_(d, ir.Constant(emit.I64, -n)) for n in (_WIDE, _LANES))
    add_totals = _totals(builder, (scale, add, totals), both, squares, plain)

    def one_row(r: Any, _: list[Any]) -> list[Any]:
        row = builder.load(builder.gep(taken, [r]))
        weight = builder.load(builder.gep(weights, [r]))

        def rank(a: Any, found: list[Any]) -> list[Any]:
            at = builder.add(builder.mul(a, ir.Constant(emit.I64, block)), r)
            w = builder.fmul(weight, builder.load(builder.gep(posterior, [at])))
            counts = builder.fcmp_ordered(">", w, ir.Constant(emit.F64, 0.0))
            with builder.if_then(counts):
                c = builder.sext(builder.load(builder.gep(index, [at])), emit.I64)
                builder.store(w, builder.gep(shares, [found[0]]))
                builder.store(builder.mul(c, d), builder.gep(places, [found[0]]))
                add_totals(w, builder.load(builder.gep(costs, [at])), c)
            return [builder.add(found[0], builder.zext(counts, emit.I64))]

        (n_shares,) = emit.loop(builder, count, 1, [zero], rank)
        source = builder.gep(rows, [builder.mul(row, d)])
        spread = _spread(
            builder, source, grid, (n_shares, shares, places), sums, low_sums if two else None
        )
        emit.loop(builder, wide, _WIDE, [], spread(zero, _WIDE))
        emit.loop(builder, builder.sub(whole, wide), _LANES, [], spread(wide, _LANES))
        emit.loop(builder, builder.sub(d, whole), 1, [], spread(whole, 1))
        return []

    emit.loop(builder, here, 1, [], one_row)


def _wide(builder: Any, value: Any) -> Any:
    """Return a number or a vector as float64."""
    kind = value.type
    if isinstance(kind, ir.VectorType):
        wide = ir.VectorType(emit.F64, kind.count)
        return value if kind == wide else builder.fpext(value, wide)
    return value if kind == emit.F64 else builder.fpext(value, emit.F64)


def _totals(
    builder: Any, arrays: tuple[Any, Any, Any], both: tuple[Any, Any], squares: Any, plain: Any
) -> Any:
    """Return a function that adds w and w * squared to the totals of a cluster, high and low parts."""
    scales, adds, totals = arrays
    grid = [emit.load(builder, place, emit.F64, 2, 8) for place in both]
    flag = builder.trunc(plain, ir.IntType(1))

    def add_totals(w: Any, cost: Any, c: Any) -> None:
        cost, before = _wide(builder, cost), builder.block
        with builder.if_then(builder.not_(flag)):
            loaded = (builder.load(builder.gep(array, [c])) for array in (scales, adds))
            scale, add = (_wide(builder, value) for value in loaded)
            unscaled = builder.fmul(squares, builder.fdiv(builder.fsub(cost, add), scale))
            inside = builder.block
        squared = builder.phi(emit.F64)
        squared.add_incoming(cost, before)
        squared.add_incoming(unscaled, inside)
        pair = [emit.splat(builder, value, 1) for value in (w, builder.fmul(w, squared))]
        parts = emit_split(builder, emit.concatenate(builder, pair), *grid)
        place = builder.gep(totals, [builder.mul(c, ir.Constant(emit.I64, 4))])
        total = emit.load(builder, place, emit.F64, 4, 8)
        added = builder.fadd(total, emit.concatenate(builder, list(parts)))
        emit.store(builder, added, place, 8)

    return add_totals


def _spread(
    builder: Any,
    source: Any,
    shifts: tuple[Any, Any],
    found: tuple[Any, Any, Any],
    sums: Any,
    low_sums: Any | None,
) -> Any:
    """Return a function that makes the body of a loop over parts of a row and adds each to all sums."""
    kind, (n_shares, shares, starts) = source.type.pointee, found

    def add_at(base: Any, place: Any, value: Any) -> None:
        where = builder.gep(base, [place])
        old = emit.load(builder, where, emit.F64, value.type.count, 8)
        emit.store(builder, builder.fadd(old, value), where, 8)

    def part(start: Any, features: int) -> Any:
        lanes = min(features, _LANES)

        def read(base: Any, t: Any, kind: Any = emit.F64) -> Any:
            place = builder.gep(base, [t])
            return emit.load(builder, place, kind, lanes, emit.bits(kind) // 8)

        def body(step: Any, _: list[Any]) -> list[Any]:
            begin = builder.add(start, step)
            places = [
                builder.add(begin, ir.Constant(emit.I64, at)) for at in range(0, features, lanes)
            ]
            values = [_wide(builder, read(source, t, kind)) for t in places]
            first = [read(shifts[0], t) for t in places]

            def share(j: Any, _: list[Any]) -> list[Any]:
                factor = builder.load(builder.gep(shares, [j]))
                factor = emit.splat(builder, factor, lanes)
                begins = builder.load(builder.gep(starts, [j]))
                for t, value, grid in zip(places, values, first, strict=True):
                    at = builder.add(begins, t)
                    second = None if low_sums is None else read(shifts[1], t)
                    high, low = emit_split_product(builder, value, factor, grid, second)
                    add_at(sums, at, high)
                    if low_sums is not None:
                        add_at(low_sums, at, low)
                return []

            emit.loop(builder, n_shares, 1, [], share)
            return []

        return body

    return part


class Moments(NamedTuple):
    """Sums of an M-step, float64, flat; w is the row weight times the posterior.

    `firsts` (k * d,): sums of w x. `low_firsts`: their low parts, empty where one grid is enough.
    `seconds` (2, k * d): high and low parts of the sums of w (x - mean)^2 by feature; or (2, 0); or
    (2, k * m) or (2, m): of the m = d (d + 1) / 2 products of features, by cluster or of all clusters.
    `totals` (4 k,): for each cluster the high parts of the sums of w and of w |x - mean|^2, then their low
    parts. With `seconds`, the sums of w |x - mean|^2 are zero.
    """

    firsts: np.ndarray
    low_firsts: np.ndarray
    seconds: np.ndarray
    totals: np.ndarray


class MomentGrids(NamedTuple):
    """The grids of `Moments`: shifts (d,) for `firsts`, (2,) for `totals`, one by sum for `seconds`."""

    firsts: SumGrid
    seconds: SumGrid
    totals: SumGrid


@kernel
def add_block(  # type: ignore[no-untyped-def]
    x, d, taken, here, weights, found, costs, sums, scratch
):
    """Add the first `here` rows of a block to their clusters; `found` is (index, best, posterior).

    `sums` is (`MomentGrids`, `Moments`); `scratch` comes from `add_scratch`.
    """
    # Tuples are unpacked once, because numba counts a reference at every access.
    (index, best, posterior), (grids, moments) = found, sums
    means, scale, add = costs.means, costs.scale, costs.add
    grid, (second, low_second), both = grids.firsts, grids.seconds, grids.totals
    firsts, low_firsts, totals = moments.firsts, moments.low_firsts, moments.totals
    factors, shares, places = scratch
    count = index.shape[0] // BLOCK
    squares = 1.0
    for r in range(here):
        factors[r] = weights[taken[r]] if weights.shape[0] else 1.0
    if second.shape[0] > 0:
        squares = 0.0
        seconds, low_seconds = moments.seconds[0], moments.seconds[1]
        size, k = second.shape[0], scale.shape[0]
        stride = size if seconds.shape[0] == k * size else 0
        products, gaps = size != d or stride == 0, np.empty(d)
        for r in range(here):
            for at in range(r, index.shape[0], BLOCK):
                w = factors[r] * posterior[at]
                if w > 0.0:
                    c = np.int64(index[at])
                    if products:
                        add_products(
                            x, taken[r] * d, w, means, c * d, d,
                            second, low_second, seconds, low_seconds, c * stride, gaps,
                        )  # fmt: skip
                    else:
                        for t in range(d):
                            gap = np.float64(x[taken[r] * d + t]) - np.float64(means[c * d + t])
                            value, rest = split(w * (gap * gap), second[t], low_second[t])
                            seconds[c * d + t] += value
                            low_seconds[c * d + t] += rest
    if low_firsts.shape[0] > 0:
        add_rows(
            x, taken, here, d, factors, posterior, best, index, count, scale, add, squares, False,
            grid, both, firsts, low_firsts, totals, shares, places, BLOCK, 1,
        )  # fmt: skip
    else:
        add_rows(
            x, taken, here, d, factors, posterior, best, index, count, scale, add, squares, False,
            grid, both, firsts, firsts, totals, shares, places, BLOCK, 0,
        )  # fmt: skip


@kernel
def add_scratch(block, count):  # type: ignore[no-untyped-def]
    """Return the scratch arrays of `add_block` for blocks of rows with `count` posteriors each."""
    return np.empty(block), np.empty(count), np.empty(count, np.int64)
