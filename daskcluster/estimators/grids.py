"""`open_grid`: grids with any number of axes as rows, from memory, xarray, dask, Zarr and GeoTIFF."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from daskcluster.data.checks import (
    check_dtype,
    check_shape,
    has_masks,
    is_masked,
    without_mask,
    without_masks,
)
from daskcluster.data.grid import (
    PACKING,
    Axes,
    Decoding,
    Grid,
    dimension_names,
    feature_axes,
    grid_mapping,
    open_group,
    selected_positions,
    template_and_names,
    variables_as_features,
)
from daskcluster.data.label_files import GridShape, import_rioxarray
from daskcluster.data.missing import ALL, SOME, presence, without_incomplete
from daskcluster.data.nodes import metadata_digest, open_array, warn_of_missing_chunks
from daskcluster.data.open import open_source
from daskcluster.data.spec import RowsSpec
from daskcluster.data.zarr import ZarrRecipe, row_axes
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError
from daskcluster.estimators.prepared import presence_of, without_missing
from daskcluster.events import Callback
from daskcluster.storage.location import Location, explain, locate
from daskcluster.storage.zarr_stores import location_of


def open_grid(
    source: Any,
    *,
    features: Axes | None = None,
    nodata: float | None = None,
    select: Mapping[Any, Any] | None = None,
    dequantize: Any = None,
    decode: bool | None = None,
    missing: str = "drop",
    array: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> Grid:
    """Open a grid of feature vectors for clustering.

    Parameters
    ----------
    source : ndarray, dask array, xarray.DataArray or Dataset, zarr.Array, or path or URL
        A path or URL is of a Zarr array or group, or of a GeoTIFF (``.tif``, read by rioxarray).
        With one axis of features or more, and any number of others, e.g. (time, y, x, band). The variables
        of a Dataset are its features.
    features : int, str or sequence of these, optional
        The axes, or the names of the dimensions, that hold the features; of several axes all
        combinations are features, the last axis fastest. Default: a dimension named band, channel, feature
        or variable (or their plural), else the last axis, if dimensions have no names.
    nodata : float, optional
        A value that means no data, as NaN and masked values do. Where values are decoded it is a stored
        code. A stored grid is searched for it in one pass; pass ``numpy.nan`` if only NaN means no data
        there. Arrays in memory, lazy ones, stored ones with an attribute ``_FillValue`` or
        ``missing_value`` other than NaN, and all with `missing` other than "drop", are always searched for
        NaN and masked values.
    select : mapping, optional
        A part of the grid: dimensions, or axes, and labels as ``xarray.DataArray.sel`` takes them, e.g.
        ``{"time": "2024-07", "y": slice(60, 50), "band": ["red", "nir"]}``; positions along dimensions
        without coordinates. Selected cells must follow each other.
    dequantize : (scale, offset) or sequence of float, optional
        Values of stored codes, as float32: ``code * scale + offset``, or a table with the value of each
        code from 0. Attributes do not count then.
    decode : bool, optional
        By default, and if True, the attributes ``scale_factor``, ``add_offset``, ``_FillValue`` and
        ``missing_value`` of an array decode it, as xarray does: of a stored one, and of a DataArray that
        was opened without decoding, as rioxarray does by default. False reads the numbers as they are.
        Zarr's own fill value is a value: pass it as `nodata` if it means no data.
    missing : {"drop", "error", "mean", "partial"}, default "drop"
        What becomes of a cell that lacks the values of some features: it is left out, or refused by an
        error that names it, or gets means, or is clustered by the features that it has, see
        `daskcluster.open_dataset`. A cell without any value is left out in every case.
    array : str or sequence of str, optional
        For a Zarr group: which array; or several, whose values are the features of a cell.
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
        No cell has data, or one lacks some features with ``missing="error"``, or there is no axis other
        than those of the features, or the variables of a Dataset have different dimensions.
    InvalidParameterError
        No such axis or label, or names of dimensions that do not say which one holds the features.
    MissingExtraError
        `select` by coordinates without xarray, or a GeoTIFF without rioxarray.

    Notes
    -----
    Cost: arrays in memory are scanned once, and rows with data copied where others have none, or where
    features are not last. A stored or lazy grid is read by the fit, block by block, and nothing is copied.
    It is read once more if it is searched for missing values, and twice more with ``missing="mean"`` or
    ``"partial"``; the mask stays in memory then: a byte for each cell.

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
    given = {"decode": decode, "dequantize": dequantize, "nodata": nodata}
    decoding_of: Any = partial(Decoding.of, fill=missing in ("mean", "partial"), **given)
    select, packed, decoded, extra = dict(select or {}), None, None, list[Location]()
    rest = {"missing": missing, "engine": engine, "callbacks": callbacks}
    is_stored: bool = isinstance(source, (str, os.PathLike)) or type(source).__module__.startswith(
        "zarr"
    )
    several = is_stored and not isinstance(array, (str, type(None)))
    if several or is_raster(source) or is_packed(source):
        whole = partial(decoding_of, fill=True)
        source, decoded, extra = _decoded(source, array, storage_options, whole)
        nodata, decoding_of = (None if nodata is None else np.nan), None
    elif is_stored:
        place = location_of(source) if hasattr(source, "store") else locate(source, storage_options)
        if place is not None:
            return _stored(place, str(array or ""), features, nodata, select, decoding_of, **rest)
        packed, source = source, source[:]  # in the memory of this process already
    source, dims, coordinates, mapping = _unlabelled(source)
    axes = feature_axes(tuple(source.shape), dims, features)
    positions = selected_positions(tuple(source.shape), dims, coordinates, select, axes)
    template, names = template_and_names(dims, axes, positions, coordinates, mapping)
    lazy = hasattr(source, "__dask_graph__")
    values: Any = source if lazy or is_masked(source) else np.asarray(source)
    check_dtype(values.dtype, what="grid")
    if select:
        for axis, at in enumerate(positions):
            index: Any = list(at) if axis in axes else slice(*at)
            values = values[(slice(None),) * axis + (index,)]
    if lazy and nodata is None and (values.dtype.kind not in "biu" or has_masks(values)):
        nodata = np.nan
    if decoding_of is not None:
        decoding, decoded = decoding_of(values if packed is None else packed, "the array")
        if decoding is not None:
            values, nodata = decoding.apply(values), np.nan if decoding.fills else nodata
    others, found = row_axes(values.ndim, axes), None
    if lazy:
        from daskcluster.data.dask_array import with_known_chunks

        values = with_known_chunks(without_masks(values)).rechunk(dict.fromkeys(axes, -1))
    elif missing in ("mean", "partial"):
        values = without_mask(values)
    ordered = values.transpose(*others, *axes)
    shape = tuple(map(int, ordered.shape[: len(others)]))
    rows = ordered.reshape(math.prod(shape), -1)
    if not lazy:
        found = presence(rows, nodata)
        rows = np.ascontiguousarray(np.ma.getdata(rows))
    cells = GridShape(shape, None, template)
    return _grid(open_source(rows), cells, nodata, found, names, extra, decoded, **rest)


