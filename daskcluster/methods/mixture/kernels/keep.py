"""The q least costs of every row of a block, rows in the lanes.

A new candidate is compared with all that are kept at once, and those behind it move back by one: no branch,
which would go wrong at every other candidate, and no comparison waits for another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit

_IN_REGISTERS = 6
"""So many kept runs of a block stay in registers while candidates go by."""


@emit.vector_intrinsic
def keep_least(
    typingctx: Any,
    near: Any,
    number: Any,
    first: Any,
    count: Any,
    best: Any,
    index: Any,
    keep: Any,
    vectors: Any,
    width: Any,
) -> Any:
    """Insert candidates of every row of a block into the row's `keep` least, in ascending order.

    `near` and `number` have the costs and numbers of candidates in runs of a block, of which `count` from
    run `first` on are inserted; `best` and `index` have `keep` runs. Who came first stays ahead on ties.
    """
    if not emit.literals(vectors, width):
        return None
    many, wide = vectors.literal_value, width.literal_value
    signature = types.void(
        near, number, types.intp, types.intp, best, index, types.intp, vectors, width
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zero = ir.Constant(emit.I64, 0)
        start = builder.mul(args[2], ir.Constant(emit.I64, many * wide))

        def runs(costs: Any, at: int, names: Any, begin: Any, v: int) -> _Runs:
            begin = builder.add(begin, ir.Constant(emit.I64, v * wide))
            pointers = (
                emit.pointer(context, builder, array, args[position], begin)
                for array, position in ((costs, at), (names, at + 1))
            )
            return _Runs(builder, emit.element(costs), wide, many * wide, *pointers)

        def each(insert: Callable[[_Runs, _Runs], None]) -> None:
            for v in range(many):
                insert(runs(near, 0, number, start, v), runs(best, 4, index, zero, v))

        after = builder.append_basic_block("kept")
        other = builder.append_basic_block("more")
        choice = builder.switch(args[6], other)
        for n_kept in range(1, _IN_REGISTERS + 1):
            few = builder.append_basic_block("few")
            choice.add_case(ir.Constant(emit.I64, n_kept), few)
            builder.position_at_end(few)
            each(partial(_in_registers, count=args[3], n_kept=n_kept))
            builder.branch(after)
        builder.position_at_end(other)
        each(partial(_in_memory, count=args[3], n_kept=args[6]))
        builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return signature, codegen


@dataclass(frozen=True)
class _Runs:
    """One vector of each run: costs of `kind`, and names."""

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
    """Emit the insertion of all candidates into runs that are loaded before and stored behind."""
    builder, ranks = new.builder, [ir.Constant(emit.I64, rank) for rank in range(n_kept)]

    def insert(j: Any, held: list[Any]) -> list[Any]:
        comes, old = new.load(j), list(zip(held[::2], held[1::2], strict=True))
        wins = [builder.fcmp_ordered("<", comes[0], cost) for cost, _ in old]
        grown = []
        for rank, pair in enumerate(old):
            for part in (0, 1):
                entering = comes[part]
                if rank:  # whom the candidate has moved back
                    entering = builder.select(wins[rank - 1], old[rank - 1][part], entering)
                grown.append(builder.select(wins[rank], entering, pair[part]))
        return grown

    held = emit.loop(builder, count, 1, [part for r in ranks for part in kept.load(r)], insert)
    for rank, pair in zip(ranks, zip(held[::2], held[1::2], strict=True), strict=True):
        kept.store(rank, pair)


def _in_memory(new: _Runs, kept: _Runs, count: Any, n_kept: Any) -> None:
    """Emit the same for any number of kept runs: the candidate, then whom it moves back, rises."""
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
