"""Labels as files that other tools open: Parquet, csv or .npy, with the ids of the rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from daskcluster.data.arrow_columns import import_pyarrow
from daskcluster.data.duplicate_ids import DuplicateIds
from daskcluster.data.partitions import group_chunks
from daskcluster.errors import InvalidParameterError
from daskcluster.storage.location import Location
from daskcluster.storage.new_file import new_file
from daskcluster.storage.staging import FILE_ENDINGS

FILES = (".parquet", ".pq", ".csv", ".npy")
"""Endings of outputs that are files; others are Zarr."""
_ROW_BYTES = 16
"""About what a label and its id take."""

ReadValues = Callable[[int, int], np.ndarray]
"""(start, stop) -> values of those rows."""


def is_file_output(url: str) -> bool:
    """Return True for an output that is a file, by its ending; False for Zarr.

    Raises
    ------
    InvalidParameterError
        The ending promises a format that is not written.

    Examples
    --------
    >>> is_file_output("s3://b/labels.parquet"), is_file_output("labels.zarr"), is_file_output("labels")
    (True, False, False)
    """
    name = url.rstrip("/")
    if name.lower().endswith(FILE_ENDINGS) and not name.lower().endswith(FILES):
        stem = os.path.splitext(os.path.basename(name))[0]
        raise InvalidParameterError(
            f"The output {url!r} should end in {', '.join(FILES)} or .zarr; this format is not written. A "
            f"map is written as Zarr, a folder: {stem + '.zarr'!r}."
        )
    return url.lower().endswith(FILES)


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

    Parameters
    ----------
    place : Location
        ``.parquet``, ``.csv`` or ``.npy`` by its ending.
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
        A .npy file of more than one value a row.
    MissingExtraError, OutputExistsError

    Notes
    -----
    Cost: one pass over the ids; memory is that of a row group, at most 64 MB, and 8 bytes a row, which tell
    whether an id is there twice: that is a warning.
    """
    write = _write_npy if place.url.lower().endswith(".npy") else _write_table
    with new_file(place, overwrite=overwrite) as out:
        write(out, place, dataset, values, row_bytes)
        before_end()


def _spans(dataset: Any, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield groups of rows of at most 64 MB that begin and end where chunks of the rows do."""
    edges = np.concatenate([[0], np.cumsum(dataset.chunk_sizes)]).astype(np.int64)
    yield from group_chunks(edges, row_bytes)


def _write_npy(
    out: Any, place: Location, dataset: Any, values: Mapping[str, ReadValues], row_bytes: int
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
        "shape": (dataset.n_rows, *first.shape[1:]),
    }
    np.lib.format.write_array_header_1_0(out, header)
    for start, stop in _spans(dataset, row_bytes):
        out.write(np.ascontiguousarray(read(start, stop)).tobytes())


def _write_table(
    out: Any, place: Location, dataset: Any, values: Mapping[str, ReadValues], row_bytes: int
) -> None:
    pa = import_pyarrow()
    name = dataset.id_column or "row"

    seen = None if dataset.id_column is None else DuplicateIds(name, dataset.n_rows)

    def table(start: int, stop: int) -> Any:
        columns = {name: dataset.ids(start, stop)}
        return pa.table(
            columns | {each: _column(pa, read(start, stop)) for each, read in values.items()}
        )

    is_csv = place.url.lower().endswith(".csv")
    schema = table(0, 1).schema
    with (_csv_writer if is_csv else _parquet_writer)(pa, out, schema) as writer:
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


@contextmanager
def _parquet_writer(pa: Any, out: Any, schema: Any) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(pa.PythonFile(out, mode="w"), schema, compression="zstd") as writer:
        yield writer


@contextmanager
def _csv_writer(pa: Any, out: Any, schema: Any) -> Iterator[Any]:
    from pyarrow import csv

    lists = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
    if lists:
        raise InvalidParameterError(
            f"A csv file holds no lists, and {' and '.join(lists)} has several values a row; write "
            ".parquet."
        )
    with csv.CSVWriter(pa.PythonFile(out, mode="w"), schema) as writer:
        yield writer
