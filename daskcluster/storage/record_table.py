"""Long lists of records as arrays: a column for each of their entries, a row for each record.

A fit of many short steps has a record for each. As JSON they would take longer to write than the steps that
they tell of, and more bytes than a document may have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.errors import ModelFormatError

LONG = 256
"""Fewer records stay a list: an array is two files more."""
_SAFE = 1 << 53
"""Whole numbers up to this are themselves as float64."""
_KINDS = {"int": int, "bool": bool, "float": float}
_MAYBE = "float or null"
"""Of a column in which NaN stands for None."""


@dataclass(frozen=True)
class RecordTable:
    """Records as an array.

    Attributes
    ----------
    values : ndarray of shape (m, c), float64
    columns : dict
        From the name of each column to its kind: int, bool, float, or "float or null".
    """

    values: np.ndarray
    columns: dict[str, str]


def table_of(records: Sequence[Mapping[str, Any]]) -> RecordTable | None:
    """Return records as a table; None if they are few, or not all of the same plain numbers.

    Examples
    --------
    >>> records = [{"step": i, "inertia": i / 2, "validation": None} for i in range(300)]
    >>> table = table_of(records)
    >>> table.values.shape, table.columns
    ((300, 3), {'step': 'int', 'inertia': 'float', 'validation': 'float or null'})
    >>> records_of(table.values, table.columns, "history") == records
    True
    """
    if len(records) < LONG:
        return None
    names = list(records[0])
    if not names or any(list(record) != names for record in records):
        return None
    values, columns = np.empty((len(records), len(names))), {}
    for at, name in enumerate(names):
        column = [record[name] for record in records]
        kind = _kind_of(column)
        if kind is None:
            return None
        columns[name] = kind
        values[:, at] = [np.nan if entry is None else entry for entry in column]
    return RecordTable(values, columns)


def _kind_of(column: Sequence[Any]) -> str | None:
    """Return the kind of a column; None if it has none."""
    kinds = {_plain_kind(entry) for entry in column}
    if kinds == {int}:
        return "int" if all(-_SAFE <= entry <= _SAFE for entry in column) else None
    if kinds in ({bool}, {float}):
        return next(name for name, kind in _KINDS.items() if kinds == {kind})
    known = kinds <= {float, type(None)} and not any(entry != entry for entry in column)
    return _MAYBE if known else None


def _plain_kind(entry: Any) -> type:
    return type(entry.item() if isinstance(entry, np.generic) else entry)


def records_of(values: np.ndarray, columns: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the records of a table; `name` is what errors call it.

    Raises
    ------
    ModelFormatError
        Array and columns do not belong together.
    """
    known = all(kind in (*_KINDS, _MAYBE) for kind in columns.values())
    if not known or values.ndim != 2 or values.shape[1] != len(columns):
        raise ModelFormatError(
            f"its array {name!r} of shape {values.shape} is no table of records."
        )
    read = [_column(values[:, at], kind, name) for at, kind in enumerate(columns.values())]
    return [dict(zip(columns, entries, strict=True)) for entries in zip(*read, strict=True)]


def _column(values: np.ndarray, kind: str, name: str) -> list[Any]:
    numbers = values.tolist()
    if kind == _MAYBE:
        return [None if entry != entry else float(entry) for entry in numbers]
    if kind != "float" and not all(float(entry).is_integer() for entry in numbers):
        raise ModelFormatError(f"its array {name!r} has numbers where {kind} is said to be.")
    return list(map(_KINDS[kind], numbers))
