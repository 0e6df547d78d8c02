"""Results of the cells of an xarray.DataArray, as DataArrays with its coordinates; lazily for dask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daskcluster.data.grid import feature_axes
from daskcluster.data.missing import complete_rows


def is_xarray(X: Any) -> bool:
    """Return True for a DataArray or Dataset of xarray, without importing it."""
    return type(X).__module__.partition(".")[0] == "xarray" and hasattr(X, "dims")


def map_cells(X: Any, fn: Callable[[np.ndarray], Any], dtype: np.dtype[Any], width: int = 0) -> Any:
    """Map `fn` over the cells of a DataArray, or of the variables of a Dataset.

    Parameters
    ----------
    X : xarray.DataArray or Dataset
        Of which a dimension named band, channel, feature or variable holds the features, or the last one of
        two.
    fn : callable (rows) -> ndarray of shape (n,) or (n, width)
        Gets rows (n, d) that lack no value.
    dtype : dtype
        Of the results. Cells that lack a value get -1, or NaN.
    width : int
        Values of a cell, along a dimension "value"; 0 for one.

    Returns
    -------
    xarray.DataArray
        Lazy if `X` is.
    """
    import xarray as xr

    if hasattr(X, "data_vars"):
        X = X.to_array("variable")
    name = X.dims[feature_axes(X.shape, X.dims, None)[0]]
    d, tail = X.sizes[name], (width,) if width else ()

    def of_block(values: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(values.reshape(-1, d))
        complete = complete_rows(rows)
        found = np.full((len(rows), *tail), np.nan if dtype.kind == "f" else -1, dtype)
        if complete.any():
            found[complete] = np.asarray(fn(rows[complete]))
        return found.reshape(*values.shape[:-1], *tail)

    if hasattr(X.data, "__dask_graph__"):
        X = X.chunk({name: -1})
    return xr.apply_ufunc(
        of_block,
        X,
        input_core_dims=[[name]],
        output_core_dims=[["value"] if width else []],
        dask="parallelized",
        output_dtypes=[dtype],
        dask_gufunc_kwargs={"output_sizes": {"value": width}} if width else {},
    )
