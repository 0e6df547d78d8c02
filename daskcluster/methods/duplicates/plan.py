"""The plan of a search for near-duplicates: cells, blocks, memory and scratch, from metadata alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from daskcluster.chunk import compute_dtype, row_dtype
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.shuffle_passes import reading_bytes
from daskcluster.engine.memory import BASELINE_BYTES
from daskcluster.methods.duplicates.axes import MOST_ROWS
from daskcluster.methods.duplicates.blocks import bucket_rows
from daskcluster.typing import Dataset

_MOST_CELLS, _MOST_BLOCK_ROWS, _LEAST_BLOCK_ROWS = 4096, 8192, 64
_BLOCK_BYTES = 24 << 20
_SAMPLE = 64
"""Rows of the sample for each cell."""
_TASK_BYTES = 48 << 20
"""Candidates, bounds of a block, and squared distances to all centres of a slice of it."""
_DRIVER_ROW_BYTES = 112
"""Per row in the driver, at most: cell, distance, hash, order and place while rows are sorted; group, kept
row and similarity afterwards."""


@dataclass(frozen=True)
class DuplicatesPlan:
    """Plan of a search. The pairs do not depend on it.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : str
    n_cells : int
        Centres of cells, about a third of the root of the number of rows.
    sample_rows : int
        Rows whose k-means the centres are.
    block_rows : int
        Most rows of a block.
    passes : int
    bytes_read : int
        Decoded bytes of the source, in all passes.
    bytes_sorted, bytes_scratch : int
        Bytes of rows on their way through local files, and of the blocks on scratch.
    memory_driver, memory_task : int
        Bytes of the process that starts the search, and of each thread that runs tasks, at most.
    """

    n_rows: int
    n_features: int
    dtype: str
    n_cells: int
    sample_rows: int
    block_rows: int
    passes: int
    bytes_read: int
    bytes_sorted: int
    bytes_scratch: int
    memory_driver: int
    memory_task: int

    @classmethod
    def of(cls, dataset: Dataset) -> DuplicatesPlan:
        """Plan the search of a dataset.

        Examples
        --------
        >>> import numpy as np
        >>> from daskcluster.data.open import open_source
        >>> plan = DuplicatesPlan.of(open_source(np.zeros((1_000_000, 8), np.float16)))
        >>> plan.n_cells, plan.block_rows
        (333, 8192)
        """
        n, d = dataset.n_rows, dataset.n_features
        item, stored = compute_dtype(dataset.dtype).itemsize, row_dtype(dataset.dtype).itemsize
        cells = max(1, min(_MOST_CELLS, math.isqrt(n) // 3))
        block = max(_LEAST_BLOCK_ROWS, min(_MOST_BLOCK_ROWS, _BLOCK_BYTES // (d * item)))
        sample = min(n, _SAMPLE * cells)
        bucket = bucket_rows(dataset) * (d * stored + 8)
        # The sample as stored and computed, and matrices of features; or rows on their way to blocks.
        centres = sample * d * (stored + 2 * item) + min(sample, MOST_ROWS) * d * item + 32 * d * d
        sorting = 2 * bucket + 4 * (max(READ_BYTES, d * stored) + block * d * stored)
        read = 0 if dataset.in_memory else dataset.bytes_of((0, n))
        driver = BASELINE_BYTES + reading_bytes(dataset, d * stored) + max(centres, sorting)
        # Rows as stored and computed, levels, and all cells, which rows reach at most.
        alone = d * (stored + 6 * item + 2) + 96 * cells
        # One block has its levels a second time, as rows of products.
        pair = 2 * (d * (2 * stored + item + 4) + (8 + item) * cells + 64)
        return cls(
            n, d, str(dataset.dtype), cells, sample, block, 3, 3 * read,
            n * (d * stored + 8),
            n * (d * (stored + 1) + 60 + 12 * min(cells, 32)),
            driver + _DRIVER_ROW_BYTES * n, block * max(alone, pair) + _TASK_BYTES,
        )  # fmt: skip

    def memory(self, n_threads: int) -> int:
        """Return the bytes of one process with so many threads, at most."""
        return self.memory_driver + n_threads * self.memory_task

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return dict(vars(self))
