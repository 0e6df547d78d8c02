"""Arrow tables as rows: a list column of numbers, or numeric columns side by side."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
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
from daskcluster.data.checks import check_shape
from daskcluster.data.dataset import RowDataset
from daskcluster.data.spec import (
    RowsSpec,
)
from daskcluster.data.weighted import array_weights
from daskcluster.errors import InvalidDataError
from daskcluster.storage.location import locate


def has_nulls(table: Any, columns: RowColumns) -> np.ndarray:
    """Return which rows lack a value, as bool (m,): a null, a null list, or a null within a list."""
    bad = np.zeros(table.num_rows, bool)
    for name in columns.read:
        start = 0
        for array in table.column(name).chunks:
            array = _storage(array)
            here = bad[start : start + len(array)]
            here |= array.is_null().to_numpy(zero_copy_only=False)
            values = _values(array) if is_list(array.type) else None
            if values is not None and values.null_count:
                width = columns.widths[columns.names.index(name)]
                nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
                here[_row_of_value(array, nulls, width)] = True
            start += len(array)
    return bad


def rows_of_table(table: Any, columns: RowColumns, where: Callable[[int], str]) -> np.ndarray:
    """Return rows (m, d) of a table; without a copy for one list column in one piece.

    Parameters
    ----------
    table : pyarrow.Table or RecordBatch
    columns : RowColumns
    where : callable (row) -> str
        What errors call a row of the table.

    Raises
    ------
    InvalidDataError
        A null, or a list of another length.
    """
    dtype = np.dtype(columns.dtype)
    parts = []
    for name, width in zip(columns.names, columns.widths, strict=True):
        column = table.column(name)
        start, pieces = 0, []
        for array in getattr(column, "chunks", [column]):
            array = _storage(array)
            if width:
                pieces.append(_of_lists(array, width, name, start, where))
            else:
                _refuse_nulls(array, name, start, where)
                pieces.append(array.to_numpy(zero_copy_only=False))
            start += len(array)
        values = pieces[0] if len(pieces) == 1 else np.concatenate(pieces) if pieces else None
        if values is None:
            values = np.empty((0, width) if width else 0, dtype)
        parts.append(values.astype(dtype, copy=False))
    if len(parts) == 1:
        rows: np.ndarray = parts[0]
        return rows if rows.ndim == 2 else rows[:, None]
    return np.column_stack(parts)


def numbers_of_column(table: Any, name: str, where: Callable[[int], str]) -> np.ndarray:
    """Return a column of numbers as float64 (m,)."""
    column = table.column(name)
    start = 0
    for array in column.chunks:
        _refuse_nulls(array, name, start, where)
        start += len(array)
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _storage(array: Any) -> Any:
    return array.storage if hasattr(array.type, "storage_type") else array


def _values(array: Any) -> Any:
    """Return the numbers of all lists that are not null, one after another."""
    return _storage(array.flatten())


def _row_of_value(array: Any, at: np.ndarray, width: int) -> np.ndarray:
    """Return the rows in which some of the numbers of `_values` lie."""
    present = np.flatnonzero(~array.is_null().to_numpy(zero_copy_only=False))
    if hasattr(array, "offsets"):
        lengths = np.diff(array.offsets.to_numpy())[present]
    else:
        lengths = np.full(len(present), width)
    return present[np.searchsorted(np.cumsum(lengths), at, side="right")]


def _refuse_nulls(array: Any, name: str, start: int, where: Callable[[int], str]) -> None:
    if array.null_count:
        row = start + int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise _null(name, where(row))


def _null(name: str, where: str, how: str = "is null") -> InvalidDataError:
    return InvalidDataError(
        f"Column {name!r} {how} in {where}. Leave rows that lack a value out with nulls='drop' "
        "(--nulls drop), or fill them in."
    )


def _of_lists(
    array: Any, width: int, name: str, start: int, where: Callable[[int], str]
) -> np.ndarray:
    _refuse_nulls(array, name, start, where)
    if hasattr(array, "offsets"):  # lists of any length
        lengths = np.diff(array.offsets.to_numpy())
        bad = lengths != width
        if bad.any():
            row = int(np.argmax(bad))
            raise InvalidDataError(
                f"Column {name!r} has a list of {lengths[row]} numbers in {where(start + row)}, where "
                f"the first row has {width}; every row needs the same number of features."
            )
    values = _values(array)
    if values.null_count:
        at = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[:1]
        row = int(_row_of_value(array, at, width)[0])
        raise _null(name, where(start + row), "has a null within the list")
    numbers: np.ndarray = values.to_numpy(zero_copy_only=False)
    return numbers.reshape(-1, width)


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
    if type(given).__module__.startswith("pandas"):
        return pa.Table.from_pandas(given, preserve_index=False)
    return given if isinstance(given, pa.Table) else pa.table(given)


def open_arrow(given: Any, spec: RowsSpec) -> RowDataset:
    """Open a table in memory: an Arrow table, or what gives one by the Arrow C stream.

    Raises
    ------
    InvalidDataError, InvalidParameterError, MissingExtraError
    """
    table = arrow_table(given)
    what = f"the {type(given).__name__}"
    check_shape((table.num_rows, max(1, table.num_columns)), flatten=False, what=what[4:])
    chosen = choose_columns(table.schema, spec, what, table.select)
    if spec.features is None:
        warn_of_ids(chosen, lambda name: only_increases(table.column(name)))
    if spec.nulls == "drop":
        table = table.filter(import_pyarrow().array(~has_nulls(table, chosen)))
    rows = rows_of_table(table, chosen, lambda row: f"row {row} of {what}")
    check_shape(rows.shape, flatten=False, what=what[4:])
    dataset: RowDataset = ArrayDataset(np.ascontiguousarray(rows))
    if chosen.weights is not None:
        values = numbers_of_column(table, chosen.weights, lambda row: f"row {row} of {what}")
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
