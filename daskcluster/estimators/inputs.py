"""Conversion of X to a dataset, with scikit-learn's checks and messages."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from daskcluster.chunkwise.feature_scaling import PARTIAL
from daskcluster.data.checks import (
    has_list_column,
    is_bfloat16,
    is_frame,
    is_masked,
    warn_of_ids_in_frame,
)
from daskcluster.data.lance import is_lance
from daskcluster.data.open import open_dataset
from daskcluster.data.recipes import for_metric
from daskcluster.data.sources import is_list_of_files, is_table
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.estimators.cells import is_xarray
from daskcluster.estimators.grids import open_grid
from daskcluster.estimators.opening import scaled_like
from daskcluster.parameters.shared import METHODS
from daskcluster.typing import Dataset


def _is_opened(X: Any) -> bool:
    """Return True for what scikit-learn's checks do not know, also in memory: tables, bfloat16, masks."""
    is_wide = isinstance(X, np.ndarray) and is_bfloat16(X.dtype)
    is_special = is_wide or is_masked(X)
    return _is_out_of_core(X) or is_special or _is_table(X) or has_list_column(X)


def _is_out_of_core(X: Any) -> bool:
    """Return True for rows that need not be in memory: datasets, URLs, dask collections."""
    if isinstance(X, (str, np.memmap)) or hasattr(X, "__dask_graph__"):
        return True
    if hasattr(X, "__fspath__") or is_list_of_files(X) or is_lance(X):
        return True
    module = type(X).__module__.partition(".")[0]
    return module == "zarr" or (hasattr(X, "partitions") and hasattr(X, "recipe"))


def _is_table(X: Any) -> bool:
    # A polars DataFrame of numbers passes scikit-learn's checks.
    dtypes = getattr(X, "dtypes", None) if type(X).__name__ == "DataFrame" else None
    if dtypes is not None:
        return is_table(X) and any(dtype.is_nested() for dtype in dtypes)
    return is_table(X)


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
    dataset = _opened(estimator, X, sample_weight, reset)
    if reset:
        _remember_scaling(estimator, dataset, scalable)
    else:
        dataset = scaled_like(dataset, getattr(estimator, "scaling_", None))
    return for_metric(dataset, getattr(estimator, "metric", "euclidean"))


def _opened(estimator: BaseEstimator, X: Any, sample_weight: Any, reset: bool) -> Dataset:
    if is_xarray(X):
        if sample_weight is not None:
            raise InvalidParameterError(
                "sample_weight cannot be given for the cells of a DataArray; use dc.open_grid and its rows."
            )
        # Cells without data are left out.
        dataset = open_grid(X, nodata=np.nan).dataset
        _remember_features(estimator, None, dataset, reset)
        return dataset
    if _is_opened(X):
        dataset = open_dataset(X, weights=sample_weight)
        _remember_features(estimator, X, dataset, reset)
        return dataset
    if reset and is_frame(X):
        warn_of_ids_in_frame(X)
    rows = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        dtype="numeric",
        ensure_all_finite=False,
        order=None,
        copy=False,
    )
    dataset = open_dataset(rows, weights=sample_weight)
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        dataset.feature_names = tuple(names)  # type: ignore[attr-defined]
    return dataset


def _remember_scaling(estimator: Any, dataset: Dataset, scalable: bool) -> None:
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


def _remember_features(estimator: Any, X: Any, dataset: Dataset, reset: bool) -> None:
    names = getattr(dataset, "feature_names", None) or getattr(X, "columns", None)
    if names is not None and len(names) != dataset.n_features:  # a column of lists
        names = None
    if reset:
        estimator.n_features_in_ = dataset.n_features
        if names is not None and all(isinstance(name, str) for name in names):
            estimator.feature_names_in_ = np.asarray(list(names), dtype=object)
        elif hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
        return
    expected = estimator.n_features_in_
    if dataset.n_features != expected:
        raise InvalidDataError(
            f"X has {dataset.n_features} features, but {type(estimator).__name__} is expecting "
            f"{expected} features as input; give it rows with the columns it was fitted on."
        )


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
