"""One lower bound per centre (Elkan, "Using the triangle inequality to accelerate k-means", 2003).

For few centres in many dimensions: a bound costs 4 bytes, a distance reads a whole row. What differs:
rows whose bounds mostly fail go through the tile instead, all centres at once, and two centres
that are within the score's rounding error of each other are left to the tile's decision.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.jit import kernel, read_only
from daskcluster.kernels.panels import Tile
from daskcluster.kernels.register_tile import all_scores_tile
from daskcluster.kernels.row_block import aligned, lanes_of, pack_listed_rows
from daskcluster.kernels.row_ops import fetch_row, rough_squared_distance
from daskcluster.kernels.search import list_lines
from daskcluster.methods.kmeans.kernels.bounds import HALF, OWN, lowered, raised, threshold

_SAFE = 1.0 + 2.0**-21
_PREFETCH_DISTANCE = 1.05
"""A row that is measured anyway is measured against centres as well whose bounds would fail for a need that
much larger: it would soon be visited again for them."""


@cache
def rough_error(d: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return by how much the root of a rough squared distance may err: relatively, and in all."""
    # One shared array; it is never written to.
    kind = np.finfo(dtype)
    return np.array([(d / 64 + 40) * float(kind.eps), 2.0 * math.sqrt(d * float(kind.tiny))])


@kernel
def span(x, at, c, centre_at, d, error):  # type: ignore[no-untyped-def]
    """Return a lower and an upper bound of a distance."""
    v = math.sqrt(rough_squared_distance(x, at, c, centre_at, d))
    # An overflow proves nothing.
    low = v * (1.0 - error[0]) - error[1] if v < np.inf else 0.0
    return max(low, 0.0), v * (1.0 + error[0]) + error[1]


@kernel
def reassign(some, state, centres, halves, drift, margin, error, left, was):  # type: ignore[no-untyped-def]
    """Measure rows where they stand; return how many are left, and how many distances were computed.

    OUT: left: which rows the tile has to decide; was: the labels before.
    """
    (rows, at, which), (labels, upper, lower) = some, state
    k, d = centres.shape
    x, c = rows.reshape(rows.size), centres.reshape(centres.size)
    relaxed = np.empty(k, np.float32)
    for j in range(k):
        relaxed[j] = raised(drift[OWN, j])
    last, n_left, computed = which.shape[0] - 1, 0, 0
    for s in range(last + 1):
        i, r = which[s], at[s]
        left[n_left] = s
        a, bounds = labels[i], lower[i]
        was[s] = a
        if a < 0 or upper[i] == np.inf:
            n_left += 1
            continue
        fetch_row(x, at[min(s + 3, last)] * d, d)
        low, u = span(x, r * d, c, a * d, d, error)
        computed += 1
        need = math.sqrt(threshold(u, margin)) * _SAFE
        doubt, failing = False, 0
        near = raised(need)
        if not need < drift[HALF, a]:
            for j in range(k):
                failing += not (bounds[j] > (near + relaxed[j]) * np.float32(_SAFE))
        if 4 * failing > k:
            failing, doubt = 0, True
        wide = need * _PREFETCH_DISTANCE
        near = raised(wide)
        for j in range(k if failing else 0):
            if bounds[j] > (near + relaxed[j]) * np.float32(_SAFE):
                continue
            if halves[a, j] > wide:
                # As far as the two centres are apart, less the way to the nearer one.
                apart = lowered(2.0 * halves[a, j] - u * _SAFE + drift[OWN, j])
                bounds[j] = max(bounds[j], apart)
                continue
            least, v = span(x, r * d, c, j * d, d, error)
            computed += 1
            bounds[j] = lowered(least + drift[OWN, j])
            if least * least > threshold(u, margin) * _SAFE:
                continue
            if not low * low > threshold(v, margin) * _SAFE:
                doubt = True
                continue
            bounds[a] = lowered(low + drift[OWN, a])
            a, low, u = j, least, v
            bounds[a] = np.inf
            wide = math.sqrt(threshold(u, margin)) * _SAFE * _PREFETCH_DISTANCE
            near = raised(wide)
        labels[i] = a
        upper[i] = raised(u - drift[OWN, a])
        n_left += doubt
    return n_left, computed


@kernel
def _winners(scores, k, best, index):  # type: ignore[no-untyped-def]
    """Find the largest of each row's k scores, that of the lowest index on ties."""
    block = best.shape[0]
    for r in range(block):
        best[r], index[r] = scores[r], 0
    for j in range(1, k):
        for r in range(block):
            score = scores[j * block + r]
            wins = score > best[r]
            best[r], index[r] = (score, j) if wins else (best[r], index[r])


