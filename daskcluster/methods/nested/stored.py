"""Nested batches of stored rows: prefixes of one random order of the rows, as datasets.

Every row has a place, 64 random bits that belong to its index. The batch of b rows is those with the b
lowest places, so that a larger batch holds every smaller one, a batch is a simple random sample
however the rows are sorted or chunked, and each partition (hence each worker) holds about its
share of each batch: of the rows that join when a batch grows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import OnRead, RowDataset, check_rows
from daskcluster.data.recipes import DerivedRecipe
from daskcluster.methods.nested.gathered import NestedOrder, row_blocks
from daskcluster.sparse_rows import join_rows
from daskcluster.typing import Range, Recipe, Visibility


class NestedBatchDataset(RowDataset):
    """The rows of a dataset whose positions lie in a range, in the order of their indices.

    Nothing is copied: rows are picked from the chunks of the dataset as these are read.

    Parameters
    ----------
    base : RowDataset
    order : NestedOrder
    low, high : int
        Places from `low` to below `high`.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.open import open_source
    >>> base = open_source(np.arange(20.0).reshape(10, 2))
    >>> NestedBatchDataset(base, NestedOrder(10, None), 3, 5).to_numpy()
    array([[6., 7.],
           [8., 9.]])
    """

    def __init__(self, base: RowDataset, order: NestedOrder, low: int, high: int) -> None:
        self.base = base
        self._order, self._low, self._high = order, low, high
        self._base_edges = np.concatenate([[0], np.cumsum(base.chunk_sizes, dtype=np.int64)])
        counts = self._count()
        self._partition_numbers = np.flatnonzero(counts)
        edges = np.concatenate([[0], np.cumsum(counts[self._partition_numbers])]).astype(np.int64)
        super().__init__(base.n_features, base.dtype, edges)
        self.normalize = base.normalize

    def normalized(self) -> NestedBatchDataset:
        return NestedBatchDataset(self.base.normalized(), self._order, self._low, self._high)

    def _count(self) -> np.ndarray:
        """Return how many rows each chunk of the base has."""
        counts = np.zeros(len(self._base_edges) - 1, np.int64)
        for start, stop in row_blocks(self.base.n_rows):
            rows = self._within(start, stop) + start
            partition_numbers = np.searchsorted(self._base_edges, rows, side="right") - 1
            counts += np.bincount(partition_numbers, minlength=len(counts))
        return counts

    def _within(self, start: int, stop: int) -> np.ndarray:
        return self._order.within(start, stop, self._low, self._high)

    # -- facts -----------------------------------------------------------------------------

    @property
    def whole(self) -> RowDataset:
        return self.base.whole

    @property
    def source(self) -> str:
        return f"{self.n_rows} rows of {self.base.source}"

    @property
    def row_bytes(self) -> int:
        """Decoded bytes of one row; of sparse rows, on average."""
        return self.base.row_bytes

    @property
    def own_visibility(self) -> Visibility:
        return self.base.own_visibility

    @property
    def visibility(self) -> Visibility:
        return self.base.visibility

    @property
    def weights(self) -> Any:
        """Weights of these rows, picked from those of the base when they are read; or None."""
        return None if self.base.weights is None else NestedBatchWeights(self)

    def own_recipe(self) -> Recipe:
        arguments = self._order, self._low, self._high
        return DerivedRecipe(NestedBatchDataset, self.base.recipe(), arguments)

    def recipe(self) -> Recipe:
        return self.own_recipe()

    def to_scratch(self, folder: str) -> NestedBatchDataset:
        """Write the base to Zarr in `folder`, and return the same rows of that."""
        return NestedBatchDataset(self.base.to_scratch(folder), self._order, self._low, self._high)

    # -- reading ---------------------------------------------------------------------------

    def chunks(self, ranges: Iterable[Range], *, on_read: OnRead | None = None) -> Iterator[Chunk]:
        """Yield the rows of `ranges` in order, as the base reads them; `on_read` gets the bytes."""
        ahead: deque[Range] = deque()
        position = -1
        for chunk in self.base.chunks(self._base_ranges(ranges, ahead), on_read=on_read):
            first, end = ahead[0]
            position = first if position < 0 else position
            which = self._within(chunk.start, chunk.stop)
            if len(which):
                weights = None if chunk.weights is None else chunk.weights[which]
                yield Chunk(chunk.rows[which], position, weights, chunk.normalize)
            position += len(which)
            if chunk.stop >= end:
                ahead.popleft()
                position = -1
            del chunk  # not kept while the next one is awaited

    def _base_ranges(self, ranges: Iterable[Range], ahead: deque[Range]) -> Iterator[Range]:
        """Yield what has to be read of the base; note in `ahead` its first row here and its end there."""
        for start, stop in ranges:
            if stop > start:
                first, end = self._base_range(start, stop)
                ahead.append((start, end))
                yield first, end

    def _base_range(self, start: int, stop: int) -> Range:
        """Return the range of the base that holds rows `start` to `stop`: whole chunks if it can."""
        chunk = int(np.searchsorted(self._edges, start, side="right")) - 1
        last = int(np.searchsorted(self._edges, stop, side="left")) - 1
        first, end = (
            self._base_edges[self._partition_numbers[chunk]],
            self._base_edges[self._partition_numbers[last] + 1],
        )
        if self._edges[chunk] != start:
            first = self.rows_at(np.array([start]))[0]
        if self._edges[last + 1] != stop:
            end = self.rows_at(np.array([stop - 1]))[0] + 1
        return int(first), int(end)

    def rows_at(self, positions: np.ndarray) -> np.ndarray:
        """Return where in the base the rows at `positions` are, int64."""
        found = np.empty(len(positions), np.int64)
        chunks = np.searchsorted(self._edges, positions, side="right") - 1
        for chunk in np.unique(chunks):
            start, stop = self._base_edges[
                self._partition_numbers[chunk] : self._partition_numbers[chunk] + 2
            ].tolist()
            here = chunks == chunk
            found[here] = start + self._within(start, stop)[positions[here] - self._edges[chunk]]
        return found

    def fetch(self, start: int, stop: int) -> Any:
        return self.load((start, stop)).rows

    def load(self, span: Range, *, on_read: OnRead | None = None) -> Chunk:
        """Return the rows of one range as one chunk that owns its memory."""
        chunks = list(self.chunks([span], on_read=on_read))
        if not chunks:
            return self.base.load((0, 0))
        weights = [chunk.weights for chunk in chunks if chunk.weights is not None]
        rows = join_rows([chunk.rows for chunk in chunks])
        joined = np.concatenate(weights) if weights else None
        return Chunk(rows, span[0], joined, self.normalize)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the given rows, in the given order and dense."""
        return self.base.take(self.rows_at(check_rows(rows, self.n_rows)))


class NestedBatchWeights:
    """Weights of the rows of a nested batch, taken from those of the base on demand."""

    def __init__(self, nested_batch: NestedBatchDataset) -> None:
        self._nested_batch = nested_batch
        self.shape = (nested_batch.n_rows,)

    def __len__(self) -> int:
        return self._nested_batch.n_rows

    def __getitem__(self, span: slice) -> np.ndarray:
        start, stop, step = span.indices(len(self))
        if stop <= start:
            return np.empty(0)
        rows = self._nested_batch.rows_at(np.arange(start, stop))
        first = int(rows[0])
        weights = np.asarray(self._nested_batch.base.weights[first : int(rows[-1]) + 1], np.float64)
        return weights[rows - first][::step]

    def max(self) -> float:
        """Return the largest weight, block by block."""
        return max(float(self[start:stop].max()) for start, stop in row_blocks(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[0 : len(self)].astype(dtype or np.float64, copy=False)
