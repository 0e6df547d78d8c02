"""Conversion of X to a dataset, and what an estimator remembers of its features."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from daskcluster.chunkwise.feature_scaling import PARTIAL
from daskcluster.data.features import FeatureSpec, names_differ
from daskcluster.data.open import open_source
from daskcluster.data.recipes import for_metric
from daskcluster.data.spec import RowsSpec
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.cells import is_xarray, select_features
from daskcluster.estimators.grids import is_raster, open_grid
from daskcluster.estimators.lazy import is_dask_frame
from daskcluster.parameters.shared import METHODS
from daskcluster.typing import Dataset


def fit_dataset(
    estimator: BaseEstimator,
    X: Any,
    sample_weight: Any,
    *,
    reset: bool = True,
    scalable: bool = False,
) -> Dataset:
    """Return `X` as a dataset, after the checks that need no pass over the rows.

    With `reset`, sets ``n_features_in_``, ``feature_names_in_`` and ``scaling_`` of `estimator`. Otherwise,
    compares the rows with these, and scales them like those of the fit. `scalable` allows a fit of scaled
    rows. For ``metric="cosine"`` the dataset is normalized.
    """
    known = None if reset else features_of(estimator)
    dataset = _opened(X, sample_weight, known)
    if known is None:
        _remember(estimator, dataset, scalable)
    else:
        dataset = known.align(dataset)
    return for_metric(dataset, getattr(estimator, "metric", "euclidean"))


def features_of(estimator: Any) -> FeatureSpec:
    """Return what a fitted estimator demands of rows."""
    names = getattr(estimator, "feature_names_in_", None)
    return FeatureSpec(
        estimator.n_features_in_,
        None if names is None else tuple(names),
        getattr(estimator, "scaling_", None),
        getattr(estimator, "_decoded", None),
        type(estimator).__name__,
    )


def _opened(X: Any, sample_weight: Any, known: FeatureSpec | None) -> Dataset:
    names = () if known is None else tuple(known.names or ())
    if is_xarray(X) or is_raster(X):
        if sample_weight is not None:
            raise InvalidParameterError(
                "sample_weight cannot be given for the cells of a grid; use dc.open_grid and its rows."
            )
        # Cells without data are left out.
        return open_grid(
            select_features(X, list(names)) if names and is_xarray(X) else X, nodata=np.nan
        ).dataset
    dataset = open_source(X, RowsSpec(expected=names), weights=sample_weight)
    found = getattr(dataset, "feature_names", None)
    differs = isinstance(X, np.ndarray | list) if names else found
    if known is not None and differs:
        has, was = ("has", "without") if found else ("does not have valid", "with")
        warnings.warn(
            f"X {has} feature names, but {known.owner} was fitted {was} feature names",
            UserWarning,
            stacklevel=4,
        )
    return dataset


def with_features_of(estimator: Any, X: Any) -> Any:
    """Return a lazy frame or the cells of xarray with the features of the fit, if both have names.

    Raises
    ------
    InvalidDataError
        Names of the fit are missing.
    """
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return X
    if is_xarray(X):
        return select_features(X, names.tolist())
    at = {str(label): label for label in X.columns} if is_dask_frame(X) else dict.fromkeys(names)
    if list(at) == names.tolist():
        return X
    if set(names) <= set(at):
        return X[[at[name] for name in names]] if len(at) == len(X.columns) else X
    raise names_differ(names.tolist(), at)


def _remember(estimator: Any, dataset: Dataset, scalable: bool) -> None:
    """Set what an estimator knows of the features of its rows."""
    estimator.n_features_in_ = dataset.n_features
    vars(estimator)["_decoded"] = getattr(dataset, "decoded", None) is not False
    names = getattr(dataset, "feature_names", None)
    if names is not None:
        estimator.feature_names_in_ = np.asarray(list(names), dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    scaling = getattr(dataset, "scaling", None)
    name = type(estimator).__name__
    if scaling is not None and scaling.scales and not scalable:
        raise InvalidParameterError(
            f"{name} cannot fit scaled rows, and these were opened with scale={scaling.kind!r}; open "
            "them without scale, or scale them in the source."
        )
    if scaling is not None and scaling.kind == PARTIAL and not estimator.fits_partial:
        raise InvalidParameterError(
            f"{name} cannot fit rows that were opened with missing='partial'; use KMeans, or "
            "missing='mean'."
        )
    if scaling is not None and scaling.scales and not _chooses(estimator.init):
        raise InvalidParameterError(
            f"{name} cannot start from given centres on scaled rows; give the name of a method as init."
        )
    before = getattr(estimator, "scaling_", None)
    if scaling is None and before is None:
        return
    # Remove centres of an earlier fit, which may be on another scale.
    for name in ("cluster_centers_", "means_", "_centres"):
        vars(estimator).pop(name, None)
    estimator.scaling_ = scaling


def _chooses(init: Any) -> bool:
    """Return True if `init` chooses first centres among the rows: a method's name, or row numbers."""
    return init in METHODS if isinstance(init, str) else np.ndim(init) == 1


def check_enough_rows(dataset: Dataset, n_clusters: int) -> None:
    """Raise if there are fewer rows than clusters."""
    if dataset.n_rows < n_clusters:
        raise InvalidParameterError(
            f"n_samples={dataset.n_rows} should be >= n_clusters={n_clusters}; "
            f"pass n_clusters <= {dataset.n_rows} or add rows."
        )


def check_kept_rows(n_kept: int, n_rows: int, n_clusters: int) -> None:
    """Raise if a summary has fewer rows than clusters; rows without weight are in no summary."""
    if n_kept < n_clusters:
        raise InvalidParameterError(
            f"n_samples={n_rows} should be >= n_clusters={n_clusters} without the rows that weigh nothing, "
            f"and {n_kept} are left in the summary; pass n_clusters <= {n_kept}, or weigh more rows."
        )
