"""Nearest centres from cheap bounds, with the labels of the search of all centres.

Bounds of scores come from features that are quantized to 8 bits, of which an instruction multiplies
four at a time. Where that pays, coarse bounds from a few coordinates, quantized as well, come first and
rule out most centres.

The tile computes the first bounds and keeps the largest one of each panel. The winner is measured, then
every other centre whose bounds reach that score, less a margin for all rounding. Where several centres are
too close to tell, the canonical chain decides (`daskcluster.kernels.tile`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.dot_product import product_of_lines
from daskcluster.kernels.jit import kernel, read_only
from daskcluster.kernels.panels import Tile, scores_in_panel
from daskcluster.kernels.quantized import QuantizedCentres, project_block, quantize_block
from daskcluster.kernels.register_tile import panel_maxima_tile
from daskcluster.kernels.row_block import aligned, first_row, lanes_of, pack_rows
from daskcluster.kernels.row_ops import fetch_row, rough_squared_distance
from daskcluster.kernels.search import fma, tile_shape

UNDECIDED = -1
"""Label of a row that needs the search of all centres."""

MOST_CLOSE = 24
"""Most centres of a row that are kept as too close to tell; a row with more is searched in full."""

WINNERS = 8
"""Panels of a row that are looked through first: the best of those numbered 0, 8, ..., of 1, 9, ..."""


@emit.vector_intrinsic(literals="vectors width")
def best_panels(builder, maxima, at, first, n_panels, every, winner, winner_at, vectors, width):  # type: ignore[no-untyped-def]
    """Find the panel with the largest bound of each row among panels first, first + every, ...

    ``maxima[at + p * block + r]`` is that of panel p and row r. Ties go to the first panel. OUT: winner,
    in the type of bounds: from `winner_at` on panels, -1 for none, and ``every * block`` further their
    bounds.
    """
    lanes, rows = width, vectors * width
    kind = maxima.type.pointee
    align = emit.bits(kind) // 8
    source, target = builder.gep(maxima, [at]), builder.gep(winner, [winner_at])
    bounds = builder.gep(target, [builder.mul(every, ir.Constant(emit.I64, rows))])

    def panel(i: Any, kept: list[Any]) -> list[Any]:
        p = builder.add(first, builder.mul(i, every))
        place = builder.gep(source, [builder.mul(p, ir.Constant(emit.I64, rows))])
        number = emit.splat(builder, builder.trunc(p, kind), lanes)
        found = []
        for v in range(rows // lanes):
            value = emit.load(
                builder, emit.step(builder, place, v * lanes), kind, lanes, lanes * align
            )
            best, at = kept[2 * v], kept[2 * v + 1]
            wins = emit.compare(builder, ">", value, best)
            found += [
                builder.select(wins, value, best), builder.select(wins, number, at)
            ]  # fmt: skip
        return found

    none = [
        ir.Constant(ir.VectorType(kind, lanes), [emit.least(kind)] * lanes),
        ir.Constant(ir.VectorType(kind, lanes), [-1] * lanes),
    ]
    span = builder.sub(builder.add(n_panels, every), builder.add(first, emit.I64(1)))
    kept = emit.loop(builder, builder.sdiv(span, every), 1, none * (rows // lanes), panel)
    for v in range(rows // lanes):
        for value, place in ((kept[2 * v + 1], target), (kept[2 * v], bounds)):
            emit.store(builder, value, emit.step(builder, place, v * lanes), align)


@emit.vector_intrinsic(literals="vectors width", returns=types.int64)
def rows_reaching(builder, maxima, at, limits, vectors, width):  # type: ignore[no-untyped-def]
    """Return the rows of a block whose bound in a panel reaches their limit, as the bits of an integer."""
    lanes, rows = width, vectors * width
    kind, source = maxima.type.pointee, builder.gep(maxima, [at])
    align = emit.bits(kind) // 8
    mask: Any = ir.Constant(emit.I64, 0)
    for first in range(0, rows, lanes):
        value, limit = (
            emit.load(builder, emit.step(builder, place, first), kind, lanes, align)
            for place in (source, limits)
        )
        reached = emit.compare(builder, ">=", value, limit)
        part = builder.zext(builder.bitcast(reached, ir.IntType(lanes)), emit.I64)
        mask = builder.or_(mask, builder.shl(part, ir.Constant(emit.I64, first)))
    return mask


@emit.vector_intrinsic(returns=types.int64)
def lowest_bit(builder, mask):  # type: ignore[no-untyped-def]
    """Return the position of the lowest bit of a nonzero integer."""
    return builder.cttz(mask, ir.Constant(ir.IntType(1), 1))


@kernel
def find_winners(maxima, at, n_panels, winner, vectors, width):  # type: ignore[no-untyped-def]
    """Find `WINNERS` panels of each row, the best one first; OUT: winner (2 * WINNERS * block,).

    It has the panels, then their bounds.
    """
    block = vectors * width
    size = WINNERS * block
    for g in range(WINNERS):
        best_panels(maxima, at, g, n_panels, WINNERS, winner, g * block, vectors, width)
    for g in range(1, WINNERS):
        for r in range(block):  # no branch, so that vectors do this
            place = g * block + r
            p, bound, best, most = winner[place], winner[size + place], winner[r], winner[size + r]
            wins = bound > most
            winner[r], winner[place] = p if wins else best, best if wins else p
            winner[size + r], winner[size + place] = (
                bound if wins else most, most if wins else bound
            )  # fmt: skip


@kernel
def take_winners(maxima, at, winner, first, limits, vectors, width):  # type: ignore[no-untyped-def]
    """Return the rows whose winner, listed from `first` on, reaches their limit, as the bits of an integer.

    Their maxima become too low to be found again.
    """
    block = vectors * width
    found = rows_reaching(winner, WINNERS * block + first, limits, vectors, width)
    mask, least = found, np.iinfo(maxima.dtype).min
    while mask != 0:
        r = lowest_bit(mask)
        mask &= mask - 1
        maxima[at + winner[first + r] * block + r] = least
    return found


# -- candidates of a row: the centres that its bounds leave, measured until the nearest is certain ------


@kernel
def _canonical(flat, at, c, centre_at, offset, first, d):  # type: ignore[no-untyped-def]
    """Return the score of `daskcluster.kernels.tile`, bit for bit."""
    total = first
    for t in range(d):
        total = fma(flat[at + t] - offset[t], c[centre_at + t] - offset[t], total)
    return total


class Bounded(NamedTuple):
    """The limits that bounds of one form set for the rows of a block.

    Attributes
    ----------
    lengths, margins : ndarray of shape (block,)
        |x'|^2, and by how much a bound must be below the best score.
    limits : ndarray of shape (block,), int32
        Centres with a lower bound cannot win; `Errors.top` for a row that is given up.
    scale : float
        Units of bounds in one of scores.
    """

    lengths: Any
    margins: Any
    limits: Any
    scale: float


class BlockState(NamedTuple):
    """State of the rows of a block.

    Attributes
    ----------
    coarse, fine : Bounded
        Bounds of all centres, and of those in panels that the coarse ones leave; the same if there is one
        form.
    reach : ndarray of shape (block,)
        By how much rough squared distances may differ if their order is not certain.
    nearest, worst : ndarray of shape (block,)
        Rough squared distances of the best centre so far, and of the last one that is kept: the same array,
        or that of the second best.
    chosen : ndarray of shape (block,), int64
        The best centre so far.
    first : ndarray of shape (1, block) or (2, block), int64
        As many winners of the bounds as are kept, which are measured first.
    measured, n_close : ndarray of shape (block,), int64
        Centres that were measured, and those of them that may be the nearest.
    close, distances : ndarray of shape (block, MOST_CLOSE)
        These centres, and their rough squared distances.
    """

    coarse: Bounded
    fine: Bounded
    reach: Any
    nearest: Any
    worst: Any
    chosen: Any
    first: Any
    measured: Any
    n_close: Any
    close: Any
    distances: Any


@kernel
def _raise_limit(bounded, r, distance, top):  # type: ignore[no-untyped-def]
    """Rule out more centres of row r, which has one at this squared distance."""
    limit = (0.5 * (bounded.lengths[r] - distance) - bounded.margins[r]) * bounded.scale
    bounded.limits[r] = min(max(limit, -top), top)


@kernel
def measure(flat, begin, centres, d, fine, order, queue, waiting, state, limit, dot, counts):  # type: ignore[no-untyped-def]
    """Measure centres of a queue (row, lane, coarse bound) whose bounds reach the limits of the row.

    `fine` is (lines of the rows, lines of the centres, size), or of size 0 if all bounds are of one form,
    and `limit` is (`Errors.top`, most centres of a row).
    """
    top, most = limit
    (rows, numbers, bounds), (row_lines, lines, size) = queue, fine
    limits, coarse = state.fine.limits, state.coarse.limits
    nearest, worst, n_close = state.nearest, state.worst, state.n_close
    for i in range(waiting):
        r, at = rows[i], numbers[i]
        if not bounds[i] >= coarse[r]:
            continue
        if size > 0 and bounds[i] < top:
            counts[3] += 1
            bound = product_of_lines(row_lines, r * size, lines, at * size, size, dot)
            if not bound + lines[at * size + size - 1] >= limits[r]:
                continue
        j = order[at]
        distance = rough_squared_distance(flat, (begin + r) * d, centres, j * d, d)
        state.measured[r] += 1
        if state.measured[r] > most:
            limits[r], coarse[r] = top, top
            continue
        if distance > worst[r] + state.reach[r]:
            continue
        if distance < worst[r]:
            if distance < nearest[r]:
                worst[r] = nearest[r]
                nearest[r], state.chosen[r] = distance, j
            else:
                worst[r] = distance
            _raise_limit(state.coarse, r, worst[r], top)
            _raise_limit(state.fine, r, worst[r], top)
        if n_close[r] < MOST_CLOSE:
            state.close[r, n_close[r]] = j
            state.distances[r, n_close[r]] = distance
        n_close[r] += 1


@kernel
def label_block(flat, begin, count, centres, offset, first, d, state, top, keep, found, counts):  # type: ignore[no-untyped-def]
    """Label the rows of a block once all their candidates are measured, once or twice.

    OUT: found, from `begin` on: labels, and with `keep` = 2 second and, unless empty, scores (n, 2).
    """
    labels, second, scores = found
    best, winners = np.empty(2, offset.dtype), np.empty(2, np.int64)
    for r in range(count):
        counts[0] += state.measured[r]
        rivals = -1 if state.chosen[r] < 0 else _n_rivals(state, r, top)
        labels[begin + r] = UNDECIDED if rivals < keep else state.chosen[r]
        if rivals > 1:
            counts[2] += rivals
            _best_two(flat, begin, r, centres, offset, first, d, state, best, winners)
            labels[begin + r] = winners[0]
            if keep > 1:
                second[begin + r] = winners[1]
                if scores.size > 0:
                    scores[begin + r] = best


@kernel
def _n_rivals(state, r, top):  # type: ignore[no-untyped-def]
    """Return how many centres may be among the nearest; -1 for a row that is given up."""
    if state.n_close[r] > MOST_CLOSE or state.fine.limits[r] == top:
        return -1
    limit, rivals = state.worst[r] + state.reach[r], 0
    for i in range(state.n_close[r]):
        rivals += state.distances[r, i] <= limit
    return rivals


@kernel
def _best_two(flat, begin, r, centres, offset, first, d, state, best, winners):  # type: ignore[no-untyped-def]
    """OUT: best, winners: canonical scores and numbers of the two rivals that win."""
    limit = state.worst[r] + state.reach[r]
    best[:], winners[:] = -np.inf, UNDECIDED
    for i in range(state.n_close[r]):
        if state.distances[r, i] <= limit:
            j = state.close[r, i]
            score = _canonical(flat, (begin + r) * d, centres, j * d, offset, first[j], d)
            if _beats(score, j, best[0], winners[0]):
                best[1], winners[1] = best[0], winners[0]
                best[0], winners[0] = score, j
            elif _beats(score, j, best[1], winners[1]):
                best[1], winners[1] = score, j


@kernel
def _beats(score, j, other, number):  # type: ignore[no-untyped-def]
    return number < 0 or score > other or (score == other and j < number)


# -- the search ---------------------------------------------------------------------------------------


_SCRATCH_BYTES = 512 << 10
"""Bytes of the maxima of the blocks that are scored at once, of which the second-level cache has room."""

_GROUP_BYTES = 192 << 10
"""Bytes of the panels that one block after the other is scored against."""


_QUEUE = 64
"""Centres that wait for the next bound, or to be measured, while their memory is fetched."""


@kernel
def _clear(state, top):  # type: ignore[no-untyped-def]
    state.coarse.limits[:] = -top
    state.fine.limits[:] = -top
    state.nearest[:] = np.inf
    state.worst[:] = np.inf
    state.chosen[:] = UNDECIDED
    state.first[:] = UNDECIDED
    state.measured[:] = 0
    state.n_close[:] = 0


@kernel
def _score(words, bounds, n_panels, features, maxima, here, group, shape, dot):  # type: ignore[no-untyped-def]
    """OUT: maxima: the largest bound in each panel, of each row of the first `here` blocks."""
    vectors, width, _, height, _ = shape
    block = vectors * width
    for low in range(0, n_panels, group):
        for b in range(here):
            panel_maxima_tile(
                words, b * features * block, bounds, low * (features + 1) * height, features,
                maxima, (b * n_panels + low) * block, min(group, n_panels - low),
                height, vectors, width, dot,
            )  # fmt: skip


@kernel
def _turn(words, at, features, lines, size, shape):  # type: ignore[no-untyped-def]
    """OUT: lines: the words of each row of a block, one after the other."""
    block = shape[0] * shape[1]
    for q in range(features):
        for r in range(block):
            lines[r * size + q] = words[at + q * block + r]


@kernel
def _settle(flat, begin, centres, d, place, fine, maxima, base, state, queue, limits, counts):  # type: ignore[no-untyped-def]
    """Measure all centres that may be nearest to rows of a block.

    `place` is (words, start of the block in them, bounds, features, scratch) of the tile, `fine` is (lines
    of the rows, lines of the centres, size) or of size 0, and `limits` is (rows, panels, most centres of a
    row, (largest squared length, `Errors.top`), tile, winners (block,), the centre in each lane).
    """
    # One function, since each call would count references to all the arrays of a state.
    count, n_panels, most, (longest, top), tile, winner, order = limits
    (words, at, bounds, features, found), (height, vectors, width, dot, keep) = place, tile
    block, (rows, numbers, values), waiting = vectors * width, queue, 0
    coarse, first, (_, lines, size) = state.coarse.limits, state.first, fine
    find_winners(maxima, base, n_panels, winner, vectors, width)
    _clear(state, top)
    for r in range(block):
        best = winner[r]
        # A row that is not finite has no winner.
        if r >= count or best < 0 or not state.fine.lengths[r] < longest:
            coarse[r], state.fine.limits[r] = top, top
            continue
        scores_in_panel(
            words, at + r, bounds, best * height * (features + 1), features, found, height, block,
            np.int32(top), dot,
        )  # fmt: skip
        for kept in range(keep):
            lane = found[:height].argmax()
            found[lane], lane = -top, lane + best * height
            first[kept, r] = order[lane]
            if order[lane] >= 0:
                rows[waiting], numbers[waiting], values[waiting] = r, lane, top
                fetch_row(centres, order[lane] * d, d)
                waiting += 1
    measure(flat, begin, centres, d, fine, order, queue, waiting, state, (top, most), dot, counts)
    waiting = 0
    for turn in range(-WINNERS, n_panels):
        p, ahead = turn, (turn + WINNERS) * block
        if turn < 0:
            mask = take_winners(maxima, base, winner, ahead, coarse, vectors, width)
        else:
            mask = rows_reaching(maxima, base + p * block, coarse, vectors, width)
        while mask != 0:
            r = lowest_bit(mask)
            mask &= mask - 1
            p = winner[ahead + r] if turn < 0 else p
            start = p * height
            counts[1] += 1
            reaching = scores_in_panel(
                words, at + r, bounds, start * (features + 1), features, found, height, block,
                coarse[r], dot,
            )  # fmt: skip
            while reaching != 0:
                lane = lowest_bit(reaching)
                reaching &= reaching - 1
                j = order[start + lane]
                if j >= 0 and j != first[0, r] and j != first[keep - 1, r]:
                    rows[waiting], numbers[waiting], values[waiting] = r, start + lane, found[lane]
                    if size == 0:
                        fetch_row(centres, j * d, d)
                    else:
                        fetch_row(lines, (start + lane) * size, size)
                    waiting += 1
        if waiting > _QUEUE or turn < 0:
            measure(
                flat, begin, centres, d, fine, order, queue, waiting, state, (top, most), dot, counts
            )  # fmt: skip
            waiting = 0
    measure(flat, begin, centres, d, fine, order, queue, waiting, state, (top, most), dot, counts)


@cache
def pruned_kernel(tile: Tile, lanes: int, dot: int, keep: int) -> Any:
    """Build the search for a tile of 32-bit integers; `lanes` elements of rows fill 128 bits.

    It keeps the nearest centre, or the nearest two.
    """
    shape = tile_shape(tile, lanes, 0)
    vectors, width, _, height, _ = shape
    block = vectors * width

    def search(rows, arrays, fine, coarse, axes, most, blocks, group, out, counts):  # type: ignore[no-untyped-def]
        # OUT: out: labels (n,), UNDECIDED where the search gives up, and second (n,) and scores (n, 2) of
        # the nearest two, or empty; counts: what `nearest_pruned` returns.
        # `fine` and `coarse` are (bounds, mean, features, levels, errors): lines of features and panels of
        # coordinates on `axes`, or twice panels of features.
        (n, d), (table, offset, first, order), projected = rows.shape, arrays, axes.size > 0
        flat, centres = rows.reshape(n * d), table.reshape(table.size)
        fine_bounds, mean, n_words, levels, errors = fine
        panels, head_mean, n_heads, head_levels, head_errors = coarse
        bounds, n_panels, m = panels.reshape(panels.size), len(panels), head_levels.m
        lines, size = fine_bounds.reshape(fine_bounds.size), 0
        if projected:
            size = fine_bounds.shape[1]
        row_lines = np.zeros(block * size, bounds.dtype)
        packed, heads = aligned((d + 3) * block, offset), aligned((m + 3) * block, offset)
        packed[d * block :], heads[m * block :] = 0.0, 0.0  # complete a quad
        words, head_words = (
            aligned(blocks * n_words * block, bounds), aligned(blocks * n_heads * block, bounds)
        )  # fmt: skip
        no_rests, rests = np.zeros(block), np.zeros(block)
        maxima = aligned(blocks * n_panels * block, bounds)
        described = np.empty((6, blocks, block))
        scratch, room = np.empty(2 * height, bounds.dtype), _QUEUE + height * block
        queue = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, bounds.dtype)
        limits, nearest, numbers = (
            np.empty((2, block), bounds.dtype), np.empty((keep, block)),
            np.empty((3, block), np.int64),
        )  # fmt: skip
        winners = np.empty((keep, block), np.int64)
        winner = np.empty(2 * WINNERS * block, bounds.dtype)
        close, distances = np.empty((block, MOST_CLOSE), np.int64), np.empty((block, MOST_CLOSE))
        for start in range(0, n, blocks * block):
            here = min(blocks, -(-(n - start) // block))
            for b in range(here):
                begin = first_row(start + b * block, block, n)
                pack_rows(flat, n, d, begin, offset, packed, 0, shape)
                quantize_block(
                    packed, mean, no_rests, words, b * n_words * block,
                    (described[0, b], described[1, b], described[2, b]), errors, levels, shape,
                )  # fmt: skip
                if projected:
                    project_block(packed, d, axes, m, heads, rests, head_levels.square, shape)
                    quantize_block(
                        heads, head_mean, rests, head_words, b * n_heads * block,
                        (described[3, b], described[4, b], described[5, b]), head_errors,
                        head_levels, shape,
                    )  # fmt: skip
            scored = head_words if projected else words
            _score(scored, bounds, n_panels, n_heads, maxima, here, group, shape, dot)
            for b in range(here):
                ours = Bounded(described[0, b], described[1, b], limits[0], errors.scale)
                theirs = ours
                if projected:
                    theirs = Bounded(described[3, b], described[4, b], limits[1], head_errors.scale)
                    _turn(words, b * n_words * block, n_words, row_lines, size, shape)
                state = BlockState(
                    theirs, ours, described[2, b], nearest[0], nearest[keep - 1], numbers[0],
                    winners, numbers[1], numbers[2], close, distances,
                )  # fmt: skip
                begin, count = first_row(start + b * block, block, n), min(block, n)
                place = scored, b * n_heads * block, bounds, n_heads, scratch
                _settle(
                    flat, begin, centres, d, place, (row_lines, lines, size), maxima,
                    b * n_panels * block, state, queue,
                    (count, n_panels, most, (errors.most, errors.top), (height, vectors, width, dot, keep),
                     winner, order), counts,
                )  # fmt: skip
                label_block(
                    flat, begin, count, centres, offset, first, d, state, errors.top, keep, out, counts
                )  # fmt: skip

    return kernel(search)


@dataclass(frozen=True)
class PrunedCentres:
    """Centres packed for the search.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    offset : ndarray of shape (d,)
        See `daskcluster.kernels.panels.common_offset`.
    first : ndarray of shape (k,)
        First terms -|c'|^2 / 2 of their scores.
    features : QuantizedCentres
        In lines if there are heads, else in panels.
    heads : QuantizedCentres or None
        Those of coordinates on a few axes, whose bounds come first.
    order : ndarray of shape (k,), int, or None
        The centre in each lane of all panels, if it is not 0, 1, ...
    """

    centres: np.ndarray
    offset: np.ndarray
    first: np.ndarray
    features: QuantizedCentres
    heads: QuantizedCentres | None = None
    order: np.ndarray | None = None

    @cached_property
    def lanes(self) -> np.ndarray:
        """The centre in each lane; -1 for none."""
        height = self.features.tile.height
        found = np.full(-(-len(self.centres) // height) * height, -1)
        k = len(self.centres)
        found[:k] = np.arange(k) if self.order is None else self.order
        return found


def nearest_pruned(
    X: np.ndarray,
    centres: PrunedCentres,
    most: int,
    labels: np.ndarray,
    second: np.ndarray | None = None,
    scores: np.ndarray | None = None,
) -> np.ndarray:
    """Label every row with its nearest centre, or its nearest two, as `daskcluster.kernels.tile` does.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, dtype of the centres
    centres : PrunedCentres
    most : int
        Give up rows with more candidates.
    labels : ndarray of shape (n,), int32
        OUT. `UNDECIDED` for rows that are given up.
    second, scores : optional
        OUT. As for `daskcluster.kernels.tile.nearest`; without meaning where `labels` is `UNDECIDED`.

    Returns
    -------
    ndarray of shape (4,), int64
        How many centres were measured, panels were looked through, canonical scores were computed, and
        centres had both bounds computed.
    """
    out = (
        labels,
        labels[:0] if second is None else second,
        np.empty((0, 2), X.dtype) if scores is None else scores,
    )
    counts, fine = np.zeros(4, np.int64), centres.features
    coarse = fine if centres.heads is None else centres.heads
    n_panels, tile = len(coarse.bounds), fine.tile
    size = coarse.bounds.itemsize
    blocks = _SCRATCH_BYTES // (n_panels * tile.rows * size)
    group = _GROUP_BYTES // ((coarse.features + 1) * tile.height * size)
    arrays = centres.centres, centres.offset, centres.first, centres.lanes
    pruned_kernel(tile, lanes_of(X.dtype), fine.dot, 1 if second is None else 2)(
        read_only(X), tuple(map(read_only, arrays)),
        fine.packed(), coarse.packed(), read_only(coarse.axes), int(most),
        min(8, max(1, blocks)), max(1, group), out, counts,
    )  # fmt: skip
    return counts
