"""The objective of k-means and its gradient on a mini-batch at given centres.

At centres y the gradient of a batch is (b_j / b) (y_j - m_j) for centre j, with b_j the weight of the
batch's rows that are nearest to y_j, m_j their mean, and b the weight of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daskcluster.methods.minibatch.chunkwise import Batch, MiniBatchStepper, MovingCentres


@dataclass(frozen=True)
class BatchClusters:
    """The clusters of a batch under given centres.

    Attributes
    ----------
    means : ndarray of shape (k, d), float64
        0 for clusters without weight.
    weights : ndarray of shape (k,), float64
        b_j.
    weight : float
        b, of the whole batch.
    cost : float
        Weighted sum of squared distances of the batch to its nearest centres: 2 b times the paper's
        objective. Not finite if a row is not, or if centres are out of range.
    """

    means: np.ndarray
    weights: np.ndarray
    weight: float
    cost: float

    def gradient(self, centres: np.ndarray, size_limit: float | None = None) -> np.ndarray:
        """Return the gradient (k, d) of the objective of the batch, cost / (2 b), at `centres`.

        With `size_limit`, the share b_j / b of a cluster counts at most as that many times 1 / k.

        Examples
        --------
        >>> import numpy as np
        >>> found = BatchClusters(np.array([[1.0], [0.0]]), np.array([2.0, 0.0]), 2.0, 0.5)
        >>> found.gradient(np.array([[4.0], [9.0]])).ravel()
        array([3., 0.])
        >>> found.gradient(np.array([[4.0], [9.0]]), size_limit=1.5).ravel()
        array([2.25, 0.  ])
        """
        shares = self.weights / self.weight if self.weight > 0.0 else self.weights
        if size_limit is not None:
            shares = np.minimum(shares, size_limit / len(shares))
        gradient: np.ndarray = shares[:, np.newaxis] * (centres - self.means)
        return gradient


class BatchAssigner:
    """Assigns batches of one kind of rows to centres, which stay in place.

    Parameters
    ----------
    dtype : dtype
        Dtype of the computations; centres are rounded to it.
    n_threads : int
        At most two are used, and only for large batches.
    """

    def __init__(self, dtype: Any, *, n_threads: int = 1) -> None:
        self.dtype, self.n_threads = np.dtype(dtype), n_threads
        self._stepper: MiniBatchStepper | None = None

    @contextmanager
    def threads(self, n_clusters: int, n_features: int) -> Iterator[Self]:
        """Hold a second thread within the context, if more than one may be used."""
        start = MovingCentres.start(np.zeros((n_clusters, n_features), self.dtype))
        with MiniBatchStepper(start, "count", n_threads=self.n_threads).threads() as self._stepper:
            yield self
        self._stepper = None

    def __call__(self, batch: Batch, centres: np.ndarray) -> BatchClusters:
        """Return the clusters of `batch` under `centres`, float64 (k, d)."""
        stepper = self._stepper
        assert stepper is not None, "use threads()"
        state = stepper.state
        with np.errstate(over="ignore"):
            np.copyto(state.centres, centres, casting="same_kind")
        # A centre that has seen no rows moves to the mean itself: a step then gives means and weights.
        state.exact, state.seen = np.zeros(centres.shape), np.zeros(len(centres))
        outcome = stepper.step(batch.ready(self.dtype))
        return BatchClusters(state.exact, state.seen, outcome.weight, outcome.cost)
