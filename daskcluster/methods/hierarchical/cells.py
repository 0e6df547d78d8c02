"""Cells: the rows grouped by their nearest coarse centre."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.assign import RowParams, label_rows, prepare_rows
from daskcluster.sparse_rows import Rows, SparseRows, join_rows
from daskcluster.typing import Dataset, Range

_SHARE, _LEAST_BYTES, _MOST_BYTES = 16, 64 << 20, 4 << 30


def gather_cells(
    dataset: Dataset,
    centres: np.ndarray,
    sizes: np.ndarray,
    span: Range,
    *,
    labels: np.ndarray | None = None,
    on_read: Callable[[int], None] | None = None,
) -> list[Chunk]:
    """Return the rows of some consecutive cells, each in the order of the dataset.

    Parameters
    ----------
    dataset : Dataset
    centres : ndarray of shape (c, d)
        Of all cells.
    sizes : ndarray of shape (c,), int64
        Rows of each cell.
    span : (first, last)
        Cells `first` to below `last`.
    labels : ndarray of shape (n,), int32, optional
        The cell of every row, if known; else rows are labelled while they are read.
    on_read : callable (int) -> None
        Called with the decoded bytes of every block fetched from the store.

    Returns
    -------
    list of Chunk
        In the dtype of the source; their ``start`` is meaningless.

    Notes
    -----
    Cost: one pass, c distances a row unless `labels` are given. Memory: the rows of the cells, twice
    if they are sparse.
    """
    first, last = span
    counts = sizes[first:last].astype(np.int64)
    gathered = _Gathered(dataset, counts)
    dtype = compute_dtype(dataset.dtype)
    prepared = prepare_rows(RowParams(np.ascontiguousarray(centres, dtype)))
    for chunk in dataset.chunks(dataset.partitions, on_read=on_read):
        if labels is None:
            found = label_rows(chunk, prepared)
        else:
            found = labels[chunk.start : chunk.stop]
        which = np.flatnonzero((found >= first) & (found < last))
        if len(which):
            gathered.add(chunk, which, found[which] - first)
        del chunk
    return gathered.cells()


class _Gathered:
    """Room for the rows of some cells, filled as chunks come."""

    def __init__(self, dataset: Dataset, counts: np.ndarray) -> None:
        self._counts = counts
        self._edges = np.concatenate([[0], np.cumsum(counts)])
        self._filled = self._edges[:-1].copy()
        self._shape = int(self._edges[-1]), dataset.n_features
        self._dtype, self._normalize = dataset.dtype, dataset.normalize
        self._rows: np.ndarray | None = None
        self._parts: list[SparseRows] = []
        self._places: list[np.ndarray] = []
        self._weights = None if dataset.weights is None else np.empty(self._shape[0])

    def add(self, chunk: Chunk, which: np.ndarray, cells: np.ndarray) -> None:
        """Append the rows `which` of a chunk to their cells."""
        order = np.argsort(cells, kind="stable")
        counts = np.bincount(cells, minlength=len(self._counts))
        starts = self._filled - (np.cumsum(counts) - counts)
        places = np.arange(len(which)) + np.repeat(starts, counts)
        self._filled += counts
        which = which[order]
        if self._weights is not None and chunk.weights is not None:
            self._weights[places] = chunk.weights[which]
        if isinstance(chunk.rows, SparseRows):
            self._parts.append(chunk.rows[which])
            self._places.append(places)
            return
        if self._rows is None:
            self._rows = np.empty(self._shape, self._dtype)
        self._rows[places] = chunk.rows[which]

    def cells(self) -> list[Chunk]:
        """Return the rows of every cell."""
        rows: Rows = np.empty(self._shape, self._dtype) if self._rows is None else self._rows
        order: np.ndarray | None = None
        if self._parts:
            # The inverse of the destinations gives the next row of each cell.
            order = np.empty(self._shape[0], np.int64)
            order[np.concatenate(self._places)] = np.arange(self._shape[0])
            rows = join_rows(self._parts)
        return [
            Chunk(
                rows[first:last] if order is None else rows[order[first:last]],
                0,
                None if self._weights is None else self._weights[first:last],
                self._normalize,
            )
            for first, last in pairwise(self._edges.tolist())
        ]


def n_groups(n_bytes: int) -> int:
    """Return the number of groups in which cells are gathered, for rows of that many bytes.

    Each is a sixteenth of the rows, but at least 64 MB, and at most 4 GB.

    Examples
    --------
    >>> n_groups(10 << 20), n_groups(256 << 20), n_groups(10 << 30), n_groups(1 << 40)
    (1, 4, 16, 256)
    """
    return max(1, -(-n_bytes // group_bytes(n_bytes)))


def group_bytes(n_bytes: int) -> int:
    """Return the bytes of rows of a group, of `n_bytes` in total."""
    return min(max(-(-n_bytes // _SHARE), _LEAST_BYTES), _MOST_BYTES)


def cell_groups(sizes: np.ndarray, groups: int) -> Sequence[Range]:
    """Cut cells into at most that many groups of consecutive cells of about the same number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> cell_groups(np.array([5, 1, 1, 3, 0, 6]), 3)
    [(0, 1), (1, 5), (5, 6)]
    """
    ends = np.cumsum(sizes)
    middles = ends - sizes / 2.0
    group_numbers = np.minimum((middles * groups / max(1, ends[-1])).astype(np.int64), groups - 1)
    cuts = [0, *(np.flatnonzero(np.diff(group_numbers)) + 1).tolist(), len(sizes)]
    return list(pairwise(cuts))
