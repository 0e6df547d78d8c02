"""The grids of one pass, and rows added to clusters, or moved between them, on these grids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.rows import csr
from daskcluster.chunkwise.statistics import KMeansStatistics
from daskcluster.kernels import sparse
from daskcluster.kernels.accumulate import (
    accumulate,
    accumulate_values,
    accumulate_weighted,
    move,
    move_weighted,
)
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.sparse_rows import Rows, SparseRows


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
        sums, low, counts, low_counts = into.sums, into.sums_low, into.counts, into.counts_low
        if isinstance(rows, SparseRows):
            if low is None:
                sparse.add_sparse(*csr(rows), labels, self.sums.high, sums, counts)
                return
            sparse.add_sparse_weighted(*csr(rows), labels, weights, self.sums, sums, low)
            if weights is None or low_counts is None:
                counts += np.bincount(labels, minlength=len(counts))
            else:
                accumulate_values(weights, labels, self.weights, counts, low_counts)
        elif low is None:
            accumulate(rows, labels, self.sums.high, sums, counts)
        else:
            accumulate_weighted(
                rows, labels, weights, self.sums, sums, low, self.weights, counts, low_counts
            )

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
        sums, low, counts = into.sums, into.sums_low, into.counts
        if low is None:
            move(rows, which, old, new, self.sums.high, sums, counts)
            return
        of_weights = self.weights, counts, into.counts_low
        move_weighted(rows, which, old, new, weights, self.sums, sums, low, *of_weights)
