"""Results of rows as other tools open them: tables, .npy and maps; and labels that are read."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskcluster.annotations import unannotated
from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.nodes import open_array, read_chunk
from daskcluster.data.numpy_files import read_npy
from daskcluster.data.partitions import group_chunks
from daskcluster.data.sources import IN_PLACE, is_zarr
from daskcluster.data.writer import CHUNK_BYTES, StagedArray
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.extras import import_extra, import_pyarrow
from daskcluster.storage.files import new_file
from daskcluster.storage.location import Location, locate, locate_rows
from daskcluster.storage.staging import FILE_ENDINGS, Staging
from daskcluster.storage.zarr_stores import HEAD, group_document, location_of

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
Columns = Mapping[str, ReadValues]
"""Values of rows, by name."""


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
        Grid of that shape, with the coordinates of the grid; see `blank_cells`.
    source : object with n_rows, chunk_sizes, id_column and ids, optional
        The rows of which ``missing="drop"`` left some out. Results of rows have an entry for each of
        these, and `shape` is (n,).
    """

    shape: tuple[int, ...]
    mask: np.ndarray | None = None
    template: Any = None
    source: Any = None


def unflattened(cells: GridShape, flat: np.ndarray, fill: Any) -> Any:
    """Return values (n,) or (n, w) of the cells with data as a grid, a DataArray where axes have names.

    Other cells have the value `fill`, which the attribute ``nodata`` names unless it is NaN.
    """
    grid = spread(cells.mask, flat, fill).reshape(*cells.shape, *flat.shape[1:])
    template = cells.template
    if template is None:
        return grid
    if flat.ndim == 2:
        template = template.expand_dims({"value": flat.shape[1]}, axis=-1)
    found = template.copy(data=grid).rename(name_of_cells(grid.dtype))
    if cells.mask is not None and not np.isnan(fill):
        found.attrs["nodata"] = np.asarray(fill).item()
    return found


def name_of_cells(dtype: np.dtype[Any]) -> str | None:
    """Return the name of a DataArray of results: integers are labels, floats are of several kinds."""
    return "label" if dtype.kind == "i" else None


def mask_of_source(dataset: Any) -> np.ndarray | None:
    """Return which rows of its source a dataset has, bool (n,), if ``missing="drop"`` left some out."""
    grid = getattr(dataset, "grid", None)
    return None if grid is None or grid.source is None else grid.mask


def spread(mask: np.ndarray | None, values: np.ndarray, fill: Any = None) -> np.ndarray:
    """Return `values` where `mask` is True, and `fill` elsewhere (NaN or -1); `values` without a mask.

    Examples
    --------
    >>> spread(np.array([True, False, True]), np.array([4, 5])).tolist()
    [4, -1, 5]
    """
    if mask is None:
        return values
    dtype = values.dtype
    if fill is not None:
        dtype = np.result_type(dtype, np.min_scalar_type(fill))
    found: np.ndarray = np.empty((*mask.shape, *values.shape[1:]), dtype)
    found[mask], found[~mask] = values, no_data(dtype) if fill is None else fill
    return found


