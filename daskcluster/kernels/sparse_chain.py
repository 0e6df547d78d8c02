"""The canonical score of CSR rows: one chain of FMAs over a row's stored values, in column order.

Centres stand in the lanes, feature by feature, so that a stored value is one broadcast and one FMA for
every vector of centres; their sums stay in registers along the whole row. A value that is not stored
would add an exact zero: without an offset the chain of a dense row has the same bits.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from daskcluster.kernels import emit

_AHEAD = 16
"""Entries between the one that is computed and the one whose centres are fetched: measured best."""
_LINE = 64

_Entry = tuple[Any, Any]
"""Scores and numbers of centres, as vectors or as scalars."""


def _insert(builder: Any, kept: list[_Entry], entry: _Entry, *, in_order: bool) -> None:
    """Insert an entry into `kept`, best first; of equal scores the lowest number is better.

    With `in_order` the number is above all that are kept already. NaN is never inserted.
    """
    wins = None
    for rank, old in enumerate(kept):
        better = builder.fcmp_ordered(">", entry[0], old[0])
        if not in_order:
            tie = builder.fcmp_ordered("==", entry[0], old[0])
            lower = builder.icmp_signed("<", entry[1], old[1])
            better = builder.or_(better, builder.and_(tie, lower))
        # Who is displaced stays ahead of the next in rank.
        wins = better if wins is None else builder.or_(wins, better)
        pairs = list(zip(entry, old, strict=True))
        score, number = (builder.select(wins, new, was) for new, was in pairs)
        kept[rank] = (score, number)
        score, number = (builder.select(wins, was, new) for new, was in pairs)
        entry = (score, number)


def _best_of_lanes(builder: Any, kept: list[_Entry]) -> list[_Entry]:
    """Merge the lanes of winners, halves onto halves, into scalars."""
    while (lanes := kept[0][0].type.count) > 1:
        low, high = (
            [
                tuple(
                    emit.shuffle(builder, part, part, range(first, first + lanes // 2))
                    for part in e
                )
                for e in kept
            ]
            for first in (0, lanes // 2)
        )
        for score, number in high:
            _insert(builder, low, (score, number), in_order=False)
        kept = [(score, number) for score, number in low]
    zero = ir.Constant(emit.I32, 0)
    return [(builder.extract_element(a, zero), builder.extract_element(b, zero)) for a, b in kept]


@emit.vector_intrinsic
def score_entries(
    typingctx: Any,
    data: Any,
    indices: Any,
    first: Any,
    stop: Any,
    panel: Any,
    panel_at: Any,
    number: Any,
    best: Any,
    index: Any,
    at: Any,
    vectors: Any,
    width: Any,
    keep: Any,
    entries: Any,
) -> Any:
    """Score centres, numbered from `number`, for the row of entries `first` to `stop`.

    The panel from `panel_at` on holds the first terms of ``vectors * width`` centres, then their
    coordinates, feature by feature. ``best[at:at + keep]`` and ``index[at:at + keep]`` are the row's
    winners under lower centres, best first, and are brought up to date. `entries` is how many entries
    all rows have together: while it computes, the kernel fetches what the next ones ask for.
    """
    if not emit.literals(vectors, width, keep):
        return None
    lanes, count = width.literal_value, vectors.literal_value
    signature = types.void(
        data, indices, types.intp, types.intp, panel, types.intp, types.int32, best, index,
        types.intp, vectors, width, keep, types.intp,
    )  # fmt: skip

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = emit.element(data)
        align = emit.bits(kind) // 8
        values = emit.pointer(context, builder, data, args[0], args[2])
        columns = emit.pointer(context, builder, indices, args[1], args[2])
        start = emit.pointer(context, builder, panel, args[4], args[5])
        coordinates = emit.step(builder, start, count * lanes)
        stride = ir.Constant(emit.I64, count * lanes)
        left = builder.sub(args[13], builder.add(args[2], ir.Constant(emit.I64, 1)))

        def vectors_at(place: Any) -> list[Any]:
            places = [emit.step(builder, place, v * lanes) for v in range(count)]
            return [emit.load(builder, place, kind, lanes, align) for place in places]

        def column(s: Any) -> Any:
            number = builder.sext(builder.load(builder.gep(columns, [s])), emit.I64)
            return builder.gep(coordinates, [builder.mul(number, stride)])

        def fetch(s: Any) -> None:
            # Columns are far apart: no CPU guesses the next one, but the next entries name it.
            soon = builder.add(s, ir.Constant(emit.I64, _AHEAD))
            soon = builder.select(builder.icmp_signed("<", soon, left), soon, left)
            place = column(soon)
            for line in range(0, count * lanes * align, _LINE):
                emit.prefetch(builder, emit.step(builder, place, line // align))

        def entry(s: Any, sums: list[Any]) -> list[Any]:
            fetch(s)
            value = emit.splat(builder, builder.load(builder.gep(values, [s])), lanes)
            centres = vectors_at(column(s))
            return [
                emit.fma(builder, value, centre, total)
                for centre, total in zip(centres, sums, strict=True)
            ]

        scores = emit.loop(builder, builder.sub(args[3], args[2]), 1, vectors_at(start), entry)
        base = emit.splat(builder, args[6], lanes)
        wide = scores[0].type
        nothing = ir.Constant(wide, [float("-inf")] * lanes), ir.Constant(base.type, [-1] * lanes)
        kept: list[_Entry] = [nothing] * keep.literal_value
        for v, score in enumerate(scores):
            lane_numbers = ir.Constant(base.type, list(range(v * lanes, (v + 1) * lanes)))
            _insert(builder, kept, (score, builder.add(base, lane_numbers)), in_order=True)
        _update(
            builder,
            emit.pointer(context, builder, best, args[7], args[9]),
            emit.pointer(context, builder, index, args[8], args[9]),
            _best_of_lanes(builder, kept),
        )
        return context.get_dummy_value()

    return signature, codegen


def _update(builder: Any, best: Any, index: Any, found: list[_Entry]) -> None:
    """Insert what was found into the sorted winners in memory."""
    places = [
        (emit.step(builder, best, r), emit.step(builder, index, r)) for r in range(len(found))
    ]
    kept: list[_Entry] = [(builder.load(score), builder.load(number)) for score, number in places]
    for entry in found:
        _insert(builder, kept, entry, in_order=True)
    for (score, number), (score_place, number_place) in zip(kept, places, strict=True):
        builder.store(score, score_place)
        builder.store(number, number_place)
