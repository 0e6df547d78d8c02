"""Nearest centres from cheap bounds, with the labels of the search of all centres.

Bounds of scores come from one of two forms of rows and centres:

- projected onto m axes, with the length of what is left as one more feature, which makes the score of both
  an upper bound (Cauchy-Schwarz): m + 1 features instead of d;
- quantized to 8 bits, of which an instruction multiplies four at a time.

The tile computes these bounds and keeps the largest one of each panel. The winner of the bounds is
measured; then every other centre whose bound reaches that score, less a margin for all rounding. Where
several centres are too close to tell, the canonical chain decides (`daskcluster.kernels.tile`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.candidates import MOST_CLOSE, UNDECIDED, BlockState, label_rows, measure
from daskcluster.kernels.dot_product import NO_DOT
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panel_maxima import best_panels, lowest_bit, rows_reaching
from daskcluster.kernels.panels import Tile, scores_in_panel
from daskcluster.kernels.projected_centres import ProjectedCentres, project_block
from daskcluster.kernels.quantized_centres import QuantizedCentres, quantize_block
from daskcluster.kernels.register_tile import panel_maxima_tile
from daskcluster.kernels.row_block import aligned, first_row, lanes_of, pack_rows
from daskcluster.kernels.row_ops import fetch_row
from daskcluster.kernels.search import tile_shape

_SCRATCH_BYTES = 512 << 10
"""Bytes of the maxima of the blocks that are scored at once, of which the second-level cache has room."""

_GROUP_BYTES = 192 << 10
"""Bytes of the panels that one block after the other is scored against."""

_QUEUE = 64
"""Centres that wait to be measured while their memory is fetched."""

BoundedCentres = ProjectedCentres | QuantizedCentres


@kernel
def _clear(state, least):  # type: ignore[no-untyped-def]
    state.limits[:] = least
    state.nearest[:] = np.inf
    state.chosen[:] = UNDECIDED
    state.first[:] = UNDECIDED
    state.measured[:] = 0
    state.n_close[:] = 0


@kernel
def _score(heads, bounds, n_panels, features, maxima, here, group, shape, dot):  # type: ignore[no-untyped-def]
    """OUT: maxima: the largest bound in each panel, of each row of the first `here` blocks."""
    vectors, width, _, height, _ = shape
    block = vectors * width
    for low in range(0, n_panels, group):
        for b in range(here):
            for p in range(low, min(low + group, n_panels)):
                panel_maxima_tile(
                    heads, b * features * block, bounds, p * (features + 1) * height, features,
                    maxima, (b * n_panels + p) * block, height, vectors, width, dot,
                )  # fmt: skip


@kernel
def _settle(flat, begin, centres, d, place, maxima, base, state, queue, limits, counts):  # type: ignore[no-untyped-def]
    """Measure all centres that may be nearest to rows of a block.

    `place` is (heads, start of the block in them, bounds, features, scratch), and `limits` is (rows,
    panels, most centres of a row, errors, tile, winners (block,)).
    """
    # One function, since each call would count references to all the arrays of a state.
    count, n_panels, most, errors, tile, winner = limits
    (heads, at, bounds, features, found), (height, vectors, width, k, dot) = place, tile
    block, (rows, numbers, values), waiting = vectors * width, queue, 0
    reach, first = state.limits, state.first
    best_panels(maxima, base, n_panels, winner, vectors, width)
    _clear(state, -errors.top)
    for r in range(block):
        # A row that is not finite has no winner.
        if r >= count or winner[r] < 0 or not state.lengths[r] < errors.most:
            reach[r] = errors.top
            continue
        start = winner[r] * (features + 1) * height
        scores_in_panel(heads, at + r, bounds, start, features, found, height, block, dot)
        lane = 0
        for other in range(1, height):
            lane = other if found[other] > found[lane] else lane
        first[r] = winner[r] * height + lane
        rows[waiting], numbers[waiting], values[waiting] = r, first[r], errors.top
        fetch_row(centres, first[r] * d, d)
        waiting += 1
    measure(flat, begin, centres, d, queue, waiting, state, errors)
    waiting = 0
    for p in range(n_panels):
        mask = rows_reaching(maxima, base + p * block, reach, vectors, width)
        start = p * (features + 1) * height
        while mask != 0:
            r = lowest_bit(mask)
            mask &= mask - 1
            counts[1] += 1
            scores_in_panel(heads, at + r, bounds, start, features, found, height, block, dot)
            for lane in range(height):
                j = p * height + lane
                if found[lane] >= reach[r] and j < k and j != first[r]:
                    rows[waiting], numbers[waiting], values[waiting] = r, j, found[lane]
                    fetch_row(centres, j * d, d)
                    waiting += 1
        if waiting > _QUEUE:
            measure(flat, begin, centres, d, queue, waiting, state, errors)
            waiting = 0
            for r in range(block):
                if state.measured[r] > most:
                    reach[r] = errors.top
    measure(flat, begin, centres, d, queue, waiting, state, errors)


@cache
def pruned_kernel(tile: Tile, lanes: int, dot: int) -> Any:
    """Build the search for a tile; `lanes` elements fill 128 bits, `dot` is that of the centres."""
    shape = tile_shape(tile, lanes, 0)
    vectors, width, _, height, _ = shape
    block, quantized = vectors * width, dot != NO_DOT

    def search(rows, arrays, features, coding, errors, most, blocks, group, labels, counts):  # type: ignore[no-untyped-def]
        # OUT: labels (n,), UNDECIDED where the search gives up; counts: see `nearest_pruned`.
        (n, d), (table, offset, basis, panels, first) = rows.shape, arrays
        flat, centres = rows.reshape(n * d), table.reshape(table.size)
        bounds, k, n_panels = panels.reshape(panels.size), len(table), len(panels)
        packed = aligned((d + 3) * block, offset)
        heads = aligned(blocks * features * block, bounds)
        maxima = aligned(blocks * n_panels * block, bounds)
        described = np.empty((3, blocks, block))
        scratch, room = np.empty(2 * height, bounds.dtype), _QUEUE + height * block
        queue = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, bounds.dtype)
        limits, nearest, numbers = (
            np.empty(block, bounds.dtype), np.empty(block), np.empty((4, block), np.int64),
        )  # fmt: skip
        winner = np.empty(block, np.int32)
        close, distances = np.empty((block, MOST_CLOSE), np.int64), np.empty((block, MOST_CLOSE))
        for start in range(0, n, blocks * block):
            here = min(blocks, -(-(n - start) // block))
            for b in range(here):
                begin, at = first_row(start + b * block, block, n), b * features * block
                pack_rows(flat, n, d, begin, offset, packed, 0, shape)
                found = described[0, b], described[1, b], described[2, b]
                if quantized:
                    quantize_block(packed, d, basis, heads, at, found, errors, coding, shape)
                else:
                    project_block(packed, d, basis, heads, at, found, errors, coding, shape)
            _score(heads, bounds, n_panels, features, maxima, here, group, shape, dot)
            for b in range(here):
                state = BlockState(
                    described[0, b], described[1, b], described[2, b], limits, nearest, numbers[0],
                    numbers[1], numbers[2], numbers[3], close, distances,
                )  # fmt: skip
                begin, count = first_row(start + b * block, block, n), min(block, n)
                place = heads, b * features * block, bounds, features, scratch
                _settle(
                    flat, begin, centres, d, place, maxima, b * n_panels * block, state, queue,
                    (count, n_panels, most, errors, (height, vectors, width, k, dot), winner), counts,
                )  # fmt: skip
                label_rows(
                    flat, begin, count, centres, offset, first, d, state, errors, labels, counts
                )

    return kernel(search)


def nearest_pruned(
    X: np.ndarray, centres: BoundedCentres, most: int, labels: np.ndarray
) -> np.ndarray:
    """Label every row with its nearest centre, as `daskcluster.kernels.tile.nearest` does.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, dtype of the centres
    centres : BoundedCentres
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
    group = _GROUP_BYTES // ((centres.features + 1) * height * kind.itemsize)
    arrays = (centres.centres, centres.offset, centres.basis, centres.bounds, centres.first)
    pruned_kernel(centres.tile, lanes_of(X.dtype), centres.dot)(
        read_only(X), tuple(map(read_only, arrays)), centres.features, centres.coding, centres.errors,
        int(most), min(8, max(1, blocks)), max(1, group), labels, counts,
    )  # fmt: skip
    return counts
