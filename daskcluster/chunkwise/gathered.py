"""Rows of a chunk, as kernels take them: an array that holds them, and where in it each one stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import BLOCK_BYTES, Chunk, compute_dtype


@dataclass(frozen=True)
class Gathered:
    """Some rows of a chunk.

    Attributes
    ----------
    which : ndarray of shape (m,), int64
        Their indices in the chunk.
    rows : ndarray of shape (>= m, d)
        Ready for the kernels.
    at : ndarray of shape (m,), int64
        Their indices in `rows`.
    """

    which: np.ndarray
    rows: np.ndarray
    at: np.ndarray


def gathered(chunk: Chunk, which: np.ndarray, *, unit: bool) -> Iterator[Gathered]:
    """Yield the rows `which` of a chunk: where they are if possible, else in converted blocks."""
    rows = chunk.rows
    dtype = compute_dtype(rows.dtype)
    if not unit and rows.dtype == dtype and rows.flags.c_contiguous:
        yield Gathered(which, rows, which)
        return
    step = max(1, BLOCK_BYTES // max(1, dtype.itemsize * rows.shape[1]))
    for first in range(0, len(which), step):
        part = which[first : first + step]
        blocks = [block.rows for block in Chunk(rows[part]).blocks(unit=unit)]
        yield Gathered(part, np.concatenate(blocks), np.arange(len(part)))
