"""Nearest centres from bounds in a few dimensions, with the labels of the search of all centres.

Rows and centres are projected onto m axes. With the length of what is left as one more feature, the score
of a projected row and centre is an upper bound of their score (Cauchy-Schwarz). The tile computes these
bounds with m + 1 features instead of d and keeps the largest one of each panel. The winner of the bounds is
measured; then every other centre whose bound reaches that score, less a margin for all rounding. Where
several centres are too close to tell, the canonical chain decides (`daskcluster.kernels.tile`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import Tile, scores_in_panel
from daskcluster.kernels.portable import fma
from daskcluster.kernels.register_tile import all_scores_tile, panel_maxima_tile
from daskcluster.kernels.row_block import aligned, first_row, lanes_of, pack_rows
from daskcluster.kernels.row_ops import fetch_row, rough_squared_distance
from daskcluster.kernels.search import tile_shape

_SEGMENT = 64
"""Features whose products are summed in one chain when a row is projected; more would round more."""

_SCRATCH_BYTES = 512 << 10
"""Bytes of the maxima of the blocks that are scored at once, of which the second-level cache has room."""

_GROUP_BYTES = 192 << 10
"""Bytes of the panels that one block after the other is scored against."""

_SECOND_ORDER = 1.01
"""Covers the products of errors, which bounds of the first order leave out."""

_MOST_CLOSE = 24
"""Most centres of a row that are kept as too close to tell; a row with more is searched in full."""

_SAFE_SHARE = 2.0**-8
"""Share of the largest number that squared lengths may have; beyond, bounds might overflow."""

_QUEUE = 64
"""Centres that wait to be measured while their memory is fetched."""

UNDECIDED = -1
"""Label of a row that needs the search of all centres."""


class Errors(NamedTuple):
    """Worst-case errors of the search; X is the length of a row, and C that of the longest centre.

    Attributes
    ----------
    slack : float
        Of the squared length that the projection of a row or a centre leaves, over X^2.
    margin : float
        Of bounds against a score, over X C + C^2 / 2.
    rough : float
        Of a rough squared distance, over (X + C)^2.
    close : float
        Of two rough squared distances, beyond which their order is certain, over (X + C)^2.
    largest : float
        C.
    unit : float
        Unit of rounding.
    tiny : float
        What underflow may add.
    most : float
        Squared lengths from here on might overflow.
    """

    slack: float
    margin: float
    rough: float
    close: float
    largest: float
    unit: float
    tiny: float
    most: float


@dataclass(frozen=True)
class ProjectedCentres:
    """Centres and axes, packed for the search.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    offset : ndarray of shape (d,)
        See `daskcluster.kernels.panels.common_offset`.
    axes : ndarray of shape (n_segments, n_panels, (_SEGMENT + 1) * height)
        Panels of the axes, for each segment of features. The first terms are zero.
    bounds : ndarray of shape (n_panels, (m + 2) * height)
        Panels of the projected centres: first terms -|c'|^2 / 2, m coordinates, and the length of the rest.
    first : ndarray of shape (k,)
        First terms -|c'|^2 / 2.
    errors : Errors
    m : int
    tile : Tile
    """

    centres: np.ndarray
    offset: np.ndarray
    axes: np.ndarray
    bounds: np.ndarray
    first: np.ndarray
    errors: Errors
    m: int
    tile: Tile


@kernel
def shift_centres(centres, offset, shifted, squares):  # type: ignore[no-untyped-def]
    """OUT: c' = fl(c - o), and |c'|^2 in the order of `daskcluster.kernels.panels.fill_panels`."""
    k, d = centres.shape
    for j in range(k):
        total = 0.0
        for t in range(d):
            value = centres[j, t] - offset[t]
            shifted[j, t] = value
            wide = np.float64(value)
            total += wide * wide
        squares[j] = total


def project_points(points: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Return the coordinates of points (k, d) on axes (d, m), summed as those of rows are."""
    found = np.zeros((len(points), axes.shape[1]), axes.dtype)
    for first in range(0, len(axes), _SEGMENT):
        part = slice(first, first + _SEGMENT)
        found += points[:, part] @ axes[part]
    return found


