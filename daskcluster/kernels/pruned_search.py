"""Nearest centres from bounds in a few dimensions, with the labels of the search of all centres.

Rows and centres are projected onto m axes. With the length of what is left as one more feature, the score
of a projected row and centre is an upper bound of their score (Cauchy-Schwarz). The tile computes these
bounds with m + 1 features instead of d and keeps the largest one of each panel. The winner of the bounds is
measured; then every other centre whose bound reaches that score, less a margin for all rounding. Where
several centres are too close to tell, the canonical chain decides (`daskcluster.kernels.tile`).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import Tile, scores_in_panel
from daskcluster.kernels.portable import fma
from daskcluster.kernels.projected_centres import SEGMENT, ProjectedCentres
from daskcluster.kernels.register_tile import all_scores_tile, panel_maxima_tile
from daskcluster.kernels.row_block import aligned, first_row, lanes_of, pack_rows
from daskcluster.kernels.row_ops import fetch_row, rough_squared_distance
from daskcluster.kernels.search import tile_shape

_SCRATCH_BYTES = 512 << 10
"""Bytes of the maxima of the blocks that are scored at once, of which the second-level cache has room."""

_GROUP_BYTES = 192 << 10
"""Bytes of the panels that one block after the other is scored against."""

_MOST_CLOSE = 24
"""Most centres of a row that are kept as too close to tell; a row with more is searched in full."""

_QUEUE = 64
"""Centres that wait to be measured while their memory is fetched."""

UNDECIDED = -1
"""Label of a row that needs the search of all centres."""


@kernel
def _project(packed, d, axes, part, heads, at, m, lengths, margins, errors, shape):  # type: ignore[no-untyped-def]
    """Project a packed block of rows; OUT: heads from `at` on, lengths (block,), margins (block,)."""
    vectors, width, _, height, _ = shape
    block = vectors * width
    n_panels, size = axes.shape[1], axes.shape[2]
    flat, places = axes.reshape(axes.size), np.zeros(SEGMENT, np.int64)
    heads[at : at + m * block] = 0.0
    lengths[:] = 0.0
    for s in range(axes.shape[0]):
        count = min(SEGMENT, d - s * SEGMENT)
        rows = packed[s * SEGMENT * block :]
        for p in range(n_panels):
            all_scores_tile(
                rows, flat, (s * n_panels + p) * size, count, part, p * height * block,
                height, vectors, width, packed, places, 0,
            )  # fmt: skip
        for i in range(m * block):
            heads[at + i] += part[i]
        for t in range(count):
            for r in range(block):
                value = np.float64(rows[t * block + r])
                lengths[r] += value * value
    largest = errors.largest
    left = np.zeros(block)
    for t in range(m):
        for r in range(block):
            value = np.float64(heads[at + t * block + r])
            left[r] += value * value
    for r in range(block):
        rest = math.sqrt(max(lengths[r] - left[r], 0.0) + errors.slack * lengths[r])
        # Rounding up: a factor of more than 1 + 2 u of either dtype.
        heads[at + m * block + r] = rest * (1.0 + 3.0 * errors.unit)
        length = math.sqrt(lengths[r])
        sum_of = length + largest
        margins[r] = (
            errors.margin * (length * largest + 0.5 * largest * largest)
            + 0.5 * errors.rough * sum_of * sum_of
            + errors.tiny
        )


@kernel
def _canonical(flat, at, c, centre_at, offset, first, d):  # type: ignore[no-untyped-def]
    """Return the score of `daskcluster.kernels.tile`, bit for bit."""
    total = first
    for t in range(d):
        total = fma(flat[at + t] - offset[t], c[centre_at + t] - offset[t], total)
    return total


class _BlockState(NamedTuple):
    """State of the rows of a block.

    Attributes
    ----------
    lengths, margins : ndarray of shape (block,)
        |x'|^2, and by how much a bound must be below the best score.
    limits : ndarray of shape (block,)
        Centres with a lower bound cannot win. Infinite for a row that is given up.
    nearest : ndarray of shape (block,)
        Rough squared distance of the best centre so far.
    chosen, first : ndarray of shape (block,), int64
        The best centre so far, and the winner of the bounds.
    measured, n_close : ndarray of shape (block,), int64
        Centres that were measured, and those of them that may be the nearest.
    close, distances : ndarray of shape (block, _MOST_CLOSE)
        These centres, and their rough squared distances.
    """

    lengths: Any
    margins: Any
    limits: Any
    nearest: Any
    chosen: Any
    first: Any
    measured: Any
    n_close: Any
    close: Any
    distances: Any


@kernel
def _measure(flat, begin, centres, d, queue, size, state, errors):  # type: ignore[no-untyped-def]
    """Measure the centres of a queue (row, centre, bound); their memory has been prefetched."""
    rows, numbers, bounds = queue
    for i in range(size):
        r, j = rows[i], numbers[i]
        if not bounds[i] >= state.limits[r]:
            continue
        distance = rough_squared_distance(flat, (begin + r) * d, centres, j * d, d)
        state.measured[r] += 1
        if distance > state.nearest[r] + _reach(state, r, errors):
            continue
        if distance < state.nearest[r]:
            state.nearest[r], state.chosen[r] = distance, j
            state.limits[r] = 0.5 * (state.lengths[r] - distance) - state.margins[r]
        if state.n_close[r] < _MOST_CLOSE:
            state.close[r, state.n_close[r]] = j
            state.distances[r, state.n_close[r]] = distance
        state.n_close[r] += 1


@kernel
def _reach(state, r, errors):  # type: ignore[no-untyped-def]
    """Return by how much rough squared distances may differ if their order is not certain."""
    total = math.sqrt(state.lengths[r]) + errors.largest
    return errors.close * total * total + errors.tiny


@kernel
def _label(flat, at, r, centres, offset, first, d, state, errors, counts):  # type: ignore[no-untyped-def]
    """Return the label of row `r` of a block once all its candidates are measured."""
    if state.chosen[r] < 0 or state.n_close[r] > _MOST_CLOSE or state.limits[r] == np.inf:
        return UNDECIDED
    limit, rivals = state.nearest[r] + _reach(state, r, errors), 0
    for i in range(state.n_close[r]):
        rivals += state.distances[r, i] <= limit
    if rivals == 1:
        return state.chosen[r]
    counts[2] += rivals
    best, label = first[0], UNDECIDED
    for i in range(state.n_close[r]):
        if state.distances[r, i] <= limit:
            j = state.close[r, i]
            score = _canonical(flat, at, centres, j * d, offset, first[j], d)
            if label < 0 or score > best or (score == best and j < label):
                best, label = score, j
    return label


@kernel
def _find_winners(maxima, base, n_panels, best, winner):  # type: ignore[no-untyped-def]
    """OUT: winner: the panel with the largest bound of each row of a block; -1 if there is none."""
    block = best.shape[0]
    best[:] = -np.inf
    winner[:] = -1
    for p in range(n_panels):
        for r in range(block):
            value = maxima[base + p * block + r]
            if value > best[r]:
                best[r] = value
                winner[r] = p


@kernel
def _push(place, panel, row, state, queue, size, tile):  # type: ignore[no-untyped-def]
    """Queue the centres of panel `panel` that may be nearest to row `row`; return the queue's size.

    `place` is (heads, start of the block in them, bounds, features, scratch).
    """
    (heads, at, bounds, features, found), (height, block, k) = place, tile
    start = panel * (features + 1) * height
    scores_in_panel(heads, at + row, bounds, start, features, found, height, block)
    for lane in range(height):
        j = panel * height + lane
        if found[lane] >= state.limits[row] and j < k and j != state.first[row]:
            queue[0][size], queue[1][size], queue[2][size] = row, j, found[lane]
            size += 1
    return size


@kernel
def _queue_winners(place, winner, count, state, queue, errors, tile):  # type: ignore[no-untyped-def]
    """Queue the centre with the largest bound of each row; return the queue's size."""
    (heads, at, bounds, features, found), (height, block, _) = place, tile
    size = 0
    for r in range(block):
        # A row that is not finite has no winner.
        if r >= count or winner[r] < 0 or not state.lengths[r] < errors.most:
            state.limits[r] = np.inf
            continue
        start = winner[r] * (features + 1) * height
        scores_in_panel(heads, at + r, bounds, start, features, found, height, block)
        j = winner[r] * height + np.argmax(found[:height])
        state.first[r] = j
        queue[0][size], queue[1][size], queue[2][size] = r, j, np.inf
        size += 1
    return size


