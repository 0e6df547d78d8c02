"""The partitions of rows: the best one, and those in which a copy pays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.methods.partition.kernels import spill_rows


@dataclass(frozen=True)
class PartitionParams:
    """Cells to which rows are assigned.

    Attributes
    ----------
    lifted : ndarray of shape (k, d + 1)
        See `daskcluster.methods.partition.training.Trained.lifted`.
    spill : int
        Largest number of copies of a row.
    neighbours : ndarray of shape (k, m), int32
        Cells that may have a copy of rows of each cell; its own is the first.
    """

    lifted: np.ndarray
    spill: int = 0
    neighbours: np.ndarray | None = None

    @property
    def centres(self) -> np.ndarray:
        """The centres (k, d) without the penalties."""
        return self.lifted[:, :-1]


@dataclass(frozen=True)
class _Prepared:
    params: PartitionParams
    lifted: PreparedCentres
    centres: np.ndarray


def lifted_rows(rows: np.ndarray) -> np.ndarray:
    """Return computed rows (n, d) with a last feature of 0."""
    found = np.zeros((len(rows), rows.shape[1] + 1), rows.dtype)
    found[:, :-1] = rows
    return found


def prepare_cells(params: PartitionParams) -> _Prepared:
    """Prepare the centres, once per task."""
    lifted = params.lifted
    return _Prepared(params, PreparedCentres(lifted), np.ascontiguousarray(lifted[:, :-1]))


def partition_rows(chunk: Chunk, prepared: _Prepared) -> np.ndarray:
    """Return the partition of every row, int32 (n,); with copies (n, 1 + spill), -1 where there is none."""
    params = prepared.params
    found = np.full((chunk.n_rows, 1 + params.spill), -1, np.int32)
    for block in chunk.cache_blocks(least=params.lifted.dtype):
        refuse_bad(block)
        labels = np.empty(block.n_rows, np.int32)
        prepared.lifted.nearest(lifted_rows(block.rows), labels)
        out = found[block.start - chunk.start : block.stop - chunk.start]
        if params.spill and params.neighbours is not None:
            spill_rows(block.rows, labels, prepared.centres, params.neighbours, out[:, 1:])
        out[:, 0] = labels
    if params.spill:
        return found
    return found[:, 0].copy()
