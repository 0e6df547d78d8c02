"""Tables as rows, over Arrow: which columns make up a row, in memory and in files."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import unquote

import numpy as np

from daskcluster.data.checks import check_dtype, check_shape, frame_dtype, is_frame, is_huggingface
from daskcluster.data.dataset import RowDataset
from daskcluster.data.memory import ArrayDataset
from daskcluster.data.row_files import (
    Constant,
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

File = TypeVar("File", bound=RowFile)


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
        Reads columns from the start, without those that a file does not store.
    null_constants : frozenset of str
        Columns that are null in all rows of some file, which does not store them.
    """

    tables: Callable[..., Iterable[Any]]
    null_constants: frozenset[str] = frozenset()

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
        return not self.null_constants.isdisjoint(names) or any(
            array.null_count or (is_list(array.type) and _values(array).null_count)
            for table in self.tables(*names)
            for name in names
            if name in table.schema.names
            for array in map(_storage, getattr(table.column(name), "chunks", [table.column(name)]))
        )

    def only_increase(self, name: str) -> bool:
        """Return True for integers of which each is larger than the one before, as row numbers are."""
        found = False
        for table in self.tables(name):
            if not _only_increases(table.column(name)):
                return False
            found = True
        return found


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


def id_type(kind: Any) -> Any:
    """Return the type that ids of an Arrow type are read as: one for all layouts of texts."""
    pa = import_pyarrow()
    is_view = getattr(pa.types, "is_string_view", lambda kind: False)
    kind = storage_type(kind)
    return pa.string() if pa.types.is_large_string(kind) or is_view(kind) else kind


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

    @property
    def reader_bytes(self) -> int:
        """Bytes that readers take as well as the rows: pyarrow, with what its allocator keeps (75 MB)."""
        return 80 << 20

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
        constants = [each for each in file.constants if each.name in names]
        stored = [name for name in names if all(name != each.name for each in constants)]
        for start, table in self._stored(place, file, first, last, stored):
            span = slice(max(first - start, 0), min(last - start, table.num_rows))
            if span.start < span.stop:
                yield start, _with_constants(table, constants), span

    def _stored(
        self, place: Location, file: Any, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[int, Any]]:
        """Yield what `tables` does; without names, tables of a column that nobody reads."""
        if names:
            yield from self.tables(place, file, first, last, names)
            return
        pa = import_pyarrow()
        for start in range(first, last, _CONSTANT_ROWS):
            yield start, pa.table({"": pa.nulls(min(_CONSTANT_ROWS, last - start))})

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
        columns = [table.column(self.id_column)[span] for _, table, span in parts]
        chunks = [column.cast(id_type(column.type)).chunks for column in columns]
        return import_pyarrow().chunked_array(list(chain.from_iterable(chunks)))

    def read_numbers(
        self, name: str, place: Location, file: Any, first: int, last: int
    ) -> np.ndarray:
        """Return a column of weights as float64."""
        parts, what = self._parts(place, file, first, last, (name,)), repr(place.url)
        return np.concatenate(
            [weights_of_table(table, name, what, at)[span] for at, table, span in parts]
        )


