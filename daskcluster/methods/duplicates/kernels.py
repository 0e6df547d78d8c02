"""Compiled loops of near-duplicates: hashes, levels, limits, candidates by bounds, and exact measures.

Candidates among pairs of rows of two blocks come from products of 8-bit integers. The tile is that of
`daskcluster.kernels.pruned_search`: points are packed in panels, and only the largest bound of each row in
a panel is stored. Here the limit of a row is known before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.dot_product import (
    LEVELS,
    LINE,
    MADD,
    MADD_PAIRS,
    QUAD,
    best_dot,
    product_of_lines,
)
from daskcluster.kernels.jit import kernel, read_only
from daskcluster.kernels.panels import Tile, scores_in_panel, vector_width
from daskcluster.kernels.pruned_search import lowest_bit, rows_reaching
from daskcluster.kernels.register_tile import panel_maxima_tile
from daskcluster.kernels.row_block import aligned
from daskcluster.kernels.row_ops import squared_distance
from daskcluster.kernels.tile import working_tile


def hash_rows(rows: np.ndarray, out: np.ndarray) -> None:
    """Compute 64 bits for each row; equal for equal rows, also of 0.0 and -0.0.

    Parameters
    ----------
    rows : ndarray of shape (n, d), C-contiguous, of a native dtype of at most 8 bytes
    out : ndarray of shape (n,), uint64
        OUT.

    Examples
    --------
    >>> out = np.empty(3, np.uint64)
    >>> hash_rows(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]]), out)
    >>> bool(out[0] == out[1]), bool(out[0] == out[2])
    (True, False)
    """
    bits = rows.view(f"u{rows.itemsize}")
    sign = (1 << (8 * rows.itemsize - 1)) if rows.dtype.kind == "f" else 0
    _hash(read_only(bits), np.uint64(2**64 - 1 - sign), out)


@kernel
def _hash(bits, mask, out):  # type: ignore[no-untyped-def]
    # The finalizer of SplitMix64 (Steele, Lea, Flood, 2014) of each value and its column.
    for i in range(bits.shape[0]):
        total, step = np.uint64(0), np.uint64(0)
        for t in range(bits.shape[1]):
            step += np.uint64(0x9E3779B97F4A7C15)
            word = np.uint64(bits[i, t])
            is_there = np.uint64(1) if word & mask else np.uint64(0)
            word += step
            word ^= word >> np.uint64(30)
            word *= np.uint64(0xBF58476D1CE4E5B9)
            word ^= word >> np.uint64(27)
            word *= np.uint64(0x94D049BB133111EB)
            word ^= word >> np.uint64(31)
            total += is_there * word
        out[i] = total


@kernel
def quantize(about, step, most, levels, described):  # type: ignore[no-untyped-def]
    """Quantize rows: ``level = rint(x / step)``, clipped to ``[-most, most]``.

    OUT: levels (n, m >= d) int8; described (3, n): the length of the row, of the quantized row, and of what
    quantizing takes from it.
    """
    inverse = 1.0 / step
    for i in range(about.shape[0]):
        square, near, lost = 0.0, 0.0, 0.0
        for t in range(about.shape[1]):
            value = np.float64(about[i, t])
            level = min(max(np.rint(value * inverse), -most), most)
            gap = value - level * step
            levels[i, t] = np.int8(level)
            square += value * value
            near += level * level
            lost += gap * gap
        described[0, i] = np.sqrt(square)
        described[1, i] = step * np.sqrt(near)
        described[2, i] = np.sqrt(lost)


@kernel
def _root(parent, i):  # type: ignore[no-untyped-def]
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def _join(parent, pairs, base, joins, found):  # type: ignore[no-untyped-def]
    for m in range(pairs.shape[0]):
        first, second = _root(parent, pairs[m, 0]), _root(parent, base + pairs[m, 1])
        found[m] = first != second
        if joins:
            parent[max(first, second)] = min(first, second)


def unconnected(
    parent: np.ndarray, pairs: np.ndarray, base: int, *, connect: bool = False
) -> np.ndarray:
    """Return which pairs (m, 2) a forest does not connect, bool (m,).

    Parameters
    ----------
    parent : ndarray of shape (n,), int64
        IN/OUT. Of each node; a root is its own. Paths become shorter.
    pairs : ndarray of shape (m, 2), int32 or int64
    base : int
        Node of the second entry 0 of a pair.
    connect : bool
        Connect each pair before the next one is looked at.

    Examples
    --------
    >>> unconnected(np.arange(3), np.array([[0, 1], [1, 2], [0, 2]]), 0, connect=True).tolist()
    [True, True, False]
    """
    found = np.empty(len(pairs), bool)
    _join(parent, read_only(pairs.astype(np.int64)), base, connect, found)
    return found


_LANES = 8


@kernel
def _cosine(a, i, b, j, d, sums):  # type: ignore[no-untyped-def]
    # Eight sums in turn, in one order on any machine.
    sums[:] = 0.0
    differs = False
    for t in range(d):
        x, y, lane = np.float64(a[i + t]), np.float64(b[j + t]), t & (_LANES - 1)
        sums[0, lane] += x * y
        sums[1, lane] += x * x
        sums[2, lane] += y * y
        differs |= x != y
    if not differs:
        return 1.0
    product, first, second = 0.0, 0.0, 0.0
    for lane in range(_LANES):
        product += sums[0, lane]
        first += sums[1, lane]
        second += sums[2, lane]
    length = np.sqrt(first) * np.sqrt(second)
    return min(product / length, 1.0) if length > 0.0 else 0.0


@kernel
def _verify(rows, points, pairs, cosine, threshold, values):  # type: ignore[no-untyped-def]
    d, sums = rows.shape[1], np.zeros((3, _LANES))
    a, b = rows.reshape(rows.size), points.reshape(points.size)
    for m in range(pairs.shape[0]):
        i, j = pairs[m, 0] * d, pairs[m, 1] * d
        if cosine:
            value = _cosine(a, i, b, j, d, sums)
            is_close = value >= threshold
        else:
            value = np.sqrt(squared_distance(a, i, b, j, d))
            is_close = value <= threshold
        values[m] = value if is_close else np.nan


def verify(
    rows: np.ndarray, points: np.ndarray, pairs: np.ndarray, *, cosine: bool, threshold: float
) -> np.ndarray:
    """Return the similarity or distance of pairs, float64 (m,); NaN for pairs beyond the threshold.

    It is a function of the values of the two rows alone, computed in float64 in one order: the same on any
    machine, and the same if the two are exchanged. Equal rows have the similarity 1.

    Parameters
    ----------
    rows, points : ndarray of shape (n, d), (p, d), C-contiguous, float32 or float64
    pairs : ndarray of shape (m, 2), int32
        A row and a point each.
    cosine : bool
    threshold : float
        Least similarity, or largest distance.

    Examples
    --------
    >>> x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> pairs = np.array([[1, 0], [2, 0]], np.int32)
    >>> verify(x, x, pairs, cosine=True, threshold=0.9).round(3).tolist()
    [0.994, nan]
    """
    values = np.empty(len(pairs))
    _verify(
        read_only(rows), read_only(points), read_only(pairs), bool(cosine), float(threshold), values
    )
    return values


@kernel
def assign_keepers(starts, targets, order, keepers):  # type: ignore[no-untyped-def]
    """Keep each row in `order` that no kept row covers; OUT: keepers (n,): the kept row of each row, or -1.

    The rows close to row v are ``targets[starts[v]:starts[v + 1]]``.
    """
    keepers[:] = -1
    for v in order:
        if keepers[v] >= 0:
            continue
        keepers[v] = v
        for at in range(starts[v], starts[v + 1]):
            if keepers[targets[at]] < 0:
                keepers[targets[at]] = v


@kernel
def sort_keys(squares, lengths, between, own, keys):  # type: ignore[no-untyped-def]
    """OUT: keys (n,): the distance to the bisector of two centres `between` apart; to the centre if `own`.

    `squares` are those of distances to the other centre, `lengths` are distances to the own one.
    """
    for r in range(squares.shape[0]):
        length = np.float64(lengths[r])
        keys[r] = length
        if not own and between > 0.0:
            keys[r] = (np.float64(squares[r]) - length * length) / (2.0 * between)


@kernel
def _windows(ours, theirs, gap, windows):  # type: ignore[no-untyped-def]
    """OUT: windows (2, n): first and end of the points that may be close to each row.

    Return the number of rows up to the last that meets a point, and of points up to the last that is met.

    On the line through two centres, a row and a point on different sides of the bisector are as far apart
    as the sum of their distances to it; in one cell, distances to its centre differ by no more than that
    of two rows.
    """
    n, m = ours.shape[0], theirs.shape[0]
    first, end = 0, m
    for r in range(n):
        if gap.own:
            end = 0 if r == 0 else end
            while first < m and theirs[first] < ours[r] - gap.slack:
                first += 1
            while end < m and theirs[end] <= ours[r] + gap.slack:
                end += 1
        elif gap.between > 0.0:
            while end > 0 and theirs[end - 1] > gap.slack - ours[r]:
                end -= 1
        windows[0, r], windows[1, r] = first, min(end, r) if gap.same else end
    n_rows, n_points = 0, 0
    for r in range(n):
        if windows[0, r] < windows[1, r]:
            n_rows, n_points = r + 1, max(n_points, windows[1, r])
    return n_rows, n_points


@kernel
def meet(ours, theirs, gap, windows, limits, firsts):  # type: ignore[no-untyped-def]
    """Return how many rows and points may be close, and the largest of the first limits and first terms.

    Parameters
    ----------
    ours, theirs : (members, squares, described)
        Rows that reach the other cell, by ascending key, their squared distances to its centre, and
        `Block.described`.
    gap : `daskcluster.methods.duplicates.search.Gap`
    windows : ndarray of shape (2, n), int64
        OUT. First and end of the points of each row.
    limits, firsts : ndarray of shape (2, n), (2, m), float64
        OUT. Of heads and of all features: the product plus the first term of the point has to reach the
        limit of the row.
    """
    (i, to_b, mine), (j, to_a, its) = ours, theirs
    near, close = np.empty(len(i)), np.empty(len(j))
    sort_keys(to_b, mine[3][i], gap.between, gap.own, near)
    sort_keys(to_a, its[3][j], gap.between, gap.own, close)
    n, m = _windows(near, close, gap, windows)
    most = 0.0
    for kind in range(2):
        # |u - u'| |v'| + |u| |v - v'|, and what the axes leave: |t| |s| <= (t^2 + s^2) / 2.
        first, left = 3 * kind, 1.0 - kind
        longest, quantized = 0.0, 0.0
        for r in range(n):
            longest = max(longest, mine[first, i[r]])
        for s in range(m):
            quantized = max(quantized, its[first + 1, j[s]])
        for r in range(n):
            wanted = 0.5 * (np.float64(to_b[r]) - gap.half) - gap.error
            taken = mine[first + 2, i[r]] * quantized + left * mine[6, i[r]]
            limits[kind, r] = wanted - taken
            most = max(most, abs(limits[kind, r]) * left)
        for s in range(m):
            added = its[first + 2, j[s]] * longest + left * its[6, j[s]]
            firsts[kind, s] = added - 0.5 * (np.float64(to_a[s]) - gap.half)
            most = max(most, abs(firsts[kind, s]) * left)
    return n, m, most


NEVER = 2**31 - 1
"""Limit of a row that no bound reaches."""

_GROUP_BYTES = 192 << 10
"""Bytes of the panels that one block after the other is scored against."""

_BLOCKS = 8
"""Blocks of rows that are scored against a group of panels before the next group."""

_PAIRS_HEIGHT = 4
"""More points a panel would not leave registers for pairs of products."""

_ROOM = 1 << 18

_MANY = 1 << 20
"""One tile for all cells: its height suits many points."""


@cache
def integer_tile() -> tuple[Tile, int]:
    """Return the tile of integer bounds and its instruction; 0 if this CPU has none."""
    tile = working_tile(_MANY, np.dtype(np.float32))
    tile = replace(tile, width=vector_width(np.dtype(np.int32), tile.name))
    dot = best_dot(tile.name)
    if dot != MADD:
        return tile, dot
    # Levels of rows and points have 7 bits, so that pairs of products can be added.
    return replace(tile, height=min(tile.height, _PAIRS_HEIGHT)), MADD_PAIRS


def most_level() -> int:
    """Return the largest level of a row, on both sides of zero.

    Half of what an instruction takes, since a row may be on either side of a product.
    """
    dot = integer_tile()[1]
    return LEVELS[dot].row // 2 if dot else 127


@cache
def bias() -> int:
    """Return what is added to a level before an instruction takes it as a row's."""
    levels = LEVELS[integer_tile()[1]]
    return (levels.row + 1) // 2 - levels.shift


