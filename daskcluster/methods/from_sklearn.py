"""Convert fitted estimators of scikit-learn, to label rows that do not fit into memory and to save them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import KMeans as TheirKMeans
from sklearn.cluster import MiniBatchKMeans as TheirMiniBatchKMeans
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.utils.validation import check_is_fitted

from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.errors import InvalidParameterError
from daskcluster.events import StopReason
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.methods.mixture.estimator import VariationalGaussianMixture
from daskcluster.methods.mixture.model import MixtureModel, stored_variances
from daskcluster.models.fitted import KMeansModel, created_with

KNOWN = (
    "a fitted KMeans, MiniBatchKMeans or GaussianMixture of scikit-learn, or a pipeline of SimpleImputer, "
    "StandardScaler or MinMaxScaler, Normalizer, and one of these"
)
_SAME = ("init", "max_iter", "n_init", "random_state", "verbose")
"""Parameters that say the same on both sides; `tol` too, of k-means."""


def from_sklearn(estimator: Any) -> KMeans | VariationalGaussianMixture:
    """Return a fitted estimator of scikit-learn as one of ours, which predicts the same labels.

    What was learnt from rows in memory then labels rows of any size, and is saved without a pickle.

    Parameters
    ----------
    estimator : estimator of scikit-learn
        A fitted `sklearn.cluster.KMeans`, `sklearn.cluster.MiniBatchKMeans` or
        `sklearn.mixture.GaussianMixture`; or a pipeline
        that ends with one, after a `StandardScaler` or `MinMaxScaler` (as ``scale=`` of `open_dataset` has
        them), after a `Normalizer` (as ``metric="cosine"``, if the centres have length one), or after both.

    Returns
    -------
    KMeans or VariationalGaussianMixture
        Without ``labels_``. What scikit-learn does not keep is empty or zero: ``history_``, ``passes_``,
        the costs of clusters. Sizes of clusters are counted in its ``labels_``, where it has them, as if
        each row weighed 1.

    Raises
    ------
    InvalidParameterError
        It is none of these.
    sklearn.exceptions.NotFittedError
        It has not been fitted.

    Notes
    -----
    Cost: no pass. Rows that are as near to two centres, up to rounding, may get the other label.

    Examples
    --------
    >>> import daskcluster as dc
    >>> from sklearn.cluster import KMeans
    >>> theirs = KMeans(2, random_state=0).fit([[0.0], [1.0], [9.0]])
    >>> ours = dc.from_sklearn(theirs)
    >>> bool((ours.predict([[2.0], [8.0]]) == theirs.predict([[2.0], [8.0]])).all())
    True
    """
    steps, last = _steps(estimator)
    if isinstance(last, GaussianMixture):
        check_is_fitted(last)
        return VariationalGaussianMixture.from_model(
            _mixture(last, _scaling(steps), _names(estimator))
        )
    if not isinstance(last, TheirKMeans | TheirMiniBatchKMeans):
        raise _unknown(last)
    check_is_fitted(last)
    cosine = bool(steps) and isinstance(steps[-1], Normalizer)
    if cosine:
        _check_directions(steps.pop(), last.cluster_centers_)
    metric = "cosine" if cosine else "euclidean"
    return KMeans.from_model(_kmeans(last, metric, _scaling(steps), _names(estimator)))


def _steps(estimator: Any) -> tuple[list[Any], Any]:
    """Return what a pipeline does to rows first, and the estimator at its end."""
    if not isinstance(estimator, Pipeline):
        return [], estimator
    *before, last = [step for _, step in estimator.steps]
    return [step for step in before if step not in (None, "passthrough")], last


def _unknown(given: Any) -> InvalidParameterError:
    what = f"{type(given).__name__} has no counterpart here"
    if type(given).__module__.startswith("daskcluster."):
        what = (
            f"{type(given).__name__} is of daskcluster already; use it as it is, and fit it on rows of "
            "open_dataset(X, scale=...) in place of a pipeline with a scaler"
        )
    return InvalidParameterError(f"{what}; from_sklearn takes {KNOWN}.")


def _kmeans(
    theirs: Any, metric: str, scaling: FeatureScaling | None, names: tuple[str, ...] | None
) -> KMeansModel:
    centres = np.array(theirs.cluster_centers_, order="C")
    labels = getattr(theirs, "labels_", np.empty(0, np.int32))
    sizes = np.bincount(labels, minlength=len(centres)).astype(np.int64)
    return KMeansModel(
        centres,
        sizes.astype(np.float64),
        sizes,
        metric=metric,
        inertia=float(getattr(theirs, "inertia_", 0.0)),  # partial_fit knows none
        n_rows=len(labels),
        n_iter=int(getattr(theirs, "n_iter_", 0)),
        parameters=_parameters(theirs, *_SAME, "tol"),
        feature_names=names,
        scaling=scaling,
        **_origin(theirs),
    )


def _symmetric(variances: np.ndarray) -> np.ndarray:
    """Return a copy; of matrices, with the lower triangle mirrored, because theirs differ in last bits."""
    if variances.ndim < 3:
        return variances.copy()
    lower = np.tril(variances)
    return lower + np.tril(variances, -1).transpose(0, 2, 1)


def _mixture(
    theirs: Any, scaling: FeatureScaling | None, names: tuple[str, ...] | None
) -> MixtureModel:
    means = np.array(theirs.means_, order="C")
    mixing = np.array(theirs.weights_, np.float64)
    return MixtureModel(
        means,
        _symmetric(stored_variances(theirs.covariances_, theirs.covariance_type)),
        mixing,
        np.zeros(len(means)),  # the number of rows is unknown
        theirs.covariance_type,
        float(theirs.lower_bound_),
        truncation=len(means),  # all posteriors, as there
        n_iter=int(theirs.n_iter_),
        stop_reason=str(StopReason.TOLERANCE if theirs.converged_ else StopReason.MAX_ITER),
        parameters=_parameters(theirs, "max_iter", "random_state", "verbose"),
        feature_names=names,
        scaling=scaling,
        **_origin(theirs),
    )


def _origin(theirs: Any) -> dict[str, Any]:
    return {"seeding": f"scikit-learn's {type(theirs).__name__}", "created_with": created_with()}


def _parameters(theirs: Any, *names: str) -> dict[str, Any]:
    given = theirs.get_params(deep=False)
    return {
        name: value
        for name, value in given.items()
        if name in names and isinstance(value, bool | int | float | str)
    }


def _names(estimator: Any) -> tuple[str, ...] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def _scaling(steps: list[Any]) -> FeatureScaling | None:
    """Return what a scaler and an imputer before an estimator do to rows; None without them."""
    fill = None
    if steps and isinstance(steps[0], SimpleImputer):
        fill, steps = _fill_of(steps[0]), steps[1:]
    if not steps:
        return None if fill is None else FeatureScaling.filling(fill)
    scaler = steps[0]
    if not isinstance(scaler, StandardScaler | MinMaxScaler) or len(steps) > 1:
        raise _unknown(steps[-1])
    check_is_fitted(scaler)
    ones = np.ones(scaler.n_features_in_)
    if isinstance(scaler, StandardScaler):
        shift = scaler.mean_ if scaler.with_mean else 0.0 * ones
        width = scaler.scale_ if scaler.with_std else ones
        return FeatureScaling("standard", np.array(shift, float), np.array(width, float), fill)
    if scaler.clip:
        raise InvalidParameterError(
            "MinMaxScaler(clip=True) moves rows that lie outside of its range, which scale='minmax' does "
            "not; fit the pipeline with clip=False."
        )
    return FeatureScaling("minmax", -scaler.min_ / scaler.scale_, 1.0 / scaler.scale_, fill)


def _fill_of(imputer: SimpleImputer) -> np.ndarray:
    check_is_fitted(imputer)
    fill = np.asarray(imputer.statistics_)
    plain = fill.dtype.kind == "f" and bool(np.isfinite(fill).all()) and not imputer.add_indicator
    if not plain or imputer.missing_values == imputer.missing_values:  # equal to itself: not NaN
        raise InvalidParameterError(
            "a SimpleImputer has a counterpart here only if it replaces NaN by a number in every feature "
            "and adds no indicators; fit the pipeline with missing_values=np.nan and add_indicator=False."
        )
    return fill.astype(np.float64)


def _check_directions(normalizer: Normalizer, centres: np.ndarray) -> None:
    if normalizer.norm != "l2":
        raise InvalidParameterError(
            f"Normalizer(norm={normalizer.norm!r}) has no counterpart here; metric='cosine' is norm='l2'."
        )
    lengths = np.sqrt((centres * centres).sum(axis=1))
    if not np.allclose(lengths, 1.0, rtol=0.0, atol=1e-4):
        raise InvalidParameterError(
            f"the centres behind the Normalizer have lengths from {lengths.min():.3g} to "
            f"{lengths.max():.3g}; metric='cosine' has centres of length 1: fit KMeans(metric='cosine', "
            "init=...) from them."
        )
