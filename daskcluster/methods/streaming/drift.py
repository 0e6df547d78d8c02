"""Drift of a stream: a test of whether new rows still fit the current centres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import nearest_with_distances
from daskcluster.storage.document import read_count, read_number

MEMORY = 8
"""Number of leaves that the baseline averages over, approximately."""


@dataclass(frozen=True)
class LeafFit:
    """How well the rows of a leaf fit centres.

    Attributes
    ----------
    error : float
        Weighted mean of squared distances to the nearest centres.
    counts : ndarray of shape (k,), float64
        Weight of the rows of each centre.
    """

    error: float
    counts: np.ndarray


def measure_fit(rows: Chunk, centres: np.ndarray) -> LeafFit:
    """Return how well weighted rows fit centres.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Chunk(np.array([[0.0], [1.0], [9.0]]), weights=np.array([1.0, 1.0, 2.0]))
    >>> measure_fit(rows, np.array([[0.0], [9.0]]))
    LeafFit(error=0.25, counts=array([2., 2.]))
    """
    labels, distances = nearest_with_distances(rows, centres)
    weights = rows.weights
    assert weights is not None
    total = float(weights.sum())
    counts = np.bincount(labels, weights, minlength=len(centres))
    return LeafFit(float((distances * weights).sum()) / total if total > 0.0 else 0.0, counts)


@dataclass(frozen=True)
class Drift:
    """The error of new rows under the old centres, compared with earlier rows.

    Attributes
    ----------
    error : float or None
        Mean squared distance of the last leaf to the centres before it.
    baseline : float or None
        Mean error of the leaves before the last one.
    n_leaves : int
        Number of leaves measured.
    is_high : bool
        Whether the error of the last leaf exceeded `baseline` times the threshold.
    counts : ndarray of shape (k,)
        Weight of the last leaf's rows in each cluster.

    Examples
    --------
    >>> import numpy as np
    >>> drift = Drift()
    >>> for error in (1.0, 1.2, 0.9, 4.0):
    ...     drift = drift.after(LeafFit(error, np.ones(1)), threshold=1.5)
    >>> drift.is_high, round(drift.ratio, 1)
    (True, 3.9)
    """

    error: float | None = None
    baseline: float | None = None
    n_leaves: int = 0
    is_high: bool = False
    counts: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def ratio(self) -> float | None:
        """The error divided by its baseline."""
        if self.error is None or not self.baseline:
            return None
        return self.error / self.baseline

    def after(self, fit: LeafFit, threshold: float) -> Drift:
        """Return the state after one more leaf."""
        baseline = self.baseline
        if self.error is not None:
            share = 1.0 / min(self.n_leaves, MEMORY)
            baseline = (
                self.error if baseline is None else baseline + share * (self.error - baseline)
            )
        found = Drift(fit.error, baseline, self.n_leaves + 1, False, fit.counts)
        ratio = found.ratio
        return replace(found, is_high=ratio is not None and ratio > threshold)

    def body(self) -> dict[str, Any]:
        """Return all attributes except `counts` as plain values."""
        return {
            "error": self.error,
            "baseline": self.baseline,
            "ratio": self.ratio,
            "n_leaves": self.n_leaves,
            "is_high": self.is_high,
        }

    @classmethod
    def of(cls, body: Mapping[str, Any], counts: np.ndarray) -> Drift:
        """Return the drift that `body` and `counts` describe."""
        error, baseline = (
            None if body.get(name) is None else read_number(body, name)
            for name in ("error", "baseline")
        )
        return cls(error, baseline, read_count(body, "n_leaves"), bool(body["is_high"]), counts)
