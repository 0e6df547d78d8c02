"""Grids of exact sums for a dataset: bounds of the addends, and sums of rows by cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from daskcluster.chunkwise.centres import raise_max_abs, row_arrays
from daskcluster.chunkwise.statistics import DataStatistics, KMeansStatistics
from daskcluster.kernels.accumulate import accumulate, accumulate_weighted, move, move_weighted
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.sparse_rows import Rows, SparseRows

_ROWS_OF_ONE_GRID = 1 << 26
PROBE_ROWS = 4096
"""Number of first rows that give the first bound, which thus does not depend on the chunks."""
HEADROOM = 2.0**8
_NO_RADIUS = 2.0**-28
_WIDER = 2.0**32
_OVER = 1.01


def _radius(rows: Rows, origin: np.ndarray, most: np.ndarray) -> float:
    """Return a bound on the distance of the rows from `origin`; `most` is their largest |x|."""
    if isinstance(rows, SparseRows) or len(rows) == 0:
        return _length(most + np.abs(origin))
    wide = origin.astype(np.float64)
    gap = np.maximum(rows.max(axis=0) - wide, wide - rows.min(axis=0))
    return _length(np.where(np.isfinite(gap), gap, 0.0))


@np.errstate(over="ignore")
def _length(vector: np.ndarray) -> float:
    return float(np.sqrt((vector * vector).sum()))


def _least_spread(scale: Scale) -> float:
    """Return a guess of the spread of rows whose differences are small relative to their magnitude."""
    radius = _NO_RADIUS * _length(scale.max_abs)
    return scale.n_rows * radius * radius


@dataclass(frozen=True)
class Scale:
    """Bounds on the addends of a dataset, which determine the grids of its sums.

    Rows may be far from zero but near each other. So sums of squared distances are bounded through the
    total squared distance from a point among the rows. These addends are not negative, so a grid that holds
    the total holds every partial sum.

    Attributes
    ----------
    n_rows : int
    max_abs : ndarray of shape (d,)
        Bound on the absolute feature values.
    max_weight : float
        Bound on the row weights; 1 if there are none.
    weighted : bool
    wide : bool
        Rows are float64.
    guessed : bool
        The bounds come from the first rows, with headroom, which makes the grids coarser.
    origin : ndarray of shape (d,), or None
        A point among the rows; None: zero.
    spread : float or None
        Bound on the sum of |x - origin|^2 over all rows; None: derived from `max_abs`.
    weighted_spread, weight : float or None
        Bounds on the weighted sum, and on the sum of the weights; None: derived from `max_weight`.
    """

    n_rows: int
    max_abs: np.ndarray
    max_weight: float
    weighted: bool
    wide: bool
    guessed: bool = False
    origin: np.ndarray | None = None
    spread: float | None = None
    weighted_spread: float | None = None
    weight: float | None = None

    @classmethod
    @np.errstate(over="ignore")  # the first pass refuses rows out of range
    def probe(
        cls, rows: Rows, n_rows: int, max_weight: float | None, origin: np.ndarray | None = None
    ) -> Scale:
        """Guess from the first rows, with headroom; the first pass confirms or refutes it."""
        known = np.zeros(rows.shape[1])
        # This leaves it if a row is not finite: the first pass refuses that.
        raise_max_abs(rows, known)
        # A feature that is zero so far gets the bound of the largest one.
        most = np.where(known > 0.0, known, known.max(initial=0.0)) * HEADROOM
        scale = cls(
            n_rows,
            np.ldexp(1.0, np.frexp(np.where(most > 0.0, most, 1.0))[1]),
            1.0 if max_weight is None else max_weight,
            max_weight is not None,
            rows.dtype == np.float64,
            guessed=True,
            origin=origin,
        )
        if origin is None:
            return scale
        radius = _radius(rows, origin, known) * HEADROOM
        if radius == 0.0:
            # Equal first rows say nothing about the distances of the others.
            far = scale.wide and known.any()
            return replace(scale, spread=_least_spread(scale) if far else None)
        return replace(scale, spread=n_rows * radius * radius)

    def covers(self, data_statistics: DataStatistics) -> bool:
        """Return whether all bounds hold; sums too large for their grid are detected."""
        return bool(np.all(data_statistics.max_abs <= self.max_abs)) and self._holds(
            data_statistics
        )

    def _holds(self, data_statistics: DataStatistics) -> bool:
        plain, weighted = self.totals
        return not (
            data_statistics.spread.value > plain or data_statistics.weighted_spread.value > weighted
        )

    def wider(self, data_statistics: DataStatistics) -> Scale:
        """Return the next scale to try after a guess that does not cover the statistics of a pass."""
        scale = self.with_max(data_statistics.max_abs)
        if self._holds(data_statistics):
            return scale
        return replace(scale, spread=max(_WIDER * self.totals[0], _least_spread(scale)))

    def after(self, data_statistics: DataStatistics) -> Scale:
        """Return the scale with the bounds found by a pass at this scale or a wider one."""
        scale = self
        while not scale._holds(data_statistics):
            scale = scale.wider(data_statistics)
        # The rounding error of the second grid of the data statistics, over all rows.
        plain, weighted = (self.n_rows**2 * 2.0**-100 * bound for bound in scale.totals)
        plain += _OVER * data_statistics.spread.value
        weighted += _OVER * data_statistics.weighted_spread.value
        return replace(
            self.with_max(data_statistics.max_abs),
            spread=plain,
            weighted_spread=weighted if self.weighted else plain,
            weight=_OVER * data_statistics.weight.value if self.weighted else float(self.n_rows),
        )

    def with_max(self, max_abs: np.ndarray) -> Scale:
        """Return the scale with known, not guessed, bounds on the values."""
        return replace(self, max_abs=max_abs, guessed=False)

    @property
    def two_grids(self) -> bool:
        """Whether sums of rows also need the grid of residuals."""
        most = _ROWS_OF_ONE_GRID >> 5 if self.guessed else _ROWS_OF_ONE_GRID
        return self.wide or self.weighted or self.n_rows > most

    @property
    def sums(self) -> SumGrid:
        """Grids of the sums of (weighted) rows, arrays of shape (d,).

        Created anew in each process: unpickled arrays may be read-only, which is another type for kernels.
        """
        return SumGrid.of(self.max_abs * self.max_weight, self.n_rows)

    @cached_property
    def totals(self) -> tuple[float, float]:
        """Bounds on the sum of |x - origin|^2, without and with weights."""
        plain = self.spread
        if plain is None:
            plain = self.n_rows * float((self._magnitude * self._magnitude).sum())
        weighted = self.weighted_spread
        return plain, plain * self.max_weight if weighted is None else weighted

    @property
    def _magnitude(self) -> np.ndarray:
        return self.max_abs if self.origin is None else self.max_abs + np.abs(self.origin)

    @property
    def _weight(self) -> float:
        return self.n_rows * self.max_weight if self.weight is None else self.weight

    @property
    def spreads(self) -> tuple[SumGrid, SumGrid]:
        """Grids of squared distances of all rows to `origin`, without and with weights."""
        plain, weighted = (SumGrid.of_total(bound * _OVER, self.n_rows) for bound in self.totals)
        return plain, weighted

    def squares(self, centres: np.ndarray, *, weighted: bool = True) -> float:
        """Return a bound on the sum of squared distances of all rows, each to any of `centres`."""
        away = centres.astype(np.float64)
        gap = np.abs(away if self.origin is None else away - self.origin).max(axis=0, initial=0.0)
        spread, weight = self.totals[int(weighted)], self._weight if weighted else self.n_rows
        # Minkowski: |x - c| <= |x - o| + |c - o|, and so do the roots of sums of their squares.
        root = math.sqrt(spread) + math.sqrt(weight) * _length(gap)
        return _OVER * root * root

    def squares_by_feature(self, centres: np.ndarray, *, weighted: bool = True) -> np.ndarray:
        """Return bounds on the same sum for each feature, shape (d,)."""
        magnitude = self.max_abs + np.abs(centres.astype(np.float64)).max(axis=0, initial=0.0)
        alone = (
            magnitude * magnitude * (self.n_rows * (self.max_weight if weighted else 1.0) * _OVER)
        )
        return np.minimum(alone, self.squares(centres, weighted=weighted))

    def distances(self, centres: np.ndarray) -> SumGrid:
        """Grids of weighted squared distances, of every row to one of `centres`."""
        return SumGrid.of_total(self.squares(centres), self.n_rows)

    def lengths(self, centres: np.ndarray) -> SumGrid:
        """Grids of weighted distances, of every row to one of `centres`."""
        total = math.sqrt(self._weight * self.squares(centres)) * _OVER
        return SumGrid.of_total(total, self.n_rows)

    @property
    def weights(self) -> SumGrid:
        """Grids of the row weights."""
        return SumGrid.of(self.max_weight, self.n_rows)


@dataclass(frozen=True)
class Grids:
    """Grids of the sums of rows, arrays of shape (d,), and of the weights."""

    sums: SumGrid
    weights: SumGrid

    @classmethod
    def of(cls, scale: Scale) -> Grids:
        return cls(scale.sums, scale.weights)

    def add(
        self,
        rows: Rows,
        labels: np.ndarray,
        weights: np.ndarray | None,
        into: KMeansStatistics,
    ) -> None:
        """Add (weighted) rows to the sums of their clusters, and weights to their counts."""
        arrays = row_arrays(rows)
        if into.sums_low is None:
            accumulate(arrays, labels, self.sums.high, into.sums, into.counts)
            return
        sums = self.sums, into.sums, into.sums_low
        of_weights = self.weights, into.counts, into.counts_low
        accumulate_weighted(arrays, labels, weights, *sums, *of_weights)

    def move(
        self,
        rows: Rows,
        which: np.ndarray,
        weights: np.ndarray | None,
        old: np.ndarray,
        new: np.ndarray,
        into: KMeansStatistics,
    ) -> None:
        """Remove ``rows[which]`` from the clusters `old` (-1: none), and add them to `new`."""
        changed = row_arrays(rows), which, old, new
        if into.sums_low is None:
            move(*changed, self.sums.high, into.sums, into.counts)
            return
        sums = self.sums, into.sums, into.sums_low
        move_weighted(*changed, weights, *sums, self.weights, into.counts, into.counts_low)
