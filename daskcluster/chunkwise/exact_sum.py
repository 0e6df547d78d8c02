"""Sums that do not depend on the order of their terms.

Floating-point addition is not associative. Here every addend v is first rounded to a grid of
spacing u, as (v + M) - M with M = 1.5 * 2**52 * u, where u is so large that any partial sum of n
addends of at most ``max_abs`` is a multiple of u below 2**53 u. Such sums are exact; hence they
are associative and commutative, and subtraction undoes addition. Where one grid is too coarse
(float64 rows, weights, many rows) the exact residuals are summed on a second, finer one.

The idea of pre-rounding to a common grid is that of reproducible summation (Demmel and Nguyen,
"Fast Reproducible Floating-Point Summation", ARITH 2013); what differs is that M comes from a
bound known before the pass, so that the loop has no carry and no branch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskcluster.chunkwise.rows import raise_max_abs
from daskcluster.sparse_rows import Rows, SparseRows

_LEAST_EXPONENT, _MOST_EXPONENT = -900, 1024
_ROWS_OF_ONE_GRID = 1 << 26
PROBE_ROWS = 4096
"""The first bound comes from this many first rows: a fact of the dataset, not of its chunks."""
HEADROOM = 2.0**8


def grid_shift(max_abs: np.ndarray | float, n_rows: int) -> np.ndarray:
    """Return M of the grid on which `n_rows` addends of at most `max_abs` sum exactly.

    Examples
    --------
    >>> from daskcluster.chunkwise.exact_sum import grid_shift
    >>> m = grid_shift(1.0, 1000)
    >>> float((0.1 + m) - m) != 0.1, abs(float((0.1 + m) - m) - 0.1) < 2**-40
    (True, True)
    """
    # frexp: |max_abs| < 2**exponent. At least two bits for rows keep v + M in M's own binade.
    rows = max(2, (max(1, int(n_rows)) - 1).bit_length())
    if isinstance(max_abs, float):  # as below, in a fifth of the time
        power = max(math.frexp(max_abs)[1] + rows, _LEAST_EXPONENT)
        return np.asarray(math.ldexp(1.5, power) if power < _MOST_EXPONENT else math.inf)
    _, exponent = np.frexp(np.asarray(max_abs, dtype=np.float64))
    return np.asarray(np.ldexp(1.5, np.maximum(exponent + rows, _LEAST_EXPONENT)))


def residual_shift(shift: np.ndarray | float, n_rows: int) -> np.ndarray:
    """Return M of the second grid, for what rounding to the first one leaves (at most u / 2)."""
    return grid_shift(np.ldexp(np.asarray(shift) / 1.5, -53), n_rows)


def round_to_grid(values: np.ndarray | float, shift: np.ndarray | float) -> np.ndarray:
    """Round `values` to the grid of `shift`."""
    return np.asarray((values + shift) - shift)


def _largest_finite(rows: Rows) -> np.ndarray:
    """Return the largest finite |x| of each feature, float64 (d,)."""
    known = np.zeros(rows.shape[1])
    if raise_max_abs(rows, known)[0] < 0:
        return known
    values = rows.data if isinstance(rows, SparseRows) else rows
    with np.errstate(invalid="ignore"):
        finite = np.where(np.isfinite(values), np.abs(values.astype(np.float64)), 0.0)
    if not isinstance(rows, SparseRows):
        return np.asarray(finite.max(axis=0, initial=0.0))
    most = np.zeros(rows.n_features)
    np.maximum.at(most, rows.indices, finite)
    return most


@dataclass(frozen=True)
class Scale:
    """How large the addends of a dataset can be, hence the grids of its sums.

    Attributes
    ----------
    n_rows : int
    max_abs : ndarray of shape (d,)
        Bound of the absolute feature values.
    max_weight : float
        Bound of the row weights; 1 where there are none.
    weighted : bool
    wide : bool
        Rows are float64.
    guessed : bool
        The bounds come from the first rows, with headroom: grids are coarser by that much.
    """

    n_rows: int
    max_abs: np.ndarray
    max_weight: float
    weighted: bool
    wide: bool
    guessed: bool = False

    @classmethod
    def probe(cls, rows: Rows, n_rows: int, max_weight: float | None) -> Scale:
        """Guess from the first rows, with headroom; the first pass confirms or refutes it."""
        most = _largest_finite(rows)
        # A feature that is zero so far gets the reach of the largest one.
        most = np.where(most > 0.0, most, most.max(initial=0.0)) * HEADROOM
        return cls(
            n_rows,
            np.ldexp(1.0, np.frexp(np.where(most > 0.0, most, 1.0))[1]),
            1.0 if max_weight is None else max_weight,
            max_weight is not None,
            rows.dtype == np.float64,
            guessed=True,
        )

    def covers(self, max_abs: np.ndarray) -> bool:
        return bool(np.all(max_abs <= self.max_abs))

    def with_max(self, max_abs: np.ndarray) -> Scale:
        """Return the scale with bounds that are known, not guessed."""
        return Scale(self.n_rows, max_abs, self.max_weight, self.weighted, self.wide)

    @property
    def two_grids(self) -> bool:
        """Whether sums of rows need the residuals' grid as well."""
        most = _ROWS_OF_ONE_GRID >> 5 if self.guessed else _ROWS_OF_ONE_GRID
        return self.wide or self.weighted or self.n_rows > most

    @cached_property
    def sums(self) -> np.ndarray:
        """M of the sums of (weighted) rows, shape (d,)."""
        return grid_shift(self.max_abs * self.max_weight, self.n_rows)

    @cached_property
    def low_sums(self) -> np.ndarray:
        """M of what the grid of `sums` leaves over, shape (d,)."""
        return residual_shift(self.sums, self.n_rows)

    def distances(self, centres: np.ndarray) -> np.ndarray:
        """M of weighted squared distances between any row and any of `centres`, a scalar."""
        reach = self.max_abs + np.abs(centres.astype(np.float64)).max(axis=0, initial=0.0)
        return grid_shift(float((reach * reach).sum()) * self.max_weight * 1.01, self.n_rows)

    def lengths(self, centres: np.ndarray) -> np.ndarray:
        """M of weighted distances between any row and any of `centres`, a scalar."""
        reach = self.max_abs + np.abs(centres.astype(np.float64)).max(axis=0, initial=0.0)
        most = float(np.sqrt((reach * reach).sum()))
        return grid_shift(most * self.max_weight * 1.01, self.n_rows)

    @property
    def spread(self) -> np.ndarray:
        """M of weighted squared distances between any two rows, a scalar."""
        return self.distances(self.max_abs[None, :])

    @property
    def weights(self) -> np.ndarray:
        """M of the row weights, a scalar."""
        return grid_shift(self.max_weight, self.n_rows)
