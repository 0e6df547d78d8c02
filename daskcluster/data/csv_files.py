"""Rows of .csv and .tsv files, read in place: blocks of lines are parsed by pyarrow, float64.

Booleans are 0 and 1.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.data.arrow import has_nulls, numbers_of_column, only_increases, rows_of_table
from daskcluster.data.arrow_columns import RowColumns, choose_columns, import_pyarrow, warn_of_ids
from daskcluster.data.dataset import RowDataset
from daskcluster.data.listing import map_files
from daskcluster.data.row_files import RowFile, dataset_of, read_part, with_column_weights
from daskcluster.data.spec import RowsSpec
from daskcluster.data.table import TextForm, text_form
from daskcluster.errors import InvalidDataError
from daskcluster.storage.files import StoredFile, open_compressed, read_range
from daskcluster.storage.location import Location

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_BLOCK_BYTES = 4 << 20
_UNCONVERTED = re.compile(r"CSV column #(\d+): .*conversion error to \w+: invalid value (.*)", re.S)
"""What pyarrow says of a value that is not of the type of its column."""
_NULLS = ["", "na", "NA", "nan", "NaN", "null", "NULL", "None", "?"]


@dataclass(frozen=True)
class CsvFile(RowFile):
    """A text file, cut into blocks of whole lines.

    Attributes
    ----------
    offsets : tuple of int
        Bytes at which blocks begin, and the end; empty for a compressed file, which is one block.
    """

    offsets: tuple[int, ...] = ()


@dataclass(frozen=True)
class CsvFormat:
    """The columns of text files that hold the rows; see `RowFormat`.

    Attributes
    ----------
    columns : RowColumns
    names : tuple of str
        Of all columns, in the order of the files.
    texts, booleans : tuple of str
        Columns that are read as text, and as booleans; the others are numbers.
    delimiter : str
    has_header : bool
    """

    columns: RowColumns
    names: tuple[str, ...]
    texts: tuple[str, ...]
    delimiter: str
    has_header: bool
    booleans: tuple[str, ...] = ()
    kind = "csv"
    reader_bytes = 80 << 20  # pyarrow, as for Parquet

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
        return self.columns.feature_names if self.has_header else None

    def cuts(self, file: RowFile) -> np.ndarray:
        return np.unique(np.append(0, np.cumsum(file.blocks)))

    def reads_in_order(self, file: RowFile) -> bool:
        return False

    def read(self, place: Location, file: CsvFile, first: int, last: int) -> np.ndarray:
        """Return rows of a file, shape (last - first, d), float64."""
        blocks = []
        for table, start, low, high in self._parts(place, file, first, last, self.columns.read):

            def where(row: int, start: int = start) -> str:
                return f"row {start + row} of {place.url!r}"

            blocks.append(rows_of_table(table, self.columns, where)[low:high])
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def read_ids(self, place: Location, file: CsvFile, first: int, last: int) -> Any:
        """Return the ids of rows, an Arrow chunked array."""
        assert self.id_column is not None
        pa, wanted = import_pyarrow(), self._with_rows(file, self.id_column)
        arrays = [
            array
            for table, _, low, high in self._parts(place, file, first, last, wanted)
            for array in table.column(self.id_column).slice(low, high - low).chunks
        ]
        return pa.chunked_array(arrays)

    def read_numbers(
        self, name: str, place: Location, file: CsvFile, first: int, last: int
    ) -> np.ndarray:
        """Return a column of numbers as float64."""
        return np.concatenate(
            [
                numbers_of_column(table, name, lambda row: f"{place.url!r}")[low:high]
                for table, _, low, high in self._parts(
                    place, file, first, last, self._with_rows(file, name)
                )
            ]
        )

    def _with_rows(self, file: CsvFile, name: str) -> tuple[str, ...]:
        # Which rows are left out, the columns of the rows tell.
        return tuple(dict.fromkeys((name, *self.columns.read))) if file.stored else (name,)

    def _parts(
        self, place: Location, file: CsvFile, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[Any, int, int, int]]:
        """Yield ``(table, start, low, high)``: rows `low` to `high` of the block that begins at `start`."""
        edges = np.append(0, np.cumsum(file.blocks))
        for block in range(len(file.blocks)):
            start, stop = int(edges[block]), int(edges[block + 1])
            if start < last and first < stop:
                table = self.table(place, file, block, names)
                if file.stored:
                    table = table.filter(import_pyarrow().array(~has_nulls(table, self.columns)))
                if table.num_rows != stop - start:
                    raise InvalidDataError(
                        f"The file {place.url!r} was replaced since the dataset was opened; open it again "
                        "and restart."
                    )
                yield table, start, max(first, start) - start, min(last, stop) - start

    def table(self, place: Location, file: CsvFile, block: int, names: Sequence[str]) -> Any:
        """Return columns of a block of lines."""
        if file.offsets:
            content = read_range(place, file.offsets[block], file.offsets[block + 1])
        else:
            with open_compressed(place) as stream:
                content = stream.read()
        skipped = 1 if self.has_header and block == 0 else 0
        try:
            return _parsed(content, self.names, self.delimiter, skipped, names, self._types())
        except import_pyarrow().ArrowInvalid as error:
            found = _UNCONVERTED.search(str(error))
            if found is None:
                raise
            name, value = self.names[int(found[1])], found[2]
            kind = "booleans" if name in self.booleans else "numbers"
            raise InvalidDataError(
                f"Column {name!r} of {place.url!r} cannot be read as {kind}, like its first lines: it has "
                f"{value}. Correct the value, or leave the column out with drop={name!r} (--drop {name})."
            ) from error

    def _types(self) -> dict[str, Any]:
        pa = import_pyarrow()
        others = dict.fromkeys(self.texts, pa.string()) | dict.fromkeys(self.booleans, pa.bool_())
        return {name: others.get(name, pa.float64()) for name in self.names}


def _parsed(
    content: bytes,
    all_names: Sequence[str],
    delimiter: str,
    skipped: int,
    names: Sequence[str] | None,
    types: Mapping[str, Any] | None,
) -> Any:
    """Return columns of lines as a table, of types that may be yet to be found."""
    from pyarrow import csv

    return csv.read_csv(
        io.BytesIO(content),
        read_options=csv.ReadOptions(
            column_names=list(all_names), skip_rows=skipped, use_threads=False
        ),
        parse_options=csv.ParseOptions(delimiter=delimiter),
        convert_options=csv.ConvertOptions(
            column_types=types,
            include_columns=None if names is None else list(names),
            null_values=_NULLS,
            strings_can_be_null=True,
        ),
    )


def open_csv_files(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open text files of numbers, ids and weights; all must have the same columns.

    Raises
    ------
    InvalidDataError, InvalidParameterError, MissingExtraError

    Notes
    -----
    Cost: one pass over the files, to count their rows. Every pass of a fit parses the text again; a
    compressed file is read as a whole.
    """
    import_pyarrow()
    places = [location.child(file.name) if file.name else location for file in files]
    forms = map_files(text_form, places)
    form = forms[0]
    for place, other in zip(places, forms, strict=True):
        if other != form:
            raise InvalidDataError(
                f"{place.url!r} has the columns {_shown(other)}, where {places[0].url!r} has "
                f"{_shown(form)}; files of one dataset need the same columns in the same order: write it "
                "again, or leave it out."
            )
    if form.delimiter is None:
        raise InvalidDataError(
            f"The columns of {places[0].url!r} are separated by blanks; convert it with: daskcluster "
            f"convert {places[0].url} OUTPUT.zarr"
        )
    names = form.names or tuple(f"f{i}" for i in range(form.width))
    layout = CsvFormat(RowColumns((), (), "<f8"), names, (), form.delimiter, bool(form.names))
    cut = map_files(lambda at: _cut(places[at], files[at]), range(len(files)))
    sample = _sample(layout, places[0], cut[0])
    chosen = choose_columns(sample.schema, spec, repr(places[0].url), sample.select)
    if spec.features is None:
        warn_of_ids(chosen, lambda name: only_increases(sample.column(name)))
    texts = tuple(name for name in names if name not in chosen.read)
    is_boolean = import_pyarrow().types.is_boolean
    booleans = tuple(name for name in chosen.read if is_boolean(sample.schema.field(name).type))
    chosen = replace(chosen, dtype="<f8")
    layout = replace(layout, columns=chosen, texts=texts, booleans=booleans)
    counted = map_files(
        lambda at: _counted(layout, places[at], cut[at], spec.nulls), range(len(files))
    )
    dataset = dataset_of(location, counted, layout)
    if chosen.weights is not None:
        return with_column_weights(dataset, chosen.weights)
    return dataset


