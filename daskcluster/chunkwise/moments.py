"""The weighted sum of all rows, for the mean of rows that have weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.exact_sum import Scale, residual_shift
from daskcluster.chunkwise.reduction import Reduction
from daskcluster.chunkwise.rows import accumulate_rows
from daskcluster.chunkwise.statistics import KMeansStatistics


@dataclass(frozen=True)
class MomentParams:
    """The scale of the sums."""

    scale: Scale


@dataclass(frozen=True)
class _Prepared:
    params: MomentParams
    shifts: tuple[np.ndarray, np.ndarray]
    weight_shifts: tuple[float, float]


def _prepare(params: MomentParams) -> _Prepared:
    scale, n = params.scale, params.scale.n_rows
    shift, weight = scale.sums, scale.weights
    return _Prepared(
        params,
        (shift, residual_shift(shift, n)),
        (float(weight), float(residual_shift(weight, n))),
    )


def _zero(prepared: _Prepared) -> KMeansStatistics:
    scale = prepared.params.scale
    return KMeansStatistics.zero(1, len(scale.max_abs), weighted=scale.weighted, two_grids=True)


def _moments_chunk(chunk: Chunk, prepared: _Prepared, into: KMeansStatistics) -> None:
    assert into.sums_low is not None
    for block in chunk.cache_blocks():
        accumulate_rows(
            block.rows,
            np.zeros(block.n_rows, np.int32),
            block.weights,
            prepared.shifts,
            (into.sums, into.sums_low),
            prepared.weight_shifts,
            (into.counts, into.counts_low),
        )


MOMENTS = Reduction(
    name="mean",
    prepare=_prepare,
    zero=_zero,
    chunk=_moments_chunk,
    combine=KMeansStatistics.combine,
)
"""`MomentParams` -> `KMeansStatistics` of one cluster that has all rows."""
