"""`open_grid`: grids with any number of axes as rows, from memory, xarray, dask and Zarr."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from daskcluster.data.checks import check_dtype
from daskcluster.data.grid import (
    Axes,
    Grid,
    GridShape,
    blank_cells,
    check_axes,
    feature_axes,
    grid_in_memory,
    grid_mapping,
    names_along,
    refuse_nothing,
    row_axes,
)
from daskcluster.data.grid_rows import (
    Decoding,
    GridRecipe,
    dimension_names,
    open_group,
    selected_positions,
    stored_coordinates,
    template_of,
)
from daskcluster.data.masked import has_masks, is_masked, without_masks
from daskcluster.data.missing import without_incomplete
from daskcluster.data.nodes import metadata_digest, open_array, warn_of_missing_chunks
from daskcluster.data.open import open_source, open_url
from daskcluster.data.spec import RowsSpec
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.errors import (
    InvalidDataError,
    InvalidParameterError,
    MissingExtraError,
    WrongTypeError,
)
from daskcluster.estimators.prepared import complete_of
from daskcluster.events import Callback
from daskcluster.extras import install_command
from daskcluster.storage.location import Location, locate
from daskcluster.storage.zarr_stores import location_of


def open_grid(
    source: Any,
    *,
    features: Axes | None = None,
    nodata: float | None = None,
    select: Mapping[Any, Any] | None = None,
    dequantize: Any = None,
    array: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> Grid:
    """Open a grid of feature vectors for clustering.

    Parameters
    ----------
    source : ndarray, dask array, xarray.DataArray or Dataset, zarr.Array, or URL of a Zarr array or group
        With one axis of features or more, and any number of others, e.g. (time, y, x, band). The variables
        of a Dataset are its features.
    features : int, str or sequence of these, optional
        The axes, or the names of the dimensions, that hold the features; of several axes all
        combinations are features, the last axis fastest. Default: a dimension named band, channel, feature
        or variable (or their plural), else the last axis, if dimensions have no names.
    nodata : float, optional
        A cell with this value in any feature has no data, nor has one with NaN or a masked value. Of a
        stored grid this takes one pass; pass ``numpy.nan`` if only NaN means no data there. Arrays in
        memory, lazy ones, and stored ones with an attribute ``_FillValue`` or ``missing_value`` other than
        NaN are always searched for NaN and masked values.
    select : mapping, optional
        A part of the grid: dimensions, or axes, and labels as ``xarray.DataArray.sel`` takes them, e.g.
        ``{"time": "2024-07", "y": slice(60, 50), "band": ["red", "nir"]}``; positions along dimensions
        without coordinates. Selected cells must follow each other.
    dequantize : (scale, offset) or sequence of float, optional
        Values of stored codes, as float32: ``code * scale + offset``, or a table with the value of each
        code from 0. `nodata` is then a code. By default the attributes ``scale_factor``, ``add_offset``,
        ``_FillValue`` and ``missing_value`` of a stored array decode it, as xarray does.
    array : str or sequence of str, optional
        Of a Zarr group: which array; or several, whose values are the features of a cell.
    storage_options
        See `open_dataset`; of a URL.
    engine : see `daskcluster.KMeans`
        Runs the pass.
    callbacks : sequence of callables
        Called with the events of the pass.

    Returns
    -------
    Grid

    Raises
    ------
    InvalidDataError
        No cell has data, or there is no axis other than those of the features.
    InvalidParameterError
        No such axis or label, or names of dimensions that do not say which one holds the features.
    MissingExtraError
        `select` by coordinates without xarray.

    Notes
    -----
    Cost: arrays in memory are scanned once, and rows with data copied where others have none, or where
    features are not last. A stored or lazy grid is read by the fit, block by block, and nothing is copied.
    It is read once more with `nodata`, and if it is lazy and can have NaN; the mask stays in memory then: a
    byte for each cell.

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
    select, extra = dict(select or {}), list[Location]()
    passes = {"engine": engine, "callbacks": callbacks}
    if isinstance(source, (str, os.PathLike)) or type(source).__module__.startswith("zarr"):
        if not isinstance(array, (str, type(None))):
            home = locate(source, storage_options)
            source = _variables(home, array)
            extra = [home.child(str(name)) for name in source.coords]
        else:
            place = (
                location_of(source) if hasattr(source, "store") else locate(source, storage_options)
            )
            if place is not None:
                given = (features, nodata, select, dequantize)
                return _stored(place, array or "", *given, **passes)
            source = source[:]  # in the memory of this process already
    mapping = grid_mapping(source) if hasattr(source, "dims") else {}
    if hasattr(source, "data_vars"):
        source = source.to_array("variable")
    if not hasattr(source, "shape"):
        raise WrongTypeError(
            f"source is a {type(source).__name__}, which is no grid; give an array, an "
            "xarray.DataArray or the URL of a Zarr array."
        )
    template = names = None
    if hasattr(source, "dims"):
        source = _selected(source, select)
        axes = feature_axes(source.shape, source.dims, features)
        check_axes(source.shape, axes)
        part = source.isel({source.dims[axis]: 0 for axis in axes}, drop=True)
        template = blank_cells(part.shape, part.dims, part.coords, mapping)
        names = names_along(*(source.coords.get(source.dims[axis]) for axis in axes))
        source, select = source.data, {}
    else:
        axes = feature_axes(tuple(source.shape), None, features)
        check_axes(tuple(source.shape), axes)
    lazy = hasattr(source, "__dask_graph__")
    values: Any = source if lazy or is_masked(source) else np.asarray(source)
    check_dtype(values.dtype, what="grid")
    if select:
        positions = selected_positions(values.shape, None, {}, select, axes)
        values = _part(values, positions, axes)
    if lazy and nodata is None and _may_lack_values(values):
        nodata = np.nan
    if dequantize is not None:
        decoding = Decoding.of(dequantize, values.dtype, nodata)
        nodata = None if nodata is None else np.nan
        values = (
            values.map_blocks(decoding.apply, dtype=np.float32) if lazy else decoding.apply(values)
        )
    if lazy:
        grid = _lazy(values, axes, template, nodata, **passes)
    else:
        grid = grid_in_memory(values, axes, template, nodata)
    return _naming(grid, names, extra)