def is_raster(source: Any) -> bool:
    """Return True for the path of a GeoTIFF."""
    named = isinstance(source, (str, os.PathLike))
    return named and os.fspath(source).lower().endswith((".tif", ".tiff"))


def _raster(location: Location, array: Any, decoding_of: Any) -> tuple[Any, Any, list[Location]]:
    """Return the bands of a GeoTIFF as a lazy DataArray; see `_decoded`."""
    open_rasterio = import_rioxarray().open_rasterio
    if array is not None or not location.is_local:
        raise InvalidParameterError(
            f"{location.url!r} is a raster, which is read from a disk and as a whole; copy it there, and "
            "leave array= out: bands are chosen with select={'band': [1, 2]}."
        )
    if not os.path.exists(location.url):
        raise explain(FileNotFoundError(location.url), location, "file")
    bands, decoded = decoded_cells(
        open_rasterio(location.url, chunks=dict.fromkeys("xy", "auto")), decoding_of, location.url
    )
    return bands, decoded, [location]


def _variables(location: Location, names: Any, decoding_of: Any) -> tuple[Any, Any, list[Location]]:
    """Return variables of a Zarr group as a lazy Dataset; see `_decoded`."""
    group = open_group(location, chunks={}, mask_and_scale=dict.fromkeys(names, False))
    missing = [name for name in names if name not in group]
    if missing:
        raise InvalidParameterError(
            f"There is no array {missing[0]!r} in {location.url!r}; arrays: {', '.join(map(str, group))}."
        )
    group, decoded = decoded_cells(group[list(names)], decoding_of, location.url, as_xarray=True)
    return group, decoded, [location.child(str(name)) for name in group.coords]


