"""Rows of Parquet files, read in place: row groups are the chunks, and only the chosen columns are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from daskcluster.data.arrow import TableFormat
from daskcluster.data.arrow_columns import (
    RowColumns,
    choose_columns,
    import_pyarrow,
    storage_type,
    warn_of_ids,
)
from daskcluster.data.dataset import RowDataset
from daskcluster.data.listing import map_files
from daskcluster.data.parquet_parts import (
    batches_of,
    groups_of,
    leaves_of,
    may_hold_nulls,
    path_schema,
    read_footer,
    row_group_edges,
    with_path_columns,
)
from daskcluster.data.partitions import MOST_BYTES, READ_BYTES
from daskcluster.data.row_files import (
    RowFile,
    dataset_of,
    explained,
    places_of,
    read_stream,
    with_column_weights,
)
from daskcluster.data.spec import RowsSpec, refuse_duplicates
from daskcluster.errors import InvalidDataError
from daskcluster.storage.files import StoredFile, open_file
from daskcluster.storage.location import Location

_BATCH_BYTES = 1 << 20
"""Decoded bytes of a batch: a row group of lists decoded at once takes several times its memory."""


@dataclass(frozen=True)
class ParquetFormat(TableFormat):
    """The columns of Parquet files that hold the rows; see `RowFormat`.

    Attributes
    ----------
    path_columns : tuple of (name, type)
        Columns whose values are those of folders such as ``year=2024`` in the path of a file.
    streamed : bool
        The bytes of a remote file are fetched as they are needed, else all in one request.
    """

    path_columns: tuple[tuple[str, str], ...] = ()
    streamed: bool = False
    kind = "Parquet"

    @property
    def row_bytes(self) -> int:
        """Decoded bytes of a row."""
        return self.n_features * np.dtype(self.dtype).itemsize

    def _is_large(self, rows: int) -> bool:
        return rows * self.row_bytes > MOST_BYTES

    def reads_in_order(self, file: RowFile) -> bool:
        return any(self._is_large(rows) for rows in file.blocks)

    def cuts(self, file: RowFile) -> np.ndarray:
        """Return the edges of row groups; one of more than 64 MB is cut, and its parts are streamed."""
        edges = row_group_edges(file)
        found = [edges]
        for start, stop in pairwise(edges.tolist()):
            if self._is_large(stop - start):
                found.append(np.arange(start, stop, max(1, READ_BYTES // self.row_bytes)))
        return np.unique(np.concatenate(found))

    def read(self, place: Location, file: RowFile, first: int, last: int) -> np.ndarray:
        """Return rows of a file, shape (last - first, d); small row groups are read together."""
        edges, blocks, groups = row_group_edges(file), [], groups_of(file, first, last)
        for is_large, some in groupby(groups, lambda group: self._is_large(file.blocks[group])):
            run = list(some)
            stop = min(last, int(edges[run[-1] + 1]))
            if is_large:
                form, start = replace(self, streamed=True), int(edges[run[0]])
                blocks.append(read_stream(form, place, file, first, stop, start))
            else:
                blocks.append(super().read(place, file, first, stop))
            first = stop
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def tables(
        self, place: Location, file: Any, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[int, Any]]:
        in_path = dict(self.path_columns)
        stored = [name for name in names if name not in in_path]
        step = max(1, _BATCH_BYTES // max(1, self.row_bytes))

        for start, table in batches_of(place, file, first, last, stored, step, self.streamed):
            yield start, with_path_columns(table, file, self.path_columns)


# -- opening -----------------------------------------------------------------------------------------


def open_parquet(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open Parquet files; their footers are read, and all must have the same columns.

    Parameters
    ----------
    location : Location
    files : sequence of StoredFile
        Names relative to `location`.
    spec : RowsSpec

    Raises
    ------
    InvalidDataError, InvalidParameterError, MissingExtraError
    """
    import_pyarrow()

    places = places_of(location, files)
    footers = map_files(lambda at: _footer(places[at], files[at]), range(len(files)))
    opened = [
        RowFile(
            file.name,
            file.size,
            file.version,
            tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups)),
        )
        for file, footer in zip(files, footers, strict=True)
    ]
    filled = [i for i, file in enumerate(opened) if file.n_rows]
    if not filled:
        dataset_of(location, opened, None)  # which refuses files without rows
    first = filled[0]
    schemas = [footer.schema.to_arrow_schema() for footer in footers]
    schema, what = schemas[first], repr(places[first].url)
    is_null = import_pyarrow().types.is_null
    for number, field in enumerate(schema):
        if is_null(field.type):  # another file may have values
            others = [each.field(field.name) for each in schemas if field.name in each.names]
            found = next((other for other in others if not is_null(other.type)), field)
            schema = schema.set(number, found)
    in_path = _asked_of_paths(spec, schema, [file.name for file in files])
    for name, kind in in_path:
        schema = schema.append(import_pyarrow().field(name, import_pyarrow().type_for_alias(kind)))

    def parts(name: str) -> Iterator[Any]:
        for place in places:
            source: Any = place.url if place.is_local else open_file(place)
            parquet = import_pyarrow().parquet.ParquetFile(source, pre_buffer=False)
            for batch in parquet.iter_batches(64, columns=[name], use_threads=False):
                yield batch.column(name)

    chosen = choose_columns(schema, spec, what, parts, lambda names: may_hold_nulls(footers, names))
    _check_schemas(chosen, schema, schemas, [place.url for place in places], first, in_path)
    if spec.features is None and not spec.expected:
        warn_of_ids(chosen, lambda name: _only_increases(footers, name))
    form = ParquetFormat(chosen, in_path)
    dataset = dataset_of(location, opened, form)
    if chosen.weights is not None:
        return with_column_weights(dataset, chosen.weights)
    return dataset


