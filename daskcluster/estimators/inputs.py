"""Conversion of X to a dataset, and what an estimator remembers of its features."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from daskcluster.chunkwise.feature_scaling import PARTIAL
from daskcluster.data.checks import is_xarray
from daskcluster.data.csr import csr_of
from daskcluster.data.dataset import RowDataset
from daskcluster.data.features import FeatureSpec, names_differ
from daskcluster.data.grid import (
    STACKED,
    Decoding,
    feature_axes,
    names_along,
    variables_as_features,
    with_reference_system,
)
from daskcluster.data.open import open_source
from daskcluster.data.recipes import for_metric
from daskcluster.data.spec import RowsSpec
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.opening import decoded_cells, is_raster, open_grid, without_missing
from daskcluster.parameters.shared import METHODS
from daskcluster.typing import Dataset


def fit_dataset(
    estimator: BaseEstimator,
    X: Any,
    sample_weight: Any,
    *,
    reset: bool = True,
    scalable: bool = False,
    complete: bool = False,
) -> Dataset:
    """Return `X` as a dataset, after the checks that need no pass over the rows.

    With `reset`, sets ``n_features_in_``, ``feature_names_in_`` and ``scaling_`` of `estimator`. Otherwise,
    compares the rows with these, and scales them like those of the fit. `scalable` allows a fit of scaled
    rows. With `complete`, rows that lack a value are left out, if the fit left out such rows: a pass. For
    ``metric="cosine"`` the dataset is normalized.
    """
    known = None if reset else features_of(estimator)
    dataset = _opened(X, sample_weight, known)
    if known is None:
        _remember(estimator, dataset, scalable)
    else:
        is_dense = isinstance(dataset, RowDataset) and csr_of(dataset) is None
        if complete and is_dense and known.leaves_out(dataset):
            chosen = known.chosen_from(dataset)
            dataset = without_missing(chosen, "drop", engine=getattr(estimator, "engine", None))
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
        getattr(estimator, "_missing", "error"),
        getattr(estimator, "owner", type(estimator).__name__),
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


def is_dask_frame(X: Any) -> bool:
    """Return True for a dask DataFrame, without importing it."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "map_partitions") and hasattr(X, "columns")


def with_features_of(estimator: Any, X: Any) -> Any:
    """Return a dask collection or the cells of xarray with the features of the fit.

    They are selected by name if both have names.

    Raises
    ------
    InvalidDataError
        Names of the fit are missing, or there is another number of features.
    """
    names = list(getattr(estimator, "feature_names_in_", ()))
    if is_xarray(X):
        X, decoded = decoded_cells(select_features(X, names) if names else X, Decoding.of)
        features_of(estimator).check_decoded(decoded)
        shown = variables_as_features(X)
        n_features = shown.shape[feature_axes(shown.shape, shown.dims, None)[0]]
    elif is_dask_frame(X):
        at = {str(label): label for label in X.columns}
        if names and list(at) != names:
            if not set(names) <= set(at):
                raise names_differ(names, at)
            X = X[[at[name] for name in names]] if len(at) == len(X.columns) else X
        n_features = len(X.columns)
    else:
        # Imported here, since only callers with a dask collection have imported dask.
        from daskcluster.data.dask_array import rows_of

        n_features = rows_of(X).shape[1]
    features_of(estimator).check_number(n_features)
    return X


def select_features(X: Any, names: list[str]) -> Any:
    """Return the variables of a Dataset, or the features of a DataArray that names them, in an order.

    Raises
    ------
    InvalidDataError
        Some of these names are not there.
    """
    if hasattr(X, "data_vars") and not set(names) <= set(map(str, X.data_vars)):
        X = variables_as_features(X)
    if hasattr(X, "data_vars"):
        variables = with_reference_system(X)[names]
        return variables_as_features(variables, STACKED) if len(names) == 1 else variables
    axis = feature_axes(X.shape, X.dims, None)[0]
    found = names_along(X.coords.get(X.dims[axis]), bands=X.attrs.get("long_name")) or ()
    if not found or found == tuple(names):
        return X
    if not set(names) <= set(found):
        raise names_differ(names, found)
    return X.isel({X.dims[axis]: [found.index(name) for name in names]})


def _remember(estimator: Any, dataset: Dataset, scalable: bool) -> None:
    """Set what an estimator knows of the features of its rows."""
    known = FeatureSpec.of(dataset)
    estimator.n_features_in_ = known.n_features
    vars(estimator).update(_decoded=known.decoded, _missing=known.missing)
    if known.names is not None:
        estimator.feature_names_in_ = np.asarray(list(known.names), dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    scaling, name = known.scaling, type(estimator).__name__
    if scaling is not None and scaling.scales and not scalable:
        raise InvalidParameterError(
            f"{name} cannot fit scaled rows, and these were opened with scale={scaling.kind!r}; open "
            "them without scale, or scale them in the source."
        )
    if (
        scaling is not None
        and scaling.kind == PARTIAL
        and not getattr(estimator, "fits_partial", False)
    ):
        raise InvalidParameterError(
            f"{name} cannot fit rows that were opened with missing='partial'; use KMeans, or "
            "missing='mean'."
        )
    if scaling is not None and scaling.scales:
        refuse_given_centres(estimator)
    before = getattr(estimator, "scaling_", None)
    if scaling is None and before is None:
        return
    # Remove centres of an earlier fit, which may be on another scale.
    for name in ("cluster_centers_", "means_", "_centres"):
        vars(estimator).pop(name, None)
    estimator.scaling_ = scaling


def refuse_given_centres(estimator: Any) -> None:
    """Refuse an `init` that does not choose centres among the rows, by a method's name or row numbers.

    Raises
    ------
    InvalidParameterError
    """
    init = estimator.init
    if not (init in METHODS if isinstance(init, str) else np.ndim(init) == 1):
        raise InvalidParameterError(
            f"{type(estimator).__name__} cannot start from given centres on scaled rows; give the name of "
            "a method as init."
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