def _decoded(
    source: Any, array: Any, storage_options: Mapping[str, Any] | None, decoding_of: Any
) -> tuple[Any, bool | None, list[Location]]:
    """Return decoded xarray, whether attributes decoded it, and what else is read."""
    if is_packed(source):
        return *decoded_cells(source, decoding_of), []
    place = locate(source, storage_options)
    return (_raster if is_raster(source) else _variables)(place, array, decoding_of)


def is_packed(source: Any) -> bool:
    """Return True for a DataArray or Dataset of xarray with attributes that say how to decode it."""
    if hasattr(source, "to_array"):
        return any(map(is_packed, source.data_vars.values()))
    return hasattr(source, "dims") and not PACKING.isdisjoint(_packing(source))


def decoded_cells(
    source: Any, decoding_of: Any, where: str = "", *, as_xarray: bool = False
) -> tuple[Any, bool | None]:
    """Return a DataArray or Dataset that is decoded by its attributes, and whether it is.

    Parameters
    ----------
    source : xarray.DataArray or Dataset
    decoding_of : callable (array, where) -> (Decoding or None, bool or None)
        See `Decoding.of`.
    where : str
        For messages; default: the name of the array.
    as_xarray : bool
        Whether a scale of 1 and an offset of 0 decode too, into floats.
    """
    if hasattr(source, "data_vars"):
        source, flags = source.copy(), set()
        for name in source.data_vars:
            at = f"{where}/{name}" if where else ""
            source[name], decoded = decoded_cells(
                source[name], decoding_of, at, as_xarray=as_xarray
            )
            flags.add(decoded)
        return source, True if True in flags else False if False in flags else None
    source = source.copy(deep=False)
    if not as_xarray:
        source.attrs = _packing(source)
    decoding, decoded = decoding_of(source, where or str(source.name or "memory"))
    if decoding is not None:
        source = source.copy(data=decoding.apply(source.data))
        source.attrs = {name: value for name, value in source.attrs.items() if name not in PACKING}
    return source, decoded


def _packing(array: Any) -> dict[str, Any]:
    """Return the attributes of an array without a scale of 1 and an offset of 0, which rasterio adds."""
    nothing = {"scale_factor": "1.0", "add_offset": "0.0"}
    return {name: at for name, at in array.attrs.items() if str(at) != nothing.get(name)}


def _unlabelled(source: Any) -> tuple[Any, Any, Any, dict[str, str]]:
    """Return values, and of xarray the names of dimensions, coordinates, and the reference system."""
    if hasattr(source, "dims"):
        mapping, cells = grid_mapping(source), variables_as_features(source)
        return cells.data, cells.dims, cells.coords.to_dataset(), mapping
    if not hasattr(source, "shape"):
        raise WrongTypeError(
            f"source is a {type(source).__name__}, which is no grid; give an array, an "
            "xarray.DataArray or the URL of a Zarr array."
        )
    return source, None, None, {}


