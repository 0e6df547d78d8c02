"""Partitions: ranges of rows that one thread reads and computes on, fixed by the dataset alone."""

from __future__ import annotations

from itertools import pairwise

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
    target = partition_rows(int(edges[-1]), row_bytes) * max(1, row_bytes)
    ends = edges * max(1, row_bytes)
    return _grouped(edges, ends, target, least_rows(row_bytes), int(ends[-1]))


def group_by_bytes(edges: np.ndarray, ends: np.ndarray) -> tuple[Range, ...]:
    """Return partitions of about equal bytes, for rows that differ in size.

    As large as `partition_rows` has them for equal rows, and cut at `edges` only.

    Parameters
    ----------
    edges : ndarray of int64, shape (n_chunks + 1,)
        Row indices at which partitions may begin, and n; strictly increasing.
    ends : ndarray of int64, shape (n_chunks + 1,)
        Bytes of all rows before each edge.

    Examples
    --------
    >>> import numpy as np
    >>> group_by_bytes(np.array([0, 2000, 4000, 6000]), np.array([0, 1, 3, 4]) << 20)
    ((0, 2000), (2000, 4000), (4000, 6000))
    """
    target = min(max(int(ends[-1]) // WANTED_PARTITIONS, LEAST_BYTES), MOST_BYTES)
    return _grouped(edges, ends, target, LEAST_ROWS, MOST_BYTES)


def _grouped(
    edges: np.ndarray, ends: np.ndarray, target: int, least_rows: int, most_bytes: int
) -> tuple[Range, ...]:
    """Return partitions of about `target` bytes, of at least so many rows if they are not too large."""
    last_edge, cuts = len(edges) - 1, [0]
    while cuts[-1] < last_edge:
        first = cuts[-1]
        last = _last_within(ends, first, target)
        enough = int(np.searchsorted(edges, edges[first] + least_rows, side="left"))
        last = max(last, min(enough, _last_within(ends, first, most_bytes)), first + 1)
        cuts.append(min(last, last_edge))
    short = len(cuts) > 2 and edges[-1] - edges[cuts[-2]] < least_rows
    if short and ends[-1] - ends[cuts[-3]] <= most_bytes:
        del cuts[-2]
    return tuple((int(edges[a]), int(edges[b])) for a, b in pairwise(cuts))


def read_spans(span: Range, edges: np.ndarray, ends: np.ndarray) -> list[Range]:
    """Cut `span` at chunk edges into reads of about 8 MB: whole chunks, at least one.

    `ends` are the bytes of all rows before each edge.
    """
    start, stop = span
    spans: list[Range] = []
    while start < stop:
        home = int(np.searchsorted(edges, start, side="right")) - 1
        last = max(_last_within(ends, home, READ_BYTES), home + 1)
        end = min(int(edges[last]), stop)
        spans.append((start, end))
        start = end
    return spans


def _last_within(ends: np.ndarray, first: int, n_bytes: int) -> int:
    """Return the last edge that is at most `n_bytes` beyond edge `first`."""
    return int(np.searchsorted(ends, ends[first] + n_bytes, side="right")) - 1
