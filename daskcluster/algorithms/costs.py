"""What a pass costs by its counts: rough figures that only have to rank the ways of making it.

In nanoseconds of one thread of a recent CPU for float32 rows; no clock is read, so that the same
fit makes the same decisions everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

_FMA = 0.013
"""One product of one feature of one row and one centre, in the tile."""
_PACK = 0.12
_SUM = 0.2
_MEASURE = 0.15
"""Per feature: packing a row for the tile, adding it to a sum, measuring it against its own centre."""
_READ = 0.03
_FETCH = 0.05
"""Per byte of a row that is read in order, and out of order."""
_DECODE = 4.0
"""Per byte of a row that is read from its store, out of core."""
_PLAIN_ROW, _SCREENED_ROW, _TOUCHED_ROW, _KEPT_ROW = 5.0, 5.0, 12.0, 15.0
_WINNER, _RUNNER_UP = 0.12, 0.3
"""Per centre: keeping the best, and the best two."""
_SCREENED_GROUP, _TOUCHED_GROUP, _MET_GROUP = 0.5, 8.0, 20.0


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
    """Of the problem: features, centres, bytes of a row, centres in a group; rows that are read again."""

    d: int
    k: int
    row_bytes: int
    group: int
    reads: bool = False

    def plain(self) -> float:
        """Return the cost of a row in a pass over all rows and centres."""
        work = self.d * (self.k * _FMA + _SUM + _PACK) + self.k * _WINNER
        return _PLAIN_ROW + work + self.row_bytes * _READ + self._decode(1.0)

    def all_fail(self) -> float:
        """Return the cost of a row within one lower bound where no bound holds."""
        return self.hamerly(Counts(1.0, 1.0 + self.k))

    def hamerly(self, counts: Counts) -> float:
        """Return the cost of a row within one lower bound."""
        kept = max(0.0, counts.distances - counts.touched) / self.k
        tile = self.k * (self.d * _FMA + _RUNNER_UP) + self.d * _PACK + _KEPT_ROW
        looked = counts.touched * self._touch() + kept * tile
        return _SCREENED_ROW + looked + self._decode(counts.read)

    def yinyang(self, counts: Counts) -> float:
        """Return the cost of a row within a bound for each group."""
        n_groups = -(-self.k // self.group)
        met = max(0.0, counts.distances - counts.touched)
        tile = met * (self.d * _FMA + _RUNNER_UP)
        tile += met / self.group * (self.d * _PACK + _MET_GROUP)
        touched = counts.touched * (self._touch() + n_groups * _TOUCHED_GROUP + _KEPT_ROW)
        screened = _SCREENED_ROW + n_groups * _SCREENED_GROUP
        return screened + touched + tile + self._decode(counts.read)

    def _decode(self, share: float) -> float:
        return share * self.row_bytes * _DECODE if self.reads else 0.0

    def _touch(self) -> float:
        return _TOUCHED_ROW + self.d * _MEASURE + self.row_bytes * _FETCH
