"""Rows of files of JSON lines, read in place: one object a line, with numbers or lists of numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from daskcluster.data.dataset import RowDataset
from daskcluster.data.row_files import places_of
from daskcluster.data.spec import RowsSpec
from daskcluster.data.tables import (
    RowColumns,
    TableValues,
    check_constants,
    choose_columns,
    dataset_of_tables,
    is_list,
    schema_with,
    with_path_columns,
)
from daskcluster.data.text_files import (
    TextFile,
    TextFormat,
    counted_files,
    first_lines,
    no_number,
)
from daskcluster.errors import InvalidDataError
from daskcluster.extras import import_pyarrow
from daskcluster.storage.files import StoredFile
from daskcluster.storage.location import Location

_CHANGED = re.compile(r"Column\(/([^)]*?)(?:/\[\])?\) changed from \w+ to \w+ in row (\d+)")
"""What pyarrow says of a value of another type; rows that are not blank count from 0."""


@dataclass(frozen=True)
class JsonFormat(TextFormat):
    """Columns of files of JSON lines: one object a line.

    Attributes
    ----------
    schema : pyarrow.Schema, optional
        The columns that are read; None where they are yet to be found.
    known : frozenset of str
        The names of all columns, where all are read; a new one in a later row is refused.
    """

    schema: Any = None
    known: frozenset[str] = frozenset()
    kind = "JSON lines"

    def checked(
        self, content: bytes, place: Location, file: TextFile, start: int
    ) -> tuple[Any, bool]:
        table = self.parsed(content, place, 0, self.schema.names, start)
        if self.known and _names_in(content, self.schema) - self.known:
            found = ((row, line.keys() - self.known) for row, line in enumerate(_objects(content)))
            row, new = next(each for each in found if each[1])
            raise InvalidDataError(
                f"Row {start + row} (from 0) of {place.url!r} has a value of {min(new)!r}, which the first "
                "rows do not have. Choose the features with columns=[...] (--columns)."
            )
        return table, False

    def parsed(
        self,
        content: bytes,
        place: Location,
        skipped: int,
        names: Sequence[str] = (),
        start: int = 0,
    ) -> Any:
        pa = import_pyarrow()
        schema = pa.schema([self.schema.field(name) for name in names])
        try:
            content.decode()
            return _parsed_json(content, schema, "ignore" if names else "infer")
        except UnicodeDecodeError as error:
            raise InvalidDataError(
                f"{place.url!r} is not text ({error}); write it in UTF-8, or with the ending of its "
                "compression."
            ) from error
        except pa.ArrowInvalid as error:
            found = _CHANGED.search(str(error))
            if found is not None and found[1]:
                name, row = found[1].partition("/")[0], int(found[2])
                if not names:
                    return self._mixed(content, place, name, row)
                value = json.dumps(next(islice(_objects(content), row, None), {}).get(name))
                if name == self.id_column:
                    raise InvalidDataError(
                        f"The id {value} in row {start + row} (from 0) of {place.url!r} is unlike others; "
                        "write all ids as texts, or all as integers."
                    ) from error
                raise no_number(place, start + row, name, value) from error
            raise InvalidDataError(
                f"{place.url!r} holds no JSON lines from row {start} (from 0) on ({error}); write one "
                'object a line, as frame.to_json(path, orient="records", lines=True) does in pandas.'
            ) from error

    def _mixed(self, content: bytes, place: Location, name: str, row: int) -> Any:
        """Return the first lines, of which a field has values of several types, as a table."""
        lines = [line for line in content.splitlines() if line.strip()]
        if 0 < row < len(lines):  # the rows before have the types of the other columns
            return self.parsed(b"\n".join(lines[:row]), place, 0)
        texts = [
            {**each, name: each.get(name) and json.dumps(each[name])} for each in _objects(content)
        ]
        return self.parsed("\n".join(map(json.dumps, texts)).encode(), place, 0)


def _parsed_json(content: bytes, schema: Any, others: str) -> Any:
    from pyarrow import json as arrow_json

    if not content.strip():
        return schema.empty_table()
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1)
    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
    return arrow_json.read_json(import_pyarrow().BufferReader(content), read, parse)


def _names_in(content: bytes, schema: Any) -> set[str]:
    """Return the names of all fields."""
    try:
        return set(_parsed_json(content, schema, "infer").column_names)
    except import_pyarrow().ArrowInvalid:  # values of several types in columns that are not read
        return {name for line in _objects(content) for name in line}


def _objects(content: bytes) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in content.splitlines() if line.strip())


def open_json_lines(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open files of JSON lines: numbers, lists of numbers, ids and weights, by the names of their fields.

    Raises
    ------
    InvalidDataError, InvalidParameterError, MissingExtraError

    Notes
    -----
    Cost: one pass over the files; see `open_csv_files`.
    """
    pa, places = import_pyarrow(), places_of(location, files)
    found = [TextFile(file.name, file.size, file.version) for file in files]
    layout = JsonFormat(RowColumns((), (), "<f8"))
    place, sample = first_lines(layout, places, found, "has no rows")
    opened = with_path_columns(location, found, spec, sample.column_names)
    schema = sample.schema
    for file in opened:
        schema = schema_with(schema, file)
    stored = set(sample.column_names)
    values = TableValues(lambda *names: [sample] if stored.issuperset(names) else [])
    chosen = choose_columns(schema, spec, repr(place.url), values)
    types = {
        name: _type_read(sample.schema.field(name).type) for name in chosen.read if name in stored
    }
    if chosen.id_column in stored:
        is_integer = pa.types.is_integer(sample.schema.field(chosen.id_column).type)
        types[chosen.id_column or ""] = pa.int64() if is_integer else pa.string()
    layout = replace(
        layout,
        columns=replace(chosen, dtype="<f8"),
        schema=pa.schema(list(types.items())),
        known=frozenset(() if spec.features or spec.expected else stored),
    )
    opened, _, filled = counted_files(location, opened, layout)
    for name in types.keys() & set[str]().union(*filled):
        for place, file, names in zip(places, opened, filled, strict=True):
            if file.n_rows and name not in names:
                raise InvalidDataError(
                    f"No row of {place.url!r} has a value of {name!r}, which other files have; files of "
                    "one dataset need the same fields: write it again, or leave it out."
                )
    check_constants(location, opened, [list(types)] * len(opened), layout)
    return dataset_of_tables(location, opened, layout)


def _type_read(kind: Any) -> Any:
    """Return the type that a column of numbers is read as."""
    pa = import_pyarrow()
    if is_list(kind):
        return pa.list_(pa.float64())
    return pa.bool_() if pa.types.is_boolean(kind) else pa.float64()
