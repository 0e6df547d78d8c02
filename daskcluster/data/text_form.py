"""Text files: how their columns are separated and named, and which texts are numbers."""

from __future__ import annotations

import csv
import gzip
import zlib
from dataclasses import dataclass, field
from itertools import dropwhile, islice, pairwise
from typing import Any

from daskcluster.errors import InvalidDataError
from daskcluster.storage.files import open_compressed
from daskcluster.storage.location import Location, explain

MISSING = frozenset(
    "|?|#N/A|#N/A N/A|#NA|<NA>|N/A|n/a|NA|na|NaN|nan|NAN|-NaN|-nan|NULL|Null|null|NONE|None|none|1.#IND|"
    "1.#QNAN|-1.#IND|-1.#QNAN".split("|")
)
"""Texts that mean that a value is missing: those of pandas, and a few more."""
_BOOLEANS = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}
"""As pyarrow reads them."""
_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class TextForm:
    """Format of a text file, from its first lines."""

    delimiter: str | None  # None: blanks
    names: tuple[str, ...]  # empty without a header
    width: int
    skipped: int = field(default=0, compare=False)  # lines before the first row

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns, also without a header."""
        return self.names or tuple(f"f{i}" for i in range(self.width))


def text_form(location: Location) -> TextForm:
    """Return the format of a text file, from its first lines.

    Raises
    ------
    InvalidDataError
        The file is empty, or no text.
    """
    try:
        with _open_text(location) as lines:
            numbered = ((i, line) for i, line in enumerate(lines) if line.strip())
            kept = dropwhile(lambda each: each[1].startswith("#"), numbered)
            (at, first), (_, second) = [*islice(kept, 2), (0, ""), (0, "")][:2]
    except (UnicodeDecodeError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InvalidDataError(
            f"{location.url!r} is not text ({error}); write it in UTF-8, and compress it with gzip if its "
            "name ends in .gz."
        ) from error
    if not first:
        raise without_rows(location, "is empty")
    delimiter = _delimiter(first, second)
    fields = _fields(first, delimiter)
    if _holds_values(fields, _fields(second, delimiter)):
        return TextForm(delimiter, (), len(fields), at)
    return TextForm(delimiter, tuple(map(_plain, fields)), len(fields), at + 1)


def _open_text(location: Location) -> Any:
    try:
        return open_compressed(location, text=True)
    except (OSError, ImportError, ValueError) as error:
        raise explain(error, location, "file") from error


def without_rows(location: Location, what: str = "has a header and no rows") -> InvalidDataError:
    """Return the error for a file without rows."""
    return InvalidDataError(
        f"Found array with 0 sample(s) while a minimum of 1 is required: {location.url!r} {what}."
    )


def _delimiter(first: str, second: str) -> str | None:
    """Return the delimiter of two lines: a mark that gives both the same number of fields, if there is one.

    A mark between numbers is preferred, since decimals may have commas. None stands for blanks.
    """
    marks = [mark for mark in _DELIMITERS if mark in first]
    agreeing = [m for m in marks if len(_fields(first, m)) == len(_fields(second, m)) > 1]
    numeric = (m for m in agreeing if all(map(is_nearly_number, _fields(first, m))))
    others = [*agreeing, *(mark for mark in marks if mark != "|")]
    others += [","] * (len(first.split()) == 1)
    return next(numeric, others[0] if others else None)


def _fields(line: str, delimiter: str | None) -> list[str]:
    line = line.strip("\r\n")
    if delimiter is None:
        return line.split()
    found = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    return [text.strip() for text in found]


def _holds_values(fields: list[str], below: list[str]) -> bool:
    """Return True if the first line of a file holds values, False if it holds names.

    A number is a value, except in names such as 0, 1, 2, which pandas writes, or 2023, 2024: integers that
    count on above decimals. The name of a column may be "true", so a boolean is a value if the next line is
    of the same kinds.
    """
    kinds = list(map(_kind, fields))
    above = [at for at, kind in enumerate(kinds[: len(below)]) if kind == "number"]
    numbers = [_plain(fields[at]) for at in above]
    if (
        len(above) > 1
        and all(map(str.isdecimal, numbers))
        and all("." in below[at] for at in above)
    ):
        return not all(int(b) - int(a) == 1 for a, b in pairwise(numbers))
    if "number" in kinds or "boolean" not in kinds:
        return "number" in kinds
    others = list(map(_kind, below)) if any(below) else ["boolean"] * len(kinds)
    return all(a == b or "missing" in (a, b) for a, b in zip(kinds, others, strict=False))


def _kind(text: str) -> str:
    text = _plain(text)
    if text in MISSING:
        return "missing"
    return "boolean" if text in _BOOLEANS else "text" if number_of(text) is None else "number"


def _plain(text: str) -> str:
    return text.strip().strip("\"'")


def number_of(text: str | None) -> float | None:
    """Return the number that a text stands for: NaN for what is missing, 0 and 1 for booleans; else None.

    Examples
    --------
    >>> [number_of(text) for text in ("1.5e3", "true", "N/A", "1,5", "-")]
    [1500.0, 1.0, nan, None, None]
    """
    text = _plain(text or "")
    if text in MISSING or text in _BOOLEANS:
        return _BOOLEANS.get(text, float("nan"))
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def is_nearly_number(text: str) -> bool:
    """Return True for a number, also with a decimal comma or with commas between thousands."""
    return number_of(text.replace(",", "")) is not None


def no_number(url: str, row: int, column: str, text: str) -> InvalidDataError:
    """Return the error for a text in a column of numbers; rows count from 0."""
    remedy = "Correct the value"
    if "," in text and is_nearly_number(text):
        remedy = "Write decimals with a point, and thousands without commas"
    return InvalidDataError(
        f"Column {column!r} of {url!r} has {text!r} in row {row} (from 0), which is no number. {remedy}, "
        f"leave it empty if it is missing, or leave the column out with drop={column!r} (--drop {column})."
    )


def uneven(url: str, row: int, found: int, expected: int) -> InvalidDataError:
    """Return the error for a row with another number of fields; rows count from 0."""
    return InvalidDataError(
        f"Row {row} (from 0) of {url!r} has {found} fields, where the first line has {expected}; every row "
        "needs the same number. Correct the row; a comment may only stand before the first line."
    )
