"""Posteriors of a block of rows: the q smallest costs of each row, exponentials, log-sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from llvmlite import ir

from daskcluster.kernels import emit
from daskcluster.kernels.exponential import constant, exponential, polynomial
from daskcluster.kernels.sum_grid import emit_rounded

_LN2 = 0.6931471805599453
_LOG_TERMS = [2.0 / (2 * m + 1) for m in range(16)]


def logarithm(builder: Any, x: Any) -> Any:
    """Return log(x) of a float64 vector of normal numbers x >= 1."""
    bits = builder.bitcast(x, ir.VectorType(emit.I64, x.type.count))
    exponent = builder.sub(builder.lshr(bits, constant(52, bits)), constant(1023, bits))
    mantissa = builder.and_(bits, constant((1 << 52) - 1, bits))
    m = builder.bitcast(builder.or_(mantissa, constant(1023 << 52, bits)), x.type)
    one = constant(1.0, x)
    s = builder.fdiv(builder.fsub(m, one), builder.fadd(m, one))
    tail = builder.fmul(s, polynomial(builder, builder.fmul(s, s), _LOG_TERMS))
    return emit.fma(builder, builder.sitofp(exponent, x.type), constant(_LN2, x), tail)


@emit.vector_intrinsic(literals="vectors width")
def weigh(builder, least, costs, keep, sharpness, floor, posterior, bound, vectors, width):  # type: ignore[no-untyped-def]
    """Turn `keep` runs of costs of a block, none of them below the run `least`, into posteriors.

    With terms ``exp(-sharpness * cost[rank])``: ``posterior[rank] = term / total``, or 0 if less than
    `floor`, and ``bound = log(total)``. Terms are computed relative to that of `least`, so that none
    overflows.
    """
    many, wide, kind = vectors, width, costs.type.pointee
    sharp, low = (emit.splat(builder, value, wide) for value in (sharpness, floor))

    def cost_at(place: Any) -> Any:
        value = emit.load(builder, place, kind, wide, emit.bits(kind) // 8)
        return value if kind == emit.F64 else builder.fpext(value, sharp.type)

    for v in range(many):
        first = builder.fmul(cost_at(emit.step(builder, least, v * wide)), sharp)

        def place_of(base: Any, rank: Any, v: int = v) -> Any:
            start = builder.mul(rank, ir.Constant(emit.I64, many * wide))
            return emit.step(builder, builder.gep(base, [start]), v * wide)

        def raise_up(rank: Any, totals: list[Any], first: Any = first) -> list[Any]:
            cost = builder.fmul(cost_at(place_of(costs, rank)), sharp)
            value = exponential(builder, builder.fsub(first, cost))
            emit.store(builder, value, place_of(posterior, rank), 8)
            return [builder.fadd(totals[0], value)]

        (total,) = emit.loop(builder, keep, 1, [constant(0.0, sharp)], raise_up)
        factor = builder.fdiv(constant(1.0, sharp), total)

        def divide(rank: Any, _: list[Any], factor: Any = factor) -> list[Any]:
            place = place_of(posterior, rank)
            value = builder.fmul(emit.load(builder, place, emit.F64, wide, 8), factor)
            large = builder.fcmp_ordered(">=", value, low)
            emit.store(builder, builder.select(large, value, constant(0.0, sharp)), place, 8)
            return []

        emit.loop(builder, keep, 1, [], divide)
        value = builder.fsub(logarithm(builder, total), first)
        emit.store(builder, value, emit.step(builder, bound, v * wide), 8)


_IN_REGISTERS = 6
"""Largest number of runs of least costs that stay in registers during the insertion of candidates."""


@emit.vector_intrinsic(literals="vectors width")
def keep_least(builder, near, number, first, count, best, index, keep, vectors, width):  # type: ignore[no-untyped-def]
    """Insert candidates of every row of a block into the row's `keep` least costs, in ascending order.

    `near` and `number` hold the costs and cluster numbers of candidates, in runs of a block; the `count`
    runs from run `first` on are inserted. `best` and `index` have `keep` runs. On ties, the earlier
    candidate comes first.
    """
    many, wide = vectors, width
    zero = ir.Constant(emit.I64, 0)
    start = builder.mul(first, ir.Constant(emit.I64, many * wide))

    def runs(costs: Any, names: Any, begin: Any, v: int) -> _Runs:
        begin = builder.add(begin, ir.Constant(emit.I64, v * wide))
        pointers = (builder.gep(array, [begin]) for array in (costs, names))
        return _Runs(builder, costs.type.pointee, wide, many * wide, *pointers)

    def each(insert: Callable[[_Runs, _Runs], None]) -> None:
        for v in range(many):
            insert(runs(near, number, start, v), runs(best, index, zero, v))

    after = builder.append_basic_block("kept")
    other = builder.append_basic_block("more")
    choice = builder.switch(keep, other)
    for n_kept in range(1, _IN_REGISTERS + 1):
        few = builder.append_basic_block("few")
        choice.add_case(ir.Constant(emit.I64, n_kept), few)
        builder.position_at_end(few)
        each(partial(_in_registers, count=count, n_kept=n_kept))
        builder.branch(after)
    builder.position_at_end(other)
    each(partial(_in_memory, count=count, n_kept=keep))
    builder.branch(after)
    builder.position_at_end(after)


@dataclass(frozen=True)
class _Runs:
    """One vector of each run: costs of `kind` and cluster numbers."""

    builder: Any
    kind: Any
    lanes: int
    stride: int
    costs: Any
    names: Any

    def _places(self, run: Any) -> list[tuple[Any, Any, int]]:
        at = self.builder.mul(run, ir.Constant(emit.I64, self.stride))
        size = emit.bits(self.kind) // 8
        return [
            (self.builder.gep(self.costs, [at]), self.kind, self.lanes * size),
            (self.builder.gep(self.names, [at]), emit.I32, 4),
        ]

    def load(self, run: Any) -> tuple[Any, Any]:
        cost, name = (
            emit.load(self.builder, place, kind, self.lanes, align)
            for place, kind, align in self._places(run)
        )
        return cost, name

    def store(self, run: Any, pair: tuple[Any, Any]) -> None:
        for value, (place, _, align) in zip(pair, self._places(run), strict=True):
            emit.store(self.builder, value, place, align)


def _in_registers(new: _Runs, kept: _Runs, count: Any, n_kept: int) -> None:
    """Emit the insertion of all candidates, with the runs loaded once before and stored once after."""
    builder, ranks = new.builder, [ir.Constant(emit.I64, rank) for rank in range(n_kept)]

    def insert(j: Any, held: list[Any]) -> list[Any]:
        comes, old = new.load(j), list(zip(held[::2], held[1::2], strict=True))
        wins = [builder.fcmp_ordered("<", comes[0], cost) for cost, _ in old]
        grown = []
        for rank, pair in enumerate(old):
            for part in (0, 1):
                entering = comes[part]
                if rank:  # the pair that the candidate displaces
                    entering = builder.select(wins[rank - 1], old[rank - 1][part], entering)
                grown.append(builder.select(wins[rank], entering, pair[part]))
        return grown

    held = emit.loop(builder, count, 1, [part for r in ranks for part in kept.load(r)], insert)
    for rank, pair in zip(ranks, zip(held[::2], held[1::2], strict=True), strict=True):
        kept.store(rank, pair)


def _in_memory(new: _Runs, kept: _Runs, count: Any, n_kept: Any) -> None:
    """Emit the same for any number of runs: each candidate displaces a pair, which displaces the next."""
    builder = new.builder
    nobody = ir.Constant(ir.VectorType(ir.IntType(1), new.lanes), [0] * new.lanes)

    def insert(j: Any, _: list[Any]) -> list[Any]:
        def one_rank(rank: Any, rising: list[Any]) -> list[Any]:
            cost, name = kept.load(rank)
            wins = builder.or_(rising[2], builder.fcmp_ordered("<", rising[0], cost))
            pairs = (rising[0], cost), (rising[1], name)
            stays = [builder.select(wins, *pair) for pair in pairs]
            kept.store(rank, (stays[0], stays[1]))
            return [*(builder.select(wins, *pair[::-1]) for pair in pairs), wins]

        emit.loop(builder, n_kept, 1, [*new.load(j), nobody], one_rank)
        return []

    emit.loop(builder, count, 1, [], insert)


@emit.vector_intrinsic(literals="vectors width")
def add_keys(builder, near, count, sums, counted, shift, rooted, vectors, width):  # type: ignore[no-untyped-def]
    """Add `count` runs of costs of a block, or their square roots, to float64 sums on a grid.

    ``sums[at] += counted[r] * on_grid(near[at])`` for lane r of each run; `counted` is 0 or 1. With
    `rooted`, the square root of ``near[at]`` is added.
    """
    many, wide = vectors, width
    kind = near.type.pointee
    full, block = wide * emit.bits(kind) // 8, ir.Constant(emit.I64, many * wide)
    grid, wide_kind = emit.splat(builder, shift, wide), ir.VectorType(emit.F64, wide)
    flag, square_root = builder.trunc(rooted, ir.IntType(1)), f"llvm.sqrt.v{wide}f{emit.bits(kind)}"
    counts = [
        emit.load(builder, emit.step(builder, counted, v * wide), emit.F64, wide, 8)
        for v in range(many)
    ]

    def body(j: Any, _: list[Any]) -> list[Any]:
        run = builder.mul(j, block)
        for v, mine in enumerate(counts):
            at = builder.add(run, ir.Constant(emit.I64, v * wide))
            cost = emit.load(builder, builder.gep(near, [at]), kind, wide, full)
            root = emit.call(builder, square_root, cost.type, [cost])
            cost = builder.select(flag, root, cost)
            value = cost if kind == emit.F64 else builder.fpext(cost, wide_kind)
            value = emit_rounded(builder, value, grid)
            place = builder.gep(sums, [at])
            total = emit.load(builder, place, emit.F64, wide, 8)
            emit.store(builder, builder.fadd(total, builder.fmul(value, mine)), place, 8)
        return []

    emit.loop(builder, count, 1, [], body)
