"""Loops around the tile: each block of rows is packed once and scored against every panel in cache.

A block's packed rows stay in L1 or L2 while the panels are streamed. If all panels together exceed L2,
several blocks are packed at once and scored against one group of panels after the other; their winners are
held in scratch. Every loop scores rows with `score_block`, or listed rows with `score_listed`.

The portable tile is a plain loop that runs on any CPU. Its inner loop runs over 256 rows at a time, so that
sums, rows and winners stay in L1; four centres by four features are unrolled. Each step is an explicit FMA,
never a multiplication and an addition, so the bits are those of the intrinsic tiles. If the compilation
target has no FMA, each step is a call of the C library, which also rounds once. That is 13 times slower on
a CPU that does have FMA, and more on one that has not, but labels are the same on every worker.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba.extending import intrinsic

from daskcluster.kernels import emit
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import PORTABLE, Tile, place_in_panel
from daskcluster.kernels.register_tile import score_tile
from daskcluster.kernels.row_block import aligned, first_row, pack_rows


def build_portable(height: int, width: int, keep: int) -> Any:
    """Build the search of `daskcluster.kernels.search` without intrinsics (height must be 4)."""

    def search(rows, panels, offset, labels, second, scores, blocks, group):  # type: ignore[no-untyped-def]
        n, d = rows.shape
        packed = np.empty((d, width), offset.dtype)
        sums = np.empty((4, width), offset.dtype)
        best = np.empty((2, width), offset.dtype)
        index = np.empty((2, width), np.int32)
        for start in range(0, n, width):
            count = min(width, n - start)
            _pack_rows(rows, start, count, offset, packed)
            best[:] = -np.inf
            index[0] = -1
            index[1] = -1
            for p in range(panels.shape[0]):
                _score(packed, panels[p], sums)
                for r in range(height):
                    _keep(sums[r], np.int32(p * height + r), keep, best, index)
            for r in range(count):
                labels[start + r] = max(index[0, r], 0)
                if keep == 2:
                    second[start + r] = index[1, r]
                if scores.shape[0]:
                    for rank in range(keep):
                        scores[start + r, rank] = best[rank, r]

    return kernel(search)


@kernel
def _pack_rows(rows, start, count, offset, packed):  # type: ignore[no-untyped-def]
    packed[:] = 0.0
    for r in range(count):
        for t in range(offset.shape[0]):
            packed[t, r] = rows[start + r, t] - offset[t]


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of three floats of one type, rounded once."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit.fma(builder, *args)

    return a(a, a, a), codegen


@kernel
def _score(packed, panel, sums):  # type: ignore[no-untyped-def]
    d, width = packed.shape
    for r in range(4):
        for i in range(width):
            sums[r, i] = panel[r]
    whole = d - d % 4
    for t in range(0, whole, 4):
        for r in range(4):
            at = 4 * (t + 1) + r
            c0, c1, c2, c3 = panel[at], panel[at + 4], panel[at + 8], panel[at + 12]
            for i in range(width):
                s = fma(packed[t, i], c0, sums[r, i])
                s = fma(packed[t + 1, i], c1, s)
                s = fma(packed[t + 2, i], c2, s)
                sums[r, i] = fma(packed[t + 3, i], c3, s)
    for t in range(whole, d):
        for r in range(4):
            c0 = panel[4 * (t + 1) + r]
            for i in range(width):
                sums[r, i] = fma(packed[t, i], c0, sums[r, i])


@kernel
def _keep(score, number, keep, best, index):  # type: ignore[no-untyped-def]
    for i in range(score.shape[0]):
        s = score[i]
        if s > best[0, i]:
            best[1, i] = best[0, i]
            index[1, i] = index[0, i]
            best[0, i] = s
            index[0, i] = number
        elif keep == 2 and s > best[1, i]:
            best[1, i] = s
            index[1, i] = number


FETCHING = 8
"""The first panels of a block prefetch the next rows, a share each."""

Shape = tuple[int, int, int, int, int]
"""(vectors, width, lanes, height, keep): `lanes` elements fill 128 bits, `keep` as in `score_tile`."""


def tile_shape(tile: Tile, lanes: int, keep: int) -> Shape:
    """Return the constants in the closure of kernels that score rows with a register tile."""
    return tile.vectors, tile.width, lanes, tile.height, keep


@cache
def search_kernel(tile: Tile, lanes: int, keep: int, *, two_stage: bool = False) -> Any:
    """Build the search for a tile that keeps the `keep` best; `lanes` elements fill 128 bits.

    With `two_stage`, find the winning panel first, and then the best centre in it.
    """
    if tile == PORTABLE:
        return build_portable(tile.height, tile.width, keep)
    shape = tile_shape(tile, lanes, 0 if two_stage else keep)
    block = tile.rows

    def search(rows, panels, offset, labels, second, scores, blocks, group):  # type: ignore[no-untyped-def]
        # OUT: labels (n,), and with keep = 2 second (n,) and, unless empty, scores (n, 2).
        # `blocks` row blocks are packed at once and scored against `group` panels at a time.
        n, d = rows.shape
        flat, panel = rows.reshape(n * d), panels.reshape(panels.size)
        packed = aligned(blocks * d * block, offset)
        best = aligned(blocks * keep * block, offset)
        index = aligned(blocks * keep * block, labels)
        fetching = min(panels.shape[0], FETCHING)
        share = -(-block // fetching)
        for start in range(0, n, blocks * block):
            here = min(blocks, -(-(n - start) // block))
            best[:] = -np.inf
            index[:] = -1
            for b in range(here):
                first = first_row(start + b * block, block, n)
                pack_rows(flat, n, d, first, offset, packed, b * d * block, shape)
            for low in range(0, panels.shape[0], group):
                part = low, min(low + group, panels.shape[0])
                for b in range(here):
                    prefetched = (start + (blocks + b) * block) * d, share, fetching
                    score_block(packed, b, panel, part, d, best, index, flat, prefetched, shape)
            for b in range(here):
                if two_stage:
                    place_winners(packed, b, panel, d, best, index, shape)
                first, base = start + b * block, b * keep * block
                _unload(first, block, base, keep, best, index, labels, second, scores)

    return kernel(search)


@kernel
def score_block(packed, b, panel, part, d, best, index, flat, prefetched, shape):  # type: ignore[no-untyped-def]
    """Score packed block `b` against the panels ``part[0]`` to ``part[1]``; IN/OUT: best, index.

    `prefetched`: start in `flat` of the rows to prefetch, elements per panel, and number of panels.
    """
    (vectors, width, _, height, keep), (prefetch, share, fetching) = shape, prefetched
    block = vectors * width
    at, to = b * d * block, b * max(keep, 1) * block
    for p in range(part[0], part[1]):
        place, number = p * (d + 1) * height, np.int32(p * height)
        if fetching > 1 and p < fetching:
            score_tile(
                packed, at, panel, place, d, number, best, index, to,
                height, vectors, width, keep, flat, prefetch + p * share * d, share,
            )  # fmt: skip
        else:
            score_tile(
                packed, at, panel, place, d, number, best, index, to,
                height, vectors, width, keep, flat, 0, 0,
            )  # fmt: skip


@kernel
def place_winners(packed, b, panel, d, best, index, shape):  # type: ignore[no-untyped-def]
    """Find the winners of packed block `b` in the panels that won; IN/OUT: index."""
    vectors, width, _, height, _ = shape
    block = vectors * width
    for r in range(b * block, (b + 1) * block):
        if best[r] > -np.inf:  # NaN rows have no winner
            at, number = b * d * block + r - b * block, index[r]
            index[r] = number + place_in_panel(
                packed, at, panel, number * (d + 1), d, best, r, height, block
            )


@kernel
def _unload(first, block, base, keep, best, index, labels, second, scores):  # type: ignore[no-untyped-def]
    """Copy the winners of a packed block to the rows' results."""
    n = labels.shape[0]
    first = first_row(first, block, n)
    count = min(block, n)
    for r in range(count):
        labels[first + r] = max(index[base + r], 0)  # NaN rows have no winner: centre 0
    if keep == 2:
        for r in range(count):
            second[first + r] = index[base + block + r]
    if scores.shape[0]:
        for rank in range(keep):
            for r in range(count):
                scores[first + r, rank] = best[base + rank * block + r]


@kernel
def score_listed(packed, panel, part, d, best, index, flat, places, shape):  # type: ignore[no-untyped-def]
    """Score a packed block of rows against the panels ``part[0]`` to ``part[1]``.

    OUT: best and index, see `score_tile`; -1 if no centre wins. Prefetches ``flat[places]``, d of them per
    panel.
    """
    vectors, width, _, height, keep = shape
    best[:] = -np.inf
    index[:] = -1
    for p in range(part[0], part[1]):
        score_tile(
            packed, 0, panel, p * (d + 1) * height, d, np.int32(p * height), best, index, 0,
            height, vectors, width, keep, flat, p * d, places,
        )  # fmt: skip


@kernel
def list_lines(at, first, stop, d, line, places):  # type: ignore[no-untyped-def]
    """List the starts of the cache lines of the next rows, as many as fit; return the next row."""
    stop = min(stop, at.shape[0], first + places.shape[0] // (d // line + 1))
    count = 0
    for s in range(first, stop):
        for t in range(0, d, line):
            places[count] = at[s] * d + t
            count += 1
    # The rest of the list repeats the last line, which is already fetched.
    places[count:] = places[count - 1] if count else 0
    return max(first, stop)
