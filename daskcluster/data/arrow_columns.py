"""Columns of Arrow schemas: which of them make up a row, and as what numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.checks import check_dtype, frame_dtype
from daskcluster.data.spec import (
    RowsSpec,
    looks_like_id,
    looks_like_path,
    refuse_duplicates,
    warn_of_id_columns,
)
from daskcluster.errors import InvalidDataError, InvalidParameterError, MissingExtraError
from daskcluster.extras import install_command


def import_pyarrow() -> Any:
    """Return pyarrow.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError(
            "Parquet and csv files and Arrow tables need pyarrow. Remedy: "
            f"{install_command('parquet')}."
        ) from error
    return pa


@dataclass(frozen=True)
class RowColumns:
    """The columns of a table that make up a row; small and picklable.

    Attributes
    ----------
    names : tuple of str
    widths : tuple of int
        Features of each column; 0 for a column of numbers, which is one feature.
    dtype : str
        Of the rows.
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
    parts: Callable[[str], Iterable[Any]],
    hold_nulls: Callable[[Sequence[str]], bool],
) -> RowColumns:
    """Choose the columns of rows, ids and weights in a schema.

    Parameters
    ----------
    schema : pyarrow.Schema
    spec : RowsSpec
        Without `features`, the one list column of numbers, else every column of numbers but the index of a
        data frame that was written.
    what : str
        What errors call the table.
    parts : callable (name) -> iterable of pyarrow.Array
        The values of a column. Called for lists whose length the schema does not tell; the first list
        that is not null tells it.
    hold_nulls : callable (names) -> bool
        Whether columns may hold nulls. Called for columns of one dtype that has no NaN, which becomes
        floating then.

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
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    without = {spec.id_column, weights, *spec.drop, *(name for name in index if type(name) is str)}
    names = spec.features_among(types) or _default_features(types, without, what)
    kinds = _number_dtypes(names, types, what)
    dtype = kinds[0] if len(set(kinds)) == 1 else frame_dtype(kinds)
    check_dtype(dtype, what=what)
    if dtype.kind in "biu" and hold_nulls(names):
        dtype = frame_dtype(kinds)
    widths = tuple(_width(name, types[name], what, parts) for name in names)
    return RowColumns(tuple(names), widths, dtype.str, spec.id_column, weights)


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


def _width(name: str, kind: Any, what: str, parts: Callable[[str], Iterable[Any]]) -> int:
    if not is_list(kind):
        return 0
    if import_pyarrow().types.is_fixed_size_list(kind):
        return int(kind.list_size)
    width = len(next((value for part in parts(name) for value in part.drop_null()), ()))
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


def warn_of_ids(columns: RowColumns, increasing: Callable[[str], bool]) -> None:
    """Warn of a feature that looks like an id: by its name, or since its integers only increase.

    Parameters
    ----------
    columns : RowColumns
        Those chosen by default; a choice is respected.
    increasing : callable (name) -> bool
        Whether a column holds integers that are unique and increasing.
    """
    if any(columns.widths) or len(columns.names) < 2:
        return
    found = [name for name in columns.names if looks_like_id(name) or increasing(name)]
    warn_of_id_columns(found)
