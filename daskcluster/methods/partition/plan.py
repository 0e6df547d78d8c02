"""The plan of partitions: cells, sample, passes and memory, from metadata alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from daskcluster.chunk import compute_dtype
from daskcluster.data.shuffle_plan import reading_bytes
from daskcluster.engine.memory import BASELINE_BYTES
from daskcluster.methods.partition.training import (
    FEW_CELLS,
    GROUP_ROWS,
    NEIGHBOURS,
    TASK_ROWS,
)
from daskcluster.typing import Dataset

_SAMPLE, _LEAST_SAMPLE = 128, 32
"""Rows of the sample for each cell, and as many as it has at least where it is bounded."""
_SAMPLE_BYTES = 2 << 30
_SAMPLE_ROW_BYTES = 72
"""Numbers of a row of the sample: cell, second, gap, and orders."""
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class PartitionPlan:
    """Plan of `partition`.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : str
    n_partitions : int
        Partitions before any is split.
    sample_rows : int
        Rows on which the cells are trained: 128 a cell, fewer if they exceed 2 GiB, but 32 at least.
    passes : int
        Passes if no partition is too large: the sample, and one over all rows.
    bytes_read : int
    memory_driver, memory_task : int
        Bytes of the process that calls, and of each thread of a pass, at most.
    """

    n_rows: int
    n_features: int
    dtype: str
    n_partitions: int
    sample_rows: int
    passes: int
    bytes_read: int
    memory_driver: int
    memory_task: int

    @classmethod
    def of(cls, dataset: Dataset, target_size: int, spill: int = 0) -> PartitionPlan:
        """Plan the partitions of a dataset.

        Examples
        --------
        >>> import numpy as np
        >>> from daskcluster.data.open import open_source
        >>> plan = PartitionPlan.of(open_source(np.zeros((1_000_000, 8), np.float16)), 1000)
        >>> plan.n_partitions, plan.sample_rows
        (1000, 128000)
        """
        n, d = dataset.n_rows, dataset.n_features
        k, row = -(-n // target_size), d * dataset.dtype.itemsize
        item = compute_dtype(dataset.dtype).itemsize
        sample = min(n, max(min(_SAMPLE * k, _SAMPLE_BYTES // row), _LEAST_SAMPLE * k))
        read = 0 if dataset.in_memory else dataset.bytes_of((0, n))
        # Centres in float64 while they are moved, as stored and lifted; lists of neighbours.
        centres = k * (d * (8 + 4 * item) + 8 * NEIGHBOURS)
        # Rows are gathered from the blocks that are read.
        lists = 4 * k * (sample // GROUP_ROWS + 1) if k > FEW_CELLS else 0
        trained = sample * (2 * row + _SAMPLE_ROW_BYTES) + lists + centres
        driver = BASELINE_BYTES + reading_bytes(dataset, row) + max(trained, centres)
        driver += n * (4 * (1 + spill) + 16)
        task = 2 * TASK_ROWS * d * item + max(64 * 16 * k, 2 * k * (d + 8) * item) + _BLOCK_BYTES
        return cls(n, d, str(dataset.dtype), k, sample, 2, 2 * read, driver, task)

    def memory(self, n_threads: int) -> int:
        """Return the bytes of one process with so many threads, at most."""
        return self.memory_driver + n_threads * self.memory_task

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return dict(vars(self))
