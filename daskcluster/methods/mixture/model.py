"""The saved form of a mixture; and how one starts: from parameters, another mixture or a saved model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskcluster.errors import InvalidParameterError, ModelFormatError
from daskcluster.methods.kmeans.algorithm import MOST_SWAPPED
from daskcluster.methods.kmeans.initial import is_auto, is_method, method_for
from daskcluster.methods.mixture.chunkwise.statistics import (
    cholesky,
    diagonals,
    is_positive_definite,
    precisions,
    whitening,
)
from daskcluster.methods.mixture.parameters import COVARIANCE_TYPES, MATRICES
from daskcluster.models.fitted import FittedModel, check_per_cluster, load_document


@dataclass(frozen=True, eq=False)
class MixtureModel(FittedModel):
    """A fitted Gaussian mixture, without its data.

    Attributes
    ----------
    centres : ndarray of shape (k, d), float32 or float64
        Means.
    variances : ndarray of shape (1,), (k,), (k, d), (1, d, d) or (k, d, d), float64
        Shared by all components, one per component, or one per component and feature; or one covariance
        matrix for all components, or one per component.
    mixing : ndarray of shape (k,), float64
        Mixing weights.
    weights : ndarray of shape (k,), float64
        Posterior row weight of each component.
    covariance_type : {"isotropic", "spherical", "diag", "tied", "full"}
    lower_bound : float
        Free energy divided by total row weight.
    truncation : int
        Number of posteriors per row.
    n_iter, stop_reason, seeding, passes, bytes_read, history, parameters, feature_names, n_rows,
    created_with, estimator
        As in `daskcluster.models.fitted.FittedModel`.

    Raises
    ------
    ModelFormatError
        A value is invalid: a centre that is not finite, a variance that is not positive, a wrong shape.

    Examples
    --------
    >>> import numpy as np
    >>> half = np.array([0.5, 0.5])
    >>> model = MixtureModel(np.zeros((2, 3)), np.ones(1), half, half * 10)
    >>> model.n_clusters, model.n_features
    (2, 3)
    """

    kind: ClassVar[str] = "mixture"

    variances: np.ndarray
    mixing: np.ndarray
    weights: np.ndarray
    covariance_type: str = "isotropic"
    lower_bound: float | None = None
    truncation: int = 1
    estimator: str = field(default="VariationalGaussianMixture", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("mixing", "weights"):
            check_per_cluster(name, getattr(self, name), self.n_clusters)
        if self.covariance_type not in COVARIANCE_TYPES:
            raise ModelFormatError(
                f"covariance_type should be one of {', '.join(COVARIANCE_TYPES)}, "
                f"got {self.covariance_type!r}."
            )
        self._check_variances()
        if self.lower_bound is not None and not math.isfinite(self.lower_bound):
            raise ModelFormatError(f"lower_bound should be finite, got {self.lower_bound!r}.")
        if not 1 <= self.truncation <= self.n_clusters:
            raise ModelFormatError(
                f"truncation={self.truncation} should be in [1, n_components={self.n_clusters}]."
            )

    def _check_variances(self) -> None:
        k, d = self.centres.shape
        shapes = {"isotropic": (1,), "spherical": (k,), "diag": (k, d), "tied": (1, d, d)}
        shape = shapes.get(self.covariance_type, (k, d, d))
        if self.variances.shape != shape or self.variances.dtype != np.float64:
            raise ModelFormatError(
                f"variances should have shape {shape} and dtype float64 for "
                f"covariance_type={self.covariance_type!r}, got {self.variances.shape} and "
                f"{self.variances.dtype}."
            )
        if self.covariance_type in MATRICES:
            found = self.variances
            symmetric = np.isfinite(found).all() and np.array_equal(found, found.transpose(0, 2, 1))
            if not (symmetric and is_positive_definite(found)):
                raise ModelFormatError(
                    "variances should be finite, symmetric and positive definite matrices for "
                    f"covariance_type={self.covariance_type!r}."
                )
        elif not (np.isfinite(self.variances).all() and (self.variances > 0).all()):
            raise ModelFormatError("variances should be finite and > 0.")

    def facts(self) -> dict[str, Any]:
        """Return the metadata that only this kind of model has, for tables."""
        return {
            "covariance_type": self.covariance_type,
            "dtype": str(self.centres.dtype),
            "lower_bound": self.lower_bound,
        }


def stored_variances(covariances: Any, covariance_type: str) -> np.ndarray:
    """Return ``covariances_`` of an estimator in the shape that a `MixtureModel` has."""
    found = np.atleast_1d(np.asarray(covariances, np.float64))
    return found[None] if covariance_type == "tied" else found


def public_variances(variances: np.ndarray, covariance_type: str) -> Any:
    """Return variances of a model or a fit in the shape of ``covariances_``."""
    if covariance_type == "isotropic":
        return float(np.squeeze(variances))
    return variances[0] if covariance_type == "tied" else variances


SAMPLED = "sample"
"""The method of `daskcluster.methods.coreset.start.sampled_start`."""


def means_method(init: Any, n_components: int, *, in_memory: bool) -> str:
    """Return the name of the method that chooses the first means.

    ``auto`` is a sample or, with more components than a local search on it is cheap for, AFK-MC2.
    """
    if not is_auto(init):
        return method_for(init, in_memory=in_memory)
    return SAMPLED if n_components <= MOST_SWAPPED else "afk-mc2"


@dataclass(frozen=True)
class MixtureStart:
    """Initial variances and weights; None leaves them to the fit.

    Attributes
    ----------
    variances : ndarray of shape (), (k,), (k, d), (1, d, d) or (k, d, d), float64, or None
        In the shape of the fit's covariance type.
    weights : ndarray of shape (k,), float64, or None
    """

    variances: np.ndarray | None = None
    weights: np.ndarray | None = None

    @property
    def is_given(self) -> bool:
        return self.variances is not None or self.weights is not None


def start_of(estimator: Any, n_features: int) -> MixtureStart:
    """Return the initial variances and weights of `estimator` for rows with `n_features` features.

    ``weights_init`` and ``precisions_init`` override those of a mixture given as ``init``.

    Raises
    ------
    InvalidParameterError
        ``weights_init`` or ``precisions_init`` has a wrong shape or invalid values.
    """
    kind, k = estimator.covariance_type, int(estimator.n_components)
    start = _of_another(estimator.init, kind, (k, n_features))
    variances, weights = start.variances, start.weights
    if estimator.precisions_init is not None:
        given = _precisions(estimator.precisions_init, kind, (k, n_features))
        variances = _inverses(given, kind) if kind in MATRICES else 1.0 / given
    if estimator.weights_init is not None:
        weights = _weights(estimator.weights_init, kind, k)
    return MixtureStart(variances, weights)


def _of_another(init: Any, kind: str, shape: tuple[int, int]) -> MixtureStart:
    """Return the variances and weights of a fitted mixture (ours or scikit-learn's) or a saved model."""
    if isinstance(init, str) and not is_method(init):
        try:
            init = load_document(init)
        except (ModelFormatError, FileNotFoundError):
            return MixtureStart()  # loading the means raises the error
    if isinstance(init, MixtureModel):
        found, weights, scaling = init.variances, init.mixing, init.scaling
        theirs = init.covariance_type
    elif hasattr(init, "means_") and hasattr(init, "covariances_"):
        found, weights = init.covariances_, init.weights_
        scaling, theirs = getattr(init, "scaling_", None), getattr(init, "covariance_type", kind)
        if theirs not in COVARIANCE_TYPES:
            return MixtureStart()
    else:
        return MixtureStart()
    variances, weights = np.asarray(found, np.float64), np.asarray(weights, np.float64)
    # Variances on another scale are useless; a wrong number of components is refused with the means.
    if scaling is not None or len(weights) != shape[0]:
        return MixtureStart()
    k, d = shape
    if theirs in MATRICES:
        variances = variances.reshape(-1, *variances.shape[-2:])
        if variances.shape[1:] != (d, d):
            return MixtureStart()
        matrices = np.broadcast_to(variances, (k, d, d))
        wide = diagonals(matrices)
    elif variances.shape[1:] in ((), (d,)):
        wide = np.broadcast_to(variances[:, None] if variances.ndim == 1 else variances, shape)
    else:
        return MixtureStart()
    if kind in MATRICES:
        own = matrices if theirs in MATRICES else wide[:, :, None] * np.eye(d)
        return MixtureStart(_of_kind(own, weights, kind), weights)
    if kind == "isotropic":
        return MixtureStart(np.asarray(float((weights * wide.mean(axis=1)).sum() / weights.sum())))
    return MixtureStart(wide.mean(axis=1) if kind == "spherical" else wide.copy(), weights)


def _of_kind(matrices: np.ndarray, weights: np.ndarray, kind: str) -> np.ndarray:
    """Return matrices (k, d, d), or their weighted mean (1, d, d) if all components share one."""
    if kind == "full":
        return matrices.copy()
    if (matrices == matrices[:1]).all():
        return matrices[:1].copy()
    shares = weights / weights.sum()
    found: np.ndarray = (shares[:, None, None] * matrices).sum(axis=0, keepdims=True)
    return found


def _inverses(given: np.ndarray, kind: str) -> np.ndarray:
    """Return the covariance matrices, (k, d, d) or (1, d, d), of precision matrices."""
    found = given[None] if kind == "tied" else given
    if not (
        np.allclose(found, found.transpose(0, 2, 1), rtol=1e-6) and is_positive_definite(found)
    ):
        raise InvalidParameterError(
            f"'{kind} precision' should be symmetric, positive-definite: precisions_init has a matrix that "
            f"is not; pass precisions_ of a mixture with covariance_type={kind!r}."
        )
    return precisions(whitening(cholesky(found)), found.shape[1])


def _precisions(given: Any, kind: str, shape: tuple[int, int]) -> np.ndarray:
    wanted = np.asarray(given, np.float64)
    k, d = shape
    shapes = {"isotropic": (), "spherical": (k,), "diag": shape, "tied": (d, d)}
    expected = shapes.get(kind, (k, d, d))
    if wanted.shape != expected:
        raise InvalidParameterError(
            f"The parameter '{kind} precision' should have the shape of {expected}, but got "
            f"{wanted.shape}; pass precisions_ of a mixture with covariance_type={kind!r}."
        )
    positive = kind in MATRICES or bool((wanted > 0.0).all())
    if not (np.isfinite(wanted).all() and positive):
        raise InvalidParameterError(
            f"'{kind} precision' should be positive and finite: precisions_init has values from "
            f"{wanted.min()} to {wanted.max()}; pass 1 / variance."
        )
    return wanted


def _weights(given: Any, kind: str, k: int) -> np.ndarray:
    weights = np.asarray(given, np.float64)
    if kind == "isotropic":
        raise InvalidParameterError(
            "weights_init has no effect with covariance_type='isotropic', whose components have equal "
            "weights; omit it, or use another covariance_type."
        )
    if weights.shape != (k,):
        raise InvalidParameterError(
            f"The parameter 'weights' should have the shape of ({k},), but got {weights.shape}; pass one "
            "weight per component as weights_init."
        )
    if not ((weights >= 0.0) & (weights <= 1.0)).all():
        raise InvalidParameterError(
            f"The parameter 'weights' should be in the range [0, 1], but got max value "
            f"{weights.max():.5f}, min value {weights.min():.5f}; divide weights_init by its sum."
        )
    if not np.isclose(weights.sum(), 1.0):
        raise InvalidParameterError(
            f"The parameter 'weights' should be normalized, but got sum(weights) = {weights.sum():.5f}; "
            "divide weights_init by its sum."
        )
    return weights
