"""Candidates of a row: the centres that its bounds leave, measured until the nearest one is certain.

See `daskcluster.kernels.pruned_search`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.dot_product import product_of_lines
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.row_ops import rough_squared_distance
from daskcluster.kernels.search import fma

UNDECIDED = -1
"""Label of a row that needs the search of all centres."""

MOST_CLOSE = 24
"""Most centres of a row that are kept as too close to tell; a row with more is searched in full."""

SECOND_ORDER = 1.01
"""Covers the products of errors, which bounds of the first order leave out."""

_SAFE_SHARE = 2.0**-8
"""Share of the largest number that squared lengths may have; beyond, bounds might overflow."""


class Errors(NamedTuple):
    """Worst-case errors; X is the length of a row, and C that of the longest centre, about the same point.

    Attributes
    ----------
    margin : float
        Error of scores, of bounds and of half a rough squared distance, over (X + C)^2 / 2.
    close : float
        Difference of two rough squared distances beyond which their order is certain, over (X + C)^2.
    largest : float
        C about the offset of the centres, at most.
    shift : float
        Distance of the point from that offset.
    tiny : float
        What underflow may add.
    most : float
        Squared lengths from here on might overflow.
    scale, top : float
        Units of bounds in one of scores, and more than any bound.
    """

    margin: float
    close: float
    largest: float
    shift: float
    tiny: float
    most: float
    scale: float
    top: float


def errors_of(
    d: int, kind: np.dtype[Any], largest: float, *, extra: float = 0.0, shift: float = 0.0
) -> Errors:
    """Return what candidates may be off by; `extra` is the error of bounds, over (X + C)^2 / 2.

    With u the unit of rounding:

    - the canonical score of d features errs by (d + 3) u (X C + C^2 / 2);
    - a rough squared distance errs by (d / 16 + 48) u (X + C)^2, which includes the rounding of the shift
      and of first terms. Squared lengths, summed in float64, add (2 d + 4) u64 (X + C)^2.

    Examples
    --------
    >>> found = errors_of(768, np.dtype("f4"), 4.0)
    >>> f"{found.margin:.0e} {found.close:.0e} {found.largest}"
    '1e-04 1e-04 4.0'
    """
    limits = np.finfo(kind)
    unit = float(limits.eps) / 2
    canonical, rough = (d + 3) * unit, (d / 16 + 48) * unit + (2 * d + 4) * 2.0**-53
    margin, close = (
        SECOND_ORDER * (2.0 * canonical + rough),
        SECOND_ORDER * 2.0 * (canonical + rough),
    )
    tiny, most = d * float(limits.tiny), _SAFE_SHARE * float(limits.max)
    return Errors(margin + extra, close, largest, shift, tiny, most, 1.0, np.inf)


@kernel
def margins_of(lengths, errors, margins, reach):  # type: ignore[no-untyped-def]
    """OUT: margins, reach: see `Bounded` and `BlockState`; without what quantizing the row takes."""
    for r in range(lengths.shape[0]):
        total = math.sqrt(lengths[r]) + errors.shift + errors.largest
        reach[r] = errors.close * total * total + errors.tiny
        margins[r] = 0.5 * errors.margin * total * total + errors.tiny


@kernel
def _canonical(flat, at, c, centre_at, offset, first, d):  # type: ignore[no-untyped-def]
    """Return the score of `daskcluster.kernels.tile`, bit for bit."""
    total = first
    for t in range(d):
        total = fma(flat[at + t] - offset[t], c[centre_at + t] - offset[t], total)
    return total


class Bounded(NamedTuple):
    """What bounds of one form leave of the rows of a block.

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
def label_rows(flat, begin, count, centres, offset, first, d, state, top, labels, counts):  # type: ignore[no-untyped-def]
    """Label the rows of a block once all their candidates are measured; OUT: labels from `begin` on."""
    best, winners = np.empty(2, offset.dtype), np.empty(2, np.int64)
    for r in range(count):
        counts[0] += state.measured[r]
        labels[begin + r] = state.chosen[r]
        if state.chosen[r] < 0:
            continue
        rivals = _n_rivals(state, r, top)
        if rivals < 0:
            labels[begin + r] = UNDECIDED
        elif rivals > 1:
            counts[2] += rivals
            _best_two(flat, begin, r, centres, offset, first, d, state, best, winners)
            labels[begin + r] = winners[0]


@kernel
def label_two(flat, begin, count, centres, offset, first, d, state, top, found, counts):  # type: ignore[no-untyped-def]
    """Label rows twice; OUT: found: labels, second and, unless empty, scores (n, 2)."""
    labels, second, scores = found
    best, winners = np.empty(2, offset.dtype), np.empty(2, np.int64)
    for r in range(count):
        counts[0] += state.measured[r]
        rivals = -1 if state.chosen[r] < 0 else _n_rivals(state, r, top)
        if rivals < 2:
            labels[begin + r] = UNDECIDED
            continue
        counts[2] += rivals
        _best_two(flat, begin, r, centres, offset, first, d, state, best, winners)
        labels[begin + r], second[begin + r] = winners
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