def _stored(
    place: Location,
    name: str,
    features: Axes | None,
    nodata: float | None,
    select: Mapping[Any, Any],
    decoding_of: Any,
    **rest: Any,
) -> Grid:
    node, what = open_array(place, name), f"array at {place.url!r}"
    dims, shape = dimension_names(node), tuple(node.shape)
    axes = feature_axes(shape, dims, features)
    check_shape(shape, flatten=True, what=what)
    check_dtype(node.dtype, what=what)
    warn_of_missing_chunks(node, place.child(name) if name else place)
    group = place if name else replace(place, url=place.url.rpartition("/")[0])
    coordinates = None
    try:
        coordinates = open_group(group, chunks=None).coords.to_dataset() if dims else None
    except Exception:
        # There is no xarray, or it did not write the group: other shapes along a name, foreign codecs.
        if name and any(key in (dims or ()) for key in select):
            raise
    positions = selected_positions(shape, dims, coordinates, select, axes)
    template, names = template_and_names(dims, axes, positions, coordinates, grid_mapping(node))
    decoding, decoded = decoding_of(node, place.url)
    recipe = ZarrRecipe(place, name, metadata_digest(node))
    if axes != (len(shape) - 1,) or decoding is not None or select:
        recipe = replace(recipe, features=axes, positions=positions, decoding=decoding)
    dataset: Any = recipe.open()
    spans = (positions[axis] for axis in row_axes(len(shape), axes))
    cells = GridShape(tuple(stop - start for start, stop in spans), None, template)
    read = [] if coordinates is None else [group.child(str(each)) for each in coordinates.coords]
    if decoding is not None and decoding.fills:
        nodata = np.nan
    return _grid(dataset, cells, nodata, None, names, read, decoded, **rest)


def _grid(
    rows: Any,
    cells: GridShape,
    nodata: float | None,
    found: np.ndarray | None,
    names: tuple[str, ...] | None,
    read_from: Sequence[Location],
    decoded: bool | None,
    *,
    missing: str,
    engine: Any,
    callbacks: Sequence[Callback],
) -> Grid:
    """Return the grid of rows, without those that lack values as `missing` says.

    Parameters
    ----------
    found : ndarray of uint8, shape (n,), or None
        The `presence` of the rows, if it is known; else they are searched if `nodata` is not None.
    names, read_from, decoded
        What the dataset is to know of its features and of its source.
    """
    RowsSpec.of(missing=missing)  # refuses other words
    if nodata is None and missing != "drop" and rows.dtype.kind not in "biu":
        nodata = np.nan
    if found is None and nodata is not None:
        chosen = choose_engine(engine, rows)
        with chosen.place(rows, callbacks=callbacks, footprint=ONE_PASS) as placement:
            found = presence_of(placement, nodata)
    if found is not None:
        least = ALL if missing == "drop" else SOME
        kept = found >= least
        if not kept.any():
            raise InvalidDataError(
                f"no cell of the grid of shape {cells.shape} has data; check nodata."
            )
        if missing == "error" and (found == SOME).any():
            at = np.unravel_index(int(np.argmax(found == SOME)), cells.shape)
            raise InvalidDataError(
                f"Cell {tuple(map(int, at))} of the grid of shape {cells.shape} lacks the values of some "
                "features and has others; leave such cells out with missing='drop', or fill them with "
                "missing='mean'."
            )
        rows = without_incomplete(rows, found, nodata, least)
        cells = cells if kept.all() else replace(cells, mask=kept.reshape(cells.shape))
    if missing in ("mean", "partial"):
        rows = without_missing(rows, missing, engine=engine, callbacks=callbacks)
    read_from = (*rows.read_from, *read_from)
    facts = {"feature_names": names, "decoded": decoded, "missing": missing, "read_from": read_from}
    return Grid(rows.with_facts(**facts), cells)
