"""Balanced k-means of a sample, and the partitions of all rows.

Squared distances have a penalty that grows with the size of a cell. Cells begin as recursive halves of the
sample. Then the centres of small cells are moved into large ones between iterations of k-means, and
penalties balance what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.engine.engine import Engine
from daskcluster.kernels import distance
from daskcluster.randomness import Key


@dataclass(frozen=True)
class PartitionParams:
    """Cells to which rows are assigned: `lifted` (k, d + 1), see `Trained.lifted`."""

    lifted: np.ndarray

    @property
    def centres(self) -> np.ndarray:
        """The centres (k, d) without the penalties."""
        return self.lifted[:, :-1]

    def prepare(self) -> PreparedCentres:
        """Prepare the cells, once per task."""
        return PreparedCentres(self.lifted)


def lifted_rows(rows: np.ndarray) -> np.ndarray:
    """Return computed rows (n, d) with a last feature of 0."""
    found = np.zeros((len(rows), rows.shape[1] + 1), rows.dtype)
    found[:, :-1] = rows
    return found


def partition_rows(chunk: Chunk, lifted: PreparedCentres) -> np.ndarray:
    """Return the partition of every row, int32 (n,); see `Trained.lifted`."""
    found = np.empty(chunk.n_rows, np.int32)
    for block in chunk.cache_blocks(least=lifted.array.dtype):
        refuse_bad(block)
        out = found[block.start - chunk.start : block.stop - chunk.start]
        lifted.nearest(lifted_rows(block.rows), out)
    return found


_ITERATIONS, _SETTLING = 6, 10
"""Iterations that move centres, and those at the end that balance sizes by penalties."""
_ENOUGH = 0.12
"""Variation of sizes in the sample at which settling ends."""
_SMALL, _LARGE = 0.7, 1.3
"""In units of the mean: the centres of cells that are smaller are moved into cells that are larger."""
_HALVING, _HALVING_ROWS = 4, 4096
"""Iterations that find two halves, and rows of them."""
_STEP, _GENTLE = 0.25, 0.3
TASK_ROWS = 1 << 14
FEW_CELLS = 2048
"""Up to so many, every search computes bounds of all cells; beyond, most searches look at listed ones."""
GROUP_ROWS, _MOST_LISTED = 1 << 14, 0.7
"""Rows that share a list of cells, and the share of all cells up to which a list is worth its making."""
_WHOLE = (0, _ITERATIONS)
"""Searches that look at all cells: the first one, and the first one that balances sizes by penalties."""


@dataclass(frozen=True)
class Trained:
    """Centres and penalties of cells.

    Attributes
    ----------
    centres : ndarray of shape (k, d), float32 or float64
    penalties : ndarray of shape (k,), float64
        At least 0; the cell of a row has the least sum of squared distance and penalty.
    """

    centres: np.ndarray
    penalties: np.ndarray

    def lifted(self) -> np.ndarray:
        """Return centres (k, d + 1) with these sums as squared distances to rows that end in 0."""
        last = np.sqrt(self.penalties - self.penalties.min())
        return np.ascontiguousarray(np.column_stack([self.centres, last]), self.centres.dtype)


class BalancedKMeans:
    """Balanced k-means of rows in memory.

    Parameters
    ----------
    rows : Chunk
        The sample, as stored.
    n_cells : int
        At most the number of rows.
    engine : Engine
        Its threads share the cells.
    key : Key

    Notes
    -----
    Cost: at most 16 searches of k products a row, fewer where bounds rule centres out. Beyond 2,048 cells,
    two searches look at all cells. The others look at those that were the best or second-best one of any
    row of the same group; groups are 16,384 rows that the first division keeps together.
    """

    def __init__(self, rows: Chunk, n_cells: int, engine: Engine, key: Key) -> None:
        self.rows, self.n_cells, self.engine, self.key = rows, n_cells, engine, key
        self.labels, self.margins = np.zeros(rows.n_rows, np.int32), np.zeros(rows.n_rows)
        self.second = self.labels.copy()
        self.lists: list[np.ndarray] = []

    def fit(self) -> tuple[Trained, np.ndarray]:
        """Return the centres and penalties of cells of nearly equal sizes, and their means."""
        n = self.rows.n_rows
        self._divide()
        order = np.argsort(self.labels, kind="stable")
        self.groups = [order[start : start + GROUP_ROWS] for start in range(0, n, GROUP_ROWS)]
        dtype = compute_dtype(self.rows.rows.dtype)
        zeros = np.zeros((self.n_cells, self.rows.rows.shape[1]), dtype)
        self.trained = Trained(zeros, np.zeros(self.n_cells))
        self._move_centres()
        if self.n_cells == 1:
            return self.trained, self.trained.centres
        for iteration in range(_ITERATIONS + _SETTLING):
            if iteration in _WHOLE or self.n_cells <= FEW_CELLS:
                self._search()
            else:
                self._search_lists()
            sizes = np.bincount(self.labels, minlength=self.n_cells)
            if iteration < _ITERATIONS:
                self._move_centres()
                if iteration < _ITERATIONS - 1:
                    self._relocate(sizes)
            elif sizes.std() <= _ENOUGH * sizes.mean():
                break
            else:
                self._penalize(sizes)
        # Searches compare queries with means; rows are assigned by the centres that balance them.
        assigning = self.trained
        self._move_centres()
        return assigning, self.trained.centres

    def _computed(self, which: Any) -> np.ndarray:
        part = Chunk(self.rows.rows[which], normalize=self.rows.normalize)
        return np.asarray(part.computed())

    # -- first cells ------------------------------------------------------------------------------

    def _divide(self) -> None:
        """Label rows by recursive bisection, each into two parts of nearly whole numbers of cells."""
        left, first = [(np.arange(self.rows.n_rows), 0, self.n_cells)], 0
        while left:
            parts = list(self.engine.run_ahead([partial(self._halve, *part) for part in left]))
            left = []
            for halves in parts:
                for which, first, cells in halves:
                    if cells > 1:
                        left.append((which, first, cells))
                    else:
                        self.labels[which] = first

    def _halve(
        self, which: np.ndarray, first: int, cells: int
    ) -> list[tuple[np.ndarray, int, int]]:
        if cells == 1:
            return [(which, first, cells)]
        few = which[:: max(1, len(which) // _HALVING_ROWS)]
        ends = self._two_means(self._computed(few), first)
        gaps = np.empty(len(which))
        for start in range(0, len(which), TASK_ROWS):
            part = slice(start, start + TASK_ROWS)
            gaps[part] = _differences(self._computed(which[part]), ends)
        share = min(max(float((gaps < 0.0).mean()), 0.25), 0.75)
        own = min(max(round(share * cells), 1), cells - 1)
        cut = round(len(which) * own / cells)
        order = np.argsort(gaps, kind="stable")
        halves = np.sort(order[:cut]), np.sort(order[cut:])
        return [(which[halves[0]], first, own), (which[halves[1]], first + own, cells - own)]

    def _two_means(self, rows: np.ndarray, number: int) -> np.ndarray:
        """Return two centres (2, d) of computed rows."""
        drawn = Key(self.key.seed, "halves", number).uniforms(0, 2)
        ends = rows[np.floor(drawn * len(rows)).astype(np.int64)]
        for _ in range(_HALVING):
            nearer = _differences(rows, ends) < 0.0
            if nearer.all() or not nearer.any():
                break
            means = [rows[part].mean(axis=0, dtype=np.float64) for part in (nearer, ~nearer)]
            ends = np.stack(means).astype(rows.dtype)
        return np.ascontiguousarray(ends)

    # -- one search -------------------------------------------------------------------------------

    def _search(self) -> None:
        """Label all rows with the best and the second-best cell, and find the gaps between the two."""
        lifted = PreparedCentres(self.trained.lifted())
        starts = range(0, self.rows.n_rows, TASK_ROWS)
        parts = [slice(start, start + TASK_ROWS) for start in starts]
        list(self.engine.run_ahead([partial(self._search_rows, lifted, part) for part in parts]))
        both = self.labels, self.second
        self.lists = [
            np.unique(np.concatenate([each[which] for each in both])) for which in self.groups
        ]

    def _search_rows(self, lifted: PreparedCentres, which: Any, cells: Any = None) -> None:
        """Search rows among prepared centres, which are those of the listed cells."""
        rows = lifted_rows(self._computed(which))
        found, scores = np.empty((2, len(rows)), np.int32), np.empty((len(rows), 2), rows.dtype)
        lifted.nearest(rows, found[0], found[1], scores)
        self.labels[which], self.second[which] = found if cells is None else cells[found]
        self.margins[which] = 2.0 * (scores[:, 0].astype(np.float64) - scores[:, 1])

    def _search_lists(self) -> None:
        """Do the same among the listed cells of each group of rows."""
        if sum(map(len, self.lists)) > _MOST_LISTED * self.n_cells * len(self.lists):
            self._search()
            return
        lifted = self.trained.lifted()
        tasks = [partial(self._search_group, lifted, group) for group in range(len(self.groups))]
        list(self.engine.run_ahead(tasks))

    def _search_group(self, lifted: np.ndarray, group: int) -> None:
        which = self.groups[group]
        # Relocated rows may be in cells that are not listed.
        cells = self.lists[group] = np.union1d(self.lists[group], self.labels[which])
        self._search_rows(PreparedCentres(np.ascontiguousarray(lifted[cells])), which, cells)

    # -- updates ----------------------------------------------------------------------------------

    def _by_cell(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows cell by cell, and where each cell begins among them."""
        order = np.argsort(self.labels, kind="stable")
        return order, np.searchsorted(self.labels[order], np.arange(self.n_cells + 1))

    def _move_centres(self) -> None:
        order, starts = self._by_cell()

        def means(cells: np.ndarray) -> np.ndarray:
            found = self.trained.centres[cells]
            for at, cell in enumerate(cells):
                which = order[starts[cell] : starts[cell + 1]]
                if len(which):
                    found[at] = self._computed(which).sum(axis=0, dtype=np.float64) / len(which)
            return found

        parts = np.array_split(np.arange(self.n_cells), 4 * self.engine.n_threads)
        centres = np.concatenate(list(self.engine.run_ahead([partial(means, p) for p in parts])))
        self.trained = Trained(centres, self.trained.penalties)

    def _penalize(self, sizes: np.ndarray) -> None:
        """Raise the penalties of large cells and lower those of small ones, toward equal sizes.

        Alone, a cell would lose or win the rows that it has too many or too few, which the gaps between
        the best and the second-best centre tell. Since neighbours change as well, it goes half of the way.
        """
        mean = self.rows.n_rows / self.n_cells
        excess = sizes - mean
        steps = np.zeros(self.n_cells)
        for sign, cells in ((1.0, self.labels), (-1.0, self.second)):
            order = np.lexsort((self.margins, cells))
            counts = np.bincount(cells, minlength=self.n_cells)
            firsts = np.cumsum(counts) - counts
            wanted = _STEP * np.minimum(sign * excess, np.maximum(sizes, 0.1 * mean))
            moving = np.minimum(np.ceil(wanted), counts).astype(np.int64)
            some = np.flatnonzero(moving > 0)
            steps[some] = sign * self.margins[order[firsts[some] + moving[some] - 1]]
        # A cell that is far from all others may suddenly be the best for very many rows.
        most = _GENTLE * float(np.median(self.margins))
        penalties = self.trained.penalties + np.clip(steps, -most, most)
        self.trained = Trained(self.trained.centres, penalties - penalties.min())

    def _relocate(self, sizes: np.ndarray) -> None:
        """Divide the rows of the largest cells among their own centre and those of the smallest cells."""
        mean = self.rows.n_rows / self.n_cells
        by_size = np.argsort(sizes, kind="stable")
        n_moved = min(int((sizes < _SMALL * mean).sum()), int((sizes > _LARGE * mean).sum()))
        if not n_moved:
            return
        small, large = by_size[:n_moved], by_size[::-1][:n_moved]
        order, starts = self._by_cell()
        left = np.flatnonzero(np.isin(self.labels, small))
        centres = self.trained.centres.copy()

        def parted(cell: int) -> np.ndarray:
            which = order[starts[cell] : starts[cell + 1]]
            few = which[:: -(-len(which) // _HALVING_ROWS)]
            return self._two_means(self._computed(few), cell)

        tasks = [partial(parted, cell) for cell in large.tolist()]
        for gone, cell, ends in zip(small, large, self.engine.run_ahead(tasks), strict=True):
            centres[[cell, gone]] = ends
        self.trained = Trained(centres, self.trained.penalties)
        # A moved centre is near the rows of the cell that it divides.
        moved = small.astype(np.int32)
        self.lists = [
            np.union1d(cells, moved[np.isin(large, cells, assume_unique=True)])
            for cells in self.lists
        ]
        prepared = PreparedCentres(centres)

        def label(start: int) -> None:
            which = left[start : start + TASK_ROWS]
            found = np.empty(len(which), np.int32)
            prepared.nearest(self._computed(which), found)
            self.labels[which] = found

        moves = [partial(label, start) for start in range(0, len(left), TASK_ROWS)]
        list(self.engine.run_ahead(moves))


def _differences(rows: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return squared distances to the first of two points less those to the second, float64 (n,)."""
    squares = np.empty((len(rows), 2))
    distance.sqdist_all(rows, np.ascontiguousarray(ends), squares)
    return squares[:, 0] - squares[:, 1]
