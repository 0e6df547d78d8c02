"""How the rows of an N-d array follow each other, and which slices of it hold given rows.

The last axis is the features; all other axes, in C order, are the rows. A matrix is the case of
one row axis. Rows are read in slabs along one axis, chosen so that no storage chunk is decoded
twice and, where possible, a slab is small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskcluster.data.partitions import MOST_BYTES


@dataclass(frozen=True)
class RowLayout:
    """The rows of an array of shape (..., d) stored in regular chunks.

    Parameters
    ----------
    shape, chunks : tuple of int
        Of the stored array, last axis included.
    itemsize : int

    Examples
    --------
    >>> layout = RowLayout((4, 3, 2), (2, 3, 2), 8)
    >>> layout.n_rows, layout.n_features, layout.edges.tolist()
    (12, 2, [0, 6, 12])
    >>> list(layout.pieces(4, 8))
    [((slice(1, 3, None),), 1, 5)]
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    itemsize: int

    @property
    def n_rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def n_features(self) -> int:
        return self.shape[-1]

    @cached_property
    def axis(self) -> int:
        """The axis along which slabs are cut; the axes before it have chunks of one."""
        n_row_axes = len(self.shape) - 1
        for axis in range(n_row_axes):
            slab = self.chunks[axis] * math.prod(self.shape[axis + 1 :]) * self.itemsize
            if slab <= MOST_BYTES or self.chunks[axis] > 1:
                return axis
        return n_row_axes - 1

    @property
    def inner(self) -> int:
        """Rows per index of the slab axis."""
        return math.prod(self.shape[self.axis + 1 : -1])

    @cached_property
    def edges(self) -> np.ndarray:
        """Row indices (int64) at which storage chunks begin, and n at the end."""
        length, step = self.shape[self.axis], self.chunks[self.axis]
        within = np.arange(0, length, step, dtype=np.int64) * self.inner
        per_prefix = length * self.inner
        n_prefixes = math.prod(self.shape[: self.axis])
        starts = np.arange(n_prefixes, dtype=np.int64)[:, None] * per_prefix + within
        return np.append(starts.ravel(), self.n_rows)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[tuple[slice | int, ...], int, int]]:
        """Yield ``(index, first, last)``: rows `first` to `last` of ``array[index]`` flattened."""
        per_prefix = self.shape[self.axis] * self.inner
        prefixes = self.shape[: self.axis]
        for prefix in range(start // per_prefix, -(-stop // per_prefix)):
            origin = prefix * per_prefix
            low, high = max(start - origin, 0), min(stop - origin, per_prefix)
            first, last = low // self.inner, -(-high // self.inner)
            fixed = tuple(int(i) for i in np.unravel_index(prefix, prefixes)) if prefixes else ()
            skipped = first * self.inner
            yield (*fixed, slice(first, last)), low - skipped, high - skipped