class BlockLevels(NamedTuple):
    """Levels of the rows of a block, as the kernel takes them.

    Attributes
    ----------
    heads : ndarray of shape (n, p), int32
        Four levels of coordinates each. Of rows, `bias` is added.
    lines : ndarray of shape (n * q,), int32
        Those of all features.
    plain : ndarray of shape (n, 4 q), int8
        The same without `bias`.
    sums : ndarray of shape (2, n), float64
        Sums of levels: of heads, and of whole lines of all features.
    """

    heads: Any
    lines: Any
    plain: Any
    sums: Any

    @classmethod
    def of(cls, heads: np.ndarray, levels: np.ndarray, sums: np.ndarray, added: int) -> BlockLevels:
        """Return the levels of a block, with `added` on heads and lines."""
        each = (heads, levels) if not added else tuple(
            (array.view(np.uint8) + np.uint8(added)) for array in (heads, levels)
        )  # fmt: skip
        head, lines = (np.ascontiguousarray(array).view(np.int32) for array in each)
        return cls(*map(read_only, (head, lines.reshape(-1), levels, sums)))


def whole_lines(n_levels: int) -> int:
    """Return how many levels of a row are in whole lines of integers."""
    return n_levels // (LINE * QUAD) * LINE * QUAD


class Meeting(NamedTuple):
    """Rows and points that are compared.

    Attributes
    ----------
    which : (ndarray of shape (n,), ndarray of shape (m,)), int32
        Rows and points, in the order of the windows.
    windows : ndarray of shape (2, n), int64
        First and end of the points that are compared with each row; blocks of rows are compared with more.
    limits, firsts : ndarray of shape (2, n), (2, m), float64
        The product of the levels plus the first term of the point has to reach the limit of the row; of
        heads, in units of the product at most 2^29 on both sides of zero, and of all features.
    scales : (float, float)
        Scales of the products of heads, and of all features.
    triangular : bool
        Rows and points are the same, and the point comes before the row.
    """

    which: Any
    windows: Any
    limits: Any
    firsts: Any
    scales: tuple[float, float]
    triangular: bool