@kernel
def _lower_bounds(scores, base, drift, k):  # type: ignore[no-untyped-def]
    """Put lower bounds in the place of scores, of which `base` less twice the score is the square."""
    block = base.shape[0]
    for j in range(k):
        for r in range(block):
            squared = base[r] - 2.0 * np.float64(scores[j * block + r])
            # An overflow proves nothing.
            squared = squared if 0.0 < squared < np.inf else 0.0
            scores[j * block + r] = lowered(math.sqrt(squared) + drift[OWN, j])


@cache
def probe_kernel(tile: Tile, dtype: np.dtype[Any]) -> Any:
    """Build the loop that reassigns rows, for a register tile.

    ``look(Listed, State, Centres, halves, drift, margin, error, Moved)`` returns how many distances it
    computed, and how many rows moved.
    """
    height, vectors, width, lanes = tile.height, tile.vectors, tile.width, lanes_of(dtype)
    block, line, shape = tile.rows, 4 * lanes, (vectors, width, lanes)

    def look(some, state, near, halves, drift, margin, error, out):  # type: ignore[no-untyped-def]
        (rows, at, which), (labels, upper, lower) = some, state
        (centres, panels, offset), (moved, old) = near, out
        n, d = rows.shape
        k = centres.shape[0]
        left, was = np.empty(which.shape[0], np.int64), np.empty(which.shape[0], np.int32)
        n_left, computed = reassign(some, state, centres, halves, drift, margin, error, left, was)
        x, c, panel = (
            rows.reshape(n * d),
            centres.reshape(centres.size),
            panels.reshape(panels.size),
        )
        there = np.empty(n_left, np.int64)
        for q in range(n_left):
            there[q] = at[left[q]]
        packed = aligned(d * block, offset)
        scores = aligned(panels.shape[0] * height * block, offset)
        best, base = np.empty(block, offset.dtype), np.zeros(block)
        index, listed = np.empty(block, np.int32), np.empty(block, np.int64)
        places = np.empty(panels.shape[0] * d, np.int64)
        for start in range(0, n_left, block):
            here = min(block, n_left - start)
            for r in range(block):
                listed[r] = there[start + min(r, here - 1)]
            pack_listed_rows(x, listed, d, offset, packed, shape)
            list_lines(there, start + block, start + 2 * block, d, line, places)
            for p in range(panels.shape[0]):
                all_scores_tile(
                    packed, panel, p * (d + 1) * height, d, scores, p * height * block,
                    height, vectors, width, x, places, p * d,
                )  # fmt: skip
            _winners(scores, k, best, index)
            for r in range(here):
                i, a = which[left[start + r]], index[r]
                low, u = span(x, listed[r] * d, c, a * d, d, error)
                labels[i] = a
                upper[i] = raised(u - drift[OWN, a])
                base[r] = 2.0 * low * low - threshold(u, margin) + 2.0 * np.float64(best[r])
            _lower_bounds(scores, base, drift, k)
            for r in range(here):
                bounds = lower[which[left[start + r]]]
                for j in range(k):
                    bounds[j] = scores[j * block + r]
                bounds[index[r]] = np.inf

        n_moved = 0
        for s in range(which.shape[0]):
            if labels[which[s]] != was[s]:
                moved[n_moved], old[n_moved] = s, was[s]
                n_moved += 1
        return computed + n_left * k, n_moved

    return kernel(look)


@kernel
def _half_distances(centres, error, halves):  # type: ignore[no-untyped-def]
    k, d = centres.shape
    c = centres.reshape(k * d)
    for j in range(k):
        halves[j, j] = np.inf
        for i in range(j):
            low, _up = span(c, j * d, c, i * d, d, error)
            halves[i, j] = halves[j, i] = lowered(0.5 * low)


def half_distances(centres: np.ndarray) -> np.ndarray:
    """Return lower bounds of half the distances between centres, (k, k), float32; a centre's own: inf.

    Examples
    --------
    >>> import numpy as np
    >>> half_distances(np.array([[0.0], [4.0]])).round(3).tolist()
    [[inf, 2.0], [2.0, inf]]
    """
    k, d = centres.shape
    halves = np.empty((k, k), np.float32)
    _half_distances(read_only(np.ascontiguousarray(centres)), rough_error(d, centres.dtype), halves)
    return halves
