"""Cohorts gathered into this process: one contiguous block of rows, of which batches are views."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.array import ArrayDataset
from daskcluster.data.dataset import OnRead, RowDataset
from daskcluster.data.sparse_memory import MemorySparseDataset
from daskcluster.data.weighted import ArrayWeights
from daskcluster.methods.nested.order import NestedOrder, row_blocks
from daskcluster.sparse_rows import Rows, SparseRows, join_rows
from daskcluster.typing import Dataset

_MOST = (1 << 64) - 1


class GatheredCohorts:
    """The first cohorts of a dataset in memory, one after the other.

    Memory for all of them is reserved at once and filled as they come, so that a batch grows in place.

    Parameters
    ----------
    base : Dataset
    order : NestedOrder
    sizes : sequence of int
        Sizes of the batches that may be gathered, ascending.

    Attributes
    ----------
    n_gathered : int
        How many cohorts are here.
    """

    def __init__(self, base: Dataset, order: NestedOrder, sizes: Sequence[int]) -> None:
        self._base, self._order = base, order
        self._ends = np.array([0, *sizes], np.int64)
        self._limits = order.limits(self._ends.tolist())
        self._filled = self._ends[:-1].copy()
        self._rows: np.ndarray | None = None
        self._parts: list[list[SparseRows]] = [[] for _ in sizes]
        self._weights = None if base.weights is None else np.empty(self._ends[-1])
        self.n_gathered = 0
        self._ahead: Future[None] | None = None

    def gather(self, upto: int, *, on_read: OnRead | None = None) -> None:
        """Read all cohorts before the one numbered `upto` that are missing, in one go."""
        self.wait()
        self._gather(upto, on_read)

    def gather_ahead(self, upto: int) -> None:
        """Do as `gather` in a thread, while others compute."""
        self.wait()
        if upto > self.n_gathered:
            pool = ThreadPoolExecutor(1, thread_name_prefix="daskcluster-cohorts")
            self._ahead = pool.submit(self._gather, upto, None)
            pool.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until nothing is gathered any more."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.result()

    def _gather(self, upto: int, on_read: OnRead | None) -> None:
        if upto <= self.n_gathered:
            return
        # In the stored order they lie together; random ones may be anywhere.
        span = (0, self._base.n_rows)
        if self._order.key is None:
            span = int(self._ends[self.n_gathered]), int(self._ends[upto])
        for chunk in self._base.chunks([span], on_read=on_read):
            cohorts = self._cohorts_of(chunk.start, chunk.stop)
            for cohort in range(self.n_gathered, upto):
                self._put(chunk, np.flatnonzero(cohorts == cohort), cohort)
        self.n_gathered = upto

    def _cohorts_of(self, start: int, stop: int) -> np.ndarray:
        """Return which cohort each row belongs to; one more than there are for those of none."""
        places = self._order.places(start, stop)
        # The last limit may be just beyond what 64 bits hold.
        inner = np.array([min(limit, _MOST) for limit in self._limits[1:]], np.uint64)
        return np.searchsorted(inner, places, side="right")

    def _put(self, chunk: Chunk, which: np.ndarray, cohort: int) -> None:
        if not len(which):
            return
        place = slice(int(self._filled[cohort]), int(self._filled[cohort]) + len(which))
        self._filled[cohort] = place.stop
        if self._weights is not None and chunk.weights is not None:
            self._weights[place] = chunk.weights[which]
        if isinstance(chunk.rows, SparseRows):
            self._parts[cohort].append(chunk.rows[which])
        else:
            # Only without a check of bounds does NumPy copy straight to where the rows go.
            np.take(chunk.rows, which, axis=0, out=self._room(chunk.rows)[place], mode="clip")

    def _room(self, rows: np.ndarray) -> np.ndarray:
        if self._rows is None:
            self._rows = np.empty((int(self._ends[-1]), rows.shape[1]), rows.dtype)
        return self._rows

    def index(self, number: int) -> np.ndarray:
        """Return where in the base the rows of the first `number` cohorts are, int64."""
        found: list[list[np.ndarray]] = [[] for _ in range(number)]
        for start, stop in row_blocks(self._base.n_rows):
            cohorts = self._cohorts_of(start, stop)
            for cohort, parts in enumerate(found):
                parts.append(start + np.flatnonzero(cohorts == cohort))
        return np.concatenate([part for parts in found for part in parts])

    def batch(self, number: int) -> RowDataset:
        """Return the rows of the first `number` cohorts as a dataset in memory."""
        end = int(self._ends[number])
        dataset: Any
        if self._rows is None:
            parts: list[Rows] = [part for parts in self._parts[:number] for part in parts]
            dataset = MemorySparseDataset(join_rows(parts))  # type: ignore[arg-type]
        else:
            dataset = ArrayDataset(self._rows[:end])
        dataset = dataset.normalized() if self._base.normalize else dataset
        if self._weights is None:
            return dataset
        return dataset.with_weights(ArrayWeights(self._weights[:end]))
