"""Pairs of near-duplicates between two blocks of rows, and the tasks that find them.

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
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from daskcluster.methods.duplicates.blocks import ROWS
from daskcluster.methods.duplicates.chunkwise import (
    ROUNDING,
    Block,
    Cells,
    Rule,
    computed_list,
    least_gaps,
    prepare_block,
)
from daskcluster.methods.duplicates.kernels.bounds import (
    IntegerBounds,
    Levels,
    Meeting,
    bias,
    integer_tile,
)
from daskcluster.methods.duplicates.kernels.meeting import meet
from daskcluster.methods.duplicates.kernels.rows import connect, unconnected, verify
from daskcluster.methods.duplicates.scratch import Scratch
from daskcluster.storage.process_local import open_once

BLOCKS, CENTRES, PAIRS = "blocks", "centres", "pairs"
"""Kinds of files on scratch: prepared blocks, the centres, the pairs of a task."""

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

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows as they are stored, (n, d)."""
        return self.load()

    @cached_property
    def as_rows(self) -> Levels:
        """Levels of the rows."""
        return self._levels(bias())

    @cached_property
    def as_points(self) -> Levels:
        """Levels of the points that rows of another block are compared with."""
        return self._levels(0)

    def _levels(self, added: int) -> Levels:
        block = self.block
        return Levels.of(block.heads, block.levels, block.described[7:], added)


class Gap(NamedTuple):
    """Bounds of the distances between rows of two blocks, by their cells.

    Attributes
    ----------
    between : float
        Distance of their centres.
    half : float
        Half of the largest squared distance of close rows and of that of the centres.
    error : float
        What half of squared distances may be off by.
    slack : float
        Sum of the distances to the bisector of two close rows, at most; in one cell, the difference of
        their distances to its centre.
    own, same : bool
        The two are in one cell; they are one block.
    """

    between: float
    half: float
    error: float
    slack: float
    own: bool
    same: bool

    @classmethod
    def of(cls, a: Side, b: Side, between: float, rule: Rule, *, same: bool) -> Gap:
        """Return the gap between two blocks."""
        error = float(a.block.numbers[2] + b.block.numbers[2])
        half = 0.5 * (between * between + rule.radius * rule.radius * ROUNDING)
        longest = max(float(a.block.numbers[4]), float(b.block.numbers[4]))
        slack = 1e-5 * longest + rule.radius
        own = a.cell == b.cell
        if not own and between > 0.0:
            # Keys err by the rounding of squared distances, and of lengths that are rounded up.
            lengths = float(a.block.numbers[4] + b.block.numbers[4])
            slack = (2.0 * error + 1e-5 * lengths * lengths) / between + rule.radius * ROUNDING
        return cls(between, half, error, slack, own, same)