@dataclass(frozen=True)
class TableVersion:
    """A version of a table whose metadata say which files it has and what these mean.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of the table.
    constants : mapping of str to tuple of Constant
        Values of columns that a file need not store, by the names of all files.
    columns_of : callable (pyarrow.Schema, str) -> collection of str
        Which columns of the table a file of this schema and name stores.
    defaults : mapping of str to object
        Values of columns that a file neither stores nor has as constants; null if not given.
    deleted : mapping of str to bytes
        `RowFile.deleted` of files that have some, by their names.
    """

    schema: Any
    constants: Mapping[str, tuple[Constant, ...]]
    columns_of: Callable[[Any, str], Collection[str]]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    deleted: Mapping[str, bytes] = field(default_factory=dict)

    def files_and_schemas(
        self, files: Sequence[File], schemas: Sequence[Any]
    ) -> tuple[list[File], list[Any]]:
        """Return files with all of their constants, and the columns of the table that each stores."""
        kinds = {field.name: field.type for field in reversed(self.schema)}
        opened, stored = [], []
        for file, schema in zip(files, schemas, strict=True):
            known = {each.name for each in self.constants[file.name]}
            own = set(self.columns_of(schema, file.name)) - known
            fields = [schema.field(name) for name in self.schema.names if name in own]
            kinds |= {field.name: field.type for field in fields}
            stored.append(import_pyarrow().schema(fields))
        for file, schema in zip(files, stored, strict=True):
            constants = self.constants[file.name]
            others = set(kinds).difference(schema.names, (each.name for each in constants))
            more = (Constant(name, kinds[name], self.defaults.get(name)) for name in sorted(others))
            opened.append(replace(file, constants=(*constants, *more)))
        return opened, stored


def open_tables(
    location: Location,
    files: Sequence[RowFile],
    spec: RowsSpec,
    schemas: Sequence[Any],
    batches: Callable[[int, Sequence[str]], Iterable[Any]],
    form: Callable[[RowColumns], Any],
    values: Callable[..., TableValues] = TableValues,
    version: TableVersion | None = None,
) -> RowDataset:
    """Open files of tables whose heads were read; all must have the same columns.

    Numbers of several types are read as the type that holds them all.

    Parameters
    ----------
    location : Location
    files : sequence of RowFile
    spec : RowsSpec
    schemas : sequence of pyarrow.Schema
        What each file stores.
    batches : callable (number, names) -> iterable of pyarrow.Table or RecordBatch
        Reads columns that a file stores, from the start.
    form : callable (RowColumns) -> TableFormat
    values : callable (tables, null_constants) -> TableValues
    version : TableVersion, optional
        What says which columns files have; else they themselves and the names of their folders do.
    """
    if version is None:
        stored = set[str]().union(*(schemas[number].names for number in _distinct(schemas)))
        files = with_path_columns(location, files, spec, stored)
    else:
        files, schemas = version.files_and_schemas(files, schemas)
    first = first_with_rows(location, files)
    urls = [place.url for place in places_of(location, files)]

    def tables(*names: str) -> Iterator[Any]:
        for number, (file, stored) in enumerate(zip(files, schemas, strict=True)):
            own = set(stored.names).difference(each.name for each in file.constants)
            if found := [name for name in names if name in own]:
                yield from batches(number, found)

    whole = [schema_with(schema, file) for file, schema in zip(files, schemas, strict=True)]
    schema, is_null = _common_schema(whole, first), import_pyarrow().types.is_null
    for name, kind in {each.name: each.kind for file in files for each in file.constants}.items():
        if name not in schema.names:
            schema = schema.append(import_pyarrow().field(name, kind))
    if version is not None:
        schema = import_pyarrow().schema([schema.field(name) for name in version.schema.names])
    what = repr(urls[first] if version is None else location.url)
    chosen = choose_columns(schema, spec, what, values(tables, null_constants(files)))
    names = [name for name in (*chosen.read, chosen.id_column) if name is not None]
    expected = {name: storage_type(schema.field(name).type) for name in names}
    for found, url in ((whole[number], urls[number]) for number in _distinct(whole)):
        refuse_duplicates(found.names, RowsSpec(features=tuple(expected)), repr(url))
        for name, kind in expected.items():
            here = found.field(name).type if name in found.names else None
            fits = here is not None and (is_null(here) or _common_type((kind, here)) == kind)
            if name == chosen.id_column and here is not None:
                fits = is_null(here) or id_type(here) == id_type(kind)
            if not fits:
                has = "lacks column" if here is None else f"has {here} in column"
                raise InvalidDataError(
                    f"{url!r} {has} {name!r}, where {urls[first]!r} has {kind}; files of one dataset "
                    "need the same columns: write it again, or leave it out."
                )
    layout = form(chosen)
    check_constants(location, files, [set(each.names) for each in schemas], layout)
    return dataset_of_tables(location, files, layout)


