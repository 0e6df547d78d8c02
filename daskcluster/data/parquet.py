"""Rows of Parquet files, read in place: row groups are the chunks, and only the chosen columns are read."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.data.partitions import MOST_BYTES, READ_BYTES
from daskcluster.data.row_files import (
    RowFile,
    explained,
    map_files,
    places_of,
    read_stream,
    replaced,
)
from daskcluster.data.spec import RowsSpec
from daskcluster.data.tables import TableFormat, TableValues, TableVersion, open_tables
from daskcluster.extras import import_pyarrow
from daskcluster.storage.files import StoredFile, open_file, read_range
from daskcluster.storage.location import Location
from daskcluster.storage.retry import retry

_TAIL_BYTES = 1 << 16
"""Bytes to read from the end of a remote file at first: most footers fit."""
_MOST_FOOTERS = 512
_BUFFER_BYTES, _STREAM_BYTES = 1 << 20, 4 << 20


class _Window(io.RawIOBase):
    """A part of a remote file, fetched in one request, as a file in which it has its place."""

    def __init__(self, content: bytes, start: int, size: int) -> None:
        super().__init__()
        self._content, self._start, self._size, self._at = memoryview(content), start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, origin: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[origin]
        return self._at

    def read(self, size: int = -1) -> Any:
        stop = self._size if size is None or size < 0 else min(self._at + size, self._size)
        first, last = self._at - self._start, stop - self._start
        if first < 0 or last > len(self._content):
            raise EOFError(f"bytes {self._at} to {stop} were not fetched")
        self._at = stop
        return self._content[first:last]


@lru_cache(_MOST_FOOTERS)
def read_footer(place: Location, size: int, version: str) -> Any:
    """Return the metadata of a Parquet file (read once in a process)."""
    import pyarrow.parquet as pq

    if place.is_local:
        return pq.read_metadata(place.url)
    n_bytes = min(size, _TAIL_BYTES)
    tail = retry(lambda: read_range(place, size - n_bytes, size), place)
    # A file ends with the length of its footer and a mark of 4 bytes.
    footer = int.from_bytes(tail[-8:-4], "little") + 8
    if n_bytes < footer <= size and tail[-4:] == b"PAR1":
        tail = retry(lambda: read_range(place, size - footer, size), place)
    return pq.read_metadata(_Window(tail, size - len(tail), size))


def rows_of_groups(footer: Any, deleted: bytes = b"") -> tuple[int, ...]:
    """Return the number of rows of each row group, without those that are deleted; see `RowFile`."""
    rows = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    if not deleted:
        return tuple(rows)
    edges = np.append(0, np.cumsum(rows, dtype=np.int64))
    gone = np.diff(np.searchsorted(np.frombuffer(deleted, np.int64), edges))
    return tuple((np.asarray(rows) - gone).tolist())


def groups_of(file: RowFile, first: int, last: int) -> range:
    """Return the row groups that hold some rows."""
    return range(*np.searchsorted(file.edges, (first + 1, last)) - (1, 0))


def _byte_range(footer: Any, groups: range, names: Sequence[str]) -> tuple[int, int]:
    """Return the bytes of a file in which columns of row groups lie."""
    starts, stops = [], []
    numbers = leaves_of(footer, names)
    for group in groups:
        for number in numbers:
            column = footer.row_group(group).column(number)
            begin = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset:
                begin = min(begin, column.dictionary_page_offset)
            starts.append(begin)
            stops.append(begin + column.total_compressed_size)
    return min(starts), max(stops)


def leaves_of(footer: Any, names: Sequence[str]) -> list[int]:
    """Return the positions of the leaf columns that store some columns, or the values of their lists."""
    paths = [footer.schema.column(number).path for number in range(footer.num_columns)]
    return [
        number
        for number, path in enumerate(paths)
        if any(path == name or path.startswith(f"{name}.") for name in names)
    ]


@dataclass(frozen=True)
class _FooterValues(TableValues):
    """Answers from the footers of all files."""

    footers: Sequence[Any] = ()

    def hold_nulls(self, names: Sequence[str]) -> bool:
        """Return True unless the footers rule out nulls, by counting none or as no value is optional."""
        if not self.null_constants.isdisjoint(names):
            return True
        for footer in self.footers:
            for number in leaves_of(footer, names):
                leaf = footer.schema.column(number)
                if leaf.max_definition_level == leaf.max_repetition_level:
                    continue
                for group in range(footer.num_row_groups):
                    counts = footer.row_group(group).column(number).statistics
                    if counts is None or not counts.has_null_count or counts.null_count:
                        return True
        return False


_BATCH_BYTES = 1 << 20
"""Decoded bytes of a batch: a row group of lists decoded at once takes several times its memory."""


@dataclass(frozen=True)
class ParquetFormat(TableFormat):
    """The columns of Parquet files that hold the rows; see `FilesRecipe`.

    Attributes
    ----------
    streamed : bool
        The bytes of a remote file are fetched as they are needed, else all in one request.
    """

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
        edges = file.edges
        found = [edges]
        for start, stop in pairwise(edges.tolist()):
            if self._is_large(stop - start):
                found.append(np.arange(start, stop, max(1, READ_BYTES // self.row_bytes)))
        return np.unique(np.concatenate(found))

    def read(self, place: Location, file: RowFile, first: int, last: int) -> np.ndarray:
        """Return rows of a file, shape (last - first, d); small row groups are read together."""
        edges, blocks, groups = file.edges, [], groups_of(file, first, last)
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
        import pyarrow.parquet as pq

        groups, footer = groups_of(file, first, last), read_footer(place, file.size, file.version)
        if rows_of_groups(footer, file.deleted) != file.blocks:
            raise replaced(place)
        source: Any = place.url
        if not place.is_local and self.streamed:
            source = open_file(place)
        elif not place.is_local:
            begin, end = _byte_range(footer, groups, names)
            source = _Window(read_range(place, begin, end), begin, file.size)
        buffered = _STREAM_BYTES if self.streamed else _BUFFER_BYTES * place.is_local
        # A list column decoded at once takes several times its memory, and more time.
        step = max(1, _BATCH_BYTES // max(1, self.row_bytes))
        start = int(file.edges[groups[0]])
        at = sum(rows_of_groups(footer)[: groups[0]]) if file.deleted else start
        with pq.ParquetFile(
            source, metadata=footer, pre_buffer=False, buffer_size=buffered
        ) as parquet:
            for batch in parquet.iter_batches(
                step, row_groups=list(groups), columns=list(names), use_threads=False
            ):
                left = _without_deleted(batch, at, file.deleted)
                yield start, import_pyarrow().Table.from_batches([left])
                start, at = start + left.num_rows, at + batch.num_rows


def _without_deleted(batch: Any, at: int, deleted: bytes) -> Any:
    """Return the rows of a batch that are left; `at` is the number of its first row in the file."""
    gone = np.frombuffer(deleted, np.int64)
    first, last = np.searchsorted(gone, (at, at + batch.num_rows))
    if first == last:
        return batch
    left = np.ones(batch.num_rows, bool)
    left[gone[first:last] - at] = False
    return batch.filter(import_pyarrow().array(left))


# -- opening -----------------------------------------------------------------------------------------


def open_parquet(
    location: Location,
    files: Sequence[StoredFile],
    spec: RowsSpec,
    version: TableVersion | None = None,
) -> RowDataset:
    """Open Parquet files; their footers are read, and all must have the same columns.

    Parameters
    ----------
    location : Location
    files : sequence of StoredFile
        Names relative to `location`.
    spec : RowsSpec
    version : TableVersion, optional
        The version of a table that the files make up.

    Raises
    ------
    InvalidDataError, InvalidParameterError, MissingExtraError
    """
    import_pyarrow()
    places = places_of(location, files)
    footers = map_files(lambda at: _footer(places[at], files[at]), range(len(files)))
    deleted = {} if version is None else version.deleted
    opened = [
        RowFile(
            file.name,
            file.size,
            file.version,
            rows_of_groups(footer, deleted.get(file.name, b"")),
            deleted=deleted.get(file.name, b""),
        )
        for file, footer in zip(files, footers, strict=True)
    ]

    def batches(number: int, names: Sequence[str]) -> Iterator[Any]:
        place = places[number]
        source: Any = place.url if place.is_local else open_file(place)
        parquet = import_pyarrow().parquet.ParquetFile(source, pre_buffer=False)
        yield from parquet.iter_batches(64, columns=names, use_threads=False)

    schemas = [footer.schema.to_arrow_schema() for footer in footers]
    values = partial(_FooterValues, footers=footers)
    return open_tables(location, opened, spec, schemas, batches, ParquetFormat, values, version)


def _footer(place: Location, file: StoredFile) -> Any:
    with explained(place, "Parquet"):
        return read_footer(place, file.size, file.version)
