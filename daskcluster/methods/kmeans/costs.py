"""What a pass costs by its counts: rough figures that only have to rank the ways of making it.

In nanoseconds of one thread of a recent CPU for float32 rows. No clock is read, so that the same
fit makes the same decisions wherever kernels have the same tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_FMA = 0.018
"""One product of one feature of one row and one centre, in the tile of AVX-512."""
_SLOWER = {"avx512": 1.0, "avx2": 1.65, "neon": 4.0, "portable": 4.0}
"""The same in other tiles, on one CPU; see `tile_slowness`."""
_PREPARE = 0.27
"""Per feature of a row in a pass over all: packing it for the tile, adding it to a sum."""
_MEASURE = 0.4
"""Per feature of a row that is looked at: measuring it against its own centre, packing, moving."""
_READ = 0.03
_FETCH = 0.13
"""Per byte of a row that is read in order, and out of order."""
_DECODE = 4.0
"""Per byte of a row that is read from its store, out of core."""
_PLAIN_ROW, _SCREENED_ROW, _TOUCHED_ROW = 3.5, 7.0, 15.0
_WINNER, _RUNNER_UP = 0.1, 0.6
"""Per centre: keeping the best, and the best two."""


def tile_slowness(dtype: np.dtype[Any], tile: str) -> float:
    """Return what a product takes in a tile, in that of float32 in the tile of AVX-512.

    Examples
    --------
    >>> tile_slowness(np.dtype("float64"), "avx512")
    2.0
    """
    return _SLOWER[tile] * dtype.itemsize / 4


@dataclass(frozen=True)
class Counts:
    """What a pass did, as shares of the rows.

    Attributes
    ----------
    touched : float
        Rows that were looked at.
    distances : float
        Distances to centres, per row of the dataset.
    read : float
        Rows that have to be read from their store for it.
    """

    touched: float
    distances: float
    read: float = 1.0


@dataclass(frozen=True)
class Shape:
    """Of the problem: features, centres, bytes of a row, centres in a group; rows that are read again.

    `slowness` is what products take, in that of float32 in the tile of AVX-512.
    """

    d: int
    k: int
    row_bytes: int
    group: int
    reads: bool = False
    slowness: float = 1.0

    def plain(self) -> float:
        """Return the cost of a row in a pass over all rows and centres."""
        tile = self.met(self.k, _WINNER)
        return _PLAIN_ROW + self.d * _PREPARE + tile + self.row_bytes * _READ + self.decode(1.0)

    def all_fail(self) -> float:
        """Return the cost of a row within one lower bound where no bound holds."""
        return self.one_bound(Counts(1.0, 1.0 + self.k))

    def one_bound(self, counts: Counts) -> float:
        """Return the cost of a row within one lower bound."""
        met = max(0.0, counts.distances - counts.touched)
        looked = counts.touched * (_TOUCHED_ROW + self.fetch())
        tile = self.met(met, _RUNNER_UP)
        return _SCREENED_ROW + looked + tile + self.decode(counts.read)

    def met(self, centres: float, keeping: float) -> float:
        """Return the cost of so many centres in the tile, where `keeping` is that of the best of them."""
        return self.slowness * centres * (self.d * _FMA + keeping)

    def decode(self, share: float) -> float:
        """Return the cost of reading this share of the rows from their store."""
        return share * self.row_bytes * _DECODE if self.reads else 0.0

    def fetch(self) -> float:
        """Return the cost of moving a row that is looked at, and of measuring it against its own centre."""
        return self.d * _MEASURE + self.row_bytes * _FETCH
