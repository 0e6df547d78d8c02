"""Export fitted estimators to scikit-learn and Faiss."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils.validation import check_is_fitted

from daskcluster.chunkwise.feature_scaling import PARTIAL, FeatureScaling
from daskcluster.errors import InvalidParameterError
from daskcluster.extras import import_extra

SHARED = ("n_iter_", "n_features_in_", "feature_names_in_")
"""Attributes with the same name and meaning on both sides."""


def sklearn_kmeans(estimator: Any) -> Any:
    """Return scikit-learn's KMeans with the centres of a fitted k-means estimator.

    The result is a pipeline with a `Normalizer` for the cosine metric, or with a `StandardScaler` for a fit
    of scaled rows.
    """
    check_is_fitted(estimator)
    # On the scale of the fit; the steps before them scale the rows.
    centres = np.array(estimator.to_model().centres, order="C")
    twin = KMeans(len(centres), init=centres, n_init=1, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # duplicate centres cause it
        # Sets scikit-learn's private attributes; everything learnt from these few rows is replaced.
        twin.fit(centres)
    twin.cluster_centers_ = centres
    twin.inertia_ = float(estimator.inertia_)
    del twin.labels_
    labels = vars(estimator).get("labels_")
    if isinstance(labels, np.ndarray):
        twin.labels_ = labels.copy()
    _share(estimator, twin)
    steps: list[Any] = []
    if estimator.scaling_ is not None:
        steps += _preparation(estimator.scaling_, centres)
    if estimator.metric == "cosine":
        steps.append(Normalizer().fit(centres))
    return make_pipeline(*steps, twin) if steps else twin


def _preparation(scaling: FeatureScaling, centres: np.ndarray) -> list[Any]:
    """Return the steps of a pipeline that fill in missing values and scale."""
    steps: list[Any] = []
    if scaling.kind == PARTIAL:
        raise InvalidParameterError(
            "scikit-learn has no counterpart of missing='partial'; fit with missing='mean' to export."
        )
    if scaling.fill is not None:
        imputer = SimpleImputer().fit(np.asarray(centres, np.float64))
        imputer.statistics_ = scaling.fill
        steps.append(imputer)
    if scaling.scales:
        scaler = StandardScaler(with_mean=bool(scaling.shift.any())).fit(centres)
        scaler.mean_, scaler.scale_, scaler.var_ = scaling.shift, scaling.width, scaling.width**2
        steps.append(scaler)
    return steps


def sklearn_mixture(estimator: Any) -> Any:
    """Return scikit-learn's GaussianMixture with the parameters of a fitted mixture, in float64.

    For a fit of scaled rows, the result is a pipeline with a `StandardScaler`, and with a `SimpleImputer`
    where missing values were filled in.
    """
    check_is_fitted(estimator)
    means = np.array(estimator.to_model().centres, np.float64)
    k, d = means.shape
    kind = "spherical" if estimator.covariance_type == "isotropic" else estimator.covariance_type
    twin = GaussianMixture(k, covariance_type=kind, tol=float(estimator.tol))
    variances = np.asarray(estimator.covariances_, np.float64)
    twin.means_ = means
    twin.weights_ = np.array(estimator.weights_, np.float64) / np.sum(estimator.weights_)
    if kind in ("tied", "full"):
        twin.covariances_ = variances.copy()
        twin.precisions_ = estimator.precisions_
        twin.precisions_cholesky_ = estimator.precisions_cholesky_
    else:
        twin.covariances_ = np.array(np.broadcast_to(variances, (k, d) if kind == "diag" else (k,)))
        twin.precisions_ = 1.0 / twin.covariances_
        twin.precisions_cholesky_ = np.sqrt(twin.precisions_)
    twin.converged_ = bool(estimator.converged_)
    twin.lower_bound_ = float(estimator.lower_bound_)
    _share(estimator, twin)
    if estimator.scaling_ is None:
        return twin
    return make_pipeline(*_preparation(estimator.scaling_, means), twin)


def _share(estimator: Any, twin: Any) -> None:
    for name in SHARED:
        if hasattr(estimator, name):
            setattr(twin, name, getattr(estimator, name))


def faiss_index(estimator: Any) -> Any:
    """Return a flat Faiss index of the centres; for the cosine metric, of inner products."""
    check_is_fitted(estimator)
    if estimator.scaling_ is not None and estimator.scaling_.scales:
        raise InvalidParameterError(
            "the fit was made on scaled rows, and a Faiss index cannot scale rows; use to_sklearn(), "
            "which scales them."
        )
    faiss = import_extra("faiss", "faiss", "to_faiss needs Faiss")
    centres = np.ascontiguousarray(estimator.cluster_centers_, np.float32)
    kind = faiss.IndexFlatIP if estimator.metric == "cosine" else faiss.IndexFlatL2
    index = kind(centres.shape[1])
    index.add(centres)
    return index
