"""What the first pass learns on its way: bounds, moments, NaN and infinity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.exact_sum import Scale, grid_shift, residual_shift
from daskcluster.chunkwise.reduction import Reduction
from daskcluster.chunkwise.rows import find_bad
from daskcluster.chunkwise.statistics import SurveyStatistics
from daskcluster.errors import InvalidDataError


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
    grids: np.ndarray


def _prepare(params: SurveyParams) -> _Prepared:
    scale, n = params.scale, params.scale.n_rows
    reach = scale.max_abs + np.abs(params.origin.astype(np.float64))
    spread = grid_shift(float((reach * reach).sum()) * 1.01, n)
    weighted = scale.distances(params.origin[None, :])
    first = np.array([spread, weighted, scale.weights], np.float64)
    return _Prepared(
        params,
        PreparedCentres(params.origin[None, :]),
        grid_shift(scale.max_abs, n),
        np.stack([first, residual_shift(first, n)], axis=1),
    )


def _zero(prepared: _Prepared) -> SurveyStatistics:
    return SurveyStatistics.zero(prepared.params.origin)


def _survey_chunk(chunk: Chunk, prepared: _Prepared, into: SurveyStatistics) -> None:
    grids = prepared.shift, prepared.grids
    for block in chunk.blocks(unit=prepared.params.unit):
        bad, is_nan, (spread, weighted, weight) = prepared.origin.look(
            block.rows, block.weights, *grids, into.sums, into.max_abs
        )
        if bad >= 0:
            into.note_bad(block.start + bad, is_nan)
            return  # the fit ends here; what follows would be NaN
        into.spread.add(*spread)
        into.weighted_spread.add(*weighted)
        into.weight.add(*weight)
        into.n_rows += block.n_rows


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
