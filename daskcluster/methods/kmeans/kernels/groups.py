"""The tile for rows that need only some groups of centres.

A group is a run of whole panels. Rows that need a group are listed, packed and sent through its
panels together; the best two of every row and group come back, from which labels and bounds are
made. One bound a group: Ding et al., "Yinyang K-means", ICML 2015; with all centres in one group, Hamerly,
"Making k-means even faster", SDM 2010.
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
from daskcluster.methods.kmeans.kernels.bounds import HALF, OWN, lowered, raised, threshold

_SAFE = np.float32(1.0 + 2.0**-21)
"""More than the rounding of a sum of two float32 numbers, and of a distance in float64."""
_PREFETCH_DISTANCE = 1.05
"""A visited row is also compared with groups that would fail for a need that much larger: soon it
would be visited again for them."""


@kernel
def _relaxed(drifted):  # type: ignore[no-untyped-def]
    """Return the drift of groups in float32, never too small."""
    relaxed = np.empty(drifted.shape[0], np.float32)
    for g in range(drifted.shape[0]):
        relaxed[g] = raised(drifted[g])
    return relaxed


@kernel
def filter_groups(labels, upper, lower, drift, drifted, margin, failing):  # type: ignore[no-untyped-def]
    """Find the rows that need some group: whose bounds do not prove that their label stays.

    Parameters
    ----------
    labels : ndarray of shape (n,), int32
        In ``[0, k)``: not checked.
    upper, lower : ndarray of shape (n,) and (n, g), float32
        Bounds, less (plus) the drift at the time they were set.
    drift : ndarray of shape (2, k), float64
        See `daskcluster.methods.kmeans.kernels.bounds.OWN`.
    drifted : ndarray of shape (g,), float64
        Accumulated drift of the groups.
    margin : ndarray of shape (2,), float64
        Slope and constant of the scores' rounding error, see `threshold`.
    failing : ndarray of shape (n,), int64
        OUT. Ascending.

    Returns
    -------
    int
        How many.
    """
    count, relaxed = 0, _relaxed(drifted)
    if drifted.shape[0] == 1:  # without branches, in a third of the time
        for i in range(labels.shape[0]):
            squared = threshold(upper[i] + drift[OWN, labels[i]], margin)
            low = max(lower[i, 0] - drifted[0], drift[HALF, labels[i]])
            failing[count] = i
            count += not (low > 0.0 and low * low > squared)
        return count
    for i in range(labels.shape[0]):
        squared, half = threshold(upper[i] + drift[OWN, labels[i]], margin), drift[HALF, labels[i]]
        failing[count] = i
        if not (half > 0.0 and half * half > squared):
            near, bounds = raised(math.sqrt(squared)), lower[i]
            needed = False  # not a count, which takes half as long again
            for g in range(relaxed.shape[0]):
                needed |= not (bounds[g] > (near + relaxed[g]) * _SAFE)
            count += needed
    return count


@kernel
def _needs(bounds, relaxed, need, needed):  # type: ignore[no-untyped-def]
    """Note which groups may hold a centre nearer than `need`; return how many."""
    near, total = raised(need), 0
    for g in range(relaxed.shape[0]):
        needed[g] = not (bounds[g] > (near + relaxed[g]) * _SAFE)
        total += needed[g]
    return total


class Groups(NamedTuple):
    """Panels of a group; the centre of each lane, group by group; the group of each centre."""

    per_group: int
    order: np.ndarray
    group_of: np.ndarray


@cache
def reassign_groups_kernel(tile: Tile, dtype: np.dtype[Any]) -> Any:  # noqa: C901
    """Build the loop that reassigns rows, for a register tile.

    ``reassign(Listed, State, Centres, Groups, drift, drifted, margin, most, Moved)`` returns how many
    distances it computed, and how many rows moved. `most` rows are held back at a time, so that each group
    finds enough of them.
    """
    shape, height = tile_shape(tile, lanes_of(dtype), 2), tile.height
    block, line = tile.rows, 4 * lanes_of(dtype)

    def reassign(some, state, near, groups, drift, drifted, margin, most, out):  # type: ignore[no-untyped-def]  # noqa: C901
        (rows, at, which), (labels, upper, lower) = some, state
        (centres, panels, offset), (moved, old) = near, out
        per_group, order, group_of = groups
        n, d = rows.shape
        n_groups, relaxed = drifted.shape[0], _relaxed(drifted)
        x, c, panel = (
            rows.reshape(n * d),
            centres.reshape(centres.size),
            panels.reshape(panels.size),
        )
        packed, best = aligned(d * block, offset), aligned(2 * block, offset)
        index, taken = aligned(2 * block, labels), np.empty(block, np.int64)
        waiting, distances = np.empty(most, np.int64), np.empty(most)
        needed = np.ones((most, n_groups), np.uint8)
        listed = np.empty(max(most, most * n_groups // 2), np.int64)
        steps = np.empty((n_groups * (most // block + 2), 4), np.int64)
        scores = np.empty((most, n_groups, 2), offset.dtype)
        numbers = np.empty((most, n_groups), np.int32)
        places = np.empty(panels.shape[0] * d, np.int64)
        count, computed, n_moved, fetched, last = 0, 0, 0, 0, which.shape[0] - 1
        for s in range(last + 1):
            i, r = which[s], at[s]
            if s >= fetched:
                fetch_row(x, at[min(s + 2, last)] * d, d)
            a, holds = labels[i], False
            if a >= 0:
                u = math.sqrt(squared_distance(x, r * d, c, a * d, d))
                computed += 1
                distances[count] = u
                upper[i] = raised(u - drift[OWN, a])
                need = math.sqrt(threshold(u, margin)) * np.float64(_SAFE)
                holds = need < drift[HALF, a] or _needs(lower[i], relaxed, need, needed[count]) == 0
                if not holds:
                    _needs(lower[i], relaxed, need * _PREFETCH_DISTANCE, needed[count])
                needed[count, group_of[a]] = 1  # its score decides against those of other groups
            else:
                needed[count] = 1
            if not holds:
                waiting[count] = s
                count += 1
            if count == 0 or (count < most and s < last):
                continue
            fetched = list_lines(at, max(s + 1, fetched), s + 1 + 2 * block, d, line, places)
            for t in range(_plan(needed[:count], block, listed, steps)):
                first, here, g = steps[t, 0], steps[t, 1], steps[t, 2]
                computed += here * per_group * height
                if steps[t, 3]:
                    for r in range(block):
                        taken[r] = at[waiting[listed[first + min(r, here - 1)]]]
                    pack_listed_rows(x, taken, d, offset, packed, shape)
                part = g * per_group, (g + 1) * per_group
                score_listed(packed, panel, part, d, best, index, x, places, shape)
                for r in range(here):
                    q = listed[first + r]
                    needed[q, g] = 1
                    scores[q, g, 0], scores[q, g, 1] = best[r], best[block + r]
                    numbers[q, g] = index[r]
            for q in range(count):
                s_of = waiting[q]
                i = which[s_of]
                a, home = _winner(needed[q], scores[q], numbers[q], order)
                u = distances[q]
                if labels[i] != a:
                    moved[n_moved], old[n_moved] = s_of, labels[i]
                    n_moved += 1
                    labels[i] = a
                    u = math.sqrt(squared_distance(x, at[s_of] * d, c, a * d, d))
                upper[i] = raised(u - drift[OWN, a])
                _bound(needed[q], scores[q], home, u, margin, drifted, lower[i])
            count = 0
        return computed, n_moved

    return kernel(reassign)


@kernel
def _plan(needed, block, listed, steps):  # type: ignore[no-untyped-def]
    """List the rows to compare with each group: (first, count) in the list, group, whether to pack them.

    Where most groups are needed, blocks of rows are packed once and meet all groups that any of
    them needs; else each group packs the rows that need it. Returns the number of steps.
    """
    count, n_groups = needed.shape
    wanted = 0
    for q in range(count):
        for g in range(n_groups):
            wanted += needed[q, g]
    n_steps, length = 0, 0
    if 2 * wanted >= count * n_groups:
        for s in range(count):
            listed[s] = s
        for first in range(0, count, block):
            here, pack = min(block, count - first), 1
            for g in range(n_groups):
                if needed[first : first + here, g].any():
                    steps[n_steps] = first, here, g, pack
                    n_steps += 1
                    pack = 0
        return n_steps
    for g in range(n_groups):
        begin = length
        for q in range(count):
            if needed[q, g]:
                listed[length] = q
                length += 1
        for first in range(begin, length, block):
            steps[n_steps] = first, min(block, length - first), g, 1
            n_steps += 1
    return n_steps


@kernel
def _winner(needed, scores, numbers, order):  # type: ignore[no-untyped-def]
    """Return the centre with the largest score, the lowest on ties, and its group."""
    best, a, home = -np.inf, np.int32(-1), 0
    for g in range(needed.shape[0]):
        if needed[g] and numbers[g] >= 0:
            j = order[numbers[g]]  # lanes without a centre score -inf and never win
            if scores[g, 0] > best or (scores[g, 0] == best and j < a):
                best, a, home = np.float64(scores[g, 0]), j, g
    return max(a, np.int32(0)), home  # NaN has no winner: centre 0


@kernel
def _bound(needed, scores, home, nearest, margin, drifted, lower):  # type: ignore[no-untyped-def]
    """Set the lower bounds of the groups that a row was compared with."""
    base = 2.0 * nearest * nearest - threshold(nearest, margin)
    best = np.float64(scores[home, 0])
    for g in range(needed.shape[0]):
        if not needed[g]:
            continue
        score = np.float64(scores[g, 1 if g == home else 0])
        squared = base + 2.0 * (best - score)
        # An overflow proves nothing.
        low = math.sqrt(squared) if 0.0 < squared < np.inf else 0.0
        if g == home and score == -np.inf and best > -np.inf:
            low = np.inf  # no other centre in this group
        lower[g] = lowered(low + drifted[g])
