"""Cohorts gathered into this process: one contiguous block of rows, of which batches are views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.array import ArrayDataset
from daskcluster.data.cohorts import CohortDataset, NestedOrder
from daskcluster.data.dataset import OnRead, RowDataset
from daskcluster.data.sparse_memory import MemorySparseDataset
from daskcluster.data.weighted import ArrayWeights
from daskcluster.sparse_rows import Rows, SparseRows, join_rows


class GatheredCohorts:
    """The first cohorts of a dataset in memory, one after the other.

    Memory for all of them is reserved at once and filled as they come, so that a batch grows in place.

    Parameters
    ----------
    base : RowDataset
    order : NestedOrder
    sizes : sequence of int
        Sizes of the batches that may be gathered, ascending.

    Attributes
    ----------
    n_gathered : int
        How many cohorts are here.
    """

    def __init__(self, base: RowDataset, order: NestedOrder, sizes: Sequence[int]) -> None:
        self._base, self._order = base, order
        self._ends = np.array([0, *sizes], np.int64)
        self._limits = [order.limit(int(end)) for end in self._ends]
        self._filled = self._ends[:-1].copy()
        self._rows: np.ndarray | None = None
        self._parts: list[list[SparseRows]] = [[] for _ in sizes]
        self._weights = None if base.weights is None else np.empty(self._ends[-1])
        self.n_gathered = 0

    def gather(self, upto: int, *, on_read: OnRead | None = None) -> None:
        """Read all cohorts before the one numbered `upto` that are missing, in one go."""
        if upto <= self.n_gathered:
            return
        low, high = self._limits[self.n_gathered], self._limits[upto]
        missing = CohortDataset(self._base, self._order, low, high)
        for chunk in missing.chunks([(0, missing.n_rows)], on_read=on_read):
            index = missing.rows_at(np.arange(chunk.start, chunk.stop))
            self._put(chunk, self._cohort_of(index))
        self.n_gathered = upto

    def _cohort_of(self, index: np.ndarray) -> np.ndarray:
        """Return which cohort each row of the base belongs to, given ascending indices."""
        first = int(index[0])
        places = self._order.places(first, int(index[-1]) + 1)[index - first]
        # The last limit may be beyond 64 bits; nothing gathered is above it.
        inner = np.array(self._limits[1:-1], np.uint64)
        return np.searchsorted(inner, places, side="right")

    def _put(self, chunk: Chunk, cohorts: np.ndarray) -> None:
        for cohort in np.unique(cohorts).tolist():
            which = np.flatnonzero(cohorts == cohort)
            place = slice(int(self._filled[cohort]), int(self._filled[cohort]) + len(which))
            self._filled[cohort] = place.stop
            if self._weights is not None and chunk.weights is not None:
                self._weights[place] = chunk.weights[which]
            if isinstance(chunk.rows, SparseRows):
                self._parts[cohort].append(chunk.rows[which])
            else:
                self._room(chunk.rows)[place] = chunk.rows[which]

    def _room(self, rows: np.ndarray) -> np.ndarray:
        if self._rows is None:
            self._rows = np.empty((int(self._ends[-1]), rows.shape[1]), rows.dtype)
        return self._rows

    def batch(self, number: int) -> RowDataset:
        """Return the rows of the first `number` cohorts as a dataset in memory."""
        end = int(self._ends[number])
        dataset: Any
        if self._rows is None:
            parts: list[Rows] = [part for parts in self._parts[:number] for part in parts]
            dataset = MemorySparseDataset(join_rows(parts))  # type: ignore[arg-type]
        else:
            dataset = ArrayDataset(self._rows[:end])
        if self._weights is None:
            return dataset
        return dataset.with_weights(ArrayWeights(self._weights[:end]))