def _asked_of_paths(
    spec: RowsSpec, schema: Any, names: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return the columns that were asked for and that folders of the files make, with their types."""
    asked = {*(spec.features or ()), *spec.drop, spec.id_column, spec.weights}
    found = path_schema(names)
    return tuple(
        (field.name, str(field.type))
        for field in found
        if field.name in asked and field.name not in schema.names
    )


def _footer(place: Location, file: StoredFile) -> Any:
    with explained(place, "Parquet"):
        return read_footer(place, file.size, file.version)


def _check_schemas(
    chosen: RowColumns,
    schema: Any,
    schemas: Sequence[Any],
    urls: Sequence[str],
    first: int,
    in_path: Sequence[tuple[str, str]],
) -> None:
    """Refuse files whose columns differ from those of the first one."""
    names = dict.fromkeys((*chosen.read, *([chosen.id_column] if chosen.id_column else [])))
    stored = names.keys() - dict(in_path)
    expected = {name: storage_type(schema.field(name).type) for name in names if name in stored}
    is_null = import_pyarrow().types.is_null
    for found, url in zip(schemas, urls, strict=True):
        refuse_duplicates(found.names, RowsSpec(features=tuple(expected)), repr(url))
        for name, kind in expected.items():
            here = found.field(name).type if name in found.names else None
            if here is None or (storage_type(here) != kind and not is_null(here)):
                has = "lacks column" if here is None else f"has {here} in column"
                raise InvalidDataError(
                    f"{url!r} {has} {name!r}, where {urls[first]!r} has {kind}; files of one dataset "
                    "need the same columns: write it again, or leave it out."
                )


def _only_increases(footers: Sequence[Any], name: str) -> bool:
    """Return True if statistics say that a column counts rows: each integer of a range, in order."""
    spans = [
        footer.row_group(group).column(number).statistics
        for footer in footers
        for number in leaves_of(footer, (name,))
        for group in range(footer.num_row_groups)
    ]
    n_rows = sum(footer.num_rows for footer in footers)
    if n_rows < 2 or not spans or not all(type(getattr(each, "min", 0.0)) is int for each in spans):
        return False
    ordered = all(a.max < b.min for a, b in pairwise(spans))
    return bool(ordered and spans[-1].max - spans[0].min + 1 == n_rows)
