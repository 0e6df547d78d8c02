"""The grids of one pass, and rows added to clusters, or moved between them, on these grids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunkwise.exact_sum import Scale, residual_shift
from daskcluster.chunkwise.statistics import KMeansStatistics
from daskcluster.kernels.accumulate import move, move_weighted


@dataclass(frozen=True)
class Grids:
    """M of the sums of rows, shape (d,), and of the weights, each with that of its residuals."""

    sums: np.ndarray
    low_sums: np.ndarray
    weights: float
    low_weights: float

    @classmethod
    def of(cls, scale: Scale) -> Grids:
        weights = float(scale.weights)
        low_weights = float(residual_shift(weights, scale.n_rows))
        return cls(scale.sums, scale.low_sums, weights, low_weights)

    def move(
        self,
        rows: np.ndarray,
        which: np.ndarray,
        weights: np.ndarray | None,
        old: np.ndarray,
        new: np.ndarray,
        into: KMeansStatistics,
    ) -> None:
        """Take ``rows[which]`` out of the clusters `old` (-1: of none), and add them to `new`."""
        if into.sums_low is None:
            move(rows, which, old, new, self.sums, into.sums, into.counts)
            return
        move_weighted(
            rows,
            which,
            old,
            new,
            weights,
            self.sums,
            self.low_sums,
            into.sums,
            into.sums_low,
            self.weights,
            self.low_weights,
            into.counts,
            into.counts_low,
        )
