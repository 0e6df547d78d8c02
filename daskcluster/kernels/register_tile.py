"""The register tiles: a panel of centres against a block of rows, all sums in registers.

The intrinsics take arrays with element offsets, and the tile's shape as literal arguments; the arrays
determine the element type. They are at module level because numba cannot cache a kernel with an intrinsic
in its closure.

Each lane holds one row (`daskcluster.kernels.row_block`), so finding the winners of a block needs no
reduction across lanes, and no result depends on the vector width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from llvmlite import ir

from daskcluster.kernels import dot_product, emit

_PICKING_BYTES = 16
"""Bits of vectors from which an FMA can select a lane: those of ARM."""


class TileShape(NamedTuple):
    """`height` centres by `vectors` vectors of `width` rows."""

    height: int
    vectors: int
    width: int

    @property
    def rows(self) -> int:
        return self.vectors * self.width


def run_along(
    builder: Any,
    panel: Any,
    block: Any,
    features: Any,
    tile: TileShape,
    first: list[Any],
    term: Callable[[Any, Any, Any], Any],
    prefetch: Callable[[Any], None] | None = None,
    step: int = 1,
) -> list[list[Any]]:
    """Emit the loop over features: one chain per row and centre, in feature order.

    A chain starts at `first` [centre] and continues as ``total = term(row, centre, total)``. `panel`
    points to the coordinates, `height` for each feature; `prefetch` emits an optional prefetch for a
    feature. With a `step` of more features, of which `features` is a multiple, `term` gets as many rows and
    centres. Returns the totals, indexed [centre][vector].
    """
    kind = first[0].type.element
    align = emit.bits(kind) // 8

    def loaded(t: Any) -> tuple[list[Any], list[Any]]:
        x = builder.gep(block, [builder.mul(t, ir.Constant(emit.I64, tile.rows))])
        rows = [
            emit.load(builder, emit.step(builder, x, at), kind, tile.width, tile.width * align)
            for at in range(0, tile.rows, tile.width)
        ]
        c = builder.gep(panel, [builder.mul(t, ir.Constant(emit.I64, tile.height))])
        return rows, _centres(builder, c, tile, align)

    def advance(t: Any, sums: list[Any]) -> list[Any]:
        if prefetch is not None:
            prefetch(t)
        rows, centres = loaded(t)
        if step > 1:
            steps = [builder.add(t, ir.Constant(emit.I64, i)) for i in range(1, step)]
            each = [(rows, centres), *map(loaded, steps)]
            rows, centres = (list(zip(*lists, strict=True)) for lists in zip(*each, strict=True))
        pairs = [(row, centre) for centre in centres for row in rows]
        return [term(*pair, total) for pair, total in zip(pairs, sums, strict=True)]

    starts = [start for start in first for _ in range(tile.vectors)]
    sums = emit.loop(builder, features, step, starts, advance)
    return [sums[at : at + tile.vectors] for at in range(0, len(sums), tile.vectors)]


def _centres(builder: Any, place: Any, tile: TileShape, align: int) -> list[Any]:
    """Load one feature of the centres of a panel, each repeated in every lane.

    With 128 bits they are loaded as vectors, of which ARM's FMA can use any lane. With wider vectors, an
    instruction loads one number into all lanes.
    """
    kind, whole = place.type.pointee, tile.height - tile.height % tile.width
    whole = whole if tile.width * align == _PICKING_BYTES else 0
    repeated = []
    for first in range(0, whole, tile.width):
        vector = emit.load(builder, emit.step(builder, place, first), kind, tile.width, align)
        for lane in range(tile.width):
            repeated.append(emit.shuffle(builder, vector, vector, [lane] * tile.width))
    for r in range(whole, tile.height):
        repeated.append(broadcast(builder, emit.step(builder, place, r), tile.width, align))
    return repeated


def broadcast(builder: Any, place: Any, lanes: int, align: int) -> Any:
    """Load a scalar and repeat it in every lane."""
    return emit.splat(builder, builder.load(place, align=align), lanes)


@emit.tile_intrinsic(literals="height vectors width keep prefetch_by?", int32="first")
def score_tile(  # type: ignore[no-untyped-def]
    builder,
    block,
    block_at,
    panel,
    panel_at,
    features,
    first,
    best,
    index,
    at,
    height,
    vectors,
    width,
    keep,
    prefetched,
    prefetch_at,
    prefetch_by,
):
    """Score `height` centres, numbered from `first`, against a block of rows; update the winners.

    `best` and `index` hold, from element `at` on, the score and number of each row's best centre and, with
    `keep` = 2, ``vectors * width`` elements further those of the second best. With `keep` = 0 the number is
    that of the first centre of the winner's panel, and `place_in_panel` finds the centre.

    At feature t, the tile prefetches ``prefetched[prefetch_at + t * prefetch_by]``, which are rows to pack
    next, or ``prefetched[prefetch_by[prefetch_at + t]]`` if `prefetch_by` is an array. A literal 0
    prefetches nothing.
    """
    prefetch = None
    if not isinstance(prefetch_by, int):
        prefetch = _prefetch_along(builder, prefetched, prefetch_at, prefetch_by)
    tile = TileShape(height, vectors, width)
    rows, start = builder.gep(block, [block_at]), builder.gep(panel, [panel_at])
    winners = builder.gep(best, [at]), builder.gep(index, [at])
    scores = _scores(builder, start, rows, features, tile, prefetch)
    base = emit.splat(builder, first, width)
    offsets = [ir.Constant(base.type, [r] * width) for r in range(height)]
    numbers = [builder.add(base, offset) for offset in offsets]
    for v in range(vectors):
        steps = range(v * width, tile.rows * max(keep, 1), tile.rows)
        places = [tuple(emit.step(builder, p, step) for p in winners) for step in steps]
        column = [(scores[r][v], numbers[r]) for r in range(height)]
        if not keep:
            column = [_best_of_panel(builder, column, tile)]
        _update_winners(builder, places, column)


def _prefetch_along(builder: Any, prefetched: Any, at: Any, by: Any) -> Callable[[Any], None]:
    """Return a function of a feature that emits a prefetch, as `score_tile` says."""

    def regular(t: Any) -> None:
        emit.prefetch(builder, builder.gep(start, [builder.mul(t, by)]))

    def listed(t: Any) -> None:
        place = builder.gep(prefetched, [builder.load(builder.gep(start, [t]))])
        emit.prefetch(builder, place, level=2)

    is_listed = isinstance(by.type, ir.PointerType)
    start = builder.gep(by if is_listed else prefetched, [at])
    return listed if is_listed else regular


def _scores(
    builder: Any,
    start: Any,
    rows: Any,
    features: Any,
    tile: TileShape,
    prefetch: Callable[[Any], None] | None,
    dot: int = dot_product.NO_DOT,
) -> list[list[Any]]:
    """Emit the scores of the centres of the panel at `start`: by centre, then by vector of rows."""
    term, step, align = partial(emit.fma, builder), 1, emit.bits(start.type.pointee) // 8
    if dot == dot_product.MADD_PAIRS:
        term, step = partial(dot_product.add_products_of_two, builder), 2
    elif dot != dot_product.NO_DOT:
        term = partial(dot_product.add_products, builder, instruction=dot)
    first = [
        broadcast(builder, emit.step(builder, start, r), tile.width, align)
        for r in range(tile.height)
    ]
    return run_along(
        builder, emit.step(builder, start, tile.height), rows, features, tile, first, term,
        prefetch, step,
    )  # fmt: skip


def store_sums(builder: Any, values: list[list[Any]], target: Any, tile: TileShape) -> None:
    """Emit ``target[r * rows + v * width:] = values[r][v]``."""
    align = emit.bits(target.type.pointee) // 8
    for r in range(tile.height):
        for v in range(tile.vectors):
            place = emit.step(builder, target, r * tile.rows + v * tile.width)
            emit.store(builder, values[r][v], place, tile.width * align)


@emit.tile_intrinsic(literals="height vectors width")
def all_scores_tile(  # type: ignore[no-untyped-def]
    builder,
    block,
    panel,
    panel_at,
    features,
    out,
    out_at,
    height,
    vectors,
    width,
    prefetched,
    places,
    places_at,
):
    """Store the scores of `height` centres and a block of rows: ``out[out_at + j * block + r]``.

    They are bit-identical to those of `score_tile`. Prefetches ``prefetched[places[places_at + t]]``.
    """
    tile, start = TileShape(height, vectors, width), builder.gep(panel, [panel_at])
    prefetch = _prefetch_along(builder, prefetched, places_at, places)
    scores = _scores(builder, start, block, features, tile, prefetch)
    store_sums(builder, scores, builder.gep(out, [out_at]), tile)


@emit.tile_intrinsic(literals="height vectors width dot")
def panel_maxima_tile(  # type: ignore[no-untyped-def]
    builder,
    block,
    block_at,
    panels,
    panels_at,
    features,
    out,
    out_at,
    n_panels,
    height,
    vectors,
    width,
    dot,
):
    """Store the largest integer score of each row of a block in panels: ``out[out_at + p * block + r]``.

    Each feature is two or four 8-bit integers, which instruction `dot` of
    `daskcluster.kernels.dot_product` multiplies. There is an even number of features for `MADD_PAIRS`.
    """
    tile = TileShape(height, vectors, width)
    rows, first = builder.gep(block, [block_at]), builder.gep(panels, [panels_at])
    target = builder.gep(out, [out_at])
    size = builder.mul(builder.add(features, emit.I64(1)), emit.I64(tile.height))

    # A call for each panel would take a thirtieth of the time of 16 features.
    def one(p: Any, _: list[Any]) -> list[Any]:
        start = builder.gep(first, [builder.mul(p, size)])
        scores = _scores(builder, start, rows, features, tile, None, dot)
        columns = [[(row[v], None) for row in scores] for v in range(tile.vectors)]
        most = [_best_of_panel(builder, column, tile)[0] for column in columns]
        place = builder.gep(target, [builder.mul(p, emit.I64(tile.rows))])
        store_sums(builder, [most], place, tile._replace(height=1))
        return []

    emit.loop(builder, n_panels, 1, [], one)


def _best_of_panel(builder: Any, column: list[tuple[Any, Any]], tile: TileShape) -> tuple[Any, Any]:
    """Emit the largest score of a panel, and the number of the panel's first centre."""
    kind = column[0][0].type
    most = ir.Constant(kind, [emit.least(kind.element)] * tile.width)
    for score, _ in column:  # NaN never wins
        most = builder.select(emit.compare(builder, ">", score, most), score, most)
    return most, column[0][1]


