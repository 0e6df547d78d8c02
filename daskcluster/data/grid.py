"""Grids with any number of axes as rows, and labels back in their shape: rasters, volumes, climate data."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from daskcluster.data.convert import convert
from daskcluster.data.open import open_dataset
from daskcluster.data.table import Block, Table
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError
from daskcluster.typing import Dataset

_NAMES = ("band", "bands", "feature", "features", "variable", "variables")
_MANY_TIMES = 8
"""A last axis so many times as long as the first hardly holds features."""


class Grid:
    """Cells of a grid as rows, made by `open_grid`.

    Attributes
    ----------
    dataset : Dataset
        A row for each cell that has data, in C order of the grid's axes.
    shape : tuple of int
        Of the grid, without the features.
    mask : ndarray of shape `shape`, bool, or None
        Where there are data; None: everywhere.
    """

    def __init__(
        self,
        dataset: Dataset,
        shape: tuple[int, ...],
        mask: np.ndarray | None,
        template: Any = None,
    ) -> None:
        self.dataset = dataset
        self.shape = shape
        self.mask = mask
        self._template = template

    def __repr__(self) -> str:
        axes = " x ".join(map(str, self.shape))
        n, d = self.dataset.n_rows, self.dataset.n_features
        return f"Grid({axes}, {n} rows with data, {d} features)"

    def unflatten(self, values: Any, fill: Any = -1) -> Any:
        """Return one value a row as a grid: labels where there are data, `fill` elsewhere.

        Parameters
        ----------
        values : array-like of shape (n,)
            For each row of ``dataset``, e.g. ``labels_``.
        fill : scalar

        Returns
        -------
        ndarray of `shape`
            An xarray.DataArray with the coordinates of the source, if that was one.

        Raises
        ------
        InvalidDataError
            Not one value for each row.
        """
        flat = np.asarray(values)
        if flat.shape != (self.dataset.n_rows,):
            raise InvalidDataError(
                f"values of shape {flat.shape} should be of shape ({self.dataset.n_rows},): one for each "
                "row of the grid's dataset."
            )
        if self.mask is None:
            grid = flat.reshape(self.shape)
        else:
            grid = np.full(self.shape, fill, np.result_type(flat.dtype, np.min_scalar_type(fill)))
            grid[self.mask] = flat
        return grid if self._template is None else self._template.copy(data=grid)


def open_grid(
    source: Any,
    *,
    features: str | int | None = None,
    nodata: float | None = None,
    array: str | None = None,
    cells: str | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Grid:
    """Open a grid of feature vectors for clustering.

    Parameters
    ----------
    source : ndarray, xarray.DataArray or Dataset, or URL of a Zarr array
        With one axis of features and any number of others, e.g. (y, x, band). The variables of a Dataset
        are its features.
    features : int or str, optional
        The axis, or the name of the dimension, that holds the features; the last one of a Zarr array.
        Default: a dimension named band, feature or variable (or their plural), else the last axis.
    nodata : float, optional
        A cell with this value in any feature has no data; NaN in any feature means none in any case.
    array, storage_options
        See `open_dataset`; of a URL.
    cells : str, optional
        URL of a Zarr array to write: the rows of those cells of a stored grid that have data, once. Needed
        where some have none.
    overwrite : bool
        Replace what is at `cells`.

    Returns
    -------
    Grid

    Raises
    ------
    InvalidDataError
        No cell has data, or there is no axis other than that of the features.
    InvalidParameterError
        No such axis, or `nodata` of a Zarr array without `cells`.
    OutputExistsError
        There is something at `cells`.

    Notes
    -----
    Cost: arrays in memory are scanned once, and rows with data copied where others have none, or where
    features are not last. A Zarr array is read by the fit, chunk by chunk; only labels are in memory, and
    with `cells`, which takes one pass, the mask: a byte for each cell.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> raster = np.array([[[1.0, 1], [9, 9]], [[1, 2], [0, np.nan]]])
    >>> grid = open_grid(raster)
    >>> grid.unflatten(dc.KMeans(2, init=raster[0]).fit(grid.dataset).labels_)
    array([[ 0,  1],
           [ 0, -1]], dtype=int32)
    """
    if isinstance(source, (str, os.PathLike)) or type(source).__module__.startswith("zarr"):
        if features not in (None, -1):
            raise InvalidParameterError(
                f"features={features!r} is for grids in memory; store the array with the features last."
            )
        grid = _stored(source, array, storage_options)
        if cells is not None:
            return _with_data(grid, nodata, cells, storage_options, overwrite=overwrite)
        if nodata is not None:
            raise InvalidParameterError(
                f"nodata={nodata} of a stored grid leaves out rows; give cells=URL, a place where those "
                "with data are written."
            )
        return grid
    if hasattr(source, "data_vars"):
        source = source.to_array("variable")
    if not hasattr(source, "shape"):
        raise WrongTypeError(
            f"source is a {type(source).__name__}, which is no grid; give an array, an "
            "xarray.DataArray or the URL of a Zarr array."
        )
    values, template = _features_last(source, features)
    if values.ndim < 2:
        raise InvalidDataError(
            f"a grid of shape {values.shape} should have an axis other than that of the features."
        )
    return _in_memory(values, template, nodata)


def _stored(source: Any, name: str | None, options: Mapping[str, Any] | None) -> Grid:
    dataset = open_dataset(source, array=name, storage_options=options, flatten=True)
    shape = _stored_shape(source, name, options)
    if math.prod(shape) != dataset.n_rows:
        raise InvalidDataError(f"the grid of shape {shape} has not {dataset.n_rows} cells.")
    return Grid(dataset, shape, None)


def _with_data(
    grid: Grid,
    nodata: float | None,
    cells: str,
    options: Mapping[str, Any] | None,
    *,
    overwrite: bool,
) -> Grid:
    """Write the rows of a stored grid that have data, and return the grid of those."""
    dataset = grid.dataset
    mask = np.zeros(dataset.n_rows, bool)

    def blocks() -> Iterator[Block]:
        for chunk in dataset.chunks(dataset.partitions):
            known = ~_missing(chunk.rows, nodata)
            mask[chunk.start : chunk.stop] = known
            if known.any():
                yield chunk.rows[known], None
        _refuse_nothing(mask, grid.shape)

    table = Table(None, dataset.n_features, dataset.dtype, weighted=False, blocks=blocks)
    convert(table, cells, overwrite=overwrite, storage_options=options)
    rows = open_dataset(cells, storage_options=options)
    return Grid(rows, grid.shape, None if mask.all() else mask.reshape(grid.shape))


def _missing(values: np.ndarray, nodata: float | None) -> np.ndarray:
    """Return where cells of values, features last, have no data."""
    is_float = values.dtype.kind == "f"
    found = np.isnan(values).any(axis=-1) if is_float else np.zeros(values.shape[:-1], bool)
    return found if nodata is None else found | (values == nodata).any(axis=-1)


def _refuse_nothing(known: np.ndarray, shape: tuple[int, ...]) -> None:
    if not known.any():
        raise InvalidDataError(f"no cell of the grid of shape {shape} has data; check nodata.")


def _stored_shape(
    source: Any, name: str | None, options: Mapping[str, Any] | None
) -> tuple[int, ...]:
    if hasattr(source, "shape"):
        return tuple(source.shape[:-1])
    from daskcluster.data.nodes import open_array
    from daskcluster.storage.location import locate

    return tuple(open_array(locate(source, options), name or "").shape[:-1])


def _features_last(source: Any, features: str | int | None) -> tuple[np.ndarray, Any]:
    """Return the values with features last, and for xarray one feature without them."""
    names = getattr(source, "dims", None)
    if features is None:
        features = _axis_of_features(source.shape, names)
    if names is None:
        values = np.asarray(source)
        if isinstance(features, str) or not -values.ndim <= features < values.ndim:
            raise InvalidParameterError(
                f"features={features!r} should be an axis of the array, -{values.ndim} to "
                f"{values.ndim - 1}."
            )
        return np.moveaxis(values, features, -1), None
    if isinstance(features, str) and features not in names:
        raise InvalidParameterError(
            f"features={features!r} should be one of the dimensions {', '.join(map(str, names))}."
        )
    name = features if isinstance(features, str) else names[features]
    ordered = source.transpose(..., name)
    return np.asarray(ordered.values), ordered.isel({name: 0}, drop=True)


def _axis_of_features(shape: tuple[int, ...], names: Any) -> str | int:
    """Return the dimension whose name says that it holds features, else the last axis."""
    named = [name for name in names or () if str(name).lower() in _NAMES]
    if len(named) == 1:
        return str(named[0])
    if names is None and len(shape) == 3 and shape[0] * _MANY_TIMES < shape[-1]:
        warnings.warn(
            f"The last axis of the grid of shape {shape} was taken for the features, of which each "
            f"cell then has {shape[-1]}. If the first axis holds them, as bands do in rasterio's "
            "order, pass features=0; otherwise features=-1.",
            UserWarning,
            stacklevel=4,
        )
    return -1


def _in_memory(values: np.ndarray, template: Any, nodata: float | None) -> Grid:
    shape = values.shape[:-1]
    missing = _missing(values, nodata)
    _refuse_nothing(~missing, shape)
    if not missing.any():
        return Grid(open_dataset(np.ascontiguousarray(values), flatten=True), shape, None, template)
    return Grid(open_dataset(values[~missing]), shape, ~missing, template)
