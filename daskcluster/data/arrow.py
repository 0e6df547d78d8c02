"""Arrow tables as rows: a list column of numbers, or numeric columns side by side."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from daskcluster.data.array import ArrayDataset
from daskcluster.data.arrow_columns import (
    RowColumns,
    choose_columns,
    import_pyarrow,
    is_list,
    warn_of_ids,
)
from daskcluster.data.checks import check_shape, is_frame
from daskcluster.data.dataset import RowDataset
from daskcluster.data.spec import RowsSpec
from daskcluster.data.weighted import array_weights
from daskcluster.errors import InvalidDataError
from daskcluster.storage.location import Location, locate


def holds_nulls(table: Any, names: Sequence[str]) -> bool:
    """Return True if columns hold a null, a null list, or a null within a list."""
    return any(
        array.null_count or (is_list(array.type) and _values(array).null_count)
        for name in names
        for array in map(_storage, getattr(table.column(name), "chunks", [table.column(name)]))
    )


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
    """The columns of files that hold the rows; see `RowFormat`."""

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
        rows, done = np.empty((last - first, self.n_features), self.dtype), 0
        for block in self.decoded(place, file, first, last):
            rows[done : done + len(block)] = block
            done += len(block)
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


def is_arrow(given: Any) -> bool:
    """Return True for an Arrow table, or what gives one: polars, DuckDB, pyarrow; pandas apart."""
    module = type(given).__module__.partition(".")[0]
    if module in ("pandas", "numpy", "dask"):
        return False
    return hasattr(given, "__arrow_c_stream__") or (
        module == "polars" and hasattr(given, "collect")
    )


def is_huggingface(given: Any) -> bool:
    """Return True for a dataset of the library ``datasets``."""
    return type(given).__module__.partition(".")[0] == "datasets" and hasattr(given, "data")


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
    chosen = choose_columns(
        table.schema,
        spec,
        what,
        lambda name: [table.column(name)],
        lambda names: holds_nulls(table, names),
    )
    if spec.features is None and not spec.expected:
        warn_of_ids(chosen, lambda name: only_increases(table.column(name)))
    for name in (*chosen.read, chosen.id_column):
        if name in faults:
            dtype = given.dtypes.iloc[list(map(str, given.columns)).index(name)]
            raise InvalidDataError(
                f"Column {name!r} ({dtype}) of {what} cannot be read ({faults[name]}). Choose the features "
                "with columns=[...], leave it out with drop=[...], or convert it."
            ) from faults[name]
    rows = rows_of_table(table, chosen, what)
    check_shape(rows.shape, flatten=False, what=what[4:])
    dataset: RowDataset = ArrayDataset(np.ascontiguousarray(rows))
    if chosen.weights is not None:
        values = weights_of_table(table, chosen.weights, what)
        dataset = dataset.with_weights(array_weights(values, len(rows)))
        dataset.weights_column = chosen.weights
    if chosen.id_column is not None:
        dataset.id_column = chosen.id_column
        dataset.own_ids = table.column(chosen.id_column).combine_chunks()
    dataset.feature_names = chosen.feature_names
    if hasattr(given, "explain"):  # a lazy frame of polars
        scans = re.findall(r"SCAN \[(.*?)\]", given.explain())
        names = [name for scan in scans for name in scan.split(", ") if os.path.exists(name)]
        dataset.read_from = tuple(map(locate, names))
    return dataset


def only_increases(column: Any) -> bool:
    """Return True for integers of which each is larger than the one before, as row numbers are."""
    if not import_pyarrow().types.is_integer(column.type) or len(column) < 2 or column.null_count:
        return False
    values = column.to_numpy()
    return bool((values[1:] > values[:-1]).all())
