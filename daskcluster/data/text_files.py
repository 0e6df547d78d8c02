"""Rows of text files, read in place: blocks of lines are parsed by pyarrow, float64.

Booleans are 0 and 1.
"""

from __future__ import annotations

import csv
import re
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice, pairwise
from typing import Any

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.data.row_files import (
    RowFile,
    explained,
    map_files,
    places_of,
    read_part,
    replaced,
)
from daskcluster.data.spec import RowsSpec
from daskcluster.data.tables import (
    RowColumns,
    TableFormat,
    TableValues,
    check_constants,
    choose_columns,
    dataset_of_tables,
    schema_with,
    with_path_columns,
)
from daskcluster.errors import InvalidDataError
from daskcluster.extras import import_pyarrow
from daskcluster.storage.files import StoredFile, open_compressed, read_range
from daskcluster.storage.location import Location

PLAIN = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson")
"""Endings of files that are not compressed."""
_BLOCK_BYTES = 4 << 20
_SAMPLE_BYTES = 1 << 19
_INTEGER = "^(0|-?[1-9][0-9]{0,17})$"
_UNEVEN = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
"""What pyarrow says of a line with another number of fields; lines count from 1."""
_UNCONVERTED = re.compile(r"CSV column #(\d+): .*conversion error", re.S)


@dataclass(frozen=True)
class TextFile(RowFile):
    """A text file, cut into blocks of whole lines.

    Attributes
    ----------
    offsets : tuple of int
        Bytes at which blocks begin, and the end; empty for a compressed file, which is read from its start.
    skipped : int
        Lines before the first row.
    """

    offsets: tuple[int, ...] = ()
    skipped: int = 0

    @property
    def in_order(self) -> bool:
        return not self.offsets


@dataclass(frozen=True)
class TextFormat(TableFormat):
    """The columns of text files that hold the rows; see `FilesRecipe`."""

    @abstractmethod
    def parsed(
        self,
        content: bytes,
        place: Location,
        skipped: int,
        names: Sequence[str] = (),
        start: int = 0,
    ) -> Any:
        """Return columns of lines as a table; without `names`, all.

        Parameters
        ----------
        content : bytes
        place : Location
            The file, for errors.
        skipped : int
            Lines before the first row.
        names : sequence of str
        start : int
            The number of the first row in the file.

        Raises
        ------
        InvalidDataError
            A text where a number is needed, or a row of another length.
        """

    @abstractmethod
    def checked(
        self, content: bytes, place: Location, file: TextFile, start: int
    ) -> tuple[Any, bool]:
        """Return some columns of lines that are read for the first time, and if all ids are integers."""

    def end_of_lines(self, content: bytes) -> int:
        """Return where the last whole line ends."""
        return content.rfind(b"\n") + 1

    def blocks(self, place: Location, n_bytes: int | None = None) -> Iterator[bytes]:
        """Yield whole lines of a file, about `n_bytes` at a time, or 4 MB."""
        with open_compressed(place) as stream:
            content = b""
            while more := stream.read(n_bytes or _BLOCK_BYTES):
                content += more
                if end := self.end_of_lines(content):
                    yield content[:end]
                    content = content[end:]
            if content:
                yield content

    def tables(
        self, place: Location, file: TextFile, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[int, Any]]:
        start, contents = 0, self.blocks(place) if file.in_order else None
        for block, n_rows in enumerate(file.blocks):
            content = None if contents is None else next(contents, b"")
            if start < last and first < start + n_rows:
                if content is None:
                    content = read_range(place, *file.offsets[block : block + 2])
                table = self.parsed(content, place, 0 if block else file.skipped, names, start)
                if table.num_rows != n_rows:
                    raise replaced(place)
                yield start, table
            start += n_rows
            if start >= last:
                return

    def sample(self, place: Location, file: TextFile, first: int, last: int) -> Any:
        """Return the first lines of a file as a table of the types that they seem to have."""
        content = b"".join(islice(self.blocks(place, _SAMPLE_BYTES), 2))
        return self.parsed(content, place, file.skipped)

    def counted(
        self, place: Location, file: TextFile, first: int, last: int
    ) -> tuple[TextFile, bool, set[str]]:
        """Return a file with its blocks, if all its ids are integers, and which columns have values."""
        rows: list[int] = []
        offsets, integers, filled = [0], True, set[str]()
        for content in self.blocks(place):
            below = replace(file, skipped=0) if rows else file  # a block may be a header alone
            table, are_integers = self.checked(content, place, below, sum(rows))
            rows.append(table.num_rows)
            integers &= are_integers
            columns = zip(table.column_names, table.columns, strict=True)
            filled |= {name for name, column in columns if column.null_count < table.num_rows}
            offsets.append(offsets[-1] + len(content))
        is_plain = place.url.lower().endswith(PLAIN)
        cut = tuple(offsets) if is_plain else ()
        return replace(file, blocks=tuple(rows), offsets=cut), integers, filled


