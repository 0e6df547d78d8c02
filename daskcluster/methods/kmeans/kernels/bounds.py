"""Bounds on distances: the filter before the tile, and new bounds from the tile's winners.

A row keeps an upper bound of the distance to its own centre and a lower bound of the distance to all
others (Hamerly, "Making k-means even faster", SDM 2010). What differs: both are stored *less
the drift that centres had accumulated when they were set*, so that a row whose bounds hold is neither
read nor written; and no bound decides within the rounding error of the score (`margin`), so labels
are those of the tile, always. Those of CSR rows are the same, from distances over the stored values.

Bounds are float32, rounded to the safe side. All arithmetic on them is float64.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import Tile
from daskcluster.kernels.row_block import aligned, lanes_of, pack_listed_rows
from daskcluster.kernels.row_ops import fetch_row, squared_distance
from daskcluster.kernels.search import list_lines, score_listed, tile_shape
from daskcluster.kernels.sparse import row_distance

SAFE = 4.0 * 2.0**-24
"""Rounding a float64 to float32 errs by less than this, relatively."""
_LEAST = 2.0**-148


class Listed(NamedTuple):
    """Rows to reassign: the position of each in `rows`, and in the state; read only."""

    rows: np.ndarray
    at: np.ndarray
    which: np.ndarray


class State(NamedTuple):
    """Labels of all rows (-1 for none), and their bounds less the drift; IN/OUT."""

    labels: np.ndarray
    upper: np.ndarray
    lower: np.ndarray


class Centres(NamedTuple):
    """Centres as they are, and packed as `daskcluster.kernels.panels.Panels` has them."""

    centres: np.ndarray
    panels: np.ndarray
    offset: np.ndarray


class Moved(NamedTuple):
    """OUT: the rows that moved, as indices of the listed ones, and the labels they had."""

    which: np.ndarray
    old: np.ndarray


OWN, OTHERS, HALF = 0, 1, 2
"""Rows of `drift`: of a cluster's own centre, of the others' fastest, half the way to the nearest."""


@kernel
def raised(value):  # type: ignore[no-untyped-def]
    """Round to float32, never down."""
    return np.float32(value + abs(value) * SAFE + _LEAST)


@kernel
def lowered(value):  # type: ignore[no-untyped-def]
    """Round to float32, never up."""
    return np.float32(value - abs(value) * SAFE - _LEAST)


@kernel
def threshold(upper, margin):  # type: ignore[no-untyped-def]
    """Return the squared distance from which on a centre cannot win, even by rounding."""
    return upper * upper + margin[0] * upper + margin[1]


@kernel
def proves(lower, squared_threshold):  # type: ignore[no-untyped-def]
    """Return whether a lower bound of the distance to all other centres proves that a label stays."""
    # NaN and infinity prove nothing.
    return lower > 0.0 and lower * lower > squared_threshold


@kernel
def filter_rows(labels, upper, lower, drift, margin, failing):  # type: ignore[no-untyped-def]
    """Find the rows whose bounds do not prove that their label stays.

    Parameters
    ----------
    labels : ndarray of shape (n,), int32
        In ``[0, k)``: not checked.
    upper, lower : ndarray of shape (n,), float32
        Bounds, less (plus) the drift at the time they were set.
    drift : ndarray of shape (3, k), float64
        Accumulated drift of each centre, of the fastest other one in each step, and half the distance
        to the nearest other centre.
    margin : ndarray of shape (2,), float64
        Slope and constant of the scores' rounding error, see `threshold`.
    failing : ndarray of shape (n,), int64
        OUT. Ascending.

    Returns
    -------
    int
        How many.
    """
    count = 0
    for i in range(labels.shape[0]):
        a = labels[i]
        u = upper[i] + drift[OWN, a]
        low = max(lower[i] - drift[OTHERS, a], drift[HALF, a])
        failing[count] = i
        count += not proves(low, threshold(u, margin))
    return count


@kernel
def second_bound(nearest, best, second, k, margin):  # type: ignore[no-untyped-def]
    """Return a lower bound of the distance to all centres but the nearest, from their scores."""
    if k == 1:
        return np.inf
    gap = np.float64(best) - np.float64(second)
    squared = 2.0 * nearest * nearest - threshold(nearest, margin) + 2.0 * gap
    # An overflow proves nothing.
    return math.sqrt(squared) if 0.0 < squared < np.inf else 0.0


@kernel
def _tighten(x, start, c, d, i, state, drift, margin):  # type: ignore[no-untyped-def]
    """Measure a row against its own centre; return whether its bounds now hold, and the distance."""
    a = state.labels[i]
    if a < 0:
        return False, np.inf
    u = math.sqrt(squared_distance(x, start, c, a * d, d))
    state.upper[i] = raised(u - drift[OWN, a])
    low = max(state.lower[i] - drift[OTHERS, a], drift[HALF, a])
    return proves(low, threshold(u * (1.0 + SAFE), margin)), u


@kernel
def _renew(x, start, c, d, i, a, u, scores, state, drift, margin):  # type: ignore[no-untyped-def]
    """Set the label `a` of a row and new bounds, from the best two scores; `u` is as of `_tighten`."""
    if state.labels[i] != a:
        state.labels[i] = a
        u = math.sqrt(squared_distance(x, start, c, a * d, d))
    state.upper[i] = raised(u - drift[OWN, a])
    low = second_bound(u, scores[0], scores[1], c.shape[0] // d, margin)
    state.lower[i] = lowered(low + drift[OTHERS, a])


@kernel
def tighten(some, state, centres, drift, margin, failing, distances):  # type: ignore[no-untyped-def]
    """Measure listed rows against their own centres.

    Returns
    -------
    int
        How many rows still fail; OUT: `failing`, their indices in the list, and `distances`.
    """
    (rows, at, which), count = some, 0
    n, d = rows.shape
    x, c = rows.reshape(n * d), centres.reshape(centres.size)
    last = which.shape[0] - 1
    for s in range(last + 1):
        fetch_row(x, at[min(s + 2, last)] * d, d)
        holds, distances[count] = _tighten(x, at[s] * d, c, d, which[s], state, drift, margin)
        failing[count] = s
        count += not holds
    return count


@kernel
def renew(some, state, centres, drift, margin, failing, distances, labels, scores, out, n_moved):  # type: ignore[no-untyped-def]
    """Give the listed rows at `failing` the labels and bounds of a search, as `reassign_kernel` does.

    Returns
    -------
    int
        How many rows have moved, `n_moved` of them before this call.
    """
    rows, at, which = some
    n, d = rows.shape
    x, c = rows.reshape(n * d), centres.reshape(centres.size)
    for q in range(failing.shape[0]):
        s, a = failing[q], labels[q]
        i = which[s]
        if state.labels[i] != a:
            out.which[n_moved], out.old[n_moved] = s, state.labels[i]
            n_moved += 1
        two = scores[q, 0], scores[q, 1]
        _renew(x, at[s] * d, c, d, i, a, distances[q], two, state, drift, margin)
    return n_moved


@cache
def reassign_kernel(tile: Tile, dtype: np.dtype[Any]) -> Any:
    """Build the loop that reassigns rows, for a register tile.

    ``reassign(Listed, State, Centres, drift, margin, Moved)`` returns how many rows went through the tile
    and how many moved.
    """
    shape = tile_shape(tile, lanes_of(dtype), 2)
    block, line = tile.rows, 4 * lanes_of(dtype)

    def reassign(some, state, near, drift, margin, out):  # type: ignore[no-untyped-def]
        (rows, at, which), labels = some, state.labels
        (centres, panels, offset), (moved, old) = near, out
        n, d = rows.shape
        x, c, panel = (
            rows.reshape(n * d),
            centres.reshape(centres.size),
            panels.reshape(panels.size),
        )
        packed, best = aligned(d * block, offset), aligned(2 * block, offset)
        index, listed = aligned(2 * block, labels), np.empty(block, np.int64)
        waiting, distances = np.empty(block, np.int64), np.empty(block)
        places = np.empty(panels.shape[0] * d, np.int64)
        count, n_kept, n_moved, fetched, last = 0, 0, 0, 0, which.shape[0] - 1
        for s in range(last + 1):
            i, r = which[s], at[s]
            if s >= fetched:
                fetch_row(x, at[min(s + 2, last)] * d, d)
            holds, distances[count] = _tighten(x, r * d, c, d, i, state, drift, margin)
            if not holds:
                listed[count], waiting[count] = r, s
                count += 1
            if count == 0 or (count < block and s < last):
                continue
            for q in range(count, block):
                listed[q] = listed[count - 1]
            pack_listed_rows(x, listed, d, offset, packed, shape)
            fetched = list_lines(at, max(s + 1, fetched), s + 1 + 2 * block, d, line, places)
            score_listed(packed, panel, (0, panels.shape[0]), d, best, index, x, places, shape)
            for q in range(count):
                i, a = which[waiting[q]], max(index[q], np.int32(0))  # NaN has no winner: centre 0
                if labels[i] != a:
                    moved[n_moved], old[n_moved] = waiting[q], labels[i]
                    n_moved += 1
                two = best[q], best[block + q]
                _renew(x, listed[q] * d, c, d, i, a, distances[q], two, state, drift, margin)
            n_kept += count
            count = 0
        return n_kept, n_moved

    return kernel(reassign)


class SparseListed(NamedTuple):
    """CSR rows to reassign: the position of each in the rows, and in the state; read only."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    at: np.ndarray
    which: np.ndarray


