"""What the first pass learns on its way: bounds, moments, NaN and infinity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.exact_sum import Scale, grid_shift, residual_shift
from daskcluster.chunkwise.reduction import Reduction
from daskcluster.chunkwise.rows import find_bad, raise_max_abs
from daskcluster.chunkwise.statistics import SurveyStatistics
from daskcluster.errors import InvalidDataError
from daskcluster.kernels.accumulate import sum_on_grid


@dataclass(frozen=True)
class SurveyParams:
    """Where moments are taken about, and the scale that is being tried.

    Attributes
    ----------
    origin : ndarray of shape (d,)
        In the compute dtype.
    scale : Scale
    unit : bool
        Cosine metric: rows are scaled to length one first.
    """

    origin: np.ndarray
    scale: Scale
    unit: bool = False


@dataclass(frozen=True)
class _Prepared:
    params: SurveyParams
    origin: PreparedCentres
    shift: np.ndarray
    spread: tuple[float, float]
    weighted_spread: tuple[float, float]
    weight: tuple[float, float]


def _prepare(params: SurveyParams) -> _Prepared:
    scale, n = params.scale, params.scale.n_rows
    reach = scale.max_abs + np.abs(params.origin.astype(np.float64))
    spread = grid_shift(float((reach * reach).sum()) * 1.01, n)
    weighted = scale.distances(params.origin[None, :])
    return _Prepared(
        params,
        PreparedCentres(params.origin[None, :]),
        grid_shift(scale.max_abs, n),
        _two_grids(spread, n),
        _two_grids(weighted, n),
        _two_grids(scale.weights, n),
    )


def _two_grids(shift: np.ndarray, n_rows: int) -> tuple[float, float]:
    return float(shift), float(residual_shift(shift, n_rows))


def _zero(prepared: _Prepared) -> SurveyStatistics:
    return SurveyStatistics.zero(prepared.params.origin)


def _survey_chunk(chunk: Chunk, prepared: _Prepared, into: SurveyStatistics) -> None:
    for block in chunk.cache_blocks(unit=prepared.params.unit):
        bad, is_nan = raise_max_abs(block.rows, into.max_abs)
        if bad >= 0:
            into.note_bad(block.start + bad, is_nan)
            return  # the fit ends here; what follows would be NaN
        distances = np.empty(block.n_rows)
        prepared.origin.spread_and_sum(block.rows, prepared.shift, into.sums, distances)
        into.spread.add(*sum_on_grid(distances, *prepared.spread))
        into.n_rows += block.n_rows
        if block.weights is not None:
            distances *= block.weights
            into.weighted_spread.add(*sum_on_grid(distances, *prepared.weighted_spread))
            into.weight.add(*sum_on_grid(block.weights, *prepared.weight))


def bad_row_error(row: int, is_nan: bool, where: str = "") -> InvalidDataError:
    """Return the error that names a row that is not finite; it begins as scikit-learn's does."""
    what = "NaN" if is_nan else "infinity or a value too large for the dtype"
    return InvalidDataError(
        f"Input X contains {what}: first in row {row}{where}; rows must be finite. "
        "Remove or impute such rows before clustering."
    )


def refuse_bad(block: Chunk) -> None:
    """Raise `InvalidDataError` if a row of `block` is not finite; costs one look at its bytes."""
    bad, is_nan = find_bad(block.rows)
    if bad >= 0:
        raise bad_row_error(block.start + bad, is_nan)


SURVEY = Reduction(
    name="survey",
    prepare=_prepare,
    zero=_zero,
    chunk=_survey_chunk,
    combine=SurveyStatistics.combine,
)
"""`SurveyParams` -> `SurveyStatistics`."""