def _common_schema(schemas: Sequence[Any], first: int) -> Any:
    """Return one of some schemas, with the types that hold the numbers of a column in all of them."""
    schema, distinct = schemas[first], [schemas[number] for number in _distinct(schemas)]
    for number, column in enumerate(schema):
        kind, numbers = column.type, [each.get_field_index(column.name) for each in distinct]
        for each, at in zip(distinct, numbers, strict=True):
            if at >= 0 and (wider := _common_type((kind, each.field(at).type))) is not None:
                kind = wider
        if kind != column.type:
            schema = schema.set(number, import_pyarrow().field(column.name, kind))
    return schema


def _distinct(schemas: Sequence[Any]) -> list[int]:
    """Return which schemas are unlike the last few that were found; thousands of files have few."""
    found: list[int] = []
    for number, schema in enumerate(schemas):
        if not any(schema.equals(schemas[other]) for other in found[-8:]):
            found.append(number)
    return found


def _common_type(kinds: Iterable[Any]) -> Any:
    """Return the Arrow type that holds values of several types; None if they are not numbers alike."""
    pa = import_pyarrow()
    kinds = list(dict.fromkeys(map(storage_type, kinds)))
    typed = [kind for kind in kinds if not pa.types.is_null(kind)]
    if len(typed) < 2:
        return next(iter(typed or kinds), None)
    dtypes = [_number_dtype(kind) for kind in typed]
    numbers = [dtype for dtype in dtypes if dtype is not None]
    if len(numbers) < len(typed) or len(set(map(is_list, typed))) > 1:
        return None
    whole = all(dtype.kind in "biu" for dtype in numbers)
    common = pa.from_numpy_dtype(np.result_type(*numbers) if whole else frame_dtype(numbers))
    if not is_list(typed[0]):
        return common
    widths = {getattr(kind, "list_size", None) for kind in typed}
    if len(widths - {None}) > 1:
        return None
    return pa.list_(common, *(widths if None not in widths else ()))


# -- columns that files do not store -----------------------------------------------------------------