@cache
def _candidates_kernel(tile: Tile, dot: int, added: int) -> Any:
    height, vectors, width = tile.height, tile.vectors, tile.width
    block = vectors * width

    shape = height, vectors, width, dot, added

    def candidates(rows, points, meeting, start, found):  # type: ignore[no-untyped-def]
        # OUT: found (m, 2). Return how many candidates, and the row that comes next.
        n, n_points = meeting.which[0].shape[0], meeting.which[1].shape[0]
        features, n_found = rows.heads.shape[1], 0
        n_panels = -(-n_points // height)
        panels = aligned(n_panels * (features + 1) * height, rows.heads)
        _fill_panels(points, meeting, panels, shape)
        words = aligned(_BLOCKS * features * block, rows.heads)
        maxima = aligned(_BLOCKS * n_panels * block, rows.heads)
        asked, scores = aligned(block, rows.heads), np.empty(2 * height, np.int32)
        windows = np.empty((_BLOCKS, 2), np.int64)
        while start < n:
            here = min(_BLOCKS, -(-(n - start) // block))
            _pack(rows.heads, meeting, start, here, words, windows, shape)
            _score(words, panels, (features, n_panels), windows, here, maxima, shape)
            for b in range(here):
                if n_found + block * n_points > found.shape[0]:
                    return n_found, start
                for r in range(block):
                    asked[r] = NEVER
                    if start + r < n:
                        limit = meeting.limits[0, start + r] / meeting.scales[0]
                        # Down for limits and up for first terms, so that no candidate is missed.
                        asked[r] = np.int32(np.floor(limit) - 1.0)
                sizes, room = (features, n_panels), (asked, scores, found)
                block_of = words, panels, maxima, b, windows
                n_found = _look(block_of, start, sizes, rows, points, meeting, room, n_found, shape)
                start += block
        return n_found, n

    return kernel(candidates)


@kernel
def _score(words, panels, sizes, windows, here, maxima, shape):  # type: ignore[no-untyped-def]
    """OUT: maxima: the largest bound of each row of some blocks in each panel of the block's window."""
    (features, n_panels), (height, vectors, width, dot, _) = sizes, shape
    block, size = vectors * width, (features + 1) * height
    group = max(1, _GROUP_BYTES // (4 * size))
    for low in range(0, n_panels, group):
        for b in range(here):
            first, last = max(low, windows[b, 0]), min(low + group, windows[b, 1])
            panel_maxima_tile(
                words, b * features * block, panels, first * size, features,
                maxima, (b * n_panels + first) * block, last - first, height, vectors, width, dot,
            )  # fmt: skip


@kernel
def _look(block_of, start, sizes, rows, points, meeting, room, n_found, shape):  # type: ignore[no-untyped-def]
    """OUT: found: pairs of a block whose bounds of both kinds reach the limit; return their number.

    `block_of` is (words, panels, maxima, number of the block in them, windows), `room` is (limits of the
    rows, scores of a panel, found).
    """
    (words, panels, maxima, b, windows), (features, n_panels) = block_of, sizes
    (asked, scores, found), (height, vectors, width, dot, _) = room, shape
    block, size, n_points = vectors * width, (features + 1) * height, len(meeting.which[1])
    for p in range(windows[b, 0], windows[b, 1]):
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
                if point >= n_points or (meeting.triangular and point >= start + r):
                    continue
                if _reaches(rows, points, meeting, start + r, point, shape):
                    found[n_found, 0], found[n_found, 1] = start + r, point
                    n_found += 1
    return n_found


@kernel
def _reaches(rows, points, meeting, row, point, shape):  # type: ignore[no-untyped-def]
    """Return whether the bound of all features reaches the limit."""
    (_, _, _, dot, added), n_levels = shape, rows.plain.shape[1]
    r, s = meeting.which[0][row], meeting.which[1][point]
    size, whole = n_levels // QUAD, n_levels // (LINE * QUAD) * LINE
    total = np.int32(0)
    if whole > 0:
        total = product_of_lines(rows.lines, r * size, points.lines, s * size, whole, dot)
        total -= np.int32(added * points.sums[1, s])
    for t in range(QUAD * whole, n_levels):
        total += np.int32(rows.plain[r, t]) * np.int32(points.plain[s, t])
    return meeting.scales[1] * total >= meeting.limits[1, row] - meeting.firsts[1, point]


@kernel
def _fill_panels(points, meeting, panels, shape):  # type: ignore[no-untyped-def]
    height, added, which = shape[0], shape[4], meeting.which[1]
    n, features = which.shape[0], points.heads.shape[1]
    for p in range(-(-n // height)):
        at = p * (features + 1) * height
        panel = panels[at : at + (features + 1) * height].reshape((features + 1, height))
        for j in range(height):
            if p * height + j >= n:
                panel[0, j], panel[1:, j] = -NEVER, 0
                continue
            point = which[p * height + j]
            first = np.ceil(meeting.firsts[0, p * height + j] / meeting.scales[0]) + 1.0
            panel[0, j] = np.int32(first - added * points.sums[0, point])
            heads = points.heads[point]
            for t in range(features):
                panel[1 + t, j] = heads[t]


@kernel
def _pack(heads, meeting, start, here, words, windows, shape):  # type: ignore[no-untyped-def]
    """OUT: words: the rows of some blocks, one in each lane; windows: the panels that each block meets."""
    height, block, which = shape[0], shape[1] * shape[2], meeting.which[0]
    n, features = which.shape[0], heads.shape[1]
    for b in range(here):
        least, most = meeting.windows[0, start + b * block], 0
        for r in range(block):
            row = min(start + b * block + r, n - 1)
            least = min(least, meeting.windows[0, row])
            most = max(most, meeting.windows[1, row])
            of_row, at = heads[which[row]], b * features * block + r
            for t in range(features):
                words[at + t * block] = of_row[t]
        windows[b, 0], windows[b, 1] = least // height, -(-most // height)


def integer_candidates(
    rows: BlockLevels, points: BlockLevels, meeting: Meeting
) -> Iterator[np.ndarray]:
    """Yield the pairs (m, 2) of rows and points whose bounds reach the limits.

    Parameters
    ----------
    rows, points : BlockLevels
        At most `most_level` on both sides of zero; those of rows with `bias`.
    meeting : Meeting
    """
    (tile, dot), start = integer_tile(), 0
    kernel_of_tile = _candidates_kernel(tile, dot, bias())
    # Those of the rows of one tile need room at least.
    room = np.empty((max(_ROOM, tile.rows * len(meeting.which[1])), 2), np.int32)
    while start < len(meeting.which[0]):
        n, start = kernel_of_tile(rows, points, meeting, start, room)
        yield room[:n]


def padded(n_features: int) -> int:
    """Return the number of levels of a row: an even number of integers of four."""
    return -(-n_features // (2 * QUAD)) * 2 * QUAD
