"""Results of rows as other tools open them: tables and .npy with ids of rows, and maps in Zarr."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.duplicate_ids import DuplicateIds
from daskcluster.data.partitions import group_chunks
from daskcluster.data.tables import import_pyarrow
from daskcluster.data.writer import CHUNK_BYTES, StagedArray, array_metadata
from daskcluster.errors import InvalidParameterError, MissingExtraError
from daskcluster.extras import install_command
from daskcluster.storage.location import Location, locate
from daskcluster.storage.new_file import new_file
from daskcluster.storage.staging import FILE_ENDINGS, Staging
from daskcluster.storage.zarr_stores import HEAD, group_document

FILES = (".parquet", ".pq", ".csv", ".npy")
"""Endings of outputs that are files; others are Zarr."""
_CELLS = 1 << 20
_ROW_BYTES = 16
"""About what a label and its id take."""

MAPS = (".tif", ".tiff")
"""Endings of maps as files; others are Zarr."""
GRID_KINDS = ("group", "array")
"""Kinds of outputs that a grid may replace."""

ReadValues = Callable[[int, int], np.ndarray]
"""(start, stop) -> values of those rows."""


@dataclass(frozen=True, eq=False)
class SourceRows:
    """The rows of a source, some of which were left out: how many there were, and their ids."""

    n_rows: int
    chunk_sizes: tuple[int, ...]
    id_column: str | None = None
    known: Any = None

    @classmethod
    def of_cells(cls, shape: tuple[int, ...]) -> SourceRows:
        """Return the cells of a grid as rows without ids."""
        n = math.prod(shape)
        return cls(n, tuple(min(_CELLS, n - first) for first in range(0, n, _CELLS)))

    def ids(self, start: int, stop: int) -> Any:
        return self.known[start:stop]


@dataclass(frozen=True)
class GridShape:
    """The axes of a grid without its features, and where it has data.

    Attributes
    ----------
    shape : tuple of int
    mask : ndarray of shape `shape`, bool, or None
        Where there are data; None: everywhere.
    template : xarray.DataArray, optional
        Of that shape, with the coordinates of the grid; see `blank_cells`.
    source : object with n_rows, chunk_sizes, id_column and ids, optional
        The rows of which ``missing="drop"`` left some out. Results of rows have an entry for each of
        these, and `shape` is (n,).
    """

    shape: tuple[int, ...]
    mask: np.ndarray | None = None
    template: Any = None
    source: Any = None


def mask_of_source(dataset: Any) -> np.ndarray | None:
    """Return which rows of its source a dataset has, bool (n,), if ``missing="drop"`` left some out."""
    grid = getattr(dataset, "grid", None)
    return None if grid is None or grid.source is None else grid.mask


def spread(mask: np.ndarray | None, values: np.ndarray) -> np.ndarray:
    """Return `values` where `mask` is True, and NaN or -1 elsewhere; `values` without a mask.

    Examples
    --------
    >>> spread(np.array([True, False, True]), np.array([4, 5])).tolist()
    [4, -1, 5]
    """
    if mask is None:
        return values
    found: np.ndarray = np.empty((*mask.shape, *values.shape[1:]), values.dtype)
    found[mask], found[~mask] = values, _no_data(values.dtype)
    return found


def _no_data(dtype: np.dtype[Any]) -> np.ndarray:
    values = tuple(_no_data(dtype[field]) for field in dtype.names or ())
    return np.array(values or {"f": np.nan, "b": False}.get(dtype.kind, -1), dtype)


def is_file_output(url: str, *, maps: bool = False) -> bool:
    """Return True for an output that is a file, by its ending; False for Zarr.

    Parameters
    ----------
    url : str
    maps : bool
        Whether a GeoTIFF may be written.

    Raises
    ------
    InvalidParameterError
        The ending promises a format that is not written.

    Examples
    --------
    >>> is_file_output("s3://b/labels.parquet"), is_file_output("labels.zarr"), is_file_output("labels")
    (True, False, False)
    """
    name, endings = url.rstrip("/"), (*FILES, *MAPS) if maps else FILES
    if name.lower().endswith(FILE_ENDINGS) and not name.lower().endswith(endings):
        stem = os.path.splitext(os.path.basename(name))[0]
        raise InvalidParameterError(
            f"The output {url!r} should end in {', '.join(FILES)} or .zarr; this format is not written. A "
            f"map is written as Zarr, a folder: {stem + '.zarr'!r}."
        )
    return url.lower().endswith(endings)


def rows_of(array: Any, start: int, stop: int) -> np.ndarray:
    """Return rows of an array; ``partial(rows_of, array)`` reads values for `write_label_file`."""
    return np.asarray(array[start:stop])


def write_label_file(
    place: Location,
    dataset: Any,
    values: Mapping[str, ReadValues],
    *,
    overwrite: bool = False,
    before_end: Callable[[], None] = lambda: None,
    row_bytes: int = _ROW_BYTES,
) -> None:
    """Write the ids of all rows and what belongs to each to a file, which appears whole.

    Rows that ``missing="drop"`` left out of the dataset have -1 or NaN.

    Parameters
    ----------
    place : Location
        ``.parquet``, ``.csv``, ``.npy`` or ``.tif`` by its ending; the last two have the shape of a grid.
    dataset : RowDataset
        Its ids come first: under the name of the id column, or row numbers as ``row``.
    values : mapping of name to function
        Values (m,) or (m, w) of rows; w values become a list.
    overwrite : bool
    before_end : callable () -> None
        Called before the file gets its name.
    row_bytes : int
        What the values of a row take, about.

    Raises
    ------
    InvalidParameterError
        A .npy file of more than one value a row, or a .tif file of other rows than those of a map.
    MissingExtraError, OutputExistsError

    Notes
    -----
    Cost: one pass over the ids; memory is that of a row group, at most 64 MB, and 8 bytes a row, which tell
    whether an id is there twice: that is a warning.
    """
    if place.url.lower().endswith(MAPS):
        _write_geotiff(place, dataset, values, overwrite, before_end)
        return
    write = _write_npy if place.url.lower().endswith(".npy") else _write_table
    cells, shape = getattr(dataset, "grid", None), (dataset.n_rows,)
    if cells is not None and (write is _write_npy or cells.source is not None):
        if cells.mask is not None:
            mask = cells.mask.ravel()
            values = {name: _spreading(read, mask) for name, read in values.items()}
        shape, dataset = cells.shape, cells.source or SourceRows.of_cells(cells.shape)
    with new_file(place, overwrite=overwrite) as out:
        write(out, place, dataset, values, row_bytes, shape)
        before_end()


def check_map(url: str, cells: Any, dtype: np.dtype[Any]) -> None:
    """Refuse a GeoTIFF of rows that are no map, or of more than their labels.

    Raises
    ------
    InvalidParameterError
    """
    is_map = getattr(cells, "template", None) is not None and len(cells.shape) == 2
    if url.lower().endswith(MAPS) and not (is_map and dtype == np.int32):
        stem = os.path.splitext(os.path.basename(url))[0]
        raise InvalidParameterError(
            f"The output {url!r} should end in .zarr: a GeoTIFF holds the labels of a grid of two "
            "dimensions with names, and nothing else. Other maps are written as Zarr, a folder: "
            f"{stem + '.zarr'!r}."
        )


def _write_geotiff(
    place: Location,
    dataset: Any,
    values: Mapping[str, ReadValues],
    overwrite: bool,
    before_end: Callable[[], None],
) -> None:
    """Write the labels of a map with its coordinates and reference system; all are in memory meanwhile."""
    try:
        import rioxarray  # noqa: F401  (gives arrays of xarray their `rio`)
    except ImportError as error:
        raise MissingExtraError(
            f"GeoTIFF files need rioxarray. Remedy: {install_command('raster')}."
        ) from error
    cells = dataset.grid
    labels = np.full(cells.shape, -1, np.int32)
    labels[np.ones(cells.shape, bool) if cells.mask is None else cells.mask] = values["label"](
        0, dataset.n_rows
    )
    with tempfile.TemporaryDirectory(prefix="daskcluster-") as folder:
        path = os.path.join(folder, "map.tif")
        image = cells.template.copy(data=labels)
        image.rio.write_nodata(-1).rio.to_raster(path, compress="deflate")
        with new_file(place, overwrite=overwrite) as out, open(path, "rb") as written:
            shutil.copyfileobj(written, out)
            before_end()


def write_columns(
    dataset: Any,
    columns: Mapping[str, np.ndarray],
    url: Any,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write arrays (n,) of results of rows: a file with the ids of the rows, or a Zarr group of arrays."""
    place = locate(url, storage_options)
    refuse_replacing(dataset, output=place)
    values = {name: partial(rows_of, column) for name, column in columns.items()}
    if is_file_output(str(url)):
        write_label_file(place, dataset, values, overwrite=overwrite)
        return
    mask = mask_of_source(dataset)
    rows = GridShape((dataset.n_rows,) if mask is None else mask.shape, mask)
    write_grid(url, rows, values, overwrite=overwrite, storage_options=storage_options)


