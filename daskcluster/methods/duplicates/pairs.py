"""Pairs of near-duplicates between two blocks of rows.

A pair of rows x, y within r of each other, x in cell a and y in cell b, is near the bisector of the two
centres: ``(|x - b|^2 - |x - a|^2) / (2 |a - b|) <= r``, and so is y. With u = x - a and v = y - b,

    |x - y|^2 = |x - b|^2 + |y - a|^2 - |a - b|^2 - 2 u.v,

so bounds of u.v from 8-bit integers rule nearly all pairs of these rows out: first from coordinates on a
few axes, then from all features. The others are measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskcluster.methods.duplicates.chunkwise import ROUNDING, Block, Rule, computed_list
from daskcluster.methods.duplicates.kernels.bounds import FineBounds, IntegerBounds, integer_tile
from daskcluster.methods.duplicates.kernels.rows import connect, unconnected, verify

_SLICE_ROWS = 512
_MOST_INTEGER = 2.0**29
_MOST_FEATURES = 30_000
"""With more, sums of products of levels might overflow."""
_ROOM = 1 << 18


@dataclass(frozen=True)
class Side:
    """A block in a comparison.

    Attributes
    ----------
    cell : int
    block : Block
    load : callable () -> ndarray of shape (n, d)
        Returns its rows, in any dtype; called if a candidate is to be measured.
    """

    cell: int
    block: Block
    load: Callable[[], np.ndarray]

    def sorted(self, cell: int, between: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows that reach a cell, their squared distances to its centre, and keys; by key.

        The key is the distance to the bisector of the two centres, `between` apart; in their own cell, that
        to its centre.
        """
        which, squares = self.block.reaching(cell)
        lengths = self.block.described[3, which]
        keys = lengths
        if cell != self.cell and between > 0.0:
            keys = (squares - lengths * lengths) / (2.0 * between)
        order = np.argsort(keys, kind="stable")
        return which[order], squares[order], keys[order]

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows as they are stored, (n, d)."""
        return self.load()


@dataclass(frozen=True)
class _Bounds:
    """Bounds of the products u.v of rows of one block and points of another that reach each other's cells.

    A pair is a candidate if ``scale * (levels . levels) >= limits[row] - firsts[point]``, with the bounds
    of heads and with those of all features.
    """

    which: tuple[np.ndarray, np.ndarray]
    a: Block
    b: Block
    limits: tuple[np.ndarray, ...]
    firsts: tuple[np.ndarray, ...]
    windows: tuple[np.ndarray, np.ndarray]
    triangular: bool

    @classmethod
    def of(cls, a: Side, b: Side, between: float, rule: Rule, *, same: bool) -> _Bounds:
        """Return the bounds of the rows of `a` and the points of `b`."""
        (i, to_b, near), (j, to_a, close) = a.sorted(b.cell, between), b.sorted(a.cell, between)
        windows = _windows(near, close, a, b, between, rule)
        if same:
            windows = windows[0], np.minimum(windows[1], np.arange(len(i)))
        # Those with the largest keys may meet nothing.
        met = np.flatnonzero(windows[0] < windows[1])
        n, m = (int(met[-1]) + 1, int(windows[1].max())) if len(met) else (0, 0)
        windows = windows[0][:n], windows[1][:n]
        (i, to_b), (j, to_a) = (i[:n], to_b[:n]), (j[:m], to_a[:m])
        half = 0.5 * (between * between + rule.radius * rule.radius * ROUNDING)
        error = a.block.numbers[2] + b.block.numbers[2]
        ours, theirs = a.block.described[:, i], b.block.described[:, j]
        wanted, given = 0.5 * (to_b - half) - error, -0.5 * (to_a - half)
        limits, firsts = [], []
        for first, left in ((0, 1.0), (3, 0.0)):
            # |u - u'| |v'| + |u| |v - v'|, and what the axes leave: |t| |s| <= (t^2 + s^2) / 2.
            longest, quantized = (
                float(each.max(initial=0.0)) for each in (ours[first], theirs[first + 1])
            )
            limits.append(wanted - ours[first + 2] * quantized - left * ours[6])
            firsts.append(given + theirs[first + 2] * longest + left * theirs[6])
        return cls((i, j), a.block, b.block, (*limits,), (*firsts,), windows, same)

    def candidates(self) -> Iterator[np.ndarray]:
        """Yield candidates as pairs (m, 2) of positions in `which`."""
        if not len(self.which[0]):
            return
        scale = float(self.a.numbers[0] * self.b.numbers[0])
        most = max(float(np.abs(each[0]).max()) for each in (self.limits, self.firsts))
        is_small = most < _MOST_INTEGER * scale and self.a.levels.shape[1] < _MOST_FEATURES
        if integer_tile()[1] and is_small:
            yield from self._by_integers(scale)
        else:
            yield from self._by_products()

    def _by_integers(self, scale: float) -> Iterator[np.ndarray]:
        (i, j), n = self.which, len(self.which[0])
        fine = FineBounds(
            self.a.levels, self.limits[1], self.b.levels, self.firsts[1], self.which,
            float(self.a.numbers[1] * self.b.numbers[1]),
        )  # fmt: skip
        bounds = IntegerBounds(
            self.a.heads[i], self.limits[0] / scale, self.b.heads[j], self.firsts[0] / scale, fine,
            self.windows,
        )  # fmt: skip
        room, start = np.empty((max(_ROOM, bounds.room), 2), np.int32), 0
        while start < n:
            found, start = bounds.candidates(start, triangular=self.triangular, found=room)
            yield found

    def _by_products(self) -> Iterator[np.ndarray]:
        # Bounds of all features in float32: sums of products of levels err by their number, relatively.
        sides = zip((self.a, self.b), self.which, strict=True)
        ours, theirs = (side.levels[which].astype(np.float32) for side, which in sides)
        lengths = [math.sqrt(float(np.square(each).sum(axis=1).max())) for each in (ours, theirs)]
        slack = ours.shape[1] * 2.0**-22 * lengths[0] * lengths[1]
        scale = float(self.a.numbers[1] * self.b.numbers[1])
        for first in range(0, len(ours), _SLICE_ROWS):
            part = slice(first, first + _SLICE_ROWS)
            bounds = scale * ((ours[part] @ theirs.T).astype(np.float64) + slack) + self.firsts[1]
            pairs = np.argwhere(bounds >= self.limits[1][part, None]).astype(np.int32)
            pairs[:, 0] += first
            yield pairs[pairs[:, 1] < pairs[:, 0]] if self.triangular else pairs


def _windows(
    ours: np.ndarray, theirs: np.ndarray, a: Side, b: Side, between: float, rule: Rule
) -> tuple[np.ndarray, np.ndarray]:
    """Return first and end of the points, by `theirs`, that may be close to each row, by its key in `ours`.

    On the line through two centres, a row and a point on different sides of the bisector are as far apart
    as the sum of their distances to it; in one cell, distances to its centre differ by no more than that
    of two rows.
    """
    error = float(a.block.numbers[2] + b.block.numbers[2])
    if a.cell == b.cell:
        slack = 1e-5 * max(float(ours[-1]), float(theirs[-1])) + rule.radius
        return np.searchsorted(theirs, ours - slack), np.searchsorted(theirs, ours + slack, "right")
    nothing = np.zeros(len(ours), np.int64)
    if not between > 0.0:
        return nothing, nothing + len(theirs)
    # Keys err by the rounding of squared distances, and of lengths that are rounded up.
    lengths = float(a.block.numbers[4] + b.block.numbers[4])
    slack = (2.0 * error + 1e-5 * lengths * lengths) / between + rule.radius * ROUNDING
    return nothing, np.searchsorted(theirs, slack - ours, "right")


def close_pairs(
    a: Side, b: Side, between: float, rule: Rule, *, forest: bool, same: bool = False
) -> np.ndarray:
    """Return the pairs of a row of `a` and a row of `b` that are near-duplicates, int64 (m, 2).

    Parameters
    ----------
    a, b : Side
    between : float
        Distance of the centres of their cells.
    rule : Rule
    forest : bool
        Return at most ``n_a + n_b`` pairs that connect the same rows.
    same : bool
        The two are one block; each pair is returned once.

    Notes
    -----
    Cost: an integer product for each pair of rows that reach each other's cells, and the values of the
    candidates. Memory: about four times the rows of the two blocks.
    """
    found = [np.empty((0, 2), np.int64)]
    if not (a.block.reach[b.cell] and b.block.reach[a.cell]):
        return found[0]
    bounds = _Bounds.of(a, b, between, rule, same=same)
    n_nodes = a.block.n_rows + (0 if same else b.block.n_rows)
    parent = np.arange(n_nodes) if forest else None
    for candidates in bounds.candidates():
        if len(candidates):
            sides = zip(bounds.which, candidates.T, strict=True)
            pairs = np.stack([which[column] for which, column in sides], axis=1)
            found.append(_verified(a, b, pairs, rule, parent, same=same))
    return np.concatenate(found)


def _verified(
    a: Side, b: Side, pairs: np.ndarray, rule: Rule, parent: np.ndarray | None, *, same: bool
) -> np.ndarray:
    """Return the candidates that are near-duplicates and not yet connected, int64 (m, 2)."""
    if parent is not None:
        base = 0 if same else a.block.n_rows
        pairs = pairs[unconnected(parent, pairs, base)]
    (rows, i), (points, j) = computed_list(a.rows, pairs[:, 0]), computed_list(b.rows, pairs[:, 1])
    values = verify(
        rows, points, np.stack([i, j], axis=1).astype(np.int32),
        cosine=rule.cosine, threshold=rule.threshold,
    )  # fmt: skip
    close = pairs[~np.isnan(values)].astype(np.int64)
    if parent is not None:
        close = close[connect(parent, close, base)]
    return close
