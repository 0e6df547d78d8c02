"""Candidates among pairs of rows of two blocks, by bounds from products of 8-bit integers.

The tile is that of `daskcluster.kernels.pruned_search`: points are packed in panels, and only the largest
bound of each row in a panel is stored. Here the limit of a row is known before.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.dot_product import LEVELS, QUAD, best_dot
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panel_maxima import lowest_bit, rows_reaching
from daskcluster.kernels.panels import Tile, scores_in_panel, vector_width
from daskcluster.kernels.register_tile import panel_maxima_tile
from daskcluster.kernels.row_block import aligned
from daskcluster.kernels.tile import working_tile

NEVER = 2**31 - 1
"""Limit of a row that no bound reaches."""

_GROUP_BYTES = 192 << 10
"""Bytes of the panels that one block after the other is scored against."""

_BLOCKS = 8
"""Blocks of rows that are scored against a group of panels before the next group."""

_MANY = 1 << 20
"""One tile for all cells: its height suits many points."""


@cache
def integer_tile() -> tuple[Tile, int]:
    """Return the tile of integer bounds and its instruction; 0 if this CPU has none."""
    tile = working_tile(_MANY, np.dtype(np.float32))
    return replace(tile, width=vector_width(np.dtype(np.int32), tile.name)), best_dot(tile.name)


def most_level() -> int:
    """Return the largest level of a row, on both sides of zero.

    Half of what an instruction takes, since a row may be on either side of a product.
    """
    dot = integer_tile()[1]
    return LEVELS[dot].row // 2 if dot else 127


@cache
def _candidates_kernel(tile: Tile, dot: int) -> Any:
    height, vectors, width = tile.height, tile.vectors, tile.width
    block = vectors * width

    shape = height, vectors, width, dot

    def candidates(coarse, fine, windows, triangular, start, found):  # type: ignore[no-untyped-def]
        # OUT: found (m, 2). Return how many candidates, and the row that comes next.
        (rows, limits, points, firsts), n_found = coarse, 0
        (n, features), n_points = rows.shape, points.shape[0]
        n_panels = -(-n_points // height)
        panels = aligned(n_panels * (features + 1) * height, rows)
        _fill_panels(points, firsts, panels, height)
        words = aligned(_BLOCKS * features * block, rows)
        maxima = aligned(_BLOCKS * n_panels * block, rows)
        asked, scores = aligned(block, rows), np.empty(2 * height, np.int32)
        while start < n:
            here = min(_BLOCKS, -(-(n - start) // block))
            _pack(rows, start, here, words, block)
            _score(
                words, panels, (features, n_panels), windows, start // block, here, maxima, shape
            )
            for b in range(here):
                if n_found + block * n_points > found.shape[0]:
                    return n_found, start
                for r in range(block):
                    asked[r] = limits[start + r] if start + r < n else NEVER
                window, room = windows[start // block], (asked, scores, found)
                sizes = features, n_panels, n_points
                block_of = words, panels, maxima, b
                n_found = _look(
                    block_of, start, sizes, window, fine, triangular, room, n_found, shape
                )
                start += block
        return n_found, n

    return kernel(candidates)


@kernel
def _score(words, panels, sizes, windows, ahead, here, maxima, shape):  # type: ignore[no-untyped-def]
    """OUT: maxima: the largest bound of each row of some blocks in each panel of the block's window."""
    (features, n_panels), (height, vectors, width, dot) = sizes, shape
    block, size = vectors * width, (features + 1) * height
    group = max(1, _GROUP_BYTES // (4 * size))
    for low in range(0, n_panels, group):
        for b in range(here):
            first, last = windows[ahead + b]
            for p in range(max(low, first), min(low + group, last)):
                panel_maxima_tile(
                    words, b * features * block, panels, p * size, features,
                    maxima, (b * n_panels + p) * block, height, vectors, width, dot,
                )  # fmt: skip


@kernel
def _look(block_of, start, sizes, window, fine, triangular, room, n_found, shape):  # type: ignore[no-untyped-def]
    """OUT: found: pairs of a block whose bounds of both kinds reach the limit; return their number.

    `block_of` is (words, panels, maxima, number of the block in them), `room` is (limits of the rows,
    scores of a panel, found).
    """
    (words, panels, maxima, b), (features, n_panels, n_points) = block_of, sizes
    (asked, scores, found), (height, vectors, width, dot) = room, shape
    block, size = vectors * width, (features + 1) * height
    for p in range(window[0], window[1]):
        mask = rows_reaching(maxima, (b * n_panels + p) * block, asked, vectors, width)
        while mask != 0:
            r = lowest_bit(mask)
            mask &= mask - 1
            reaching = scores_in_panel(
                words, b * features * block + r, panels, p * size, features, scores,
                height, block, asked[r], dot,
            )  # fmt: skip
            while reaching != 0:
                point = p * height + lowest_bit(reaching)
                reaching &= reaching - 1
                is_new = point < start + r or not triangular
                if point < n_points and is_new and _reaches(fine, start + r, point):
                    found[n_found, 0], found[n_found, 1] = start + r, point
                    n_found += 1
    return n_found


@kernel
def _reaches(fine, row, point):  # type: ignore[no-untyped-def]
    """Return whether the bound of all features reaches the limit."""
    levels, limits, others, firsts, which, scale = fine
    total, ours, theirs = np.int32(0), levels[which[0][row]], others[which[1][point]]
    for t in range(ours.shape[0]):
        total += np.int32(ours[t]) * np.int32(theirs[t])
    return scale * total >= limits[row] - firsts[point]


@kernel
def _fill_panels(points, firsts, panels, height):  # type: ignore[no-untyped-def]
    n, features = points.shape
    size = (features + 1) * height
    panels[:] = 0
    for i in range(-(-n // height) * height):
        at = i // height * size + i % height
        panels[at] = firsts[i] if i < n else -NEVER
        if i < n:
            for t in range(features):
                panels[at + (t + 1) * height] = points[i, t]


@kernel
def _pack(rows, start, here, words, block):  # type: ignore[no-untyped-def]
    n, features = rows.shape
    for b in range(here):
        for r in range(block):
            i = min(start + b * block + r, n - 1)
            for t in range(features):
                words[(b * features + t) * block + r] = rows[i, t]


class FineBounds(NamedTuple):
    """Levels of all features. A pair is a candidate if its bound reaches the limit.

    Attributes
    ----------
    levels : ndarray of shape (n, m), int8
    limits : ndarray of shape (r,), float64
        Of the rows that are compared.
    others : ndarray of shape (p, m), int8
    firsts : ndarray of shape (q,), float64
        Of the points that are compared.
    which : (ndarray of shape (r,), ndarray of shape (q,)), int32
        Which rows and points are compared.
    scale : float
        Of the products of levels.
    """

    levels: np.ndarray
    limits: np.ndarray
    others: np.ndarray
    firsts: np.ndarray
    which: tuple[np.ndarray, np.ndarray]
    scale: float


class IntegerBounds:
    """Levels of few coordinates of rows and points, of which the pairs that reach a limit are candidates.

    Parameters
    ----------
    rows, points : ndarray of shape (n, 4 q), (m, 4 q), int8
        Levels, at most `most_level` on both sides of zero.
    limits, firsts : ndarray of shape (n,), (m,), float64
        The product of the levels plus the first term of the point has to reach the limit of the row. At
        most 2^29 on both sides of zero.
    fine : FineBounds
        What candidates have to reach as well.
    windows : (ndarray of shape (n,), ndarray of shape (n,)), int64
        First and end of the points that are compared with each row; blocks of rows are compared with more.
    """

    def __init__(
        self,
        rows: np.ndarray,
        limits: np.ndarray,
        points: np.ndarray,
        firsts: np.ndarray,
        fine: FineBounds,
        windows: tuple[np.ndarray, np.ndarray],
    ) -> None:
        tile, dot = integer_tile()
        levels = LEVELS[dot]
        # What is added to a level before an instruction takes it as a row's.
        bias = (levels.row + 1) // 2 - levels.shift
        sums = points.sum(axis=1, dtype=np.int64)
        # Down for limits and up for first terms, so that no candidate is missed.
        coarse = (
            (rows.view(np.uint8) + np.uint8(bias)).view(np.int32),
            (np.floor(limits) - 1.0).astype(np.int32),
            np.ascontiguousarray(points).view(np.int32),
            (np.ceil(firsts) + 1.0 - bias * sums).astype(np.int32),
        )
        self._coarse = tuple(map(read_only, coarse))
        kept = [read_only(each) for each in fine[:4]]
        self._fine = (*kept, tuple(map(read_only, fine.which)), float(fine.scale))
        blocks = np.arange(0, len(rows), tile.rows)
        least = np.minimum.reduceat(windows[0], blocks)
        most = np.maximum.reduceat(windows[1], blocks)
        self._windows = np.stack([least // tile.height, -(-most // tile.height)], axis=1)
        self._kernel = _candidates_kernel(tile, dot)
        self.room = tile.rows * len(points)
        """Least pairs that `candidates` needs room for."""

    def candidates(
        self, start: int, *, triangular: bool, found: np.ndarray
    ) -> tuple[np.ndarray, int]:
        """Return pairs (m, 2) of rows from `start` on and points, and the row to continue with.

        Rows and points are the same if `triangular`, and the point comes before the row then.
        """
        n, next_row = self._kernel(
            self._coarse, self._fine, read_only(self._windows), triangular, start, found
        )
        return found[:n], next_row


def padded(n_features: int) -> int:
    """Return the number of levels of a row: whole integers of four."""
    return -(-n_features // QUAD) * QUAD