def pack_projected(
    centres: np.ndarray,
    offset: np.ndarray,
    axes: np.ndarray,
    heads: np.ndarray,
    squares: np.ndarray,
    tile: Tile,
) -> ProjectedCentres:
    """Pack centres and axes.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    offset : ndarray of shape (d,)
    axes : ndarray of shape (d, m), dtype of the centres
        Nearly orthonormal columns.
    heads : ndarray of shape (k, m), dtype of the centres
        c' on the axes, from `project_points`.
    squares : ndarray of shape (k,), float64
        |c'|^2, from `shift_centres`.
    tile : Tile
    """
    d, m, kind = centres.shape[1], axes.shape[1], centres.dtype
    errors = errors_of(axes, float(squares.max(initial=0.0)))
    first = (-0.5 * squares).astype(kind)
    kept = np.square(heads, dtype=np.float64).sum(axis=1)
    rest = np.sqrt(np.maximum(squares - kept, 0.0) + errors.slack * squares)
    features = np.column_stack([heads, _up(rest, kind)])
    bounds = _panels(features, first, tile.height)
    segments = -(-d // _SEGMENT)
    packed = np.zeros((segments, -(-m // tile.height), (_SEGMENT + 1) * tile.height), kind)
    for number in range(segments):
        part = axes[number * _SEGMENT : (number + 1) * _SEGMENT].T
        size = (part.shape[1] + 1) * tile.height
        packed[number, :, :size] = _panels(part, np.zeros(m, kind), tile.height)
    packed[np.isinf(packed)] = 0.0  # lanes without an axis
    return ProjectedCentres(centres, offset, packed, bounds, first, errors, m, tile)


def _panels(features: np.ndarray, first: np.ndarray, height: int) -> np.ndarray:
    """Return panels of points (k, d) with these first terms; lanes beyond k have -inf."""
    k, d = features.shape
    n_panels = -(-k // height)
    whole = np.zeros((n_panels * height, d + 1), features.dtype)
    whole[:, 0] = -np.inf
    whole[:k, 0], whole[:k, 1:] = first, features
    panels = whole.reshape(n_panels, height, d + 1).transpose(0, 2, 1)
    return np.ascontiguousarray(panels).reshape(n_panels, -1)


def _up(values: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    """Round up to a dtype."""
    return np.asarray(np.nextafter(values.astype(kind), np.array(np.inf, kind)))


def errors_of(axes: np.ndarray, largest: float) -> Errors:
    """Return what bounds may be off by, in the worst case.

    With u the unit of rounding, X = |x'| and C the largest |c'|:

    - the canonical score of d features errs by (d + 3) u (X C + C^2 / 2);
    - a bound of m + 1 features errs by (m + 6) u (X C + C^2 / 2), rounded comparisons included;
    - the axes A are not quite orthonormal, by D = |A'A - I|, and the projection of a row or a centre errs
      by e = (segment + n_segments + 2) u |A|, as a share of its length. What is left of them is then not
      quite orthogonal to the axes, by (3 D + 2 e) X C in all;
    - the squared length of the rest errs by (D + 2 e + 4 (d + m) u64) X^2;
    - a rough squared distance errs by (d / 16 + 48) u (X + C)^2, which includes the rounding of the shift
      and of first terms. Squared lengths, summed in float64, add (2 d + 4) u64 (X + C)^2.

    Examples
    --------
    >>> found = errors_of(np.eye(768, 64, dtype=np.float32), 4.0)
    >>> " ".join(f"{error:.0e}" for error in found[:5])
    '8e-05 2e-04 6e-06 1e-04 2e+00'
    """
    d, m = axes.shape
    u, wide = float(np.finfo(axes.dtype).eps) / 2, axes.astype(np.float64)
    gaps = wide.T @ wide - np.eye(m)
    gram = math.sqrt(float(np.sum(gaps * gaps))) + m * d * 2.0**-52
    head = (_SEGMENT + -(-d // _SEGMENT) + 2) * u * math.sqrt(m) * (1.0 + gram)
    slack = gram + 2.0 * head + 4 * (d + m) * 2.0**-53
    canonical, rough = (d + 3) * u, (d / 16 + 48) * u + (2 * d + 4) * 2.0**-53
    margin = 2.0 * canonical + (m + 6) * u + 3.0 * gram + 2.0 * head
    close = 2.0 * canonical + 2.0 * rough  # of squared distances; X C + C^2 / 2 <= (X + C)^2 / 2
    slack, margin, rough, close = (_SECOND_ORDER * error for error in (slack, margin, rough, close))
    limits = np.finfo(axes.dtype)
    tiny, most = d * float(limits.tiny), _SAFE_SHARE * float(limits.max)
    return Errors(slack, margin, rough, close, math.sqrt(largest), u, tiny, most)


@kernel
def _project(packed, d, axes, part, heads, at, m, lengths, margins, errors, shape):  # type: ignore[no-untyped-def]
    """Project a packed block of rows; OUT: heads from `at` on, lengths (block,), margins (block,)."""
    vectors, width, _, height, _ = shape
    block = vectors * width
    n_panels, size = axes.shape[1], axes.shape[2]
    flat, places = axes.reshape(axes.size), np.zeros(_SEGMENT, np.int64)
    heads[at : at + m * block] = 0.0
    lengths[:] = 0.0
    for s in range(axes.shape[0]):
        count = min(_SEGMENT, d - s * _SEGMENT)
        rows = packed[s * _SEGMENT * block :]
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
