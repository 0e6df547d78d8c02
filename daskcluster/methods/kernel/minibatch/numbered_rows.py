"""Rows of a mini-batch kernel fit by their numbers, as its steps have met them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.chosen_rows import chosen_rows
from daskcluster.methods.kernel.chunkwise.gram import GramFunction, Points
from daskcluster.methods.kernel.initial import given_centres, ready_rows
from daskcluster.methods.kernel.moving import GramBatch
from daskcluster.methods.minibatch.algorithm import refuse_bad_batch
from daskcluster.methods.minibatch.chunkwise.batch import Batch
from daskcluster.sparse_rows import join_rows
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class NumberedRows:
    """Reads rows again, for a fit that goes on.

    Parameters
    ----------
    dataset : Dataset
    gram : GramFunction
    dtype : dtype
        In which rows are computed.
    init : object
        The parameter of the estimator; numbers -1 - j are those of centres that it gives.
    n_clusters : int
    """

    dataset: Dataset
    gram: GramFunction
    dtype: Any
    init: Any
    n_clusters: int

    def batch(self, numbers: np.ndarray) -> GramBatch:
        """Return rows as those of a step."""
        weights = self.dataset.weights
        weights = None if weights is None else np.asarray(weights, np.float64)[numbers]
        batch = Batch(chosen_rows(self.dataset, numbers), np.arange(len(numbers)), weights)
        refuse_bad_batch(batch, lambda position: int(numbers[position]), "")
        return GramBatch.of(batch, numbers, self.gram, self.dtype)

    def points(self, numbers: np.ndarray) -> Points:
        """Return rows, and centres that were given, as points."""
        if self.gram.is_precomputed:
            return Points(None, numbers)
        inside = numbers >= 0
        n_inside = int(inside.sum())
        parts = (
            [ready_rows(chosen_rows(self.dataset, numbers[inside]), self.gram)] if n_inside else []
        )
        if n_inside < len(numbers):
            given = given_centres(self.init, self.dataset, self.gram, self.n_clusters)
            parts += [point.rows for point in given if point.rows is not None]
        # Given centre -1 - j stands j places behind the rows that were read.
        places = np.where(inside, np.cumsum(inside) - 1, n_inside - 1 - numbers)
        return Points(join_rows(parts)[places], numbers)