Winner = tuple[Any, Any]
"""Scores and numbers of centres, as vectors or as scalars."""


def insert_winner(builder: Any, kept: list[Winner], entry: Winner, *, in_order: bool) -> None:
    """Insert an entry into `kept`, best first; among equal scores, the lowest number is better.

    With `in_order`, the number is larger than all numbers in `kept`. NaN is never inserted.
    """
    wins = None
    for rank, old in enumerate(kept):
        better = builder.fcmp_ordered(">", entry[0], old[0])
        if not in_order:
            tie = builder.fcmp_ordered("==", entry[0], old[0])
            lower = builder.icmp_signed("<", entry[1], old[1])
            better = builder.or_(better, builder.and_(tie, lower))
        # A displaced entry stays ahead of the next in rank.
        wins = better if wins is None else builder.or_(wins, better)
        pairs = list(zip(entry, old, strict=True))
        score, number = (builder.select(wins, new, was) for new, was in pairs)
        kept[rank] = (score, number)
        score, number = (builder.select(wins, was, new) for new, was in pairs)
        entry = (score, number)


def _update_winners(builder: Any, places: list[tuple[Any, ...]], candidates: list[Winner]) -> None:
    """Insert (score, number) pairs into the sorted list of winners kept at `places`."""
    kinds = [part.type for part in candidates[0]]
    sizes = [kind.count * emit.bits(kind.element) // 8 for kind in kinds]
    kept: list[Winner] = []
    for score, number in places:
        both = zip((score, number), kinds, sizes, strict=True)
        a, b = (emit.load(builder, p, kind.element, kind.count, size) for p, kind, size in both)
        kept.append((a, b))
    for candidate in candidates:
        insert_winner(builder, kept, candidate, in_order=True)
    for winner, place in zip(kept, places, strict=True):
        for value, at, size in zip(winner, place, sizes, strict=True):
            emit.store(builder, value, at, size)


@emit.tile_intrinsic(literals="height vectors width")
def difference_tile(  # type: ignore[no-untyped-def]
    builder,
    block,
    panel,
    panel_at,
    features,
    out,
    out_at,
    height,
    vectors,
    width,
    prefetched,
    prefetch_at,
    prefetch_step,
):
    """Store the squared distances of a block of rows to `height` centres, in the rows' dtype.

    They are computed by direct differences, so the relative error is at most (d + 2) units of rounding:
    ``out[out_at + j * block + r] = |x_r - c_j|^2``. It prefetches as `score_tile` does.
    """
    tile, start = TileShape(height, vectors, width), builder.gep(panel, [panel_at])
    prefetch = _prefetch_along(builder, prefetched, prefetch_at, prefetch_step)

    def square(row: Any, centre: Any, total: Any) -> Any:
        gap = builder.fsub(row, centre)
        return emit.fma(builder, gap, gap, total)

    zeros = [emit.zeros(block.type.pointee, width)] * height
    centres = emit.step(builder, start, height)
    sums = run_along(builder, centres, block, features, tile, zeros, square, prefetch)
    store_sums(builder, sums, builder.gep(out, [out_at]), tile)
