"""Partitions: the unit of state, caching and accounting, fixed by the dataset alone."""

from __future__ import annotations

import numpy as np

from daskcluster.typing import Range

LEAST_BYTES = 1 << 20
MOST_BYTES = 64 << 20
LEAST_ROWS = 1024
WANTED_PARTITIONS = 1024
READ_BYTES = 8 << 20
"""Small storage chunks are read together up to about this many bytes, large ones handed over so."""


def partition_rows(n_rows: int, row_bytes: int) -> int:
    """Return how many rows a partition should have.

    Total bytes over 1024, but 1 to 64 MB, and at least 1,024 rows; rows so wide that 1,024 of them
    exceed 64 MB are the one exception, since the memory bound matters more.
    """
    row_bytes = max(1, row_bytes)
    wanted = min(max(n_rows * row_bytes // WANTED_PARTITIONS, LEAST_BYTES), MOST_BYTES)
    return max(wanted // row_bytes, least_rows(row_bytes))


def least_rows(row_bytes: int) -> int:
    """Return the fewest rows of a partition: 1,024, or what 64 MB hold of very wide rows."""
    return min(LEAST_ROWS, max(1, MOST_BYTES // max(1, row_bytes)))


def cut_rows(n_rows: int, row_bytes: int) -> np.ndarray:
    """Return partition edges (int64) of an array in memory, which may be cut anywhere."""
    parts = max(1, -(-n_rows // partition_rows(n_rows, row_bytes)))
    if n_rows // parts < least_rows(row_bytes):
        parts = max(1, n_rows // least_rows(row_bytes))
    return np.linspace(0, n_rows, parts + 1).astype(np.int64)


def group_chunks(edges: np.ndarray, row_bytes: int) -> tuple[Range, ...]:
    """Return partitions of consecutive whole chunks.

    Parameters
    ----------
    edges : ndarray of int64, shape (n_chunks + 1,)
        Row indices at which chunks begin, and n; strictly increasing.
    row_bytes : int
    """
    n_rows = int(edges[-1])
    target, least = partition_rows(n_rows, row_bytes), least_rows(row_bytes)
    parts: list[Range] = []
    first = 0
    while first < len(edges) - 1:
        start = int(edges[first])
        last = int(np.searchsorted(edges, start + target, side="right")) - 1
        if edges[last] - start < least:
            last = int(np.searchsorted(edges, start + least, side="left"))
        last = min(max(last, first + 1), len(edges) - 1)
        parts.append((start, int(edges[last])))
        first = last
    if len(parts) > 1 and parts[-1][1] - parts[-1][0] < least:
        (_, stop), (start, _) = parts.pop(), parts.pop()
        parts.append((start, stop))
    return tuple(parts)


def read_spans(span: Range, edges: np.ndarray, row_bytes: int) -> list[Range]:
    """Cut `span` at chunk edges into reads of about 8 MB: whole chunks, at least one."""
    start, stop = span
    step = max(1, READ_BYTES // max(1, row_bytes))
    spans: list[Range] = []
    while start < stop:
        last = int(np.searchsorted(edges, start + step, side="right")) - 1
        if edges[last] <= start:
            last = int(np.searchsorted(edges, start, side="right"))
        end = min(int(edges[last]), stop)
        spans.append((start, end))
        start = end
    return spans