@kernel
def _fetch(centres, d, queue, begin, end):  # type: ignore[no-untyped-def]
    """Prefetch queued centres."""
    for i in range(begin, end):
        fetch_row(centres, queue[1][i] * d, d)


@kernel
def _clear(state):  # type: ignore[no-untyped-def]
    state.limits[:] = -np.inf
    state.nearest[:] = np.inf
    state.chosen[:] = UNDECIDED
    state.first[:] = UNDECIDED
    state.measured[:] = 0
    state.n_close[:] = 0


@kernel
def _score(heads, bounds, n_panels, features, maxima, here, group, shape):  # type: ignore[no-untyped-def]
    """OUT: maxima: the largest bound in each panel, of each row of the first `here` blocks."""
    vectors, width, _, height, _ = shape
    block = vectors * width
    for low in range(0, n_panels, group):
        for b in range(here):
            for p in range(low, min(low + group, n_panels)):
                panel_maxima_tile(
                    heads, b * features * block, bounds, p * (features + 1) * height, features,
                    maxima, (b * n_panels + p) * block, height, vectors, width,
                )  # fmt: skip


@kernel
def _settle(flat, begin, centres, d, place, maxima, base, state, queue, limits, counts):  # type: ignore[no-untyped-def]
    """Measure all centres that may be nearest to rows of a block.

    `limits` is (rows, panels, most centres of a row, errors, (height, block, k)).
    """
    count, n_panels, most, errors, tile = limits
    block = tile[1]
    winner = np.empty(block, np.int64)
    _find_winners(maxima, base, n_panels, np.empty(block, maxima.dtype), winner)
    _clear(state)
    waiting = _queue_winners(place, winner, count, state, queue, errors, tile)
    _fetch(centres, d, queue, 0, waiting)
    _measure(flat, begin, centres, d, queue, waiting, state, errors)
    waiting = 0
    for p in range(n_panels):
        high = 0
        for r in range(block):
            high += maxima[base + p * block + r] >= state.limits[r]
        if high == 0:
            continue
        counts[1] += high
        for r in range(block):
            if maxima[base + p * block + r] >= state.limits[r]:
                before = waiting
                waiting = _push(place, p, r, state, queue, before, tile)
                _fetch(centres, d, queue, before, waiting)
        if waiting > _QUEUE:
            _measure(flat, begin, centres, d, queue, waiting, state, errors)
            waiting = 0
            for r in range(block):
                if state.measured[r] > most:
                    state.limits[r] = np.inf
    _measure(flat, begin, centres, d, queue, waiting, state, errors)