def first_lines(
    layout: TextFormat, places: Sequence[Location], files: Sequence[TextFile], without: str
) -> tuple[Location, Any]:
    """Return the first file that has rows, and its first lines as a table.

    Parameters
    ----------
    layout : TextFormat
    places : sequence of Location
    files : sequence of TextFile
    without : str
        What an error says of the first file if none has rows.
    """
    for place, file in zip(places, files, strict=True):
        sample = read_part(layout.sample, place, file, 0, 0)
        if sample.num_rows:
            return place, sample
    raise without_rows(places[0], without)


def counted_files(
    location: Location, files: Sequence[TextFile], layout: TextFormat
) -> tuple[list[TextFile], bool, list[set[str]]]:
    """Return files with their blocks, if all ids are integers, and which columns have values in each."""
    places = places_of(location, files)
    counted = map_files(
        lambda at: read_part(layout.counted, places[at], files[at], 0, 0), range(len(files))
    )
    found = [file for file, *_ in counted]
    return found, all(each for _, each, _ in counted), [filled for *_, filled in counted]


# -- csv and tsv -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CsvFormat(TextFormat):
    """The columns of csv files that hold the rows; see `FilesRecipe`.

    Attributes
    ----------
    form : TextForm
    types : tuple of str
        Arrow types of all columns; empty where they are yet to be found.
    """

    form: TextForm
    types: tuple[str, ...] = ()
    kind = "csv"

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.columns.feature_names if self.form.names else None

    def end_of_lines(self, content: bytes) -> int:
        """Return where the last whole line ends; a line break within quotes does not end a line."""
        if b'"' not in content:
            return super().end_of_lines(content)
        values = np.frombuffer(content, np.uint8)
        ends = np.flatnonzero(values == ord("\n")) + 1
        quotes = np.flatnonzero(values == ord('"'))
        outside = ends[np.searchsorted(quotes, ends) % 2 == 0]
        return int(max(outside[-1:] if len(outside) else ends[-1:], default=0))

    def checked(
        self, content: bytes, place: Location, file: TextFile, start: int
    ) -> tuple[Any, bool]:
        from pyarrow import compute

        if content.count(b'"') % 2 and self._ends_in_quotes(content):
            raise InvalidDataError(
                f"A quote in {place.url!r}, in row {start} (from 0) or a later one, is not closed; "
                "close it, or write two for one that is part of a text."
            )
        fixed = {each.name for each in file.constants}
        names = (self.id_column, *self.columns.read, self.form.columns[0])
        name = next(each for each in names if each is not None and each not in fixed)
        table = self.parsed(content, place, file.skipped, (name,), start)
        if name != self.id_column:
            return table, False
        fit = compute.match_substring_regex(table.column(name), _INTEGER)
        return table, False not in fit.unique().to_pylist()

    def _ends_in_quotes(self, content: bytes) -> bool:
        lines = content.decode(errors="replace").splitlines(keepends=True)
        try:
            deque(csv.reader(lines, delimiter=self.form.delimiter or " ", strict=True), 0)
        except csv.Error as error:
            return "end of data" in str(error)
        return False

    def parsed(
        self,
        content: bytes,
        place: Location,
        skipped: int,
        names: Sequence[str] = (),
        start: int = 0,
    ) -> Any:
        pa = import_pyarrow()
        types = dict(zip(self.form.columns, map(pa.type_for_alias, self.types), strict=False))
        texts: list[str] = []  # slow to read, but with booleans among numbers, and rows to name
        while True:
            try:
                table = self._parsed(content, skipped, names, types)
                break
            except pa.ArrowInvalid as error:
                uneven_row, unconverted = (
                    each.search(str(error)) for each in (_UNEVEN, _UNCONVERTED)
                )
                if uneven_row is not None:
                    line, expected, found = map(int, uneven_row.groups())
                    raise InvalidDataError(
                        f"Row {start + line - 1 - skipped} (from 0) of {place.url!r} has {found} fields, "
                        f"where the first line has {expected}; every row needs the same number. Correct "
                        "the row; a comment may only stand before the first line."
                    ) from error
                if "Empty CSV file" in str(error):  # blank lines alone
                    return pa.schema([(name, types[name]) for name in names]).empty_table()
                if unconverted is None or self.form.columns[int(unconverted[1])] in texts:
                    raise
                texts.append(self.form.columns[int(unconverted[1])])
                types[texts[-1]] = pa.string()
        for name in texts:
            column = _numbers_of(table.column(name), name, place, start)
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    def _parsed(
        self, content: bytes, skipped: int, names: Sequence[str], types: Mapping[str, Any]
    ) -> Any:
        from pyarrow import csv as arrow_csv

        content = content if content.endswith(b"\n") else content + b"\n"
        if self.form.delimiter is None:  # blanks, any number of them
            lines = content.splitlines()
            content = b"\n".join([*(b" ".join(line.split()) for line in lines), b""])
        read = arrow_csv.ReadOptions(
            column_names=self.form.columns, skip_rows=skipped, use_threads=False
        )
        parse = arrow_csv.ParseOptions(
            delimiter=self.form.delimiter or " ", newlines_in_values=b'"' in content
        )
        convert = arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=names or None,
            null_values=_NULLS,
            strings_can_be_null=True,
        )
        return arrow_csv.read_csv(import_pyarrow().BufferReader(content), read, parse, convert)


