"""Results of the cells of an xarray.DataArray, as DataArrays with its coordinates; lazily for dask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.data.features import names_differ
from daskcluster.data.grid import (
    feature_axes,
    grid_mapping,
    name_of_cells,
    names_along,
    variables_as_features,
    with_reference_system,
)
from daskcluster.data.masked import without_mask
from daskcluster.data.missing import ALL, SOME, presence
from daskcluster.data.open import open_source


def is_xarray(X: Any) -> bool:
    """Return True for a DataArray or Dataset of xarray, without importing it."""
    return type(X).__module__.partition(".")[0] == "xarray" and hasattr(X, "dims")


def select_features(X: Any, names: list[str]) -> Any:
    """Return the variables of a Dataset, or the features of a DataArray that names them, in an order.

    Raises
    ------
    InvalidDataError
        Some of these names are not there.
    """
    if hasattr(X, "data_vars"):
        found, chosen = tuple(map(str, X.data_vars)), lambda: with_reference_system(X)[names]
    else:
        axis = feature_axes(X.shape, X.dims, None)[0]
        found = names_along(X.coords.get(X.dims[axis])) or ()
        chosen = lambda: X.sel({X.dims[axis]: names})  # noqa: E731
    if not found or found == tuple(names):
        return X
    if not set(names) <= set(found):
        raise names_differ(names, found)
    return chosen()


def map_cells(
    X: Any,
    map_rows: Callable[..., Any],
    scaling: FeatureScaling | None,
    fn: Any,
    dtype: np.dtype[Any],
    width: int = 0,
    *more: Any,
) -> Any:
    """Map an estimator over the cells of a DataArray, or of the variables of a Dataset.

    Parameters
    ----------
    X : xarray.DataArray or Dataset
        Of which a dimension named band, channel, feature or variable holds the features, or the last one of
        two.
    map_rows : callable (rows, fn, dtype, width, *more) -> ndarray of shape (n,) or (n, width)
        Gets a dataset of rows (n, d) that lack no value, or not all values, if `scaling` fills these.
    scaling : FeatureScaling or None
        Of the estimator.
    fn, *more
        For `map_rows`.
    dtype : dtype
        Of the results. Cells that are left out get -1, or NaN.
    width : int
        Values of a cell, along a dimension "value"; 0 for one.

    Returns
    -------
    xarray.DataArray, or a Dataset of the fields of `dtype`
        Lazy if `X` is. With the coordinates of `X`; integers are named "label".
    """
    import xarray as xr

    mapping = grid_mapping(X)
    X = variables_as_features(X)
    name = X.dims[feature_axes(X.shape, X.dims, None)[0]]
    d, tail = X.sizes[name], (width,) if width else ()
    least = ALL if scaling is None or scaling.fill is None else SOME

    def of_block(values: np.ndarray) -> np.ndarray:
        cells = values.reshape(-1, d)
        complete = presence(cells) >= least
        found = np.full((len(cells), *tail), _no_data(dtype), dtype)
        if complete.any():
            # A dataset: scikit-learn would warn that its rows have no names.
            rows = open_source(without_mask(cells[complete]))
            found[complete] = np.asarray(map_rows(rows, fn, dtype, width, *more))
        return found.reshape(*values.shape[:-1], *tail)

    if hasattr(X.data, "__dask_graph__"):
        X = X.chunk({name: -1})
    found = xr.apply_ufunc(
        of_block,
        X,
        input_core_dims=[[name]],
        output_core_dims=[["value"] if width else []],
        dask="parallelized",
        output_dtypes=[dtype],
        dask_gufunc_kwargs={"output_sizes": {"value": width}} if width else {},
    )
    found.attrs, found.name = mapping, name_of_cells(dtype)
    if dtype.names is None:
        return found
    return xr.Dataset({field: found.copy(data=found.data[field]) for field in dtype.names})


def _no_data(dtype: np.dtype[Any]) -> np.ndarray:
    """Return the value of cells that lack one."""
    fields = dtype.names or ()
    values = tuple(_no_data(dtype[field]) for field in fields)
    return np.array(values or (np.nan if dtype.kind == "f" else -1), dtype)
