"""The model of every k-means estimator: centres, cluster weights, and details of the fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskcluster.errors import ModelFormatError
from daskcluster.models.balance import Balance
from daskcluster.models.fitted import AXES, FittedModel, check_per_cluster
from daskcluster.parameters.shared import METRICS

_PER_CLUSTER = ("weights", "sizes", "costs")


@dataclass(frozen=True, eq=False)
class KMeansModel(FittedModel):
    """A fitted k-means, without its data.

    Attributes
    ----------
    centres : ndarray of shape (k, d), float32 or float64
    weights : ndarray of shape (k,), float64
        Total row weight of each cluster (its size if rows have no weights).
    sizes : ndarray of shape (k,), int64
        Number of rows in each cluster.
    costs : ndarray of shape (k,), float64
        Inertia of each cluster.
    metric : str
        ``"euclidean"`` or ``"cosine"``.
    inertia : float
        Weighted sum of squared distances of the rows to their centres.
    n_iter, stop_reason, seeding, passes, bytes_read, history, parameters, feature_names, n_rows,
    created_with, estimator, search
        As in `daskcluster.models.fitted.FittedModel`.

    Raises
    ------
    ModelFormatError
        A value is invalid (not finite, inconsistent shapes, ...).

    Notes
    -----
    Cost: memory for the centres, three numbers per cluster, and the history.

    Examples
    --------
    >>> import numpy as np
    >>> model = KMeansModel(np.zeros((2, 3), np.float32), np.ones(2), n_rows=2)
    >>> model.n_clusters, model.n_features
    (2, 3)
    """

    kind: ClassVar[str] = "kmeans"
    array_names: ClassVar[frozenset[str]] = frozenset({"centres", *_PER_CLUSTER})
    optional_arrays: ClassVar[frozenset[str]] = frozenset({AXES})

    weights: np.ndarray
    sizes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    costs: np.ndarray = field(default_factory=lambda: np.empty(0))
    metric: str = "euclidean"
    inertia: float = 0.0
    estimator: str = field(default="KMeans", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sizes", "costs"):
            if len(getattr(self, name)) == 0:
                kind = np.int64 if name == "sizes" else np.float64
                object.__setattr__(self, name, np.zeros(self.n_clusters, kind))
        for name in _PER_CLUSTER:
            check_per_cluster(name, getattr(self, name), self.n_clusters)
        if self.metric not in METRICS:
            raise ModelFormatError(f"metric={self.metric!r} should be one of {', '.join(METRICS)}.")
        if not (math.isfinite(self.inertia) and self.inertia >= 0.0):
            raise ModelFormatError(f"inertia={self.inertia!r} should be finite and >= 0.")

    def facts(self) -> dict[str, Any]:
        """Return the fields specific to this kind of model, for tables."""
        total = float(np.sum(self.weights))
        return {
            "metric": self.metric,
            "dtype": str(self.centres.dtype),
            "inertia": self.inertia,
            "mean": self.inertia / total if total > 0 else None,
            "balance": str(Balance.of(self.sizes)) if self.sizes.any() else None,
        }