_CONSTANT_ROWS = 1 << 16
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""What stands for a null in the name of a folder."""
_WHOLE = r"[+-]?\d{1,18}"
_DECIMAL = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_BOOLEANS = {"true": True, "false": False}


def with_path_columns(
    location: Location, files: Sequence[File], spec: RowsSpec, stored: Collection[str]
) -> list[File]:
    """Return files with the columns that folders such as ``year=2024`` above them make.

    Folders below the location count; those that it lies in, if a column of that name is asked for and no
    file stores it.

    Parameters
    ----------
    location : Location
    files : sequence of RowFile
    spec : RowsSpec
    stored : collection of str
        The columns that files store.

    Raises
    ------
    InvalidDataError
        A path has a name twice.
    """
    above = path_values(f"{location.url}/")
    asked = {*(spec.features or ()), *spec.expected, spec.id_column, spec.weights}.difference(
        stored
    )
    texts = []
    for file in files:
        below = path_values(file.name)
        others = {name: text for name, text in above.items() if name in asked - below.keys()}
        texts.append({**others, **below})
    found: dict[str, list[str | None]] = {}
    for each in texts:
        for name, text in each.items():
            found.setdefault(name, []).append(text)
    kinds = {name: _folder_type(found[name], name == spec.id_column) for name in found}
    return [
        replace(file, constants=tuple(_constant(name, *kinds[name], each[name]) for name in each))
        for file, each in zip(files, texts, strict=True)
    ]


def path_values(path: str) -> dict[str, str | None]:
    """Return the values in the names of the folders of a path; None for a null.

    Raises
    ------
    InvalidDataError
        A name is there twice.

    Examples
    --------
    >>> path_values("year=2024/lang=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
    {'year': '2024', 'lang': None}
    """
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, mark, text = (unquote(part) for part in folder.partition("="))
        if not (name and mark):
            continue
        if name in found:
            raise InvalidDataError(
                f"The path {path!r} has {name}= twice, so the value of this column is not known; move the "
                "file to a folder with one."
            )
        found[name] = None if text == NULL_FOLDER else text
    return found


def _folder_type(texts: Sequence[str | None], is_id: bool) -> tuple[Any, Callable[[str], Any]]:
    """Return the type of a column in the names of folders, and what makes a value of a text."""
    pa = import_pyarrow()
    found = {text for text in texts if text is not None}
    if not found:
        return pa.null(), str
    if all(re.fullmatch(_WHOLE, text) for text in found):
        if not is_id or all(text == str(int(text)) for text in found):
            return pa.int64(), int
    elif not is_id and all(re.fullmatch(_DECIMAL, text) for text in found):
        return pa.float64(), float
    elif not is_id and all(text.lower() in _BOOLEANS for text in found):
        return pa.bool_(), lambda text: _BOOLEANS[text.lower()]
    return pa.string(), str


def _constant(name: str, kind: Any, value_of: Callable[[str], Any], text: str | None) -> Constant:
    return Constant(name, kind, None if text is None else value_of(text))


def schema_with(schema: Any, file: RowFile) -> Any:
    """Return the schema of what a file stores with its constants, which take the place of others."""
    for name, kind, _ in file.constants:
        at, field = schema.get_field_index(name), import_pyarrow().field(name, kind)
        schema = schema.append(field) if at < 0 else schema.set(at, field)
    return schema


def null_constants(files: Sequence[RowFile]) -> frozenset[str]:
    """Return the columns that are null in all rows of a file."""
    return frozenset(name for file in files for name, _, value in file.constants if value is None)


def _with_constants(table: Any, constants: Sequence[Constant]) -> Any:
    pa = import_pyarrow()
    for name, kind, value in constants:
        values = pa.repeat(pa.scalar(value, kind), table.num_rows)
        table = table.append_column(name, pa.chunked_array([values]))
    return table


def check_constants(
    location: Location, files: Sequence[RowFile], stored: Sequence[Collection[str]], layout: Any
) -> None:
    """Refuse files without a column that is read, or with other values in it than their folders have.

    Parameters
    ----------
    location : Location
    files : sequence of RowFile
    stored : sequence of collections of str
        The columns that each file stores.
    layout : TableFormat

    Notes
    -----
    Cost: one pass over the columns that both files and folders have, of those that are read.
    """
    read = {*layout.columns.read, layout.id_column} - {None}
    for place, file, names in zip(places_of(location, files), files, stored, strict=True):
        if lacks := sorted(read.difference(names, (each.name for each in file.constants))):
            raise InvalidDataError(
                f"{place.url!r} lacks column {lacks[0]!r}, which other files have, in their folders "
                f"({lacks[0]}=...); move it to such a folder, or leave it out."
            )
        for name, kind, value in file.constants:
            if name not in names or name not in read:
                continue
            for start, table in layout.tables(place, file, 0, file.n_rows, (name,)):
                values = table.column(name).to_pylist()
                row = next((i for i, each in enumerate(values) if not _equal(each, value)), None)
                if row is not None:
                    raise InvalidDataError(
                        f"Row {start + row} of {place.url!r} has {values[row]!r} in column {name!r}, where "
                        f"its folder has {value!r} ({kind}); write the file again, or move it."
                    )


def _equal(stored: Any, value: Any) -> bool:
    texts = isinstance(stored, str) != isinstance(value, str)  # an id, or a column of text
    return bool(str(stored) == str(value) if texts else stored == value)


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