@cache
def pruned_kernel(tile: Tile, lanes: int) -> Any:
    """Build the search for a tile; `lanes` elements fill 128 bits."""
    shape = tile_shape(tile, lanes, 0)
    vectors, width, _, height, _ = shape
    block = vectors * width

    def search(rows, packed_centres, m, errors, most, blocks, group, labels, counts):  # type: ignore[no-untyped-def]
        # OUT: labels (n,), UNDECIDED where the search gives up; counts: see `nearest_pruned`.
        (n, d), (table, offset, axes, panels, first) = rows.shape, packed_centres
        flat, centres = rows.reshape(n * d), table.reshape(table.size)
        bounds, k, n_panels, features = panels.reshape(panels.size), len(table), len(panels), m + 1
        packed, part = aligned(d * block, offset), aligned(axes.shape[1] * height * block, offset)
        heads = aligned(blocks * features * block, offset)
        maxima = aligned(blocks * n_panels * block, offset)
        lengths, margins = np.empty((blocks, block)), np.empty((blocks, block))
        found, room = np.empty(2 * height, offset.dtype), _QUEUE + height * block
        queue = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, offset.dtype)
        limits, nearest, numbers = (
            np.empty(block, offset.dtype), np.empty(block), np.empty((4, block), np.int64),
        )  # fmt: skip
        close, distances = np.empty((block, _MOST_CLOSE), np.int64), np.empty((block, _MOST_CLOSE))
        for start in range(0, n, blocks * block):
            here = min(blocks, -(-(n - start) // block))
            for b in range(here):
                begin = first_row(start + b * block, block, n)
                pack_rows(flat, n, d, begin, offset, packed, 0, shape)
                _project(
                    packed, d, axes, part, heads, b * features * block, m, lengths[b], margins[b],
                    errors, shape,
                )  # fmt: skip
            _score(heads, bounds, n_panels, features, maxima, here, group, shape)
            for b in range(here):
                state = _BlockState(
                    lengths[b], margins[b], limits, nearest, numbers[0], numbers[1], numbers[2],
                    numbers[3], close, distances,
                )  # fmt: skip
                begin, count = first_row(start + b * block, block, n), min(block, n)
                place = heads, b * features * block, bounds, features, found
                _settle(
                    flat, begin, centres, d, place, maxima, b * n_panels * block, state, queue,
                    (count, n_panels, most, errors, (height, block, k)), counts,
                )  # fmt: skip
                for r in range(count):
                    counts[0] += state.measured[r]
                    labels[begin + r] = _label(
                        flat, (begin + r) * d, r, centres, offset, first, d, state, errors, counts
                    )

    return kernel(search)


def nearest_pruned(
    X: np.ndarray, centres: ProjectedCentres, most: int, labels: np.ndarray
) -> np.ndarray:
    """Label every row with its nearest centre, as `daskcluster.kernels.tile.nearest` does.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, dtype of the centres
    centres : ProjectedCentres
    most : int
        Give up rows with more candidates.
    labels : ndarray of shape (n,), int32
        OUT. `UNDECIDED` for rows that are given up.

    Returns
    -------
    ndarray of shape (3,), int64
        How many centres were measured, panels were looked through, and canonical scores were computed.
    """
    kind, counts = centres.bounds.dtype, np.zeros(3, np.int64)
    n_panels, height = len(centres.bounds), centres.tile.height
    blocks = _SCRATCH_BYTES // (n_panels * centres.tile.rows * kind.itemsize)
    group = _GROUP_BYTES // ((centres.m + 2) * height * kind.itemsize)
    arrays = (centres.centres, centres.offset, centres.axes, centres.bounds, centres.first)
    pruned_kernel(centres.tile, lanes_of(kind))(
        read_only(X), tuple(map(read_only, arrays)), centres.m, centres.errors, int(most),
        min(8, max(1, blocks)), max(1, group), labels, counts,
    )  # fmt: skip
    return counts
