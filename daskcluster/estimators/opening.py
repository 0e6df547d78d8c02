"""Open sources and grids as datasets ready for a fit: without missing values, on a common scale."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.feature_scaling import (
    FEATURES,
    PARTIAL,
    PRESENT,
    FeatureParams,
    FeatureScaling,
    FeatureStatistics,
)
from daskcluster.data.checks import (
    check_dtype,
    check_shape,
    has_masks,
    is_masked,
    is_xarray,
    without_mask,
    without_masks,
)
from daskcluster.data.csr import csr_of
from daskcluster.data.dataset import RowDataset
from daskcluster.data.grid import (
    PACKING,
    STACKED,
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
from daskcluster.data.label_files import GridShape, SourceRows, import_rioxarray
from daskcluster.data.missing import ALL, SOME, presence, without_incomplete
from daskcluster.data.nodes import (
    check_current,
    metadata_digest,
    node_in,
    not_an_array,
    open_array,
    own_metadata,
    warn_of_missing_chunks,
)
from daskcluster.data.open import open_source
from daskcluster.data.sources import is_hdf5, is_zarr
from daskcluster.data.spec import RowsSpec
from daskcluster.data.writer import ArraySink
from daskcluster.data.zarr import ZarrRecipe, row_axes
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Placement
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError
from daskcluster.events import Callback
from daskcluster.extras import import_extra
from daskcluster.storage.location import Location, explain, locate_rows
from daskcluster.storage.zarr_stores import location_of
from daskcluster.typing import Dataset


def prepared(
    dataset: Dataset, spec: RowsSpec, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> Dataset:
    """Return rows with what a spec says of missing values and of a scale, which takes passes."""
    more: dict[str, Any] = {"engine": engine, "callbacks": callbacks}
    if spec.missing is not None and isinstance(dataset, RowDataset):
        dataset = dataset.with_facts(missing=spec.missing)
    if spec.missing not in (None, "error"):
        dataset = without_missing(dataset, spec.missing, **more)
    return dataset if spec.scale is None else scaled(dataset, spec.scale, **more)


def without_missing(
    dataset: Dataset, missing: str, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> Dataset:
    """Return the rows without NaN: those that have one are left out, or filled with means.

    Parameters
    ----------
    dataset : Dataset
    missing : {"drop", "mean", "partial"}
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables, default ()
        Called with the progress of the passes.

    Raises
    ------
    InvalidDataError
        No row is complete, or a feature has no value at all.
    InvalidParameterError, WrongTypeError
        Another way than these, or sparse rows.
    """
    if not isinstance(dataset, RowDataset) or csr_of(dataset) is not None:
        what = f"a {type(dataset).__name__}" if csr_of(dataset) is None else "sparse rows"
        raise WrongTypeError(
            f"missing={missing!r} cannot be applied to {what}; remove NaN from its rows."
        )
    if dataset.dtype.kind in "biu":
        return dataset
    chosen = choose_engine(engine, dataset)
    with chosen.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
        if missing == "drop":
            found = presence_of(placement)
            if not (found == ALL).any():
                raise InvalidDataError(
                    f"None of the {dataset.n_rows} rows is complete; use missing='mean', or leave out the "
                    "features that lack values."
                )
            return _left(dataset, found)
        counts: np.ndarray = placement.reduce(PRESENT, dataset.n_features)
    if not counts.all():
        raise InvalidDataError(
            f"Feature {int(np.argmin(counts))} has no value in any row, so it has no mean; leave it out."
        )
    unweighted = dataset.with_weights(None)  # type: ignore[arg-type]
    zeros = unweighted.with_scaling(FeatureScaling.filling(np.zeros(dataset.n_features)))
    means = learn_scaling(zeros, "standard", chosen, callbacks).shift
    means = means * (dataset.n_rows / counts)
    by_cluster = missing == "partial"
    kind = FeatureScaling.of_clusters if by_cluster else FeatureScaling.filling
    return dataset.with_scaling(kind(means))


def _left(dataset: RowDataset, found: np.ndarray) -> RowDataset:
    """Return the complete rows; results of rows have -1 or NaN for the others."""
    rows = without_incomplete(dataset, found)
    if rows is dataset:
        return dataset
    source: Any = dataset
    if dataset.in_memory:  # whose rows are not kept for the sake of their ids
        known = dataset.ids(0, dataset.n_rows)
        source = SourceRows(dataset.n_rows, dataset.chunk_sizes, dataset.id_column, known)
    cells = dataset.grid or GridShape((dataset.n_rows,), source=source)
    mask = np.ones(cells.shape, bool) if cells.mask is None else cells.mask.copy()
    mask[mask] = found == ALL
    return rows.with_facts(grid=replace(cells, mask=mask))


def presence_of(placement: Placement, nodata: float | None = None) -> np.ndarray:
    """Return the `presence` of all rows, uint8 (n,), in one pass."""
    found = ArraySink(np.empty(placement.dataset.n_rows, np.uint8))
    placement.map_rows(_presence, found, nodata, name="missing values")
    return found.array


def _presence(chunk: Chunk, nodata: float | None) -> np.ndarray:
    return presence(np.asarray(chunk.rows), nodata)


def scaled(
    dataset: Dataset, scale: str, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> Dataset:
    """Return `dataset` with scaled features; the scale is computed from its rows in one pass.

    Parameters
    ----------
    dataset : Dataset
    scale : {"standard", "minmax"}
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables, default ()
        Called with the events of the pass.
    """
    if not isinstance(dataset, RowDataset):
        raise WrongTypeError(f"scale= cannot be applied to a {type(dataset).__name__}.")
    filled = dataset.scaling
    if filled is not None and filled.kind == PARTIAL:
        raise InvalidParameterError(
            f"scale={scale!r} cannot be combined with missing='partial'; scale the rows in the source, "
            "or use missing='mean'."
        )
    if filled is not None and filled.scales:
        raise InvalidParameterError(
            f"scale={scale!r} cannot be applied, since the dataset is already scaled "
            f"({filled.kind}); open its source instead."
        )
    found = learn_scaling(dataset, scale, engine, callbacks)
    return dataset.with_scaling(found if filled is None else replace(found, fill=filled.fill))


def learn_scaling(
    dataset: Dataset, scale: str, engine: Any, callbacks: Sequence[Callback]
) -> FeatureScaling:
    """Return the scaling of the rows of `dataset`. One pass; the bits depend on the rows alone."""
    sparse = csr_of(dataset) is not None
    with choose_engine(engine, dataset).place(
        dataset, callbacks=callbacks, footprint=ONE_PASS
    ) as placement:
        rows = ScaledPlacement(placement)
        origin = rows.origin.astype(np.float64)
        origin = np.zeros_like(origin) if sparse else origin
        found: FeatureStatistics = rows.reduce(FEATURES, lambda scale: FeatureParams(origin, scale))
    return found.scaling(scale, origin, centred=not sparse)


def open_dataset(
    source: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    columns: str | Sequence[str] | None = None,
    drop: str | Sequence[str] | None = None,
    id_column: str | None = None,
    nulls: str | None = None,
    missing: str | None = None,
    scale: str | None = None,
    decode: bool | None = None,
    engine: Any = None,
) -> Dataset:
    """Open rows for clustering, from any source. Reads only metadata and weights.

    Parameters
    ----------
    source : str, path or array
        A Zarr array (v2 or v3) or group by path or fsspec URL (``file://``, ``memory://``, ``s3://``,
        ``gs://``, ``abfs://``), also in one ``.zarr.zip`` archive, or one that holds CSR rows in AnnData's
        layout (encoding-type ``csr_matrix``), or a saved coreset, which brings its weights; an array or
        group of zarr or h5py, as by its path; a GeoTIFF (``.tif``), of which cells with data are rows and
        bands features, see `open_grid`.
        A ``.npy``, ``.npz``, ``.parquet``, ``.arrow``, ``.feather``, ``.orc``, ``.csv``, ``.tsv``,
        ``.jsonl``, ``.h5ad`` or ``.h5`` file, text also as ``.gz``, ``.bz2``, ``.xz`` or ``.zst``, or many
        of one kind as one dataset: a folder, a pattern such as ``s3://bucket/emb/*.parquet``, or a list of
        files; numbers in names count as numbers, so that ``part-2`` comes before ``part-10``, and folders
        such as ``year=2024`` are columns of tables. A Delta, Iceberg or Lance table, by its URL or as an
        object of its library. A numpy array or memmap, a list of rows, a pandas DataFrame, an
        Arrow table or what gives one (polars, DuckDB, Hugging Face datasets), a dask array or DataFrame, a
        scipy sparse matrix, an AnnData, the cells of an xarray.DataArray or Dataset, see `open_grid`, or a
        dataset. Shape (n, d); float16, bfloat16, float32, float64,
        any integers, bool.
    array : str, optional
        Which array (or CSR group) of a Zarr group, HDF5 or .npz file, e.g. ``"X"``; of an AnnData ``X``
        (the default), or an array of ``obsm`` or ``layers``.
    weights : array-like of shape (n,), or str, optional
        Row weights: finite, >= 0, not all zero. A string names an array of the same Zarr group or file, or
        a column of the same table, or is the URL of a 1-D Zarr array or ``.npy`` file. A pandas Series is
        matched by name with a frame, if both have an index of their own; all else by position.
    storage_options : dict, optional
        Options of the file system, e.g. ``{"anon": True}``. Those that look like credentials stay in
        this process; workers resolve their own from their environment.
    flatten : bool, default False
        Accept shape (..., d), e.g. a raster (y, x, bands): all axes before the last become rows, in
        C order.
    columns : str or sequence of str, optional
        For a table (Parquet, Arrow, a data frame, ...): the columns of features, either numbers or lists
        of numbers of one length. Default: the one list column of numbers if there is one, else all columns.
    drop : str or sequence of str, optional
        Columns of a table that are no features.
    id_column : str, optional
        The column of a table that names the rows: no feature, and written next to labels.
    nulls : {"error", "drop"}, optional
        ``"drop"`` is an older name of ``missing="drop"``.
    missing : {"error", "drop", "mean", "partial"}, optional
        Rows with NaN, null or masked values: an error of the fit that names the first one; or they are left
        out, and ``n_rows`` counts the others (labels have -1 for them, distances NaN: results have an entry
        for every row of the source); or NaN is replaced by the mean of the feature over all rows that have
        it, also in rows that the model labels; or distances are taken over the features that a row has
        (`daskcluster.KMeans` alone). Default: ``"error"``, but ``"drop"`` for cells of a GeoTIFF, and for
        rows under a model that was fitted so.
    scale : {"standard", "minmax"}, optional
        Scale the features: ``"standard"`` subtracts the mean and divides by the standard deviation,
        ``"minmax"`` maps the range to [0, 1]. The scale is computed in one pass now and applied to every
        block that is read later; rows in memory are copied. Sparse rows are divided but not shifted, so
        that they stay sparse; distances do not depend on the shift. k-means estimators report centres in
        the data's own units, store the scale in their models, and apply it to new rows.
    decode : bool, optional
        Whether the attributes ``scale_factor``, ``add_offset``, ``_FillValue``, ``missing_value`` and
        ``_Unsigned`` of an array in Zarr or HDF5 decode its numbers, as xarray does. Default: they do.
        Models remember it.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Runs that pass.

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetNotFoundError
        The source or its array does not exist, or may not be read.
    InvalidDataError
        Wrong shape or dtype, a damaged store, or with `scale` a row that is not finite.
    InvalidParameterError
        Weights are not one finite number >= 0 per row, or are given twice; `scale` is unknown.
    MissingExtraError
        The cloud's client is not installed.
    WrongTypeError
        The type of `source` is not supported.

    Notes
    -----
    Cost: no pass over the rows, one with `scale` or ``missing="drop"``, two with ``"mean"`` or
    ``"partial"``; one pass over the weights, to check them. The footers of Parquet files are read, 16 at a
    time. A row group of more than 64 MB is streamed: one thread decodes it from its start. Frames of
    unknown length are computed once for their lengths. Scaling costs a few operations a value in each pass.

    Examples
    --------
    >>> import numpy as np
    >>> dataset = open_dataset(np.zeros((10, 3), np.float32))
    >>> dataset.n_rows, dataset.n_features, dataset.dtype
    (10, 3, dtype('float32'))
    >>> open_dataset(np.array([[0.0], [5.0], [10.0]]), scale="minmax").to_numpy().ravel()
    array([0. , 0.5, 1. ])
    """
    spec = RowsSpec.of(
        array=array,
        columns=columns,
        drop=drop,
        id_column=id_column,
        nulls=nulls,
        weights=weights,
        missing=missing,
        scale=scale,
        flatten=flatten,
        decode=decode,
    )
    opened = open_stored(
        source, spec, weights=weights, storage_options=storage_options, engine=engine
    )
    return prepared(*opened, engine=engine)


def open_stored(
    source: Any,
    spec: RowsSpec,
    *,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> tuple[Dataset, RowsSpec]:
    """Open rows, or the cells of a grid, as they are, and say what is left of the spec for `prepared`.

    Missing values of a grid are dealt with here: a cell without any value is no row.

    Raises
    ------
    InvalidParameterError
        An option that grids do not have.
    """
    if not spec.grid and not is_raster(source) and not is_xarray(source):
        found = open_source(source, spec, weights=weights, storage_options=storage_options)
        return found, spec
    spec.refuse_all_but(("array", "decode"), "features and nodata are those of a grid")
    if weights is not None or spec.weights or spec.flatten:
        raise InvalidParameterError(
            "weights and flatten cannot be given together with features or nodata of a grid; leave them "
            "out."
        )
    grid = open_grid(
        source,
        **(spec.grid or {}),
        array=spec.array,
        decode=spec.decode,
        missing="drop" if spec.missing in (None, "error") else spec.missing,
        storage_options=storage_options,
        engine=engine,
        callbacks=callbacks,
    )
    return grid.dataset, replace(spec, missing=None)


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
    source : ndarray, dask array, xarray.DataArray or Dataset, array or group of zarr or h5py, path or URL
        A path or URL is of a Zarr array or group, or of a GeoTIFF (``.tif``, read by rioxarray; also what
        rasterio opened), of which a mask or a band of opacity (alpha) says where there are no data.
        With one axis of features or more, and any number of others, e.g. (time, y, x, band). The variables
        of a Dataset are its features.
    features : int, str or sequence of these, optional
        The axes, or the names of the dimensions, that hold the features; of several axes all
        combinations are features, the last axis fastest. Default: a dimension named band, channel, feature
        or variable (or their plural), else the last axis, if dimensions have no names. Features are named
        by their labels along these axes, such as ``2020/nir``, if there are any: a model finds its features
        by them. The variables of a Dataset lie along ``"variable"``; one that is alone is opened as it is.
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
        For a Zarr group: which array; or several, whose values are the features of a cell. For a group of
        h5py: which array.
    storage_options
        See `open_dataset`; of a URL.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Runs the pass.
    callbacks : sequence of callables, default ()
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
    is_stored = isinstance(source, (str, os.PathLike)) or is_zarr(source) or is_hdf5(source)
    several = is_stored and not isinstance(array, (str, type(None)))
    if several or is_raster(source) or is_packed(source):
        whole = partial(decoding_of, fill=True)
        source, decoded, extra = _decoded(source, array, storage_options, whole, decode)
        nodata, decoding_of = (None if nodata is None else np.nan), None
    elif is_stored:
        place = _place_of(source, storage_options)
        if place is not None:
            return _stored(place, str(array or ""), features, nodata, select, decoding_of, **rest)
        packed = _array_in(source, str(array or ""))
        source = packed[:]  # in the memory of this process already
    by_variable = STACKED if several and features is None else features
    source, dims, coordinates, mapping = _unlabelled(source, by_variable)
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


def _place_of(source: Any, storage_options: Mapping[str, Any] | None) -> Location | None:
    """Return the location of a path, or of an object of zarr that is as it is stored."""
    if is_hdf5(source):
        return None
    if not hasattr(source, "store"):
        source = source.name if hasattr(source, "colorinterp") else source
        return locate_rows(source, storage_options)
    place = location_of(source)
    if place is not None:
        check_current(source, place)
    return place


def _array_in(node: Any, name: str) -> Any:
    """Return an array of zarr in a store without a location, or of h5py, or one of a group there."""
    if is_hdf5(node):
        from daskcluster.data.hdf5_files import array_of

        return array_of(node, name or None)[1]
    found = node_in(own_metadata(node), name, "the group")
    if not hasattr(found, "shape"):
        raise not_an_array(found, "the group", name)
    return found


def is_raster(source: Any) -> bool:
    """Return True for the path of a GeoTIFF, or a raster that rasterio opened."""
    if type(source).__module__.partition(".")[0] == "rasterio" and hasattr(source, "colorinterp"):
        return True
    named = isinstance(source, (str, os.PathLike))
    return named and os.fspath(source).lower().endswith((".tif", ".tiff"))


_RASTERIO = ("rasterio", "rasterio.enums")


def _raster(
    location: Location, array: Any, decoding_of: Any, decode: bool | None
) -> tuple[Any, bool | None, list[Location]]:
    """Return the bands of a GeoTIFF as a lazy DataArray; see `_decoded`.

    A band of opacity is no feature. It, or a mask, says where there are no data, as rasterio has it; not
    where stored numbers are asked for.
    """
    open_rasterio = import_rioxarray().open_rasterio
    rasterio, enums = (import_extra(name, "raster", "GeoTIFF files need it") for name in _RASTERIO)
    if array is not None or not location.is_local:
        raise InvalidParameterError(
            f"{location.url!r} is a raster, which is read from a disk and as a whole; copy it there, and "
            "leave array= out: bands are chosen with select={'band': [1, 2]}."
        )
    if not os.path.exists(location.url):
        raise explain(FileNotFoundError(location.url), location, "file")
    with rasterio.open(location.url) as found:
        shown = np.array([kind != enums.ColorInterp.alpha for kind in found.colorinterp])
        shown |= not shown.any()
        masked = any(enums.MaskFlags.per_dataset in flags for flags in found.mask_flag_enums)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* differ across bands", UserWarning)
        raw = open_rasterio(location.url, chunks=dict.fromkeys("xy", "auto"))
        bands, decoded = decoded_cells(raw.isel(band=shown), decoding_of, location.url)
        seen = None
        if not shown.all():
            seen = (raw.isel(band=~shown) != 0).all("band")
        elif masked:
            # Of rioxarray's own chunks, those of a masked raster have the names of those without a mask.
            chunks, token = dict(raw.chunksizes), raw.data.name
            values = open_rasterio(location.url, masked=True)
            seen = values.chunk(chunks, name_prefix="mask-", token=token).notnull()
    if seen is None:
        return bands, decoded, [location]
    if decode is False:
        return bands, False, [location]
    return bands.where(seen), None if decode else True, [location]


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
    source: Any,
    array: Any,
    storage_options: Mapping[str, Any] | None,
    decoding_of: Any,
    decode: bool | None,
) -> tuple[Any, bool | None, list[Location]]:
    """Return decoded xarray, whether attributes decoded it, and what else is read."""
    if is_packed(source):
        return *decoded_cells(source, decoding_of), []
    place = _place_of(source, storage_options)
    if place is None:
        raise InvalidParameterError(
            f"array={array!r} names several arrays, and source is a {type(source).__name__} without a URL "
            "of Zarr; give the arrays as an xarray.Dataset."
        )
    if is_raster(source):
        return _raster(place, array, decoding_of, decode)
    return _variables(place, array, decoding_of)


def is_packed(source: Any) -> bool:
    """Return True for a DataArray or Dataset of xarray with attributes that say how to decode it."""
    if hasattr(source, "to_array"):
        return any(map(is_packed, source.data_vars.values()))
    if not hasattr(source, "coords"):
        return False
    return not PACKING.isdisjoint(_packing(source)) or bool(_packing_of_bands(source))


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
        return source, _any_decoded(flags)
    if packing := _packing_of_bands(source):
        import xarray

        others = {name: at for name, at in source.attrs.items() if name not in _OF_BANDS}
        several, parts, flags = "band" in source.dims, [], set()
        for number, attributes in enumerate(packing):
            part = source.isel(band=[number]) if several else source.copy(deep=False)
            part.attrs = others | attributes
            part, decoded = decoded_cells(part, decoding_of, where)
            parts.append(part)
            flags.add(decoded)
        return xarray.concat(parts, "band") if several else parts[0], _any_decoded(flags)
    source = source.copy(deep=False)
    if not as_xarray:
        source.attrs = _packing(source)
    decoding, decoded = decoding_of(source, where or str(source.name or "memory"))
    if decoding is not None:
        source = source.copy(data=decoding.apply(source.data))
        source.attrs = {name: value for name, value in source.attrs.items() if name not in PACKING}
    return source, decoded


def _any_decoded(flags: set[bool | None]) -> bool | None:
    return True if True in flags else False if False in flags else None


_OF_BANDS = {"scales": "scale_factor", "offsets": "add_offset"}
"""Attributes with a value for each band of a GeoTIFF, as rioxarray has them, and those of one."""


def _packing_of_bands(array: Any) -> list[dict[str, Any]]:
    """Return the scale and the offset of each band of a DataArray, if bands differ in them."""
    along = array.coords.get("band")
    given = {name: array.attrs.get(name) for name in _OF_BANDS}
    given = {name: at for name, at in given.items() if isinstance(at, (tuple, list))}
    if not given or along is None or along.ndim > 1 or along.dtype.kind not in "iu":
        return []
    numbers = np.atleast_1d(along.values).tolist()
    if min(numbers) < 1 or max(numbers) > min(map(len, given.values())):
        return []
    return [{_OF_BANDS[name]: at[number - 1] for name, at in given.items()} for number in numbers]


def _packing(array: Any) -> dict[str, Any]:
    """Return the attributes of an array without a scale of 1 and an offset of 0, which rasterio adds."""
    nothing = {"scale_factor": "1.0", "add_offset": "0.0"}
    return {name: at for name, at in array.attrs.items() if str(at) != nothing.get(name)}


def _unlabelled(source: Any, features: Axes | None) -> tuple[Any, Any, Any, dict[str, str]]:
    """Return values, and of xarray the names of dimensions, coordinates, and the reference system."""
    if hasattr(source, "dims"):
        mapping, cells = grid_mapping(source), variables_as_features(source, features)
        bands = cells.attrs.get("long_name")
        coordinates = cells.coords.to_dataset().assign_attrs(long_name=bands)
        return cells.data, cells.dims, coordinates, mapping
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
