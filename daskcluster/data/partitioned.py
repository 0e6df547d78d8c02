"""Datasets given partition by partition, and stored datasets opened in place by each reader."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import OnRead, RowDataset
from daskcluster.data.partitions import MOST_BYTES
from daskcluster.data.recipes import DerivedRecipe, HeldRecipe, StoredRecipe
from daskcluster.storage.change_guard import ChangeGuard
from daskcluster.storage.location import Location
from daskcluster.typing import Range, Recipe, Visibility

WHOLE_BYTES = 256 << 20
"""Rows up to this size are one partition."""


def partition_edges(dataset: RowDataset, n_partitions: int | None) -> np.ndarray:
    """Return where about equal partitions begin, and n; int64.

    Parameters
    ----------
    dataset : RowDataset
    n_partitions : int or None
        How many, at most: those of stored rows are whole chunks. None: one for rows of up to 256 MB, else
        as many as it takes for 64 MB each.

    Examples
    --------
    >>> from daskcluster.data.open import open_source
    >>> rows = open_source(np.zeros((10, 2)))
    >>> partition_edges(rows, 3).tolist(), partition_edges(rows, None).tolist()
    ([0, 3, 6, 10], [0, 10])
    """
    n_rows = dataset.n_rows
    if n_partitions is None:
        size = dataset.bytes_of((0, n_rows))
        n_partitions = 1 if size <= WHOLE_BYTES else -(-size // MOST_BYTES)
    edges = np.linspace(0, n_rows, min(n_partitions, n_rows) + 1).astype(np.int64)
    if dataset.in_memory:
        return edges
    chunks = dataset.read_edges((0, n_rows))
    places = np.searchsorted(chunks, edges)
    # To the nearer chunk edge; what two partitions would share goes to one of them.
    below, above = chunks[np.maximum(places - 1, 0)], chunks[places]
    return np.unique(np.where(edges - below < above - edges, below, above))


class DerivedDataset(RowDataset):
    """Base of rows that are read from those of another dataset, where that one is stored."""

    base: RowDataset

    @property
    def source(self) -> str:
        return self.base.source

    @property
    def own_visibility(self) -> Visibility:
        return self.base.own_visibility

    def places(self) -> tuple[Location, ...]:
        return self.base.places()

    def _objects(self) -> tuple[Location, ...]:
        return self.base.stored_at()

    def may_change(self) -> Collection[str]:
        return self.base.may_change()

    def change_guard(self) -> ChangeGuard | None:
        return self.base.change_guard()


class PartitionedDataset(DerivedDataset):
    """The rows of a dataset, in partitions that are read as a whole and never cut.

    Parameters
    ----------
    base : RowDataset
    edges : ndarray of int64, shape (n_partitions + 1,)
        Where partitions begin, and n; see `partition_edges`.

    Examples
    --------
    >>> from daskcluster.data.open import open_source
    >>> base = open_source(np.arange(8.0).reshape(4, 2))
    >>> rows = PartitionedDataset(base, np.array([0, 1, 4]))
    >>> [(chunk.start, chunk.n_rows) for chunk in rows.chunks(rows.partitions)]
    [(0, 1), (1, 3)]
    """

    divisible = False

    def __init__(self, base: RowDataset, edges: np.ndarray) -> None:
        super().__init__(base.n_features, base.dtype, np.array(edges, np.int64))
        self.base, self.normalize = base, base.normalize

    def normalized(self) -> PartitionedDataset:
        return PartitionedDataset(self.base.normalized(), self._edges)

    @property
    def chunk_sizes(self) -> tuple[int, ...]:
        """Rows of every storage chunk of the base."""
        return self.base.chunk_sizes

    @property
    def partitions(self) -> tuple[Range, ...]:
        return tuple(pairwise(self._edges.tolist()))

    @property
    def row_bytes(self) -> int:
        return self.base.row_bytes

    def bytes_of(self, span: Range) -> int:
        return self.base.bytes_of(span)

    @property
    def in_memory(self) -> bool:
        return self.base.in_memory

    @property
    def weights(self) -> Any:
        return self.base.weights

    @property
    def visibility(self) -> Visibility:
        return self.base.visibility

    def own_recipe(self) -> Recipe:
        return DerivedRecipe(PartitionedDataset, self.base.recipe(), (tuple(self._edges.tolist()),))

    def recipe(self) -> Recipe:
        return self.own_recipe()

    def to_scratch(self, folder: str) -> PartitionedDataset:
        """Write the base to Zarr in `folder`, and return the same partitions of that."""
        return PartitionedDataset(self.base.to_scratch(folder), self._edges)

    def chunks(self, ranges: Iterable[Range], *, on_read: OnRead | None = None) -> Iterator[Chunk]:
        """Yield one chunk per range: views of rows in memory, anything else is read as a whole."""
        if self.base.in_memory:
            return self.base.chunks(ranges, on_read=on_read)
        return (self.base.load(span, on_read=on_read) for span in ranges if span[1] > span[0])

    def read_edges(self, span: Range) -> np.ndarray:
        return np.array(span, np.int64)

    def fetch(self, start: int, stop: int) -> Any:
        return self.load((start, stop)).rows

    def load(self, span: Range, *, on_read: OnRead | None = None) -> Chunk:
        return self.base.load(span, on_read=on_read)

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.base.take(rows)


class StoredDataset(RowDataset):
    """Base of datasets in a store; the recipe of one without a URL is found in this process alone."""

    _recipe: StoredRecipe | HeldRecipe

    @property
    def source(self) -> str:
        return self._recipe.source

    @property
    def own_visibility(self) -> Visibility:
        return self._recipe.visibility

    def own_recipe(self) -> Recipe:
        return self._recipe

    __reduce__ = RowDataset.by_recipe
