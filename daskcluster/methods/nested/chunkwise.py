"""Costs of clusters, and the squares of their weights, for the doubling rule of weighted rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import SCORE, ScoreStatistics, score_block
from daskcluster.chunkwise.statistics import Reduction
from daskcluster.kernels.accumulate import accumulate_values
from daskcluster.kernels.sum_grid import SumGrid


@dataclass
class SpreadStatistics:
    """Costs of clusters and squares of their weights, exact on two grids.

    Attributes
    ----------
    score : ScoreStatistics
    squares : ndarray of shape (2, k)
        Sum of (w / largest weight)^2 over the rows of each cluster: high and low parts.
    """

    score: ScoreStatistics
    squares: np.ndarray

    def combine(self, other: SpreadStatistics) -> SpreadStatistics:
        self.score.combine(other.score)
        self.squares += other.squares
        return self


def _zero(prepared: Any) -> SpreadStatistics:
    score = SCORE.zero(prepared)
    return SpreadStatistics(score, np.zeros((2, len(score.sizes))))


def _spread_chunk(chunk: Chunk, prepared: Any, into: SpreadStatistics) -> None:
    scale = prepared.params.scale
    grid = SumGrid.of(1.0, scale.n_rows)
    for block in chunk.cache_blocks(least=prepared.params.centres.dtype):
        labels, _ = score_block(block, prepared, into.score)
        if block.weights is not None:
            relative = block.weights / scale.max_weight
            accumulate_values(relative * relative, labels, grid, *into.squares)


SPREAD = Reduction(
    name="score",
    prepare=SCORE.prepare,
    zero=_zero,
    chunk=_spread_chunk,
    combine=SpreadStatistics.combine,
)
"""`daskcluster.chunkwise.assign.AssignParams` -> `SpreadStatistics`."""