class SparseCentres(NamedTuple):
    """Centres (k, d), |c|^2 of each, and the most by which a squared distance to one may err."""

    centres: np.ndarray
    norms: np.ndarray
    error: float


@kernel
def _upper(some, r, a, near):  # type: ignore[no-untyped-def]
    """Return an upper bound of the distance of row `r` to centre `a`."""
    first, stop = some.indptr[r] - some.indptr[0], some.indptr[r + 1] - some.indptr[0]
    squared = row_distance(some.data, some.indices, first, stop, near.centres[a], near.norms[a])
    return math.sqrt(squared + near.error)


@kernel
def tighten_sparse(some, state, near, drift, margin, failing, distances):  # type: ignore[no-untyped-def]
    """Measure listed rows against their own centres.

    Returns
    -------
    int
        How many rows still fail; OUT: `failing`, their indices in the list, and `distances`.
    """
    count = 0
    for s in range(some.which.shape[0]):
        i = some.which[s]
        a, u, holds = state.labels[i], np.inf, False
        if a >= 0:
            u = _upper(some, some.at[s], a, near)
            state.upper[i] = raised(u - drift[OWN, a])
            low = max(state.lower[i] - drift[OTHERS, a], drift[HALF, a])
            holds = proves(low, threshold(u * (1.0 + SAFE), margin))
        distances[count], failing[count] = u, s
        count += not holds
    return count


@kernel
def renew_sparse(some, state, near, drift, margin, failing, distances, labels, scores, out):  # type: ignore[no-untyped-def]
    """Give the listed rows at `failing` the labels and bounds of a search.

    Returns
    -------
    int
        How many rows have moved; OUT: `out`.
    """
    n_moved, k = 0, near.norms.shape[0]
    for q in range(failing.shape[0]):
        s, a, u = failing[q], labels[q], distances[q]
        i = some.which[s]
        if state.labels[i] != a:
            out.which[n_moved], out.old[n_moved] = s, state.labels[i]
            n_moved += 1
            state.labels[i] = a
            u = _upper(some, some.at[s], a, near)
        state.upper[i] = raised(u - drift[OWN, a])
        low = second_bound(u, scores[q, 0], scores[q, 1], k, margin)
        state.lower[i] = lowered(low + drift[OTHERS, a])
    return n_moved
