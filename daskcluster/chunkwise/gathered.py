"""Rows of a chunk, gathered in bulk for the tile, and the scratch that they are gathered into."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype

_COMPACT_BYTES = 1 << 19
_LEAST_ROWS = 64


class Scratch:
    """Room for the rows that are gathered at a time, and what is found about them.

    Parameters
    ----------
    d : int
    dtype : dtype
    n_groups : int
        Groups of centres that are told apart; 0 for none.
    """

    def __init__(self, d: int, dtype: np.dtype, n_groups: int = 0) -> None:
        row_bytes = d * dtype.itemsize + n_groups * (5 + 2 * dtype.itemsize)
        self.n_rows = m = max(_LEAST_ROWS, _COMPACT_BYTES // row_bytes // 32 * 32)
        # Zeros: the tile always takes a whole block, and may meet rows that were never filled.
        self.rows = np.zeros((m, d), dtype)
        self.kept = np.empty(m, np.int64)
        self.distances = np.empty(m)
        self.old = np.empty(m, np.int32)
        self.winners = np.empty(m, np.int32)
        self.seconds = np.empty(m, np.int32)
        self.needed = np.ones((m, n_groups), np.uint8)
        self.numbers = np.empty((m, n_groups), np.int32)
        self.scores = np.empty((m, n_groups, 2) if n_groups else (m, 2), dtype)


class LocalScratch(threading.local):
    """Scratch of each thread, kept for the length of a pass: fresh pages are slow."""

    def __init__(self) -> None:
        self._scratch: Scratch | None = None

    def get(self, d: int, dtype: np.dtype, n_groups: int = 0) -> Scratch:
        if self._scratch is None:
            self._scratch = Scratch(d, dtype, n_groups)
        return self._scratch


def gathered(
    chunk: Chunk, failing: np.ndarray, most: int, *, unit: bool
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield rows of the chunk, at most so many, as indices, an array that holds them, indices in that."""
    rows = chunk.rows
    ready = not unit and rows.dtype == compute_dtype(rows.dtype) and rows.flags.c_contiguous
    for first in range(0, len(failing), most):
        which = failing[first : first + most]
        if ready:
            yield which, rows, which
            continue
        blocks = [block.rows for block in Chunk(rows[which]).blocks(unit=unit)]
        yield which, np.concatenate(blocks), np.arange(len(which))


def in_order(chunk: Chunk, most: int, *, unit: bool) -> Iterator[tuple[Chunk, np.ndarray]]:
    """Yield the whole chunk in blocks of at most so many rows, with their indices in the chunk."""
    for whole in chunk.blocks(unit=unit):
        for first in range(0, whole.n_rows, most):
            block = whole.slice(first, first + most)
            yield block, np.arange(block.start - chunk.start, block.stop - chunk.start)
