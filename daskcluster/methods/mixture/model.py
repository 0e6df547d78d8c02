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
        shape = variances_shape(self.covariance_type, *self.centres.shape)
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


def variances_shape(kind: str, k: int, d: int) -> tuple[int, ...]:
    """Return the shape that the variances of a model have."""
    shapes = {"isotropic": (1,), "spherical": (k,), "diag": (k, d), "tied": (1, d, d)}
    return shapes.get(kind, (k, d, d))


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


def start_of(estimator: Any, shape: tuple[int, int]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the initial variances and weights of components, None where the fit chooses them.

    ``precisions_init`` and ``weights_init`` override those of a mixture given as ``init``.

    Parameters
    ----------
    estimator : VariationalGaussianMixture
    shape : (k, d)

    Raises
    ------
    InvalidParameterError
    """
    kind = estimator.covariance_type
    variances, weights = _start_of_mixture(estimator.init, kind, shape)
    if estimator.precisions_init is not None:
        variances = _inverses(estimator.precisions_init, kind, shape)
    if estimator.weights_init is not None:
        weights = _initial_weights(estimator.weights_init, kind, shape[0])
    return variances, weights


def _inverses(given: Any, kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Return the variances or covariance matrices of given precisions, as a fit starts from them."""
    wanted = np.asarray(given, np.float64)
    expected = variances_shape(kind, *shape)
    expected = {"isotropic": (), "tied": expected[1:]}.get(kind, expected)
    if wanted.shape != expected:
        raise InvalidParameterError(
            f"precisions_init should have the shape {expected}, but has {wanted.shape}; pass precisions_ "
            f"of a mixture with covariance_type={kind!r}."
        )
    is_matrix = kind in MATRICES
    if not (np.isfinite(wanted).all() and (is_matrix or (wanted > 0.0).all())):
        raise InvalidParameterError(
            "precisions_init should be positive and finite, but has values from "
            f"{wanted.min()} to {wanted.max()}; pass 1 / variance."
        )
    if not is_matrix:
        return np.asarray(1.0 / wanted)
    matrices = wanted[None] if kind == "tied" else wanted
    mirrored = matrices.transpose(0, 2, 1)
    if not (np.allclose(matrices, mirrored, rtol=1e-6) and is_positive_definite(matrices)):
        raise InvalidParameterError(
            "precisions_init should be symmetric and positive-definite, but has a matrix that is not; pass "
            f"precisions_ of a mixture with covariance_type={kind!r}."
        )
    return precisions(whitening(cholesky(matrices)), shape[1])


def _initial_weights(given: Any, kind: str, k: int) -> np.ndarray:
    weights = np.asarray(given, np.float64)
    if kind == "isotropic":
        raise InvalidParameterError(
            "weights_init has no effect with covariance_type='isotropic', whose components have equal "
            "weights; omit it, or use another covariance_type."
        )
    if weights.shape != (k,):
        raise InvalidParameterError(
            f"weights_init should have the shape ({k},), but has {weights.shape}; pass a weight for each "
            "component."
        )
    if not ((weights >= 0.0).all() and np.isclose(weights.sum(), 1.0)):
        raise InvalidParameterError(
            f"weights_init should be at least 0 with the sum 1, but has the least {weights.min():.5g} and "
            f"the sum {weights.sum():.5g}; divide it by its sum."
        )
    return weights


def _start_of_mixture(
    init: Any, kind: str, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Return the variances and weights of a mixture given as `init`, (None, None) where it gives none.

    Parameters
    ----------
    init : object
        A fitted mixture (ours or scikit-learn's) or a saved model, or anything else. A mixture of another
        covariance type gives its means alone.
    kind : {"isotropic", "spherical", "diag", "tied", "full"}
    shape : (k, d)
    """
    if isinstance(init, str) and not is_method(init):
        try:
            init = load_document(init)
        except (ModelFormatError, FileNotFoundError):
            return None, None  # loading the means raises the error
    if isinstance(init, MixtureModel):
        found, weights, scaling = init.variances, init.mixing, init.scaling
    elif hasattr(init, "means_") and hasattr(init, "covariances_"):
        found, weights = stored_variances(init.covariances_, kind), init.weights_
        scaling = getattr(init, "scaling_", None)
    else:
        return None, None
    # Variances on another scale are useless; a wrong number of components is refused with the means.
    theirs = getattr(init, "covariance_type", kind)
    if scaling is not None or theirs != kind or found.shape != variances_shape(kind, *shape):
        return None, None
    return np.squeeze(found) if kind == "isotropic" else found, np.asarray(weights, np.float64)
