"""Tables as rows, over Arrow: which columns make up a row, in memory and in files."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from daskcluster.data.checks import check_dtype, check_shape, frame_dtype, is_frame, is_huggingface
from daskcluster.data.dataset import RowDataset
from daskcluster.data.memory import ArrayDataset
from daskcluster.data.row_files import (
    RowFile,
    dataset_of,
    first_with_rows,
    places_of,
    read_stream,
    replaced,
    with_column_weights,
)
from daskcluster.data.spec import (
    RowsSpec,
    looks_like_path,
    refuse_duplicates,
    warn_of_id_columns,
)
from daskcluster.data.weighted import array_weights
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.extras import import_pyarrow
from daskcluster.storage.location import Location, locate


@dataclass(frozen=True)
class RowColumns:
    """The columns of a table that make up a row; small and picklable.

    Attributes
    ----------
    names : tuple of str
    widths : tuple of int
        Features of each column; 0 for a column of numbers, which is one feature.
    dtype : str
        Type of the rows.
    id_column, weights : str or None
    """

    names: tuple[str, ...]
    widths: tuple[int, ...]
    dtype: str
    id_column: str | None = None
    weights: str | None = None

    @property
    def n_features(self) -> int:
        return sum(max(1, width) for width in self.widths)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features where each is a column of its own."""
        return None if any(self.widths) else self.names

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that hold rows and weights."""
        return self.names if self.weights is None else (*self.names, self.weights)


def choose_columns(
    schema: Any,
    spec: RowsSpec,
    what: str,
    values: TableValues,
) -> RowColumns:
    """Choose the columns of rows, ids and weights in a schema; warn of features that look like ids.

    Parameters
    ----------
    schema : pyarrow.Schema
    spec : RowsSpec
        Without `features`, the one list column of numbers, else every column of numbers but the index of a
        data frame that was written.
    what : str
        What errors call the table.
    values : TableValues
        Asked for the lengths of lists that the schema does not tell, for nulls in columns of a dtype that
        has no NaN, which becomes floating then, and whether integers count rows.

    Raises
    ------
    InvalidParameterError
        A column that is not there.
    InvalidDataError
        Columns that are no numbers or have one name, or several list columns without a spec.
    """
    refuse_duplicates(schema.names, spec, what)
    types = {field.name: storage_type(field.type) for field in schema}
    asked = (spec.id_column, *spec.drop, *(spec.features or ()))
    for name in asked:
        if name is not None and name not in types:
            raise InvalidParameterError(
                f"There is no column {name!r} in {what}; columns: {', '.join(types)}."
            )
    weights = spec.weights if spec.weights in types else None
    if spec.weights is not None and weights is None and not looks_like_path(spec.weights):
        raise InvalidParameterError(
            f"There is no column {spec.weights!r} in {what} for the weights; columns: {', '.join(types)}."
        )
    if weights is not None and (is_list(types[weights]) or _number_dtype(types[weights]) is None):
        raise InvalidDataError(
            f"Column {weights!r} ({types[weights]}) of {what} holds no numbers, so it cannot be the "
            "weights of rows; choose another column, or convert it."
        )
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    without = {spec.id_column, weights, *spec.drop, *(name for name in index if type(name) is str)}
    names = spec.features_among(types) or _default_features(types, without, what)
    kinds = _number_dtypes(names, types, what)
    dtype = kinds[0] if len(set(kinds)) == 1 else frame_dtype(kinds)
    check_dtype(dtype, what=what)
    if dtype.kind in "biu" and values.hold_nulls(names):
        dtype = frame_dtype(kinds)
    widths = tuple(_width(name, types[name], what, values) for name in names)
    if not (spec.features or spec.expected or any(widths) or len(names) < 2):
        warn_of_id_columns(names, values.only_increase)
    return RowColumns(tuple(names), widths, dtype.str, spec.id_column, weights)


@dataclass(frozen=True)
class TableValues:
    """The values of a table, for what its schema does not tell.

    Attributes
    ----------
    tables : callable (*names) -> iterable of pyarrow.Table or RecordBatch
        Reads columns from the start.
    """

    tables: Callable[..., Iterable[Any]]

    def length_of_lists(self, name: str) -> int:
        """Return the length of the first list that is not null; 0 without one."""
        arrays = (
            array
            for table in self.tables(name)
            for array in getattr(table.column(name), "chunks", [table.column(name)])
        )
        return len(next((value for array in arrays for value in array.drop_null()), ()))

    def hold_nulls(self, names: Sequence[str]) -> bool:
        """Return True if columns may hold a null, a null list, or a null within a list."""
        return any(
            array.null_count or (is_list(array.type) and _values(array).null_count)
            for table in self.tables(*names)
            for name in names
            for array in map(_storage, getattr(table.column(name), "chunks", [table.column(name)]))
        )

    def only_increase(self, name: str) -> bool:
        """Return True for integers of which each is larger than the one before, as row numbers are."""
        return all(_only_increases(table.column(name)) for table in self.tables(name))


def _only_increases(column: Any) -> bool:
    if not import_pyarrow().types.is_integer(column.type) or len(column) < 2 or column.null_count:
        return False
    values = column.to_numpy()
    return bool((values[1:] > values[:-1]).all())


def _default_features(
    types: Mapping[str, Any], without: set[str | None], what: str
) -> tuple[str, ...]:
    left = {name: kind for name, kind in types.items() if name not in without}
    lists = [
        name for name, kind in left.items() if is_list(kind) and _number_dtype(kind) is not None
    ]
    if len(lists) == 1:
        return (lists[0],)
    if lists:
        raise InvalidDataError(
            f"{what} has {len(lists)} list columns of numbers ({', '.join(lists)}); choose with "
            f"columns={lists[0]!r} (--columns {lists[0]})."
        )
    if not left:
        raise InvalidDataError(f"{what} has no column of features; columns: {', '.join(types)}.")
    return tuple(left)


def _number_dtypes(
    names: Sequence[str], types: Mapping[str, Any], what: str
) -> list[np.dtype[Any]]:
    dtypes = {name: _number_dtype(types[name]) for name in names}
    bad = [name for name, dtype in dtypes.items() if dtype is None]
    if bad:
        shown = ", ".join(f"{name!r} ({types[name]})" for name in bad[:10])
        raise InvalidDataError(
            f"{what} has columns that are no real numbers: {shown}. Choose the features with columns=[...] "
            "(--columns), or leave these out with drop=[...] (--drop); an id is named with id_column= "
            "(--id-column)."
        )
    return [dtype for dtype in dtypes.values() if dtype is not None]


def _width(name: str, kind: Any, what: str, values: TableValues) -> int:
    if not is_list(kind):
        return 0
    if import_pyarrow().types.is_fixed_size_list(kind):
        return int(kind.list_size)
    width = values.length_of_lists(name)
    if not width:
        raise InvalidDataError(
            f"The first list in column {name!r} of {what} is empty, or all are null, so the number of "
            "features is not known; write lists of one length."
        )
    return width


def storage_type(kind: Any) -> Any:
    """Return the type that an Arrow type is stored as: the list of an extension type, e.g. a tensor.

    A period of pandas is no number, although it is stored as one.
    """
    if getattr(kind, "extension_name", "").startswith("pandas."):
        return kind
    return getattr(kind, "storage_type", kind)


def is_list(kind: Any) -> bool:
    """Return True for list, large_list and fixed_size_list."""
    is_type = import_pyarrow().types
    return bool(
        is_type.is_list(kind) or is_type.is_large_list(kind) or is_type.is_fixed_size_list(kind)
    )


def _number_dtype(kind: Any) -> np.dtype[Any] | None:
    """Return the dtype of the numbers in a column, float64 for decimals and nulls; None without numbers."""
    is_type = import_pyarrow().types
    kind = storage_type(kind.value_type) if is_list(kind) else kind
    if is_type.is_null(kind) or is_type.is_decimal(kind):
        return np.dtype(np.float64)
    if not (is_type.is_integer(kind) or is_type.is_floating(kind) or is_type.is_boolean(kind)):
        return None
    return np.dtype(kind.to_pandas_dtype())


def rows_of_table(table: Any, columns: RowColumns, what: str, start: int = 0) -> np.ndarray:
    """Return rows (m, d) of a table; without a copy for one list column in one piece without nulls.

    Parameters
    ----------
    table : pyarrow.Table or RecordBatch
    columns : RowColumns
        The dtype is floating where values are null. Nulls become NaN, and a null list a row of NaN.
    what : str
        What errors call the source of the table.
    start : int
        The number of the first row in the source.

    Raises
    ------
    InvalidDataError
        A list of another length.
    """
    rows, at = np.empty((table.num_rows, columns.n_features), columns.dtype), 0
    for name, width in zip(columns.names, columns.widths, strict=True):
        column, done = table.column(name), 0
        for array in map(_storage, getattr(column, "chunks", [column])):
            last = done + len(array)
            if width:
                values = _of_lists(array, width, rows.dtype, f"Column {name!r}", what, start + done)
                if values.shape == rows.shape and values.dtype == rows.dtype:
                    return values
                rows[done:last, at : at + width] = values
            else:
                rows[done:last, at] = array.to_numpy(zero_copy_only=False)
            done = last
        at += max(1, width)
    return rows


def weights_of_table(table: Any, name: str, what: str, start: int = 0) -> np.ndarray:
    """Return a column of weights as float64 (m,); see `rows_of_table`.

    Raises
    ------
    InvalidDataError
        A null.
    """
    column = table.column(name)
    if column.null_count:
        row = start + column.is_null().to_pylist().index(True)
        raise InvalidDataError(
            f"Column {name!r} of the weights is null in row {row} of {what}; every row needs a weight that "
            "is finite and >= 0. Write 0 for a row without weight."
        )
    return np.asarray(column.to_numpy(), dtype=np.float64)


@dataclass(frozen=True)
class TableFormat(ABC):
    """The columns of files that hold the rows; see `FilesRecipe`."""

    columns: RowColumns
    reader_bytes = 80 << 20  # pyarrow, with what its allocator keeps: measured 75 MB

    @property
    def n_features(self) -> int:
        return self.columns.n_features

    @property
    def dtype(self) -> str:
        return self.columns.dtype

    @property
    def id_column(self) -> str | None:
        return self.columns.id_column

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.columns.feature_names

    def cuts(self, file: RowFile) -> np.ndarray:
        """Return the edges of the blocks of a file, without those that have no rows."""
        return np.unique(file.edges)

    def reads_in_order(self, file: RowFile) -> bool:
        return file.in_order

    @abstractmethod
    def tables(
        self, place: Location, file: Any, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[int, Any]]:
        """Yield columns of a file as tables that cover some rows, each with the number of its first row."""

    def _parts(
        self, place: Location, file: Any, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[int, Any, slice]]:
        """Yield ``(start, table, span)``: the rows `span` of a table whose first row is `start`."""
        for start, table in self.tables(place, file, first, last, names):
            span = slice(max(first - start, 0), min(last - start, table.num_rows))
            if span.start < span.stop:
                yield start, table, span

    def decoded(self, place: Location, file: Any, first: int, last: int) -> Iterator[np.ndarray]:
        """Yield the rows of a file, block by block."""
        names, what = self.columns.names, repr(place.url)
        for start, table, span in self._parts(place, file, first, last, names):
            yield rows_of_table(table, self.columns, what, start)[span]

    def read(self, place: Location, file: Any, first: int, last: int) -> np.ndarray:
        """Return rows of a file, shape (last - first, d)."""
        if file.in_order:
            return read_stream(self, place, file, first, last)
        rows, done = np.empty((last - first, self.n_features), self.dtype), 0
        for block in self.decoded(place, file, first, last):
            rows[done : done + len(block)] = block
            done += len(block)
        if done != len(rows):
            raise replaced(place)
        return rows

    def read_ids(self, place: Location, file: Any, first: int, last: int) -> Any:
        """Return the ids of rows, an Arrow chunked array."""
        assert self.id_column is not None
        parts = self._parts(place, file, first, last, (self.id_column,))
        chunks = [table.column(self.id_column)[span].chunks for _, table, span in parts]
        return import_pyarrow().chunked_array(list(chain.from_iterable(chunks)))

    def read_numbers(
        self, name: str, place: Location, file: Any, first: int, last: int
    ) -> np.ndarray:
        """Return a column of weights as float64."""
        parts, what = self._parts(place, file, first, last, (name,)), repr(place.url)
        return np.concatenate(
            [weights_of_table(table, name, what, at)[span] for at, table, span in parts]
        )


def open_tables(
    location: Location,
    files: Sequence[RowFile],
    spec: RowsSpec,
    schemas: Sequence[Any],
    values: TableValues,
    form: Callable[[RowColumns], Any],
) -> RowDataset:
    """Open files of tables whose heads were read; all must have the same columns.

    Parameters
    ----------
    location : Location
    files : sequence of RowFile
    spec : RowsSpec
    schemas : sequence of pyarrow.Schema
        Schemas of each file.
    values : TableValues
    form : callable (RowColumns) -> TableFormat
    """
    first = first_with_rows(location, files)
    urls = [place.url for place in places_of(location, files)]
    schema, is_null = schemas[first], import_pyarrow().types.is_null
    for number, field in enumerate(schema):
        if is_null(field.type):  # another file may have values
            others = [each.field(field.name) for each in schemas if field.name in each.names]
            found = next((other for other in others if not is_null(other.type)), field)
            schema = schema.set(number, found)
    chosen = choose_columns(schema, spec, repr(urls[first]), values)
    names = [name for name in (*chosen.read, chosen.id_column) if name is not None]
    expected = {name: storage_type(schema.field(name).type) for name in names}
    for found, url in zip(schemas, urls, strict=True):
        refuse_duplicates(found.names, RowsSpec(features=tuple(expected)), repr(url))
        for name, kind in expected.items():
            here = found.field(name).type if name in found.names else None
            if here is None or (storage_type(here) != kind and not is_null(here)):
                has = "lacks column" if here is None else f"has {here} in column"
                raise InvalidDataError(
                    f"{url!r} {has} {name!r}, where {urls[first]!r} has {kind}; files of one dataset "
                    "need the same columns: write it again, or leave it out."
                )
    return dataset_of_tables(location, files, form(chosen))


def dataset_of_tables(location: Location, files: Sequence[RowFile], form: Any) -> RowDataset:
    """Return the rows of opened files, with the weights in one of their columns."""
    dataset = dataset_of(location, files, form)
    name = form.columns.weights
    return dataset if name is None else with_column_weights(dataset, name)


def _storage(array: Any) -> Any:
    return array.storage if hasattr(array.type, "storage_type") else array


def _values(array: Any) -> Any:
    """Return the numbers of all lists that are not null, one after another."""
    return _storage(array.flatten())


def _of_lists(
    array: Any, width: int, dtype: np.dtype[Any], column: str, what: str, start: int
) -> np.ndarray:
    present = None
    if array.null_count:
        present = array.is_valid().to_numpy(zero_copy_only=False)
        rows = np.full((len(array), width), np.nan, dtype)
        if not present.any():  # and perhaps no list by its type
            return rows
    if hasattr(array, "offsets"):  # lists of any length
        lengths = np.diff(array.offsets.to_numpy())
        bad = lengths != width if present is None else (lengths != width) & present
        if bad.any():
            row = int(np.argmax(bad))
            raise InvalidDataError(
                f"{column} has a list of {lengths[row]} numbers in row {start + row} of {what}, where "
                f"the first row has {width}; every row needs the same number of features."
            )
    numbers: np.ndarray = _values(array).to_numpy(zero_copy_only=False).reshape(-1, width)
    if present is None:
        return numbers
    rows[present] = numbers
    return rows


def arrow_table(given: Any) -> Any:
    """Return a pyarrow.Table of what gives one; lazy frames are collected."""
    pa = import_pyarrow()
    if is_huggingface(given):
        if isinstance(given, dict):
            raise InvalidDataError(
                f"The {type(given).__name__} has the splits {', '.join(given)}; give one of them, e.g. "
                f"dataset[{next(iter(given))!r}]."
            )
        return given.with_format("arrow")[:]
    if not hasattr(given, "__arrow_c_stream__") and hasattr(given, "collect"):
        given = given.collect()
    try:
        return given if isinstance(given, pa.Table) else pa.table(given)
    except pa.ArrowInvalid as error:
        raise InvalidDataError(
            f"The {type(given).__name__} is not a table that Arrow reads ({error}); give a column alone a "
            "name, e.g. with series.to_frame(), and cast columns of other types to numbers."
        ) from error


def _table_of_frame(frame: Any, faults: dict[str, Exception]) -> Any:
    """Return a pandas frame as an Arrow table; `faults` gets what cannot be converted."""
    pa = import_pyarrow()
    columns = {}
    for label, column in frame.items():
        name = str(label)
        try:
            columns[name] = pa.array(column, from_pandas=True)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            columns[name], faults[name] = pa.nulls(len(frame)), error
    return pa.table(columns)


def open_arrow(given: Any, spec: RowsSpec) -> RowDataset:
    """Open a table in memory: an Arrow table, or what gives one by the Arrow C stream.

    Raises
    ------
    InvalidDataError, InvalidParameterError, MissingExtraError
    """
    faults: dict[str, Exception] = {}
    table = _table_of_frame(given, faults) if is_frame(given) else arrow_table(given)
    what = f"the {type(given).__name__}"
    check_shape((table.num_rows, max(1, table.num_columns)), flatten=False, what=what[4:])
    chosen = choose_columns(table.schema, spec, what, TableValues(lambda *names: [table]))
    for name in (*chosen.read, chosen.id_column):
        if name in faults:
            dtype = given.dtypes.iloc[list(map(str, given.columns)).index(name)]
            raise InvalidDataError(
                f"Column {name!r} ({dtype}) of {what} cannot be read ({faults[name]}). Choose the features "
                "with columns=[...], leave it out with drop=[...], or convert it."
            ) from faults[name]
    rows = rows_of_table(table, chosen, what)
    check_shape(rows.shape, flatten=False, what=what[4:])
    facts: dict[str, Any] = {"feature_names": chosen.feature_names}
    if chosen.weights is not None:
        values = weights_of_table(table, chosen.weights, what)
        facts["own_weights"] = array_weights(values, len(rows))
        facts["weights_column"] = chosen.weights
    if chosen.id_column is not None:
        facts["id_column"] = chosen.id_column
        facts["own_ids"] = table.column(chosen.id_column).combine_chunks()
    if hasattr(given, "explain"):  # a lazy frame of polars
        scans = re.findall(r"SCAN \[(.*?)\]", given.explain())
        names = [name for scan in scans for name in scan.split(", ") if os.path.exists(name)]
        facts["read_from"] = tuple(map(locate, names))
    return ArrayDataset(np.ascontiguousarray(rows)).with_facts(**facts)
