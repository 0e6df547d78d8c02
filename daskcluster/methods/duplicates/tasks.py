"""The tasks of a search: each reads blocks from scratch, and writes its result there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from daskcluster.methods.duplicates.blocks import ROWS
from daskcluster.methods.duplicates.chunkwise import (
    Block,
    Cells,
    Rule,
    computed_list,
    least_gaps,
    prepare_block,
)
from daskcluster.methods.duplicates.kernels.rows import verify
from daskcluster.methods.duplicates.pairs import Side, close_pairs
from daskcluster.methods.duplicates.scratch import Scratch
from daskcluster.storage.process_local import open_once

BLOCKS, CENTRES, PAIRS = "blocks", "centres", "pairs"
"""Kinds of files on scratch: prepared blocks, the centres, the pairs of a task."""


@dataclass(frozen=True)
class Search:
    """What all tasks of a search have in common; small and picklable.

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
    """What the driver knows of a block.

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
        search.scratch.write(BLOCKS, number, *_arrays(block))
    gaps = least_gaps(block, cell, search.cells()).astype(np.float32)
    return Reach(gaps, float(block.numbers[3]), float(block.numbers[4]))


def _arrays(block: Block) -> tuple[np.ndarray, ...]:
    return tuple(vars(block).values())


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
        Of the rows in the block.
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