def no_data(dtype: np.dtype[Any]) -> np.ndarray:
    """Return the value of rows that were left out: NaN, False or -1; in each field, if there are some."""
    values = tuple(no_data(dtype[field]) for field in dtype.names or ())
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
    values: Columns,
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
    Cost: one pass over the ids; memory is that of a row group, at most 64 MB, and 16 bytes a row, at most
    128 MB, to find ids that are there twice. Those and rows without an id raise a warning.
    """
    if place.url.lower().endswith(MAPS):
        _write_geotiff(place, dataset.grid, values, overwrite, before_end)
        return
    write = _write_npy if place.url.lower().endswith(".npy") else _write_table
    cells, shape = getattr(dataset, "grid", None), (dataset.n_rows,)
    if cells is not None and (write is _write_npy or cells.source is not None):
        if cells.mask is not None:
            mask = cells.mask.ravel()
            values = {name: _spreading(read, mask) for name, read in values.items()}
        shape, dataset = cells.shape, cells.source or SourceRows.of_cells(cells.shape)
    with new_file(place, overwrite=overwrite) as out:
        write(out, place.url, dataset, values, row_bytes, shape)
        before_end()


def import_rioxarray() -> Any:
    """Return rioxarray, which gives arrays of xarray their ``rio``."""
    return import_extra("rioxarray", "raster", "GeoTIFF files need rioxarray")


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


def check_file(url: str, dataset: Any) -> None:
    """Refuse a csv file of rows whose ids are no texts or numbers, before they are computed.

    Raises
    ------
    InvalidParameterError
    """
    cells = getattr(dataset, "grid", None)
    rows = getattr(cells, "source", None) or dataset
    if not url.lower().endswith(".csv") or getattr(rows, "id_column", None) is None:
        return
    pa = import_pyarrow()
    ids = rows.ids(0, 1)
    kind = ids.type if hasattr(ids, "type") else pa.array(ids).type
    if pa.types.is_nested(kind) or (_is_binary(pa, kind) and not _is_uuid(pa, kind)):
        raise InvalidParameterError(
            f"The output {url!r} should end in .parquet: the ids in column {rows.id_column!r} have the "
            f"type {kind}, which a csv file does not hold."
        )


def _texts(pa: Any, ids: Any) -> Any:
    """Return ids as what a csv file holds: UUIDs in their usual form, views and dictionaries as values."""
    ids = ids if hasattr(ids, "type") else pa.array(ids)
    kind = ids.type
    if _is_uuid(pa, kind):
        content = (getattr(each, "value", each) for each in ids)
        found = ((each.as_py() if hasattr(each, "as_py") else each) for each in content)
        return pa.array([None if each is None else _uuid_text(each) for each in found], pa.string())
    if pa.types.is_dictionary(kind):
        return ids.cast(kind.value_type)
    return ids.cast(pa.large_string()) if str(kind) == "string_view" else ids


def _uuid_text(given: Any) -> str:
    return str(given if isinstance(given, uuid.UUID) else uuid.UUID(bytes=given))


def _is_uuid(pa: Any, kind: Any) -> bool:
    return str(kind) == "extension<arrow.uuid>" or kind == pa.binary(16)


def _is_binary(pa: Any, kind: Any) -> bool:
    is_fixed = pa.types.is_fixed_size_binary(kind)
    return is_fixed or pa.types.is_binary(kind) or str(kind) in ("large_binary", "binary_view")


def _warn_of_lost_system(cells: GridShape, url: str) -> None:
    """Warn of a map whose coordinate reference system is a variable that is not at hand."""
    template = cells.template
    name = None if template is None else template.attrs.get("grid_mapping")
    if name is not None and name not in template.coords:
        warnings.warn(
            f"The map {url!r} has no coordinate reference system: grid_mapping={name!r} names a variable "
            "that the source lacks. Open the source with decode_coords='all', or pass the Dataset that has "
            "the variable.",
            UserWarning,
            stacklevel=2,
        )


def _write_geotiff(
    place: Location,
    cells: GridShape,
    values: Columns,
    overwrite: bool,
    before_end: Callable[[], None],
) -> None:
    """Write the labels of a map with its coordinates and reference system; all are in memory meanwhile."""
    import_rioxarray()
    (read,) = values.values()
    n_rows = math.prod(cells.shape) if cells.mask is None else int(np.count_nonzero(cells.mask))
    check_map(place.url, cells, read(0, 1).dtype)
    _warn_of_lost_system(cells, place.url)
    image = unflattened(cells, read(0, n_rows), -1)
    with tempfile.TemporaryDirectory(prefix="daskcluster-") as folder:
        path = os.path.join(folder, "map.tif")
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
    out: Any, url: str, dataset: Any, values: Columns, row_bytes: int, shape: tuple[int, ...]
) -> None:
    if len(values) > 1:
        raise InvalidParameterError(
            f"{url!r} should end in .parquet, .csv or .zarr: a .npy file holds labels alone, and "
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
    out: Any, url: str, dataset: Any, values: Columns, row_bytes: int, shape: tuple[int, ...]
) -> None:
    pa = import_pyarrow()
    name = dataset.id_column or "row"
    ids = None if dataset.id_column is None else _IdCheck(name, dataset.n_rows)

    is_csv = url.lower().endswith(".csv")

    def table(start: int, stop: int) -> Any:
        found = dataset.ids(start, stop)
        columns = {name: _texts(pa, found) if is_csv and ids is not None else found}
        return pa.table(
            columns | {each: _column(pa, read(start, stop)) for each, read in values.items()}
        )

    schema, file = table(0, 1).schema, pa.PythonFile(out, mode="w")
    if is_csv:
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
            if ids is not None:
                ids.add(block.column(name))
            writer.write_table(block)
    if ids is not None:
        ids.warn(dataset.ids(*span) for span in _spans(dataset, row_bytes))


_MOST_IDS = 1 << 23
"""Ids that are compared, about: they take 64 MB, and as much again while they are sorted."""
_COMPARED_IDS = 1 << 16


class _IdCheck:
    """Warns of ids that are missing or there twice, by which labels cannot be joined.

    Notes
    -----
    Cost: 16 bytes a row, at most 128 MB, and a sort. Integers are compared as they are, other ids by 64
    bits, which are the same for two different ids with a probability of at most about 2^-57. Of more rows
    than `_MOST_IDS`, a share of the ids is compared, which their bits choose, so that all rows with one of
    these are found; a few duplicates may be missed.
    """

    def __init__(self, name: str, n_rows: int) -> None:
        self._name, self._n_rows = name, n_rows
        self._every = -(-n_rows // _MOST_IDS)
        self._kept: list[np.ndarray] = []
        self._n_kept = self._n_without = 0

    def add(self, ids: Any) -> None:
        """Add the ids of the next rows, an Arrow array or chunked array."""
        self._n_without += ids.null_count
        for _, bits in _bits_of(ids):
            if self._every > 1:
                mixed = (bits * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
                bits = bits[mixed % np.uint64(self._every) == 0]
            if self._n_kept < 2 * _MOST_IDS:  # more only if there are duplicates among them
                self._kept.append(bits)
                self._n_kept += len(bits)

    def warn(self, again: Iterable[Any]) -> None:
        """Warn of what was added; `again` yields all ids once more, to find one that is there twice."""
        if self._n_without:
            warnings.warn(
                f"{self._n_without:,} of {self._n_rows:,} rows have no id in column {self._name!r}: a join "
                "of labels by id would miss them.",
                UserWarning,
                stacklevel=2,
            )
        ordered = np.concatenate([np.empty(0, np.uint64), *self._kept])
        self._kept.clear()
        ordered.sort()
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            pa = import_pyarrow()
            arrays = (block if hasattr(block, "null_count") else pa.array(block) for block in again)
            found = (
                part[int(at[0])].as_py()
                for ids in arrays
                for part, bits in _bits_of(ids)
                if len(at := np.flatnonzero(bits == twice[0]))
            )
            least = "At least " if self._every > 1 else ""
            warnings.warn(
                f"{least}{len(twice):,} of {self._n_rows:,} rows have an id in column {self._name!r} that "
                f"an earlier row has too, e.g. {next(found)!r}: a join of labels by id would mix them up.",
                UserWarning,
                stacklevel=2,
            )


def _bits_of(ids: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield parts of the ids that are not null, and 64 bits of each id of a part, uint64 (m,)."""
    pa = import_pyarrow()
    for whole in getattr(ids, "chunks", [ids]):
        for first in range(0, len(whole), _COMPARED_IDS):
            part = whole.slice(first, _COMPARED_IDS).drop_null()
            if pa.types.is_integer(part.type):
                yield part, part.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
                continue
            values = getattr(part, "storage", part)  # of an extension type, such as UUIDs
            if pa.types.is_nested(values.type):
                values = pa.array(map(str, values.to_pylist()), pa.large_string())
            is_binary = _is_binary(pa, values.type)
            content = values.cast(pa.large_binary() if is_binary else pa.large_string())
            yield part, _bits_of_bytes(content)


