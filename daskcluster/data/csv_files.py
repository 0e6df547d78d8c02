"""Rows of .csv and .tsv files, read in place: blocks of lines are parsed by pyarrow, float64.

Booleans are 0 and 1.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.data.arrow import TableFormat, only_increases
from daskcluster.data.arrow_columns import RowColumns, choose_columns, import_pyarrow, warn_of_ids
from daskcluster.data.dataset import RowDataset
from daskcluster.data.listing import map_files
from daskcluster.data.row_files import (
    RowFile,
    dataset_of,
    places_of,
    read_part,
    read_stream,
    with_column_weights,
)
from daskcluster.data.spec import RowsSpec
from daskcluster.data.text_form import (
    MISSING,
    TextForm,
    is_nearly_number,
    no_number,
    number_of,
    text_form,
    uneven,
    without_rows,
)
from daskcluster.errors import InvalidDataError
from daskcluster.storage.files import StoredFile, open_compressed, read_range
from daskcluster.storage.location import Location

PLAIN = (".csv", ".tsv", ".txt")
"""Endings of files that are not compressed."""
_BLOCK_BYTES = 4 << 20
_SAMPLE_BYTES = 1 << 20
_INTEGER = "^(0|-?[1-9][0-9]{0,17})$"
_UNEVEN = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
"""What pyarrow says of a line with another number of fields; lines count from 1."""
_UNCONVERTED = re.compile(r"CSV column #(\d+): .*conversion error", re.S)
_NULLS = [text for text in MISSING if not text.startswith(("-", "1"))]
"""The other texts would slow down the parsing of numbers. They are found when a column is read as text."""


@dataclass(frozen=True)
class CsvFile(RowFile):
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


@dataclass(frozen=True)
class CsvFormat(TableFormat):
    """The columns of text files that hold the rows; see `RowFormat`.

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

    def cuts(self, file: RowFile) -> np.ndarray:
        return np.unique(np.append(0, np.cumsum(file.blocks)))

    def reads_in_order(self, file: RowFile) -> bool:
        return _is_compressed(file)

    def read(self, place: Location, file: CsvFile, first: int, last: int) -> np.ndarray:
        """Return rows of a file, shape (last - first, d)."""
        if _is_compressed(file):
            return read_stream(self, place, file, first, last)
        return super().read(place, file, first, last)

    def tables(
        self, place: Location, file: CsvFile, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[int, Any]]:
        start, contents = 0, None if file.offsets else _blocks(place)
        for block, n_rows in enumerate(file.blocks):
            content = None if contents is None else next(contents, b"")
            if start < last and first < start + n_rows:
                if content is None:
                    content = read_range(place, *file.offsets[block : block + 2])
                table = self.parsed(content, place, 0 if block else file.skipped, names, start)
                if table.num_rows != n_rows:
                    raise InvalidDataError(
                        f"The file {place.url!r} was replaced since the dataset was opened; open it again "
                        "and restart."
                    )
                yield start, table
            start += n_rows
            if start >= last:
                return

    def sample(self, place: Location, file: CsvFile, first: int, last: int) -> Any:
        """Return the first lines of a file as a table of the types that they seem to have."""
        with open_compressed(place) as stream:
            content = stream.read(_SAMPLE_BYTES)
        end = _end_of_lines(content) if len(content) == _SAMPLE_BYTES else len(content)
        return self.parsed(content[: end or len(content)], place, file.skipped)

    def counted(
        self, place: Location, file: CsvFile, first: int, last: int
    ) -> tuple[CsvFile, bool]:
        """Return a file with its blocks and their rows, and whether all ids in it are integers."""
        from pyarrow import compute

        rows: list[int] = []
        offsets, integers = [0], self.id_column is not None
        name = self.id_column or self.columns.read[0]
        for content in _blocks(place):
            skipped = 0 if rows else file.skipped
            if content.count(b'"') % 2 and self._ends_in_quotes(content):
                raise InvalidDataError(
                    f"A quote in {place.url!r}, in row {sum(rows)} (from 0) or a later one, is not closed; "
                    "close it, or write two for one that is part of a text."
                )
            table = self.parsed(content, place, skipped, (name,), sum(rows))
            rows.append(table.num_rows)
            offsets.append(offsets[-1] + len(content))
            if integers:
                fit = compute.match_substring_regex(table.column(name), _INTEGER)
                integers = False not in fit.unique().to_pylist()
        is_plain = place.url.lower().endswith(PLAIN)
        cut = tuple(offsets) if is_plain else ()
        return replace(file, blocks=tuple(rows), offsets=cut), integers

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
                    raise uneven(place.url, start + line - 1 - skipped, found, expected) from error
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
        raise no_number(place.url, start + row, name, texts[row])
    return import_pyarrow().array(numbers, from_pandas=True)