@dataclass(frozen=True)
class _Bounds:
    """Bounds of the products u.v of rows of one block and points of another that reach each other's cells.

    A pair is a candidate if ``scale * (levels . levels) >= limits[row] - firsts[point]``, with the bounds
    of heads and with those of all features.
    """

    a: Side
    b: Side
    meeting: Meeting
    most: float

    @classmethod
    def of(cls, a: Side, b: Side, between: float, rule: Rule, *, same: bool) -> _Bounds:
        """Return the bounds of the rows of `a` and the points of `b`."""
        (i, to_b), (j, to_a) = a.block.reaching(b.cell), b.block.reaching(a.cell)
        windows = np.empty((2, len(i)), np.int64)
        limits, firsts = np.empty((2, len(i))), np.empty((2, len(j)))
        n, m, most = meet(
            (i, to_b, a.block.described), (j, to_a, b.block.described),
            Gap.of(a, b, between, rule, same=same), windows, limits, firsts,
        )  # fmt: skip
        # Those with the largest keys may meet nothing.
        scales = (
            float(a.block.numbers[0] * b.block.numbers[0]),
            float(a.block.numbers[1] * b.block.numbers[1]),
        )
        meeting = Meeting((i[:n], j[:m]), windows, limits, firsts, scales, same)
        return cls(a, b, meeting, most)

    @property
    def which(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows and points that are compared."""
        rows, points = self.meeting.which
        return rows, points

    def candidates(self) -> Iterator[np.ndarray]:
        """Yield candidates as pairs (m, 2) of positions in `which`."""
        if not len(self.which[0]):
            return
        is_small = self.most < _MOST_INTEGER * self.meeting.scales[0]
        if integer_tile()[1] and is_small and self.a.block.levels.shape[1] < _MOST_FEATURES:
            yield from self._by_integers()
        else:
            yield from self._by_products()

    def _by_integers(self) -> Iterator[np.ndarray]:
        n, start = len(self.which[0]), 0
        bounds = IntegerBounds(self.a.as_rows, self.b.as_points, self.meeting)
        room = np.empty((max(_ROOM, bounds.room), 2), np.int32)
        while start < n:
            found, start = bounds.candidates(start, room)
            yield found

    def _by_products(self) -> Iterator[np.ndarray]:
        # Bounds of all features in float32: sums of products of levels err by their number, relatively.
        sides = zip((self.a.block, self.b.block), self.which, strict=True)
        ours, theirs = (side.levels[which].astype(np.float32) for side, which in sides)
        lengths = [math.sqrt(float(np.square(each).sum(axis=1).max())) for each in (ours, theirs)]
        slack = ours.shape[1] * 2.0**-22 * lengths[0] * lengths[1]
        scale, limits = self.meeting.scales[1], self.meeting.limits[1, : len(ours)]
        firsts = self.meeting.firsts[1, : len(theirs)]
        for first in range(0, len(ours), _SLICE_ROWS):
            part = slice(first, first + _SLICE_ROWS)
            bounds = scale * ((ours[part] @ theirs.T).astype(np.float64) + slack) + firsts
            pairs = np.argwhere(bounds >= limits[part, None]).astype(np.int32)
            pairs[:, 0] += first
            yield pairs[pairs[:, 1] < pairs[:, 0]] if self.meeting.triangular else pairs


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


# -- tasks: each reads blocks from scratch, and writes its result there -------------------------------


@dataclass(frozen=True)
class Search:
    """The parameters that all tasks of a search share; small and picklable.

    Attributes
    ----------
    scratch : Scratch
    rule : Rule
    forest : bool
        Pairs need only connect the same rows as all pairs do.
    """

    scratch: Scratch
    rule: Rule
    forest: bool

    def cells(self) -> Cells:
        """Return the cells; they are read once in each process."""
        place = self.scratch.place
        return open_once((CENTRES, place.url), lambda: Cells.of(*self.scratch.read(CENTRES, 0)))

    def rows(self, number: int) -> np.ndarray:
        """Return the rows of a block."""
        return self.scratch.read(ROWS, number)[0]

    def side(self, number: int, cell: int) -> Side:
        """Return a prepared block."""
        block = Block(*self.scratch.read(BLOCKS, number))
        return Side(cell, block, partial(self.rows, number))


@dataclass(frozen=True)
class Reach:
    """Bounds of the distances of the rows of a block to the cells.

    Attributes
    ----------
    gaps : ndarray of shape (k,), float32
        See `daskcluster.methods.duplicates.chunkwise.least_gaps`.
    least, most : float
        Distances to the own centre.
    """

    gaps: np.ndarray
    least: float
    most: float


def prepare(search: Search, number: int, cell: int, *, finished: bool) -> Reach:
    """Prepare a block, unless an earlier run has."""
    if finished:
        block = Block(*search.scratch.read(BLOCKS, number))
    else:
        block = prepare_block(search.rows(number), cell, search.cells(), search.rule)
        search.scratch.write(BLOCKS, number, *vars(block).values())
    gaps = least_gaps(block, cell, search.cells()).astype(np.float32)
    return Reach(gaps, float(block.numbers[3]), float(block.numbers[4]))


@dataclass(frozen=True)
class Unit:
    """A block, and some of the blocks that it meets.

    Attributes
    ----------
    block, cell : int
    others : ndarray of shape (m, 2), int64
        Number and cell of each other block; the first may be the block itself.
    """

    block: int
    cell: int
    others: np.ndarray


def find_pairs(search: Search, number: int, unit: Unit) -> int:
    """Write the pairs of rows of a unit to scratch, (m, 2) int64; return how many there are."""
    side, cells = search.side(unit.block, unit.cell), search.cells()
    between, ours = cells.between(unit.cell), search.scratch.read(ROWS, unit.block)[1]
    found = [np.empty((0, 2), np.int64)]
    for other, cell in unit.others.tolist():
        same = other == unit.block
        its = side if same else search.side(other, cell)
        pairs = close_pairs(
            side, its, float(between[cell]), search.rule, forest=search.forest, same=same
        )
        if len(pairs):
            theirs = ours if same else search.scratch.read(ROWS, other)[1]
            found.append(np.stack([ours[pairs[:, 0]], theirs[pairs[:, 1]]], axis=1))
    pairs = np.concatenate(found)
    search.scratch.write(PAIRS, number, pairs)
    return len(pairs)


def measure(search: Search, block: int, positions: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the similarity or distance of rows of a block to one other row each, float64 (m,).

    Parameters
    ----------
    search : Search
    block : int
    positions : ndarray of shape (m,), int64
        Positions of the rows in the block.
    others : ndarray of shape (m, 2), int64
        Block of the other row, and its position there.
    """
    found = np.empty(len(positions))
    far = -2.0 if search.rule.cosine else np.inf  # all pairs, however far
    for other in np.unique(others[:, 0]).tolist():
        which = np.flatnonzero(others[:, 0] == other)
        (rows, i), (points, j) = (
            computed_list(search.rows(number), listed[which])
            for number, listed in ((block, positions), (other, others[:, 1]))
        )
        pairs = np.stack([i, j], axis=1).astype(np.int32)
        found[which] = verify(rows, points, pairs, cosine=search.rule.cosine, threshold=far)
    return found
