"""The model of every k-means estimator: centres, cluster weights, and how the fit came to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskcluster.errors import ModelFormatError
from daskcluster.models.fields import (
    plain,
    read_count,
    read_mapping,
    read_names,
    read_number,
    read_records,
    read_text,
)
from daskcluster.parameters.shared import METRICS

_PER_CLUSTER = ("weights", "sizes", "costs")


@dataclass(frozen=True, eq=False)
class KMeansModel:
    """A fitted k-means, without its data.

    Attributes
    ----------
    centres : ndarray of shape (k, d), float32 or float64
    weights : ndarray of shape (k,), float64
        Total row weight of each cluster (its size, where rows have no weights).
    sizes : ndarray of shape (k,), int64
        Rows of each cluster.
    costs : ndarray of shape (k,), float64
        Inertia of each cluster.
    metric : str
        ``"euclidean"`` or ``"cosine"``.
    inertia : float
        Weighted sum of squared distances of the rows to their centres.
    n_iter : int
        Centre updates made.
    stop_reason : str
        A value of `daskcluster.events.StopReason`.
    seeding : str
        How the first centres were chosen.
    passes, bytes_read : int
        Passes over the data, and decoded bytes fetched from the store.
    history : tuple of dict
        One record per iteration.
    parameters : dict
        The estimator's parameters that are plain JSON values.
    feature_names : tuple of str, or None
    n_rows : int
        Rows that were clustered.
    created_with : dict
        Versions of the libraries, and of Python.
    estimator : str
        Name of the class that was fitted, as the catalogue of algorithms has it.

    Raises
    ------
    ModelFormatError
        A value breaks a rule above (finite centres, shapes that fit each other, ...).

    Examples
    --------
    >>> import numpy as np
    >>> model = KMeansModel(np.zeros((2, 3), np.float32), np.ones(2), n_rows=2)
    >>> model.n_clusters, model.n_features
    (2, 3)
    """

    kind: ClassVar[str] = "kmeans"
    array_names: ClassVar[frozenset[str]] = frozenset({"centres", *_PER_CLUSTER})

    centres: np.ndarray
    weights: np.ndarray
    sizes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    costs: np.ndarray = field(default_factory=lambda: np.empty(0))
    metric: str = "euclidean"
    inertia: float = 0.0
    n_iter: int = 0
    stop_reason: str = ""
    seeding: str = ""
    passes: int = 0
    bytes_read: int = 0
    history: tuple[dict[str, Any], ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    n_rows: int = 0
    created_with: dict[str, str] = field(default_factory=dict)
    estimator: str = "KMeans"

    def __post_init__(self) -> None:
        check_centres(self.centres)
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
        names = self.feature_names
        if names is not None and len(names) != self.n_features:
            raise ModelFormatError(
                f"{len(names)} feature names should be as many as the centres' {self.n_features} "
                "features."
            )
        # A list is what most callers hold; a frozen model keeps tuples.
        object.__setattr__(self, "history", tuple(self.history))
        object.__setattr__(self, "feature_names", None if names is None else tuple(names))

    @property
    def n_clusters(self) -> int:
        return int(self.centres.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.centres.shape[1])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save, by name."""
        return {
            "centres": self.centres,
            "weights": np.asarray(self.weights, np.float64),
            "sizes": np.asarray(self.sizes, np.int64),
            "costs": np.asarray(self.costs, np.float64),
        }

    def body(self) -> dict[str, Any]:
        """Return all else, as plain JSON values."""
        return plain(
            {
                "metric": self.metric,
                "inertia": self.inertia,
                "n_iter": self.n_iter,
                "stop_reason": str(self.stop_reason),
                "seeding": self.seeding,
                "passes": self.passes,
                "bytes_read": self.bytes_read,
                "history": list(self.history),
                "parameters": self.parameters,
                "feature_names": None if self.feature_names is None else list(self.feature_names),
                "n_rows": self.n_rows,
                "created_with": self.created_with,
                "estimator": self.estimator,
            }
        )

    def facts(self) -> dict[str, Any]:
        """Return what only this kind of model has to say, for tables."""
        total = float(np.sum(self.weights))
        return {
            "metric": self.metric,
            "dtype": str(self.centres.dtype),
            "inertia": self.inertia,
            "mean": self.inertia / total if total > 0 else None,
        }

    @classmethod
    def from_parts(cls, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> KMeansModel:
        """Return the model that `body` and `arrays` describe; see `ModelFormatError`."""
        for name in sorted(cls.array_names):
            if name not in arrays:
                raise ModelFormatError(f"the model's array {name!r} is missing; save it again.")
        return cls(
            centres=arrays["centres"],
            weights=arrays["weights"],
            sizes=arrays["sizes"],
            costs=arrays["costs"],
            metric=read_text(body, "metric"),
            inertia=read_number(body, "inertia"),
            n_iter=read_count(body, "n_iter"),
            stop_reason=read_text(body, "stop_reason"),
            seeding=read_text(body, "seeding"),
            passes=read_count(body, "passes"),
            bytes_read=read_count(body, "bytes_read"),
            history=read_records(body, "history"),
            parameters=read_mapping(body, "parameters"),
            feature_names=read_names(body, "feature_names"),
            n_rows=read_count(body, "n_rows"),
            created_with=read_mapping(body, "created_with"),
            # Documents of before there were several estimators do not name theirs.
            estimator=read_text(body, "estimator") if "estimator" in body else "KMeans",
        )


def check_centres(centres: np.ndarray) -> None:
    """Refuse centres that are not finite floats of shape (k, d)."""
    if centres.ndim != 2 or centres.shape[0] < 1 or centres.shape[1] < 1:
        raise ModelFormatError(f"centres of shape {centres.shape} should be of shape (k, d).")
    if centres.dtype not in (np.float32, np.float64):
        raise ModelFormatError(f"centres of dtype {centres.dtype} should be float32 or float64.")
    if not np.isfinite(centres).all():
        raise ModelFormatError("centres should be finite; one holds NaN or infinity.")


def check_per_cluster(name: str, values: np.ndarray, n_clusters: int) -> None:
    """Refuse figures of clusters that are not finite, or negative, or too few."""
    if values.shape != (n_clusters,):
        raise ModelFormatError(
            f"cluster {name} of shape {values.shape} should be of shape ({n_clusters},)."
        )
    if values.dtype.kind not in "fiu":
        raise ModelFormatError(f"cluster {name} of dtype {values.dtype} should be numbers.")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ModelFormatError(f"cluster {name} should be finite and >= 0.")