def _may_lack_values(values: Any) -> bool:
    """Return True for a dask array that has NaN or masked values, as far as its metadata tells."""
    return values.dtype.kind not in "biu" or has_masks(values)


def _naming(grid: Grid, names: tuple[str, ...] | None, read_from: Sequence[Location] = ()) -> Grid:
    """Return a grid whose rows know the names of their features, and what else was read."""
    rows: Any = grid.dataset
    rows.feature_names = names
    rows.read_from = (*rows.read_from, *read_from)
    return grid


def _variables(location: Location, names: Sequence[str]) -> Any:
    """Return variables of a Zarr group as a lazy xarray Dataset."""
    try:
        group = open_group(location)
    except ImportError as error:
        raise MissingExtraError(
            f"several arrays of a group need xarray; install it with: {install_command('xarray')}."
        ) from error
    missing = [name for name in names if name not in group]
    if missing:
        raise InvalidParameterError(
            f"There is no array {missing[0]!r} in {location.url!r}; arrays: {', '.join(map(str, group))}."
        )
    return group[list(names)]


def _selected(source: Any, select: Mapping[Any, Any]) -> Any:
    unknown = [key for key in select if key not in source.dims]
    if unknown:
        raise InvalidParameterError(
            f"select has {unknown[0]!r}, which should be one of the dimensions "
            f"{', '.join(map(str, source.dims))}."
        )
    # Lists keep the dimension of a single label.
    wanted = {
        key: label if isinstance(label, slice | str) or np.ndim(label) else [label]
        for key, label in select.items()
    }
    try:
        return source.sel(wanted)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidParameterError(f"select={dict(select)!r} is not found ({error}).") from error