def _numbers_of(column: Any, name: str, place: Location, start: int) -> Any:
    """Return a column of texts as one of numbers; refuse the first text that is none."""
    texts = column.to_pylist()
    numbers = list(map(number_of, texts))
    if None in numbers:
        row = numbers.index(None)
        raise no_number(place, start + row, name, texts[row])
    return import_pyarrow().array(numbers, from_pandas=True)


def no_number(place: Location, row: int, column: str, text: str) -> InvalidDataError:
    """Return the error for a text in a column of numbers; rows count from 0."""
    remedy = "Correct the value"
    if "," in text and is_nearly_number(text):
        remedy = "Write decimals with a point, and thousands without commas"
    return InvalidDataError(
        f"Column {column!r} of {place.url!r} has {text!r} in row {row} (from 0), which is no number. "
        f"{remedy}, leave it empty if it is missing, or leave the column out with drop={column!r} "
        f"(--drop {column})."
    )


def open_csv_files(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open text files of numbers, ids and weights; all must have the same columns.

    Raises
    ------
    InvalidDataError, InvalidParameterError, MissingExtraError

    Notes
    -----
    Cost: one pass over the files, to count their rows. Every pass of a fit parses the text again; one
    thread reads a compressed file, from its start.
    """
    import_pyarrow()
    places = places_of(location, files)
    forms = map_files(text_form, places)
    form = forms[0]
    for place, other in zip(places, forms, strict=True):
        if other != form:
            raise InvalidDataError(
                f"{place.url!r} has the columns {_shown(other)}, where {places[0].url!r} has "
                f"{_shown(form)}; files of one dataset need the same columns in the same order: write it "
                "again, or leave it out."
            )
    if (spec.weights or "").isdecimal():  # the number of a column
        columns = dict(enumerate(form.columns))
        spec = replace(spec, weights=columns.get(int(spec.weights or 0), spec.weights))
    spec = _with_index_as_id(spec, form)
    layout = CsvFormat(RowColumns((), (), "<f8"), form)
    opened = [
        TextFile(file.name, file.size, file.version, skipped=form.skipped)
        for file, form in zip(files, forms, strict=True)
    ]
    place, sample = first_lines(layout, places, opened, "has a header and no rows")
    pa = import_pyarrow()
    opened = with_path_columns(location, opened, spec, form.columns)
    schema = sample.schema
    for i, name in enumerate(schema.names):
        if pa.types.is_string(schema.field(i).type) and _holds_numbers(sample.column(i)):
            schema = schema.set(i, pa.field(name, pa.float64()))
    for file in opened:
        schema = schema_with(schema, file)
    values = TableValues(lambda *names: [sample] if set(names) <= set(form.columns) else [])
    chosen = choose_columns(schema, spec, repr(place.url), values)
    for name in set(chosen.read).intersection(form.columns):
        if pa.types.is_string(sample.schema.field(name).type):
            _numbers_of(sample.column(name), name, place, 0)
    types = tuple(
        "string" if name not in chosen.read else "bool" if pa.types.is_boolean(kind) else "double"
        for name, kind in zip(form.columns, schema.types, strict=False)
    )
    layout = replace(layout, columns=replace(chosen, dtype="<f8"), types=types)
    opened, are_integers, _ = counted_files(location, opened, layout)
    if are_integers:
        at = form.columns.index(chosen.id_column or "")
        layout = replace(layout, types=(*types[:at], "int64", *types[at + 1 :]))
    check_constants(location, opened, [form.columns] * len(opened), layout)
    return dataset_of_tables(location, opened, layout)


def _with_index_as_id(spec: RowsSpec, form: TextForm) -> RowsSpec:
    """Return a spec in which the index of a frame, as pandas writes it, is the id, or no feature."""
    asked = (*(spec.features or ()), *spec.expected, *spec.drop, spec.weights, spec.id_column)
    if not form.names or form.columns[0] or "" in asked:
        return spec
    if spec.id_column is None:
        return replace(spec, id_column="")
    return spec if spec.features is not None else replace(spec, drop=(*spec.drop, ""))


def _holds_numbers(column: Any) -> bool:
    """Return True if at least half of the first texts of a column are numbers, or nearly so."""
    texts = column.drop_null().slice(0, 1000).to_pylist()
    return 2 * sum(map(is_nearly_number, texts)) >= len(texts)


def _shown(form: TextForm) -> str:
    names = ", ".join(form.names) if form.names else f"0 to {form.width - 1}, without names"
    return f"{names} (separated by {'blanks' if form.delimiter is None else repr(form.delimiter)})"


MISSING = frozenset(
    "|?|#N/A|#N/A N/A|#NA|<NA>|N/A|n/a|NA|na|NaN|nan|NAN|-NaN|-nan|NULL|Null|null|NONE|None|none|1.#IND|"
    "1.#QNAN|-1.#IND|-1.#QNAN".split("|")
)
"""Texts that mean that a value is missing: those of pandas, and a few more."""
_NULLS = [text for text in MISSING if not text.startswith(("-", "1"))]
"""The other texts would slow down the parsing of numbers. They are found when a column is read as text."""
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
    with explained(location, "UTF-8 text"), open_compressed(location, text=True) as lines:
        numbered = ((i, line) for i, line in enumerate(lines) if line.strip())
        kept = dropwhile(lambda each: each[1].startswith("#"), numbered)
        (at, first), (_, second) = [*islice(kept, 2), (0, ""), (0, "")][:2]
    if not first:
        raise without_rows(location, "is empty")
    delimiter = _delimiter(first, second)
    fields = _fields(first, delimiter)
    if _holds_values(fields, _fields(second, delimiter)):
        return TextForm(delimiter, (), len(fields), at)
    return TextForm(delimiter, tuple(map(_plain, fields)), len(fields), at + 1)


def without_rows(location: Location, what: str) -> InvalidDataError:
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