def _bits_of_bytes(strings: Any) -> np.ndarray:
    """Return the sum of the bytes of each string times odd numbers that depend on their places."""
    if not len(strings):
        return np.empty(0, np.uint64)
    _, offsets, content = strings.buffers()
    edges = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    text = np.frombuffer(content or b"", np.uint8)[edges[0] : edges[-1]]
    starts = np.repeat(edges[:-1] - edges[0], np.diff(edges))
    mixed = (np.arange(len(text)) - starts + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    # The finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = (mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)
    sums = np.cumsum((text.astype(np.uint64) + np.uint64(1)) * mixed, dtype=np.uint64)
    return np.diff(np.append(np.uint64(0), sums)[edges - edges[0]])


def _column(pa: Any, values: np.ndarray) -> Any:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


# -- maps in Zarr --------------------------------------------------------------------------------------


def write_grid(
    url: str,
    grid: GridShape,
    values: Columns,
    *,
    attributes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    before_end: Callable[[], None] = lambda: None,
) -> None:
    """Write values of rows to a Zarr group of arrays in the shape of a grid, or a GeoTIFF; whole or absent.

    Cells without data have -1 or NaN. A ``label`` alone for each row of a single axis is written as an
    array, not as a group.

    Parameters
    ----------
    url : str
    grid : GridShape
    values : mapping of name to function
        Values (m,) or (m, w) of rows; of several arrays those of one are called ``label``.
    attributes : mapping, optional
        Further attributes of the group.
    overwrite, storage_options
        See `daskcluster.data.writer.write_rows`.
    before_end : callable () -> None
        Called before the group appears.

    Notes
    -----
    Cost: memory of a slab of about 8 MB along the first axis.
    """
    place = locate(url, storage_options)
    if place.url.lower().endswith(MAPS):
        _write_geotiff(place, grid, values, overwrite, before_end)
        return
    _warn_of_lost_system(grid, place.url)
    with Staging.begin(
        url, overwrite=overwrite, storage_options=storage_options, kinds=GRID_KINDS
    ) as staging:
        documents: dict[str, bytes] = {}
        is_column = list(values) == ["label"] and len(grid.shape) == 1 and grid.template is None
        for given, read in values.items():
            name = "" if is_column else given
            array = _begin(staging, grid, name, read)
            for first, slab in _slabs(grid, read, array.block_rows):
                array.put(first, slab)
            documents |= array.document()
        before_end()
        if is_column:
            staging.commit(documents)
            return
        coordinates, own = _coordinates(grid.template)
        head = group_document(own | dict(attributes or {}))
        staging.commit(coordinates | documents | head)


def _begin(staging: Staging, grid: GridShape, name: str, read: ReadValues) -> Any:
    sample = read(0, 1)
    shape = (*grid.shape, *sample.shape[1:])
    per_index = math.prod(shape[1:]) * sample.dtype.itemsize
    step = min(max(1, CHUNK_BYTES // per_index), shape[0])
    names, attributes, nodata = None, {}, no_data(sample.dtype)
    if grid.template is not None:
        names = [str(each) for each in grid.template.dims] + ["nearest"] * (sample.ndim - 1)
        attributes = dict(grid.template.attrs)
    if grid.mask is not None and nodata.dtype.kind in "iu":
        attributes["nodata"] = int(nodata)
    more: dict[str, Any] = {"names": names, "attributes": attributes}
    return StagedArray.of(staging, name, shape, step, sample.dtype, **more)


def _slabs(grid: GridShape, read: ReadValues, step: int) -> Any:
    """Yield slabs along the first axis, and where they begin."""
    start = 0
    for first in range(0, grid.shape[0], step):
        shape = (min(step, grid.shape[0] - first), *grid.shape[1:])
        mask = None if grid.mask is None else grid.mask[first : first + step]
        n_rows = math.prod(shape) if mask is None else int(np.count_nonzero(mask))
        found = read(start, start + n_rows)
        start += n_rows
        yield first, spread(mask, found).reshape(*shape, *found.shape[1:])


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


BLOCK_ROWS = 1 << 20


_MISSING = (
    "{} contains NaN, or lacks values: every row needs a label; leave such rows out, of the data too, or "
    "give them a label of their own, e.g. -1."
)


@dataclass(frozen=True)
class LabelArray:
    """The label of every row: integers, strings, anything that numpy can sort.

    Attributes
    ----------
    n_rows : int
    read : callable
        ``read(start, stop)`` returns the labels of those rows, in memory.
    location : Location or None
        Place of the Zarr array that holds them, for workers to open.
    """

    n_rows: int
    read: Callable[[int, int], np.ndarray]
    location: Location | None = None


def open_labels(
    source: Any, what: str = "labels", *, storage_options: Mapping[str, Any] | None = None
) -> LabelArray:
    """Open labels without reading them.

    Parameters
    ----------
    source : array-like of shape (n,), str or path
        Labels in memory, a `daskcluster` Labels handle, a dask array or Series, a zarr.Array, or the path
        or URL of a 1-D Zarr array or .npy file, as ``fit --labels`` and ``predict --output`` write them.
    what : str
        What errors call it.
    storage_options : dict, optional
        Options of the file system of a URL.

    Raises
    ------
    InvalidDataError
        Not one label for every row.
    DatasetNotFoundError
        There is no Zarr array at the URL.

    Examples
    --------
    >>> open_labels([3, 3, 5]).read(1, 3)
    array([3, 5])
    """
    location = None
    if isinstance(source, (str, os.PathLike)):
        location = locate_rows(source, storage_options)
        is_npy = location.url.lower().endswith(".npy")
        if not is_npy and (os.path.isfile(location.url) or location.url.endswith(IN_PLACE)):
            raise InvalidDataError(
                f"{what} are read from a Zarr array or a .npy file, and {location.url!r} is another file; "
                "load it and pass the array, e.g. pandas.read_parquet(file)['label']."
            )
        source = read_npy(location) if is_npy else open_array(location)
        what = f"{what} {location.url!r}"
    elif type(source).__module__.startswith("pandas") and hasattr(source, "isna"):
        if np.any(source.isna()):
            raise InvalidDataError(_MISSING.format(what))
        source = np.asarray(source)
    elif hasattr(source, "__dask_graph__"):
        from daskcluster.data.dask_array import with_known_chunks

        lazy = source.to_dask_array() if hasattr(source, "to_dask_array") else source
        source = with_known_chunks(lazy)
    elif not is_zarr(source):
        source = np.asanyarray(source)
    shape = tuple(source.shape)
    if len(shape) != 1:
        raise InvalidDataError(
            f"{what} of shape {shape} should be of shape (n,): give one label for every row."
        )

    def read(start: int, stop: int) -> np.ndarray:
        if is_zarr(source):
            return _complete(read_chunk(source, slice(start, stop), what, location), what)
        is_lazy = hasattr(source, "__dask_graph__")
        part = unannotated(_computed, source, start, stop) if is_lazy else source[start:stop]
        return _complete(np.asanyarray(part), what)

    place = (location or location_of(source)) if is_zarr(source) else None
    return LabelArray(shape[0], read, place)


def _computed(source: Any, start: int, stop: int) -> Any:
    return source[start:stop].compute()


def _complete(labels: np.ndarray, what: str) -> np.ndarray:
    """Refuse labels that are masked, or not a number, which are equal to no label."""
    if np.ma.is_masked(labels) or (labels.dtype.kind == "f" and np.isnan(labels).any()):
        raise InvalidDataError(_MISSING.format(what))
    if labels.dtype == object:
        _check_objects(labels, what)
    return np.asarray(labels)


def _check_objects(labels: np.ndarray, what: str) -> None:
    """Refuse objects that are missing values, and those that have no order."""
    if any(map(_is_missing, labels)):
        raise InvalidDataError(_MISSING.format(what))
    try:
        np.sort(labels)
    except TypeError as error:
        names = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise InvalidDataError(
            f"{what} has values of the types {names}, which cannot be compared; give labels of one type, "
            "e.g. as strings: labels.astype(str)."
        ) from error


def _is_missing(label: Any) -> bool:
    """Return True for None, for NaN, and for pandas' NA, which is neither equal to itself nor not."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True