def _is_compressed(file: Any) -> bool:
    return not file.offsets


def _blocks(place: Location) -> Iterator[bytes]:
    """Yield whole lines of a file, about 4 MB at a time."""
    with open_compressed(place) as stream:
        content = b""
        while more := stream.read(_BLOCK_BYTES):
            content += more
            if end := _end_of_lines(content):
                yield content[:end]
                content = content[end:]
        if content:
            yield content


def _end_of_lines(content: bytes) -> int:
    """Return where the last whole line ends; a line break within quotes does not end a line."""
    if b'"' not in content:
        return content.rfind(b"\n") + 1
    values = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(values == ord("\n")) + 1
    quotes = np.flatnonzero(values == ord('"'))
    outside = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return int(max(outside[-1:] if len(outside) else ends[-1:], default=0))


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
    layout = CsvFormat(RowColumns((), (), "<f8"), form)
    opened = [
        CsvFile(file.name, file.size, file.version, skipped=form.skipped)
        for file, form in zip(files, forms, strict=True)
    ]
    samples = (
        (place, read_part(layout.sample, place, file, 0, 0))
        for place, file in zip(places, opened, strict=True)
    )
    place, sample = next((each for each in samples if each[1].num_rows), (places[0], None))
    if sample is None:
        raise without_rows(place)
    pa = import_pyarrow()
    schema = sample.schema
    for i, field in enumerate(schema):
        if pa.types.is_string(field.type) and _holds_numbers(sample.column(i)):
            schema = schema.set(i, pa.field(field.name, pa.float64()))
    chosen = choose_columns(schema, spec, repr(place.url), lambda name: (), lambda names: False)
    if spec.features is None and not spec.expected:
        warn_of_ids(chosen, lambda name: only_increases(sample.column(name)))
    for name in chosen.read:
        if pa.types.is_string(sample.schema.field(name).type):
            _numbers_of(sample.column(name), name, place, 0)
    types = tuple(
        "string" if name not in chosen.read else "bool" if pa.types.is_boolean(kind) else "double"
        for name, kind in zip(form.columns, schema.types, strict=True)
    )
    layout = replace(layout, columns=replace(chosen, dtype="<f8"), types=types)
    counted = map_files(
        lambda at: read_part(layout.counted, places[at], opened[at], 0, 0), range(len(files))
    )
    if all(integers for _, integers in counted):
        at = form.columns.index(chosen.id_column)
        layout = replace(layout, types=(*types[:at], "int64", *types[at + 1 :]))
    dataset = dataset_of(location, [file for file, _ in counted], layout)
    if chosen.weights is not None:
        return with_column_weights(dataset, chosen.weights)
    return dataset


def _holds_numbers(column: Any) -> bool:
    """Return True if at least half of the first texts of a column are numbers, or nearly so."""
    texts = column.drop_null().slice(0, 1000).to_pylist()
    return 2 * sum(map(is_nearly_number, texts)) >= len(texts)


def _shown(form: TextForm) -> str:
    names = ", ".join(form.names) if form.names else f"0 to {form.width - 1}, without names"
    return f"{names} (separated by {'blanks' if form.delimiter is None else repr(form.delimiter)})"
