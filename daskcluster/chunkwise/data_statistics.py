"""Data statistics: extremes, moments, NaN and infinity, gathered by the first pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres, raise_max_abs
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import DataStatistics, Reduction
from daskcluster.errors import InvalidDataError
from daskcluster.kernels.sum_grid import grid_shift
from daskcluster.sparse_rows import Rows, SparseRows

RANGES = {
    np.dtype(np.float32): (1e-16, 1e16),
    np.dtype(np.float64): (1e-120, 1e120),
}
"""Bounds on the largest magnitude in a dataset, by dtype."""


@dataclass(frozen=True)
class DataStatisticsParams:
    """The origin of the moments, and the scale to try.

    Attributes
    ----------
    origin : ndarray of shape (d,)
        In the compute dtype.
    scale : Scale
    """

    origin: np.ndarray
    scale: Scale


class _PreparedOrigin:
    def __init__(self, params: DataStatisticsParams) -> None:
        scale = params.scale
        self.params, self.origin = params, PreparedCentres(params.origin[None, :])
        self.shift = grid_shift(scale.max_abs, scale.n_rows)
        self.grids = (*scale.spreads, scale.weights)

    def zero(self) -> DataStatistics:
        return DataStatistics.zero(self.params.origin)

    def add(self, chunk: Chunk, into: DataStatistics) -> None:
        for block in chunk.blocks():
            bad, is_nan, (spread, weighted, weight) = self.origin.look(
                block.rows, block.weights, self.shift, self.grids, into.sums, into.max_abs
            )
            if bad >= 0:
                into.note_bad(block.start + bad, is_nan)
                return  # the fit ends with an error; further statistics would be NaN
            into.spread.add(*spread)
            into.weighted_spread.add(*weighted)
            into.weight.add(*weight)
            into.n_rows += block.n_rows
            if chunk.normalize:
                into.n_zero += int(np.count_nonzero(block.masses[_rows_of_zeros(block.rows)]))


def _rows_of_zeros(rows: Rows) -> np.ndarray:
    """Return the numbers of the rows that have no value but zero."""
    if isinstance(rows, SparseRows):
        filled = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))[rows.data != 0.0]
        return np.flatnonzero(np.bincount(filled, minlength=len(rows)) == 0)
    candidates = np.flatnonzero(rows[:, 0] == 0.0)
    return candidates[~rows[candidates].any(axis=1)]


def bad_row_error(row: int, is_nan: bool, where: str = "") -> InvalidDataError:
    """Return the error that names a row that is not finite; it begins as scikit-learn's does."""
    what = "NaN" if is_nan else "infinity or a value too large for the dtype"
    first = "" if is_nan else "Turn infinite values into NaN in the source. "
    return InvalidDataError(
        f"Input X contains {what}: first in row {row}{where}; rows must be finite. {first}"
        "Leave rows with NaN out with open_dataset(X, missing='drop'), fill them in with missing='mean' "
        "(--missing), or impute them before clustering."
    )


def refuse_rows(
    rows: Rows, name: Callable[[int], int], where: str = "", *, normalize: bool = False
) -> None:
    """Raise `InvalidDataError` if a row is not finite or out of range; costs one scan of their bytes.

    Parameters
    ----------
    rows : Rows
    name : callable
        (position of a row) -> its number in errors.
    where : str
        Text in errors that locates a row that is not finite.
    normalize : bool
        The rows will be scaled to length one, so that none is too large.
    """
    most = np.zeros(rows.shape[1])
    bad, is_nan = raise_max_abs(rows, most)
    if bad >= 0:
        raise bad_row_error(name(bad), is_nan, where)
    if not normalize:
        refuse_large(most, rows.dtype)


def refuse_bad(block: Chunk) -> None:
    """Raise `InvalidDataError` if a row of `block` is not finite or out of range."""
    refuse_rows(block.rows, lambda bad: block.start + bad)


def refuse_large(max_abs: np.ndarray, dtype: np.dtype[Any], what: str = "Input X") -> None:
    """Raise `InvalidDataError` if a value is so large that squares or their sums would overflow.

    Parameters
    ----------
    max_abs : ndarray of shape (d,)
        Largest absolute value of every feature.
    dtype : dtype
        Compute dtype of the rows.
    what : str
        Name of the data in the error.
    """
    largest, (_, most) = float(max_abs.max(initial=0.0)), RANGES[dtype]
    if largest > most:
        raise InvalidDataError(
            f"{what} contains a value of magnitude {largest:.3g}, in feature {int(max_abs.argmax())}; in "
            f"{dtype} it should be <= {most:g}, or squared distances overflow. If it marks missing "
            f"values, remove or impute them; otherwise divide all rows by a power of two{_wider(dtype)}."
        )


def refuse_small(max_abs: np.ndarray, dtype: np.dtype[Any]) -> None:
    """Raise `InvalidDataError` if squares of all values would underflow; all may be zero."""
    largest, (least, _) = float(max_abs.max(initial=0.0)), RANGES[dtype]
    if 0.0 < largest < least:
        raise InvalidDataError(
            f"Input X contains no value larger than {largest:.3g} in magnitude; in {dtype} the largest "
            f"should be >= {least:g}, or squared distances underflow. Multiply all rows by a power of "
            f"two{_wider(dtype)}."
        )


def warn_of_zeros(n_zero: int, n_rows: int) -> None:
    """Warn of rows that have no direction, under the cosine metric."""
    if n_zero:
        warnings.warn(
            f"{n_zero:,} of {n_rows:,} rows are all zeros and have no direction. Under metric='cosine' "
            "they stay zeros, as near to one centre as to any other, and a cluster of them has a centre of "
            "zeros; leave them out, or give them a weight of 0.",
            UserWarning,
            stacklevel=2,
        )


def _wider(dtype: np.dtype[Any]) -> str:
    return ", or convert them to float64" if dtype == np.float32 else ""


DATA_STATISTICS = Reduction("survey", prepare=_PreparedOrigin)
"""`DataStatisticsParams` -> `DataStatistics`."""
