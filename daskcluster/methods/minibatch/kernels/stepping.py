"""Centres moved by single rows, and the proof that a row's nearest centre has not changed.

A row that moves two centres a little leaves the scores of all others as they were. So rows are scored
ahead, many at a time, and taken one after the other: of each it is proved, from how far centres have gone
since they were packed, that its winner is that under the centres of this very step (`is_proven`). Where
that cannot be proved, those that went far are packed anew, in place, and rows are scored again. What
comes out is the sequential algorithm, to the bit, however many rows are scored ahead.

A centre is ``start + scale * drift``: to go back towards the start by a constant share is one
multiplication for any number of features.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.jit import kernel, read_only, weights_or_none
from daskcluster.kernels.panels import PORTABLE, Panels, Tile
from daskcluster.kernels.row_block import aligned, lanes_of, pack_listed_rows
from daskcluster.kernels.search import list_lines, score_listed, tile_shape
from daskcluster.kernels.sparse import SparsePanels, score_entries
from daskcluster.kernels.tile import nearest, pack

TOP, NORM, LARGEST, LIMIT, LOST, COST, SWITCHED = range(7)
"""Entries of `Drifting.sgd_state`: the longest way since packing; the largest |c - o| and |c| that were
packed; how far a centre may drift; 1 if one went farther; what rows cost; rows that changed centres."""

_SHARE = 0.25
"""Centres that moved at least this share of the longest distance are packed again first."""


class Drifting(NamedTuple):
    """Moving centres, as the kernels take them.

    Attributes
    ----------
    start : ndarray of shape (k, d), float64
    drift : ndarray of shape (k, d), float64
        IN/OUT. Centre j is ``start[j] + scale[j] * drift[j]``.
    scale, length : ndarray of shape (k,), float64
        IN/OUT. ``length[j]`` is ``|drift[j]|``.
    moved : ndarray of shape (k,), float64
        IN/OUT. The way that a centre has gone since it was packed, at least.
    seen : ndarray of shape (k,), float64
        IN/OUT. Weight that a centre has seen, for steps of 1 / seen; empty for a constant rate.
    panels : ndarray of shape (n_panels, (d + 1) * height)
        IN/OUT. Centres as they were packed, see `daskcluster.kernels.panels.Panels`.
    offset : ndarray of shape (d,)
        In the dtype of the panels.
    line : ndarray of shape (d,), float64
        Scratch.
    sgd_state : ndarray of shape (7,), float64
        IN/OUT. See `TOP` and its siblings.
    """

    start: np.ndarray
    drift: np.ndarray
    scale: np.ndarray
    length: np.ndarray
    moved: np.ndarray
    seen: np.ndarray
    panels: np.ndarray
    offset: np.ndarray
    line: np.ndarray
    sgd_state: np.ndarray


@kernel
def _pack_one(j, state):  # type: ignore[no-untyped-def]
    # The same operations as in `fill_panels`, so the same bits.
    d = state.offset.shape[0]
    height = state.panels.shape[1] // (d + 1)
    panel, lane = state.panels[j // height], j % height
    start, drift, scale = state.start[j], state.drift[j], state.scale[j]
    rounded = np.empty(1, state.offset.dtype)
    square, size = 0.0, 0.0
    for t in range(d):
        rounded[0] = start[t] + scale * drift[t]
        value = rounded[0] - state.offset[t]
        panel[(t + 1) * height + lane] = value
        square += np.float64(value) * np.float64(value)
        size += np.float64(rounded[0]) * np.float64(rounded[0])
    panel[lane] = -0.5 * square
    state.moved[j] = 0.0
    state.sgd_state[NORM] = max(state.sgd_state[NORM], math.sqrt(square))
    state.sgd_state[LARGEST] = max(state.sgd_state[LARGEST], math.sqrt(size))


@kernel
def pack_moved(state, everything):  # type: ignore[no-untyped-def]
    """Pack centres again: those that moved far, or all that moved."""
    least = 0.0 if everything else _SHARE * state.sgd_state[TOP]
    top = 0.0
    for j in range(state.moved.shape[0]):
        if not state.moved[j] <= least:
            _pack_one(j, state)
        else:
            top = max(top, state.moved[j])
    state.sgd_state[TOP] = top


@kernel
def is_proven(square, best, second, winner, roundoff, state):  # type: ignore[no-untyped-def]
    """Return True if a row's winner under the packed centres also wins under the current centres.

    `square` is |x - o|^2, `best` and `second` are the two best scores. Scores of a row and a centre err
    by at most (d + 2) units of rounding of |x - o| |c - o|, before and after; centres round when they are
    packed.
    """
    top = state.sgd_state[TOP]
    if top == 0.0:
        return True
    far = state.sgd_state[NORM] + top
    error = (state.offset.shape[0] + 4) * roundoff * far * (math.sqrt(square) + far)
    slack = 2.0 * roundoff * (state.sgd_state[LARGEST] + top)
    own = math.sqrt(max(0.0, square - 2.0 * best + 2.0 * error)) + state.moved[winner] + slack
    rest = square - 2.0 * second - 2.0 * error
    # NaN and infinity prove nothing.
    if not rest > 0.0:
        return False
    others = math.sqrt(rest) - top - slack
    return others > 0.0 and others * others > own * own + 4.0 * error


@kernel
def _square(line):  # type: ignore[no-untyped-def]
    # Eight sums side by side: one alone would wait for itself.
    a0, a1, a2, a3, a4, a5, a6, a7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    whole = line.shape[0] - line.shape[0] % 8
    for t in range(0, whole, 8):
        a0 += line[t] * line[t]
        a1 += line[t + 1] * line[t + 1]
        a2 += line[t + 2] * line[t + 2]
        a3 += line[t + 3] * line[t + 3]
        a4 += line[t + 4] * line[t + 4]
        a5 += line[t + 5] * line[t + 5]
        a6 += line[t + 6] * line[t + 6]
        a7 += line[t + 7] * line[t + 7]
    for t in range(whole, line.shape[0]):
        a0 += line[t] * line[t]
    return ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7))


@kernel
def _note(j, way, length, state):  # type: ignore[no-untyped-def]
    state.moved[j] += way
    state.sgd_state[TOP] = max(state.sgd_state[TOP], state.moved[j])
    if not length <= state.sgd_state[LIMIT]:
        state.sgd_state[LOST] = 1.0


@kernel
def _go_back(j, rate, state):  # type: ignore[no-untyped-def]
    """``c_j -= rate * (c_j - start_j)``."""
    length = state.length[j] * abs(state.scale[j])
    if length > 0.0:
        state.scale[j] *= 1.0 - rate
        _note(j, rate * length, length * abs(1.0 - rate), state)


@kernel
def _follow(j, row, rate, state):  # type: ignore[no-untyped-def]
    """``c_j += rate * (x - c_j)``; returns |x - c_j|^2 as it was before."""
    start, drift, scale, line = state.start[j], state.drift[j], state.scale[j], state.line
    for t in range(line.shape[0]):
        before = scale * drift[t]
        line[t] = row[t] - start[t] - before
        drift[t] = before + rate * line[t]
    state.scale[j] = 1.0
    state.length[j] = math.sqrt(_square(drift))
    square = _square(line)
    _note(j, rate * math.sqrt(square), state.length[j], state)
    return square


@kernel
def _repel(j, row, rate, state):  # type: ignore[no-untyped-def]
    """``c_j += rate * (start_j - x)``."""
    start, drift, scale, line = state.start[j], state.drift[j], state.scale[j], state.line
    for t in range(line.shape[0]):
        line[t] = start[t] - row[t]
        drift[t] = scale * drift[t] + rate * line[t]
    state.scale[j] = 1.0
    state.length[j] = math.sqrt(_square(drift))
    _note(j, rate * math.sqrt(_square(line)), state.length[j], state)


@kernel
def take_step(row, winner, before, weight, rate, state):  # type: ignore[no-untyped-def]
    """Let one row, whose nearest centre is `winner`, move centres.

    With ``seen``, its winner follows it by 1 / (weight seen). Otherwise the step is variance reduced:
    `before` is the centre that the row had when the epoch began.
    """
    if state.seen.shape[0]:
        if weight > 0.0:
            state.seen[winner] += weight
            square = _follow(winner, row, weight / state.seen[winner], state)
            state.sgd_state[COST] += weight * square
    elif winner == before:
        _go_back(before, rate, state)
    else:
        _follow(winner, row, rate, state)
        _repel(before, row, rate, state)
        state.sgd_state[SWITCHED] += 1.0


@kernel
def take_proven(rows, taken, first, count, scored, given, rate, roundoff, state):  # type: ignore[no-untyped-def]
    """Take steps with rows that were scored, while their winners are proven; return how many.

    ``taken[:count]`` are the rows. `scored` is (best, index, squares): best scores, second best from the
    middle on, winners, squared lengths. `given` is (table, weights), or empty arrays, which stand from
    `first`.
    """
    (best, index, squares), (table, weights) = scored, given
    half = best.shape[0] // 2
    for r in range(count):
        winner = max(index[r], 0)  # NaN rows have none: centre 0
        if not is_proven(squares[r], best[r], best[half + r], winner, roundoff, state):
            return r
        before = table[first + r] if table.shape[0] else -1
        weight = weights[first + r] if weights.shape[0] else 1.0
        take_step(rows[taken[r]], winner, before, weight, rate, state)
        if state.sgd_state[LOST] > 0.0:
            return r
    return count


_NO_TABLE = np.empty(0, np.int32)
_PREFETCH_DISTANCE = 64
"""Rows that the portable tile scores ahead."""


_HEIGHTS = {"avx512": (14, 8), "avx2": (6,), "neon": (13, 8)}
"""Fewer than the search has: each compiles its own loop, and steps spend time elsewhere, too."""


def pack_for_steps(centres: np.ndarray) -> Panels:
    """Pack centres for `run_steps`, in room of their own."""
    panels = pack(centres)
    if panels.tile == PORTABLE:
        return panels
    heights = _HEIGHTS[panels.tile.name]
    height = min(heights, key=lambda h: -(-panels.k // h) * h)
    return pack(centres, panels.offset, replace(panels.tile, height=height))


@cache
def _steps_kernel(tile: Tile, lanes: int) -> Any:
    shape = tile_shape(tile, lanes, 2)
    vectors, width, lanes = shape[:3]
    block, line = vectors * width, 4 * lanes

    def run_steps(rows, listed, table, weights, rate, roundoff, state):  # type: ignore[no-untyped-def]
        n, d = rows.shape
        b, offset = listed.shape[0], state.offset
        flat, panels = rows.reshape(n * d), state.panels
        panel = panels.reshape(panels.size)
        packed, best = aligned(d * block, offset), aligned(2 * block, offset)
        index, taken = aligned(2 * block, table), np.empty(block, np.int64)
        squares = np.empty(block)
        places = np.empty(panels.shape[0] * d, np.int64)
        fetched, start = 0, 0
        while start < b and state.sgd_state[LOST] == 0.0:
            for r in range(block):
                taken[r] = listed[min(start + r, b - 1)]
            pack_listed_rows(flat, taken, d, offset, packed, shape)
            fetched = list_lines(
                listed, max(start + block, fetched), start + 3 * block, d, line, places
            )
            score_listed(packed, panel, (0, panels.shape[0]), d, best, index, flat, places, shape)
            squares[:] = 0.0
            for t in range(d):
                for r in range(block):
                    value = np.float64(packed[t * block + r])
                    squares[r] += value * value
            count = min(block, b - start)
            scored, given = (best, index, squares), (table, weights)
            done = take_proven(rows, taken, start, count, scored, given, rate, roundoff, state)
            if done < count:
                pack_moved(state, done == 0)
            start += done

    return kernel(run_steps)


def run_steps(
    rows: Any,
    listed: np.ndarray,
    table: np.ndarray | None,
    weights: np.ndarray | None,
    rate: float,
    panels: Panels | SparsePanels,
    state: Drifting,
) -> None:
    """Let listed rows move centres, one after the other.

    Parameters
    ----------
    rows : ndarray of shape (n, d), C-contiguous, dtype of the panels; or (data, indices, indptr)
        Read only. CSR rows are those of `daskcluster.kernels.sparse`; the state's offset is then zero.
    listed : ndarray of shape (b,), int64
        In ``[0, n)``: not checked.
    table : ndarray of shape (b,), int32, or None
        The centre that each listed row had when the epoch began; None where the state has ``seen``.
    weights : ndarray of shape (b,), float64, or None
        Weights of the listed rows; they count with ``seen`` alone.
    rate : float
        Learning rate; unused with ``seen``.
    panels : Panels, or SparsePanels for CSR rows
        Whose ``data`` the state holds.
    state : Drifting
        IN/OUT.
    """
    table = _NO_TABLE if table is None else table
    roundoff = float(np.finfo(panels.dtype).eps) / 2
    given = listed, table, weights_or_none(weights), rate, roundoff, state
    if isinstance(panels, SparsePanels):
        _sparse_kernel(panels.vectors, panels.width)(rows, *given)
    elif panels.tile == PORTABLE:
        _steps_plainly(rows, *given, panels)
    else:
        _steps_kernel(panels.tile, lanes_of(panels.dtype))(rows, *given)


def _steps_plainly(
    rows: np.ndarray,
    listed: np.ndarray,
    table: np.ndarray,
    weights: np.ndarray,
    rate: float,
    roundoff: float,
    state: Drifting,
    panels: Panels,
) -> None:
    """Do as the compiled walk on a CPU without a register tile."""
    start, everyone = 0, np.arange(_PREFETCH_DISTANCE)
    while start < len(listed) and state.sgd_state[LOST] == 0.0:
        prefetched = np.ascontiguousarray(rows[listed[start : start + _PREFETCH_DISTANCE]])
        count = len(prefetched)
        labels, second = np.empty(count, np.int32), np.empty(count, np.int32)
        scores = np.empty((count, 2), rows.dtype)
        nearest(prefetched, panels, labels, second, scores)
        squares = ((prefetched - state.offset).astype(np.float64) ** 2).sum(axis=1)
        scored = np.ascontiguousarray(scores.T).ravel(), labels, squares
        given = (table, weights), rate, roundoff, state
        done = take_proven(read_only(prefetched), everyone, start, count, scored, *given)
        if done < count:
            pack_moved(state, done == 0)
        start += done


@cache
def _sparse_kernel(vectors: int, width: int) -> Any:
    height = vectors * width

    def run_steps(rows, listed, table, weights, rate, roundoff, state):  # type: ignore[no-untyped-def]
        data, indices, indptr = rows
        origin, flat = indptr[0], state.panels.reshape(state.panels.size)
        stride = state.panels.shape[1]
        best, index = np.empty(2, state.panels.dtype), np.empty(2, np.int32)
        row = np.zeros(state.offset.shape[0], data.dtype)
        s, again = 0, False
        while s < listed.shape[0] and state.sgd_state[LOST] == 0.0:
            first, stop = indptr[listed[s]] - origin, indptr[listed[s] + 1] - origin
            best[:] = -np.inf
            index[:] = 0
            for p in range(state.panels.shape[0]):
                score_entries(
                    data, indices, first, stop, flat, p * stride, np.int32(p * height), best, index, 0,
                    vectors, width, 2, data.shape[0],
                )  # fmt: skip
            square = 0.0
            for e in range(first, stop):
                square += np.float64(data[e]) * np.float64(data[e])
            winner = max(index[0], 0)
            if not is_proven(square, best[0], best[1], winner, roundoff, state):
                pack_moved(state, again)
                again = True
                continue
            before = table[s] if table.shape[0] else -1
            weight = weights[s] if weights.shape[0] else 1.0
            for e in range(first, stop):
                row[indices[e]] = data[e]
            take_step(row, winner, before, weight, rate, state)
            for e in range(first, stop):
                row[indices[e]] = 0.0
            s, again = s + 1, False

    return kernel(run_steps)
