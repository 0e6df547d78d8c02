"""The checkpoint of a mini-batch fit: all that a step needs from earlier steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.events import StopReason
from daskcluster.methods.minibatch.algorithm import Improvement, Reassignment
from daskcluster.methods.minibatch.chunkwise.batch import MovingCentres
from daskcluster.methods.minibatch.journal import JournalState
from daskcluster.storage.state import Shapes


@dataclass(frozen=True)
class MiniBatchState:
    """State of a fit between two steps. Batches and draws follow from the seed and the number of the step.

    Attributes
    ----------
    step : int
        Steps made.
    exact : ndarray of shape (k, d), float64
    seen : ndarray of shape (k,), float64
        As of `daskcluster.methods.minibatch.chunkwise.batch.MovingCentres`.
    threshold : float
        Movement that `tol` allows; it comes from the sample of the seeding.
    reassignment : Reassignment
    improvement : Improvement
    journal : JournalState or None
        None before the first step.
    reason : StopReason or None
        Reason why the loop ended, if it did.
    costs : ndarray of shape (k,), float64, or None
        As `seen`; None in states of an earlier version.
    """

    step: int
    exact: np.ndarray
    seen: np.ndarray
    threshold: float
    reassignment: Reassignment
    improvement: Improvement
    journal: JournalState | None = None
    reason: StopReason | None = None
    costs: np.ndarray | None = None

    @staticmethod
    def shapes(n_clusters: int, n_features: int) -> Shapes:
        """Return the shapes of the arrays."""
        each = (n_clusters,)
        return {"exact": (n_clusters, n_features), "seen": each, "costs": each}

    def centres(self, dtype: np.dtype) -> MovingCentres:
        """Return the centres, rounded to the dtype that rows are computed in."""
        costs = np.zeros(len(self.seen)) if self.costs is None else self.costs.copy()
        rounded = self.exact.astype(dtype)
        return MovingCentres(self.exact.copy(), rounded, self.seen.copy(), costs)
