"""Conversion of X to a dataset, with scikit-learn's checks and messages."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from daskcluster.chunkwise.feature_scaling import PARTIAL
from daskcluster.data.anndata import is_anndata
from daskcluster.data.checks import (
    has_list_column,
    is_bfloat16,
    is_frame,
    warn_of_ids_in_frame,
)
from daskcluster.data.columns import ColumnChoice, refuse_duplicates
from daskcluster.data.features import align, names_differ
from daskcluster.data.lance import is_lance
from daskcluster.data.masked import is_masked
from daskcluster.data.open import open_dataset
from daskcluster.data.recipes import for_metric
from daskcluster.data.sources import is_list_of_files, is_table
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.cells import is_xarray, select_features
from daskcluster.estimators.grids import open_grid
from daskcluster.estimators.opening import scaled_like
from daskcluster.parameters.shared import METHODS
from daskcluster.typing import Dataset


def _is_opened(X: Any) -> bool:
    """Return True for what scikit-learn's checks do not know, also in memory: tables, bfloat16, masks."""
    is_wide = isinstance(X, np.ndarray) and is_bfloat16(X.dtype)
    is_special = is_wide or is_masked(X)
    return _is_out_of_core(X) or is_special or _is_table(X) or has_list_column(X) or is_anndata(X)


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


def with_features_of(estimator: Any, X: Any) -> Any:
    """Return a frame or the cells of xarray with the features of the fit, in its order, if they have names.

    Raises
    ------
    InvalidDataError
        Names of the fit are missing in a lazy frame or in cells; those of other frames are checked later.
    """
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return X
    if is_xarray(X):
        return select_features(X, names.tolist())
    # Lazy frames of polars look up their columns at a price, and are opened with those that are expected.
    is_any_frame = not hasattr(X, "collect") and hasattr(X, "columns") and hasattr(X, "dtypes")
    columns = list(X.columns) if is_any_frame else None
    if columns is None or columns == names.tolist() or has_list_column(X):
        return X
    if set(names) <= set(columns):
        return X[names.tolist()] if len(set(columns)) == len(columns) else X
    if hasattr(X, "__dask_graph__"):
        raise names_differ(names.tolist(), columns)
    return X


def _opened(estimator: BaseEstimator, X: Any, sample_weight: Any, reset: bool) -> Dataset:
    if not reset:
        X = with_features_of(estimator, X)
    if is_xarray(X):
        if sample_weight is not None:
            raise InvalidParameterError(
                "sample_weight cannot be given for the cells of a DataArray; use dc.open_grid and its rows."
            )
        # Cells without data are left out.
        dataset = open_grid(X, nodata=np.nan).dataset
        return _remember_features(estimator, None, dataset, reset)
    if _is_opened(X):
        names = () if reset else tuple(getattr(estimator, "feature_names_in_", ()))
        dataset = open_dataset(X, weights=sample_weight, columns=ColumnChoice(expected=names))
        return _remember_features(estimator, X, dataset, reset)
    if is_frame(X):
        refuse_duplicates(X.columns, ColumnChoice(), "the DataFrame")
        if reset:
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
    opened: Any = open_dataset(rows, weights=sample_weight)
    known = getattr(estimator, "feature_names_in_", None)
    opened.feature_names = None if known is None else tuple(known)
    return opened


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


def _remember_features(estimator: Any, X: Any, dataset: Dataset, reset: bool) -> Dataset:
    """Set what an estimator knows of its features; without `reset`, return the rows with these."""
    names: Any = getattr(dataset, "feature_names", None) or getattr(X, "columns", None)
    if names is not None and len(names) != dataset.n_features:  # a column of lists
        names = None
    if reset:
        estimator.n_features_in_ = dataset.n_features
        if names is not None and all(isinstance(name, str) for name in names):
            estimator.feature_names_in_ = np.asarray(list(names), dtype=object)
        elif hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
        return dataset
    known = getattr(estimator, "feature_names_in_", None)
    expected = None if known is None else known.tolist()
    aligned: Dataset = align(dataset, estimator.n_features_in_, expected, type(estimator).__name__)
    return aligned


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
