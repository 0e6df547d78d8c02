"""Bounds of distances: the filter in front of the tile, and what the tile's winners make of it.

A row keeps an upper bound of the distance to its own centre and a lower bound of the distance to all
others (Hamerly, "Making k-means even faster", SDM 2010). What differs: both are stored *less
the drift that centres had accumulated when they were set*, so that a row whose bounds hold is neither
read nor written; and no bound decides within the rounding error of the score (`margin`), so labels
are those of the tile, always.

Bounds are float32, rounded to the safe side. All arithmetic on them is float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from daskcluster.kernels.jit import STAMP, kernel
from daskcluster.kernels.row_ops import fetch_row, squared_distance

_SAFE = 4.0 * 2.0**-24
"""Rounding a float64 to float32 errs by less than this, relatively."""
_LEAST = 2.0**-148

OWN, OTHERS, HALF = 0, 1, 2
"""Rows of `drift`: of a cluster's own centre, of the others' fastest, half the way to the nearest."""


@kernel
def raised(value):  # type: ignore[no-untyped-def]
    """Round to float32, never down."""
    return np.float32(value + abs(value) * _SAFE + _LEAST)


@kernel
def lowered(value):  # type: ignore[no-untyped-def]
    """Round to float32, never up."""
    return np.float32(value - abs(value) * _SAFE - _LEAST)


@kernel
def reach(upper, margin):  # type: ignore[no-untyped-def]
    """Return the squared distance from which on a centre cannot win, even by rounding."""
    return upper * upper + margin[0] * upper + margin[1]


@kernel
def _holds(lower, squared_reach):  # type: ignore[no-untyped-def]
    # NaN and infinity prove nothing.
    return lower > 0.0 and lower * lower > squared_reach


@kernel
def _screen(labels, upper, lower, drift, margin, failing):  # type: ignore[no-untyped-def]
    count = 0
    for i in range(labels.shape[0]):
        a = labels[i]
        u = upper[i] + drift[OWN, a]
        low = max(lower[i] - drift[OTHERS, a], drift[HALF, a])
        failing[count] = i
        count += not _holds(low, reach(u, margin))
    return count


def _build_tighten(stamp: int) -> Any:
    def tighten(  # type: ignore[no-untyped-def]
        rows, at, which, centres, labels, upper, lower, drift, margin, kept, distances, compact
    ):
        # IN: at, which: where a row stands in `rows`, and in the state. IN/OUT: upper.
        # OUT: kept, distances, compact (rows that still fail). Returns how many.
        _ = stamp
        d = rows.shape[1]
        x, c = rows.reshape(rows.size), centres.reshape(centres.size)
        count = 0
        last = which.shape[0] - 1
        for s in range(last + 1):
            i, r = which[s], at[s]
            fetch_row(x, at[min(s + 1, last)] * d, d)
            a = labels[i]
            u = math.sqrt(squared_distance(x, r * d, c, a * d, d))
            upper[i] = raised(u - drift[OWN, a])
            low = max(lower[i] - drift[OTHERS, a], drift[HALF, a])
            if _holds(low, reach(u * (1.0 + _SAFE), margin)):
                continue
            kept[count] = i
            distances[count] = u
            compact[count] = rows[r]
            count += 1
        return count

    return kernel(tighten)


def _build_settle(stamp: int) -> Any:
    def settle(  # type: ignore[no-untyped-def]
        rows, kept, winners, scores, distances, centres, labels, upper, lower, drift, margin, old
    ):
        # IN: rows (m, d), winners (m,), scores (m, 2), distances (m,) to the old centres, or (0,).
        # IN/OUT: labels, upper, lower. OUT: old (m,).
        _ = stamp
        d = rows.shape[1]
        x, c = rows.reshape(rows.size), centres.reshape(centres.size)
        for s in range(kept.shape[0]):
            i, a = kept[s], winners[s]
            old[s] = labels[i]
            if distances.shape[0] and labels[i] == a:
                u = distances[s]
            else:
                u = math.sqrt(squared_distance(x, s * d, c, a * d, d))
            labels[i] = a
            upper[i] = raised(u - drift[OWN, a])
            lower[i] = lowered(_second(u, scores[s], centres.shape[0], margin) + drift[OTHERS, a])

    return kernel(settle)


@kernel
def _second(nearest, scores, k, margin):  # type: ignore[no-untyped-def]
    """Return a lower bound of the distance to all centres but the nearest, from their scores."""
    if k == 1:
        return np.inf
    gap = np.float64(scores[0]) - np.float64(scores[1])
    squared = 2.0 * nearest * nearest - reach(nearest, margin) + 2.0 * gap
    # An overflow proves nothing.
    return math.sqrt(squared) if 0.0 < squared < np.inf else 0.0


_tighten = _build_tighten(STAMP)
_settle = _build_settle(STAMP)


def screen(
    labels: np.ndarray,
    upper: np.ndarray,
    lower: np.ndarray,
    drift: np.ndarray,
    margin: np.ndarray,
    failing: np.ndarray,
) -> int:
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
        Slope and constant of the scores' rounding error, see `reach`.
    failing : ndarray of shape (n,), int64
        OUT. Ascending.

    Returns
    -------
    int
        How many.
    """
    count: int = _screen(labels, upper, lower, drift, margin, failing)
    return count


tighten = _tighten
settle = _settle