def _part(values: Any, positions: Sequence[tuple[int, ...]], features: Sequence[int]) -> Any:
    for axis, at in enumerate(positions):
        index: Any = list(at) if axis in features else slice(*at)
        values = values[(slice(None),) * axis + (index,)]
    return values


def _lazy(
    values: Any, features: Sequence[int], template: Any, nodata: float | None, **passes: Any
) -> Grid:
    from daskcluster.data.dask_array import with_known_chunks

    values, axes = with_known_chunks(without_masks(values)), row_axes(values.ndim, features)
    shape = tuple(int(values.shape[axis]) for axis in axes)
    ordered = values.rechunk(dict.fromkeys(features, -1)).transpose(*axes, *features)
    rows = ordered.reshape(int(np.prod(shape)), -1)
    return _masked(open_source(rows), shape, template, nodata, **passes)


def _stored(
    place: Location,
    name: str,
    features: Axes | None,
    nodata: float | None,
    select: Mapping[Any, Any],
    dequantize: Any,
    **passes: Any,
) -> Grid:
    node = open_array(place, name)
    names, shape = dimension_names(node), tuple(node.shape)
    axes = feature_axes(shape, names, features)
    check_axes(shape, axes)
    if len(shape) < 2:
        raise InvalidDataError(
            f"a grid of shape {shape} should have an axis other than the features'."
        )
    group = place if name else replace(place, url=place.url.rpartition("/")[0])
    by_label = bool(names) and any(key in (names or ()) for key in select)
    coordinates = stored_coordinates(group, needed=by_label and bool(name)) if names else {}
    positions = selected_positions(shape, names, coordinates, select, axes)
    decoding: Decoding | None
    if dequantize is not None:
        decoding = Decoding.of(dequantize, node.dtype, nodata)
        nodata = None if nodata is None else np.nan
    else:
        decoding = Decoding.by_attributes(node, place.url)
        nodata = np.nan if nodata is None and decoding is not None and decoding.fills else nodata
    cells = row_axes(len(shape), axes)
    if axes == (len(shape) - 1,) and decoding is None and not select:
        dataset: Any = open_url(place, RowsSpec(array=name or None, flatten=True))
    else:
        check_dtype(node.dtype, what=f"array at {place.url!r}")
        warn_of_missing_chunks(node, place.child(name) if name else place)
        recipe = GridRecipe(place, name, metadata_digest(node), axes, positions, decoding)
        dataset = recipe.open()
    template = None
    if names:
        template = template_of(names, cells, positions, coordinates, node.attrs)
    rows_shape = tuple(positions[axis][1] - positions[axis][0] for axis in cells)
    labels = None
    if names and all(names[axis] in coordinates for axis in axes):
        along = (
            coordinates[names[axis]].isel({names[axis]: list(positions[axis])}) for axis in axes
        )
        labels = names_along(*along)
    grid = _masked(dataset, rows_shape, template, nodata, **passes)
    return _naming(grid, labels, [group.child(str(name)) for name in coordinates])


def _masked(
    dataset: Any,
    shape: tuple[int, ...],
    template: Any,
    nodata: float | None,
    *,
    engine: Any,
    callbacks: Sequence[Callback],
) -> Grid:
    """Return the grid of rows, without those that have no data if `nodata` is given."""
    if nodata is None:
        return Grid(dataset, GridShape(shape, None, template))
    chosen = choose_engine(engine, dataset)
    with chosen.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
        complete = complete_of(placement, nodata)
    refuse_nothing(complete, shape)
    rows = without_incomplete(dataset, complete, nodata)
    mask = None if complete.all() else complete.reshape(shape)
    return Grid(rows, GridShape(shape, mask, template))
