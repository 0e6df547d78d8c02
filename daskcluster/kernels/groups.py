"""The tile for rows that need only some groups of centres.

A group is a run of whole panels. Rows that need a group are listed, packed and sent through its
panels together; the best two of every row and group come back, from which labels and bounds are
made (`settle_groups`). One bound a group: Ding et al., "Yinyang K-means", ICML 2015.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.bounds import HALF, OWN, lowered, raised, reach
from daskcluster.kernels.jit import STAMP, kernel
from daskcluster.kernels.panels import PORTABLE, Tile
from daskcluster.kernels.portable import build_portable_groups
from daskcluster.kernels.register_tile import score_tile
from daskcluster.kernels.row_block import aligned, lanes_of, pack_listed
from daskcluster.kernels.row_ops import fetch_row, squared_distance

_SAFE = np.float32(1.0 + 2.0**-21)
"""More than the rounding of a sum of two float32 numbers, and of a distance in float64."""


@kernel
def screen_groups(labels, upper, lower, drift, relaxed, margin, failing):  # type: ignore[no-untyped-def]
    """Find the rows that need some group; as `daskcluster.kernels.bounds.screen`.

    `lower` has shape (n, g), `relaxed` (g,), float32, is the accumulated drift of the groups.
    """
    count = 0
    for i in range(labels.shape[0]):
        need = math.sqrt(reach(upper[i] + drift[OWN, labels[i]], margin))
        failing[count] = i
        if not need < drift[HALF, labels[i]]:
            near, bounds = raised(need), lower[i]
            needed = 0
            for g in range(relaxed.shape[0]):
                needed += not (bounds[g] > (near + relaxed[g]) * _SAFE)
            count += needed > 0
    return count


def _build_tighten(stamp: int) -> Any:
    def tighten(  # type: ignore[no-untyped-def]
        rows, at, which, centres, labels, upper, lower, drift, relaxed, margin, group_of,
        kept, distances, compact, needed,
    ):  # fmt: skip
        # As `daskcluster.kernels.bounds.tighten`. OUT besides: needed (m, g), which groups a row needs.
        _ = stamp
        d, n_groups = rows.shape[1], relaxed.shape[0]
        x, c = rows.reshape(rows.size), centres.reshape(centres.size)
        last, count = which.shape[0] - 1, 0
        for s in range(last + 1):
            i, r = which[s], at[s]
            fetch_row(x, at[min(s + 1, last)] * d, d)
            a = labels[i]
            u = math.sqrt(squared_distance(x, r * d, c, a * d, d))
            upper[i] = raised(u - drift[OWN, a])
            need = math.sqrt(reach(u, margin)) * np.float64(_SAFE)
            if need < drift[HALF, a]:
                continue
            near, bounds, wanted, total = raised(need), lower[i], needed[count], 0
            for g in range(n_groups):
                wanted[g] = not (bounds[g] > (near + relaxed[g]) * _SAFE)
                total += wanted[g]
            if total == 0:
                continue
            wanted[group_of[a]] = 1  # its score decides against those of other groups
            kept[count] = i
            distances[count] = u
            compact[count] = rows[r]
            count += 1
        return count

    return kernel(tighten)


tighten_groups = _build_tighten(STAMP)


@cache
def group_kernel(tile: Tile, dtype: np.dtype[Any]) -> Any:
    """Build the search for a tile; it returns how many distances it computed."""
    if tile == PORTABLE:
        return build_portable_groups(tile.height, tile.width, STAMP)
    return _build(tile.height, tile.vectors, tile.width, lanes_of(dtype), STAMP)


def _build(height: int, vectors: int, width: int, lanes: int, stamp: int) -> Any:
    block = vectors * width

    def search(rows, needed, panels, per_group, offset, scores, numbers):  # type: ignore[no-untyped-def]
        # IN: needed (m, g). OUT: scores (m, g, 2), numbers (m, g): the best two of each needed group.
        _ = stamp
        m, d = rows.shape
        flat, panel = rows.reshape(m * d), panels.reshape(panels.size)
        packed, best = aligned(d * block, offset), aligned(2 * block, offset)
        index, listed = aligned(2 * block, numbers), np.empty(m + block, np.int64)
        computed = 0
        for g in range(needed.shape[1]):
            count = 0
            for s in range(m):
                listed[count] = s
                count += needed[s, g]
            computed += count
            for r in range(count, -(-count // block) * block):
                listed[r] = listed[count - 1]
            for first in range(0, count, block):
                if d < lanes:
                    _pack_listed_few(rows, listed, first, offset, packed, block)
                else:
                    pack_listed(flat, listed, first, d, offset, packed, 0, vectors, width)
                best[:] = -np.inf
                index[:] = -1
                for p in range(g * per_group, (g + 1) * per_group):
                    at, number = p * (d + 1) * height, np.int32(p * height)
                    score_tile(
                        packed, 0, panel, at, d, number, best, index, 0,
                        height, vectors, width, 2, flat, 0, 0,
                    )  # fmt: skip
                for r in range(min(block, count - first)):
                    s = listed[first + r]
                    scores[s, g, 0] = best[r]
                    scores[s, g, 1] = best[block + r]
                    numbers[s, g] = index[r]
        return computed * per_group * height

    return kernel(search)


@kernel
def _pack_listed_few(rows, listed, first, offset, packed, block):  # type: ignore[no-untyped-def]
    for r in range(block):
        row = rows[listed[first + r]]
        for t in range(rows.shape[1]):
            packed[t * block + r] = row[t] - offset[t]


def _build_settle(stamp: int) -> Any:
    def settle(  # type: ignore[no-untyped-def]
        rows, kept, needed, scores, numbers, order, distances, centres, labels, upper, lower,
        drift, set_back, margin, old, winners,
    ):  # fmt: skip
        # IN: order (slots,): the centre in each lane of the panels. IN/OUT: labels, upper, lower.
        # OUT: old (m,), winners (m,).
        _ = stamp
        d, n_groups = rows.shape[1], needed.shape[1]
        x, c = rows.reshape(rows.size), centres.reshape(centres.size)
        for s in range(kept.shape[0]):
            i = kept[s]
            best, a, home = -np.inf, np.int32(-1), 0
            for g in range(n_groups):
                if needed[s, g] and numbers[s, g] >= 0:
                    j = order[numbers[s, g]]  # lanes without a centre score -inf and never win
                    # The tile's rule: the larger score, the lowest index on ties.
                    if scores[s, g, 0] > best or (scores[s, g, 0] == best and j < a):
                        best, a, home = np.float64(scores[s, g, 0]), j, g
            a = max(a, np.int32(0))  # NaN has no winner: centre 0
            old[s], winners[s] = labels[i], a
            if distances.shape[0] and labels[i] == a:
                u = distances[s]
            else:
                u = math.sqrt(squared_distance(x, s * d, c, a * d, d))
            labels[i] = a
            upper[i] = raised(u - drift[OWN, a])
            for g in range(n_groups):
                if needed[s, g]:
                    rank = 1 if g == home else 0
                    low = _distance_below(u, best, np.float64(scores[s, g, rank]), margin)
                    if rank == 1 and scores[s, g, 1] == -np.inf and scores[s, g, 0] > -np.inf:
                        low = np.inf  # nobody else in this group
                    lower[i, g] = lowered(low + set_back[g])

    return kernel(settle)


@kernel
def _distance_below(nearest, best, score, margin):  # type: ignore[no-untyped-def]
    """Return a lower bound of the distance to a centre from its score and the best one's."""
    squared = 2.0 * nearest * nearest - reach(nearest, margin) + 2.0 * (best - score)
    # An overflow proves nothing.
    return math.sqrt(squared) if 0.0 < squared < np.inf else 0.0


settle_groups = _build_settle(STAMP)

__all__ = ["group_kernel", "screen_groups", "settle_groups", "tighten_groups"]
