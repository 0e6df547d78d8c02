"""The weighted sum of all rows, for the mean of rows that have weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.grids import Grids
from daskcluster.chunkwise.reduction import Reduction
from daskcluster.chunkwise.statistics import KMeansStatistics


@dataclass(frozen=True)
class MomentParams:
    """The scale of the sums."""

    scale: Scale


@dataclass(frozen=True)
class _Prepared:
    params: MomentParams
    grids: Grids


def _prepare(params: MomentParams) -> _Prepared:
    return _Prepared(params, Grids.of(params.scale))


def _zero(prepared: _Prepared) -> KMeansStatistics:
    scale = prepared.params.scale
    return KMeansStatistics.zero(1, len(scale.max_abs), weighted=scale.weighted, two_grids=True)


def _moments_chunk(chunk: Chunk, prepared: _Prepared, into: KMeansStatistics) -> None:
    for block in chunk.cache_blocks():
        labels = np.zeros(block.n_rows, np.int32)
        prepared.grids.add(block.rows, labels, block.weights, into)


MOMENTS = Reduction(
    name="mean",
    prepare=_prepare,
    zero=_zero,
    chunk=_moments_chunk,
    combine=KMeansStatistics.combine,
)
"""`MomentParams` -> `KMeansStatistics` of one cluster that has all rows."""