def _spreading(read: ReadValues, mask: np.ndarray) -> ReadValues:
    """Return what reads values of all rows of a source from those that were not left out."""
    kept = np.append(0, np.cumsum(mask))
    return lambda start, stop: spread(mask[start:stop], read(kept[start], kept[stop]))


def _spans(dataset: Any, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield groups of rows of at most 64 MB that begin and end where chunks of the rows do."""
    edges = np.concatenate([[0], np.cumsum(dataset.chunk_sizes)]).astype(np.int64)
    yield from group_chunks(edges, row_bytes)


def _write_npy(
    out: Any,
    place: Location,
    dataset: Any,
    values: Mapping[str, ReadValues],
    row_bytes: int,
    shape: tuple[int, ...],
) -> None:
    if len(values) > 1:
        raise InvalidParameterError(
            f"{place.url!r} should end in .parquet, .csv or .zarr: a .npy file holds labels alone, and "
            f"{' and '.join(values)} are to be written."
        )
    (read,) = values.values()
    first = read(0, min(1, dataset.n_rows))
    header = {
        "descr": np.lib.format.dtype_to_descr(first.dtype),
        "fortran_order": False,
        "shape": (*shape, *first.shape[1:]),
    }
    np.lib.format.write_array_header_1_0(out, header)
    for start, stop in _spans(dataset, row_bytes):
        out.write(np.ascontiguousarray(read(start, stop)).tobytes())


def _write_table(
    out: Any,
    place: Location,
    dataset: Any,
    values: Mapping[str, ReadValues],
    row_bytes: int,
    shape: tuple[int, ...],
) -> None:
    pa = import_pyarrow()
    name = dataset.id_column or "row"

    seen = None if dataset.id_column is None else DuplicateIds(name, dataset.n_rows)

    def table(start: int, stop: int) -> Any:
        columns = {name: dataset.ids(start, stop)}
        return pa.table(
            columns | {each: _column(pa, read(start, stop)) for each, read in values.items()}
        )

    schema, file = table(0, 1).schema, pa.PythonFile(out, mode="w")
    if place.url.lower().endswith(".csv"):
        from pyarrow import csv

        lists = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
        if lists:
            raise InvalidParameterError(
                f"A csv file holds no lists, and {' and '.join(lists)} has several values a row; write "
                ".parquet."
            )
        opened = csv.CSVWriter(file, schema)
    else:
        import pyarrow.parquet as pq

        opened = pq.ParquetWriter(file, schema, compression="zstd")
    with opened as writer:
        for start, stop in _spans(dataset, row_bytes):
            block = table(start, stop)
            if seen is not None:
                seen.add(block.column(name))
            writer.write_table(block)
    if seen is not None:
        seen.warn(lambda: (table(*span).column(name) for span in _spans(dataset, row_bytes)))


def _column(pa: Any, values: np.ndarray) -> Any:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


# -- maps in Zarr --------------------------------------------------------------------------------------


def write_grid(
    url: str,
    grid: GridShape,
    values: Mapping[str, ReadValues],
    *,
    fill: Any = -1,
    attributes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    before_end: Callable[[], None] = lambda: None,
) -> None:
    """Write values of rows to a Zarr group of arrays in the shape of a grid; whole or absent.

    A ``label`` alone for each row of a single axis is written as an array, not as a group.

    Parameters
    ----------
    url : str
    grid : GridShape
    values : mapping of name to function
        Values (m,) or (m, w) of rows; of several arrays those of one are called ``label``.
    fill : scalar
        Of cells without data; NaN where values are floats and `fill` is -1.
    attributes : mapping, optional
        Further attributes of the group.
    overwrite, storage_options
        See `daskcluster.data.writer.write_array`.
    before_end : callable () -> None
        Called before the group appears.

    Notes
    -----
    Cost: memory of a slab of about 8 MB along the first axis.
    """
    with Staging.begin(
        url, overwrite=overwrite, storage_options=storage_options, kinds=GRID_KINDS
    ) as staging:
        documents: dict[str, bytes] = {}
        is_column = list(values) == ["label"] and len(grid.shape) == 1 and grid.template is None
        for given, read in values.items():
            name = "" if is_column else given
            array = _begin(staging, grid, name, read, fill)
            for first, slab in _slabs(grid, read, fill, array.block_rows):
                array.put(first, slab)
            documents |= array.document()
        before_end()
        if is_column:
            staging.commit(documents)
            return
        coordinates, own = _coordinates(grid.template)
        head = group_document(own | dict(attributes or {}))
        staging.commit(coordinates | documents | head)


def _fill_of(sample: np.ndarray, fill: Any) -> Any:
    return _no_data(sample.dtype)[()] if fill == -1 else fill


def _begin(staging: Staging, grid: GridShape, name: str, read: ReadValues, fill: Any) -> Any:
    sample = read(0, 1)
    shape = (*grid.shape, *sample.shape[1:])
    per_index = math.prod(shape[1:]) * sample.dtype.itemsize
    step = min(max(1, CHUNK_BYTES // per_index), shape[0])
    names = None
    if grid.template is not None:
        names = [str(each) for each in grid.template.dims] + ["nearest"] * (sample.ndim - 1)
    nodata = _fill_of(sample, fill)
    attributes = {} if grid.template is None else dict(grid.template.attrs)
    if grid.mask is not None and np.asarray(nodata).dtype.kind in "iu":
        attributes["nodata"] = int(nodata)
    metadata = array_metadata(shape, step, sample.dtype, names=names, attributes=attributes)
    return StagedArray(staging.work, name, metadata, step)


def _slabs(grid: GridShape, read: ReadValues, fill: Any, step: int) -> Any:
    """Yield slabs along the first axis, and where they begin."""
    start, per_index = 0, math.prod(grid.shape[1:])
    for first in range(0, grid.shape[0], step):
        last = min(first + step, grid.shape[0])
        shape = (last - first, *grid.shape[1:])
        if grid.mask is None:
            found = read(first * per_index, last * per_index)
            yield first, found.reshape(*shape, *found.shape[1:])
            continue
        mask = grid.mask[first:last]
        found = read(start, start + int(np.count_nonzero(mask)))
        start += len(found)
        slab = np.full((*shape, *found.shape[1:]), _fill_of(found, fill), found.dtype)
        slab[mask] = found
        yield first, slab


def _coordinates(template: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the coordinates of a DataArray as files of a Zarr group, by their path, and its attributes."""
    if template is None or not len(template.coords):
        return {}, {}
    from zarr.storage import MemoryStore

    files: dict[str, Any] = {}
    coordinates = template.coords.to_dataset().drop_encoding()
    # Xarray writes no index of several levels, so that each level becomes a coordinate.
    indexes = coordinates.indexes
    stacked = [dim for dim in coordinates.dims if dim in indexes and indexes[dim].nlevels > 1]
    coordinates = coordinates.reset_index(stacked)
    coordinates.to_zarr(MemoryStore(files), zarr_format=3, consolidated=False)
    found = {name: content.to_bytes() for name, content in files.items()}
    attributes = json.loads(found.pop(HEAD))["attributes"]
    # An array appears with its metadata, so these come last.
    return dict(sorted(found.items(), key=lambda file: file[0].endswith(HEAD))), attributes
