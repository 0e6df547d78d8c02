"""Tables: rows from text files, read once from front to back in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from daskcluster.data.spec import AS_THEY_ARE, refuse_duplicates
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.storage.files import open_compressed, open_file
from daskcluster.storage.location import Location, explain

Block = tuple[Any, np.ndarray | None]
"""Rows, (m, d) or `SparseRows`, and their weights (m,), or None."""


@dataclass(frozen=True)
class Table:
    """Rows to be read once, front to back.

    Attributes
    ----------
    n_rows : int or None
        None where only reading tells.
    n_features : int
    dtype : dtype
        What holds every value of the source.
    weighted : bool
    blocks : callable () -> iterator of (rows, weights or None)
    n_entries : int or None
        Stored values of CSR rows; None for dense ones.
    attributes : mapping
        Of the group that rows and weights are written to.
    stored_at : tuple of Location
        The arrays and files that are read.
    """

    n_rows: int | None
    n_features: int
    dtype: np.dtype[Any]
    weighted: bool
    blocks: Callable[[], Iterator[Block]]
    n_entries: int | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    stored_at: tuple[Location, ...] = ()


def open_binary(location: Location) -> Any:
    """Open a file for reading bytes."""
    try:
        return open_file(location)
    except OSError as error:
        raise explain(error, location, "file") from error


_BLOCK_LINES = 1 << 14
_MISSING = ("", "na", "nan", "null", "none", "?")
_BOOLEANS = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}
"""As pyarrow reads them."""


@dataclass(frozen=True)
class TextForm:
    """Format of a text file, from its first lines."""

    delimiter: str | None  # None: blanks
    names: tuple[str, ...]  # empty without a header
    width: int

    @property
    def header_lines(self) -> int:
        return 1 if self.names else 0


def text_table(location: Location, weights: Any = None) -> Table:
    """Open a text file of numbers; missing values become NaN, booleans 0 and 1.

    Parameters
    ----------
    location : Location
        Also compressed, by suffix.
    weights : str or int, optional
        Column of the row weights, by name in the header or by number from 0.

    Raises
    ------
    InvalidDataError
        Empty, columns of one name, or (while reading) a field that is no number or a line of another
        length, by line.
    """
    form = text_form(location)
    refuse_duplicates(form.names, AS_THEY_ARE, repr(location.url))
    at = None if weights is None else _column_number(weights, form, location)
    width = form.width - (at is not None)
    if width == 0:
        raise InvalidDataError(
            f"{location.url!r} has no column other than the weights; add features."
        )
    return Table(
        None, width, np.dtype(np.float64), at is not None, lambda: _blocks(location, form, at)
    )


def text_form(location: Location) -> TextForm:
    """Return the format of a text file, from its first lines.

    Raises
    ------
    InvalidDataError
        The file is empty, or no text.
    """
    with _open_text(location) as lines:
        return _form_of(lines, location)


def _open_text(location: Location) -> Any:
    try:
        return open_compressed(location, text=True)
    except (OSError, ImportError, ValueError) as error:
        raise explain(error, location, "file") from error


def _form_of(lines: Any, location: Location) -> TextForm:
    try:
        first, second = [*islice((line for line in lines if line.strip()), 2), "", ""][:2]
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{location.url!r} is not text ({error}); is it csv?") from error
    if not first:
        raise InvalidDataError(
            f"Found array with 0 sample(s) while a minimum of 1 is required: {location.url!r} is empty."
        )
    delimiter = next((mark for mark in (",", ";", "\t") if mark in first), None)
    fields = _fields(first, delimiter)
    holds_values = _holds_values(fields, _fields(second, delimiter))
    names = () if holds_values else tuple(field.strip("\"'") for field in fields)
    return TextForm(delimiter, names, len(fields))


def _fields(line: str, delimiter: str | None) -> list[str]:
    return [field.strip() for field in line.strip("\r\n").split(delimiter)]


def _holds_values(fields: list[str], below: list[str]) -> bool:
    """Return True if the first line of a file holds values, False if it holds names.

    A number is a value. The name of a column may be "true", so a boolean is a value if the next line is of
    the same kinds.
    """
    if any(map(_is_number, fields)):
        return True
    kinds = list(map(_kind, fields))
    if "boolean" not in kinds:
        return False
    others = list(map(_kind, below)) if any(below) else ["boolean"] * len(kinds)
    return all(a == b or "missing" in (a, b) for a, b in zip(kinds, others, strict=False))


def _kind(field: str) -> str:
    text = field.strip("\"'")
    if text.lower() in _MISSING:
        return "missing"
    return "boolean" if text in _BOOLEANS else "number" if _is_number(text) else "text"


def _is_number(field: str) -> bool:
    try:
        float(field.strip("\"'"))
    except ValueError:
        return False
    return True


def _column_number(weights: Any, form: TextForm, location: Location) -> int:
    if isinstance(weights, str) and weights in form.names:
        return form.names.index(weights)
    try:
        number = int(weights)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number < form.width:
        columns = ", ".join(form.names) if form.names else f"0 to {form.width - 1}"
        raise InvalidParameterError(
            f"There is no column {weights!r} in {location.url!r} for the weights; columns: {columns}."
        )
    return number


def _blocks(location: Location, form: TextForm, at: int | None) -> Iterator[Block]:
    done = 0
    with _open_text(location) as stream:
        lines = (line for line in stream if line.strip())
        for _ in range(form.header_lines):
            next(lines, None)
        while block := list(islice(lines, _BLOCK_LINES)):
            rows = _parse(block, form, location, done)
            done += len(block)
            if at is None:
                yield rows, None
            else:
                yield np.delete(rows, at, axis=1), rows[:, at].copy()
    if not done:
        raise InvalidDataError(
            f"Found array with 0 sample(s) while a minimum of 1 is required: {location.url!r} has a header "
            "and no rows."
        )


def _parse(lines: list[str], form: TextForm, location: Location, done: int) -> np.ndarray:
    try:
        rows = np.loadtxt(lines, delimiter=form.delimiter, ndmin=2, comments=None, quotechar='"')
    except ValueError:
        # Slow, but knows missing values and can name the line.
        rows = _parse_slowly(lines, form, location, done)
    if rows.shape[1] != form.width:
        raise _uneven(location, done + form.header_lines + 1, rows.shape[1], form.width)
    return rows


def _parse_slowly(lines: list[str], form: TextForm, location: Location, done: int) -> np.ndarray:
    rows = np.empty((len(lines), form.width))
    for i, line in enumerate(lines):
        number = done + form.header_lines + i + 1
        fields = _fields(line, form.delimiter)
        if len(fields) != form.width:
            raise _uneven(location, number, len(fields), form.width)
        for j, text in enumerate(fields):
            text = text.strip("\"'")
            if text.lower() in _MISSING:
                rows[i, j] = np.nan
            elif text in _BOOLEANS or _is_number(text):
                rows[i, j] = _BOOLEANS[text] if text in _BOOLEANS else float(text)
            else:
                raise InvalidDataError(
                    f"{location.url!r}: {text!r} in line {number}, column {j} is no number; drop "
                    "or encode columns of text first."
                )
    return rows


def _uneven(location: Location, number: int, found: int, expected: int) -> InvalidDataError:
    return InvalidDataError(
        f"{location.url!r}: line {number} (blank lines not counted) has {found} fields where the first has "
        f"{expected}; every row needs the same number."
    )