def _shown(form: TextForm) -> str:
    return ", ".join(form.names) if form.names else f"0 to {form.width - 1}, without names"


def _cut(place: Location, file: StoredFile) -> CsvFile:
    """Return where blocks of whole lines of a file begin; no line is counted yet."""
    plain = CsvFile(file.name, file.size, file.version)
    if place.url.lower().endswith(".gz"):
        return plain

    def cut(place: Location, _file: RowFile, first: int, last: int) -> tuple[int, ...]:
        offsets = [0]
        while offsets[-1] < file.size:
            end = offsets[-1] + _BLOCK_BYTES
            while end < file.size:
                newline = read_range(place, end, min(end + _BLOCK_BYTES, file.size)).find(b"\n")
                if newline >= 0:
                    end += newline + 1
                    break
                end += _BLOCK_BYTES
            offsets.append(min(end, file.size))
        return tuple(offsets)

    return replace(plain, offsets=read_part(cut, place, plain, 0, 0))


def _sample(layout: CsvFormat, place: Location, file: CsvFile) -> Any:
    """Return the first lines of a file as a table of the types that they seem to have."""

    def read(place: Location, file: CsvFile, first: int, last: int) -> Any:
        with open_compressed(place) as stream:
            content = stream.read(1 << 20)
        whole = content[: content.rfind(b"\n") + 1] or content
        skipped = int(layout.has_header)
        return _parsed(whole, layout.names, layout.delimiter, skipped, None, None)

    return read_part(read, place, file, 0, 0)


def _counted(layout: CsvFormat, place: Location, file: CsvFile, nulls: str) -> CsvFile:
    """Return a file with the rows of its blocks."""
    names = layout.columns.read if nulls == "drop" else layout.columns.read[:1]

    def count(place: Location, file: CsvFile, first: int, last: int) -> tuple[list[int], list[int]]:
        stored, kept = [], []
        for block in range(max(1, len(file.offsets) - 1)):
            table = layout.table(place, file, block, names)
            stored.append(table.num_rows)
            bad = int(has_nulls(table, layout.columns).sum()) if nulls == "drop" else 0
            kept.append(table.num_rows - bad)
        return stored, kept

    stored, kept = read_part(count, place, file, 0, 0)
    left_out = tuple(stored) if stored != kept else ()
    return replace(file, blocks=tuple(kept), stored=left_out)
