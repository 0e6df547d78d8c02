"""Rows of Arrow IPC files (.arrow, .feather) and ORC files, read in place by batches and stripes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.row_files import (
    RowFile,
    explained,
    map_files,
    places_of,
    replaced,
)
from daskcluster.data.spec import RowsSpec
from daskcluster.data.tables import TableFormat, open_tables
from daskcluster.errors import InvalidDataError
from daskcluster.extras import import_pyarrow
from daskcluster.storage.files import StoredFile, open_file, read_range
from daskcluster.storage.location import Location


@dataclass(frozen=True)
class ArrowFile(RowFile):
    """An IPC file; a stream has no footer that says where its batches are, and is read from its start."""

    in_order: bool = False


@dataclass(frozen=True)
class ArrowFormat(TableFormat):
    """The columns of IPC files that hold the rows; see `FilesRecipe`."""

    kind = "Arrow"

    def tables(
        self, place: Location, file: ArrowFile, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[int, Any]]:
        starts = file.edges.tolist()
        wanted = [i for i in range(len(file.blocks)) if first < starts[i + 1] and starts[i] < last]
        with _opened(place, names) as (reader, is_stream, _):
            if is_stream != file.in_order:
                raise replaced(place)
            batches = iter(reader) if is_stream else map(reader.get_batch, wanted)
            for i in range(wanted[-1] + 1) if is_stream else wanted:
                batch = next(batches)
                if batch.num_rows != file.blocks[i]:
                    raise replaced(place)
                if i in wanted:
                    yield starts[i], import_pyarrow().Table.from_batches([batch])


@contextmanager
def _opened(
    place: Location, columns: Sequence[str | int] | None = None
) -> Iterator[tuple[Any, bool, Callable[[], int]]]:
    """Open a file to read some columns, or all; return a reader, if it is of a stream, and where it is."""
    pa = import_pyarrow()
    from pyarrow import ipc

    # Not mapped into memory: a file that a writer cuts meanwhile would end this process.
    with pa.OSFile(place.url) if place.is_local else open_file(place) as source:
        is_stream = source.read(len(_MAGIC)) != _MAGIC
        opens = ipc.open_stream if is_stream else ipc.open_file

        def opened(**options: Any) -> Any:
            source.seek(0)
            return opens(source, options=ipc.IpcReadOptions(use_threads=False, **options))

        reader = opened()
        if columns is not None:
            at = reader.schema.get_field_index
            reader = opened(included_fields=[c if isinstance(c, int) else at(c) for c in columns])
        yield reader, is_stream, source.tell


_MAGIC = b"ARROW1"
"""What a file with a footer begins with."""


_MOST_UNREAD = 64
"""Bytes between the last batch and the footer: a mark, and what aligns it."""


def _bytes_without_batches(place: Location, size: int) -> int:
    """Return how many bytes lie between the end of the last batch and the footer.

    The footer is a FlatBuffers table, whose fields 2 and 3 list the blocks of dictionaries and batches:
    offset, length of metadata and length of the body of each.
    """
    end = size - len(_MAGIC) - 4
    length = int.from_bytes(read_range(place, end, end + 4), "little")
    footer = read_range(place, end - length, end)
    (table,) = struct.unpack_from("<I", footer)
    fields = table - struct.unpack_from("<i", footer, table)[0]
    (n_bytes,) = struct.unpack_from("<H", footer, fields)
    last = 0
    for field in range(8, min(n_bytes, 12), 2):
        (at,) = struct.unpack_from("<H", footer, fields + field)
        if at:
            vector = table + at + struct.unpack_from("<I", footer, table + at)[0]
            (count,) = struct.unpack_from("<I", footer, vector)
            for offset, metadata, body in struct.iter_unpack(
                "<qi4xq", footer[vector + 4 : vector + 4 + 24 * count]
            ):
                last = max(last, offset + metadata + body)
    return end - length - last if last else 0


def _head(place: Location, file: StoredFile) -> tuple[Any, ArrowFile]:
    """Return the schema of a file, and its batches; of a file with a footer, one column is read."""
    with explained(place, "Arrow"):
        with _opened(place) as (reader, is_stream, _):
            schema = reader.schema
        with _opened(place, (0,)) as (reader, _, tell):
            batches = (
                reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
            )
            blocks = tuple(batch.num_rows for batch in batches)
            at_end = tell()
        if is_stream and at_end < file.size:
            raise InvalidDataError(
                f"{place.url!r} has {file.size - at_end} bytes behind the end of its stream of batches, "
                "which would not be read; give each stream a file of its own."
            )
        if not is_stream and (unread := _bytes_without_batches(place, file.size)) > _MOST_UNREAD:
            raise InvalidDataError(
                f"{place.url!r} has {unread} bytes that its footer does not know, as files one behind "
                "the other have, of which one would be read; give each a file of its own."
            )
    return schema, ArrowFile(file.name, file.size, file.version, blocks, in_order=is_stream)


def open_arrow_files(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open Arrow IPC files, also of the format that is called Feather; all must have the same columns.

    Raises
    ------
    InvalidDataError, InvalidParameterError, MissingExtraError

    Notes
    -----
    Cost: one column is read, and columns of integers are searched for nulls. A record batch is read as a
    whole. One thread reads a stream, from its start.
    """
    import_pyarrow()
    places = places_of(location, files)
    heads = map_files(lambda at: _head(places[at], files[at]), range(len(files)))

    def batches(number: int, names: Sequence[str]) -> Iterator[Any]:
        with _opened(places[number], names) as (reader, is_stream, _):
            every = range(0 if is_stream else reader.num_record_batches)
            yield from reader if is_stream else map(reader.get_batch, every)

    schemas = [schema for schema, _ in heads]
    return open_tables(location, [file for _, file in heads], spec, schemas, batches, ArrowFormat)


# -- ORC ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrcFormat(TableFormat):
    """The columns of ORC files that hold the rows; see `FilesRecipe`.

    Attributes
    ----------
    most_rows : int
        Rows of the largest stripe.
    """

    most_rows: int = 0
    kind = "ORC"

    @property
    def reader_bytes(self) -> int:
        """Bytes that a reader takes as well as the rows: measured 3.4 times those of a stripe of lists."""
        return super().reader_bytes + 3 * self._stripe_bytes

    @property
    def _stripe_bytes(self) -> int:
        return self.most_rows * self.n_features * np.dtype(self.dtype).itemsize

    def reads_in_order(self, file: RowFile) -> bool:
        """Return True for large stripes: one thread reads them, since each takes so much memory."""
        return self._stripe_bytes > READ_BYTES

    def tables(
        self, place: Location, file: RowFile, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[int, Any]]:
        starts = file.edges.tolist()
        with _opened_orc(place) as orc:
            if orc.nstripes != len(file.blocks):
                raise replaced(place)
            for i, n_rows in enumerate(file.blocks):
                if first < starts[i + 1] and starts[i] < last:
                    batch = orc.read_stripe(i, columns=list(names))
                    if batch.num_rows != n_rows:
                        raise replaced(place)
                    yield starts[i], import_pyarrow().Table.from_batches([batch])


@contextmanager
def _opened_orc(place: Location) -> Iterator[Any]:
    from pyarrow import orc

    with import_pyarrow().OSFile(place.url) if place.is_local else open_file(place) as source:
        yield orc.ORCFile(source)


def _orc_head(place: Location, file: StoredFile) -> tuple[Any, RowFile]:
    with explained(place, "ORC"), _opened_orc(place) as orc:
        first = orc.schema.names[:1]
        stripes = (orc.read_stripe(i, columns=first) for i in range(orc.nstripes))
        blocks = tuple(stripe.num_rows for stripe in stripes)
        return orc.schema, RowFile(file.name, file.size, file.version, blocks)


def open_orc_files(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open ORC files; all must have the same columns.

    Raises
    ------
    InvalidDataError, InvalidParameterError, MissingExtraError

    Notes
    -----
    Cost: the first column is read, since pyarrow does not tell how many rows a stripe has, and columns of
    integers are searched for nulls. The chosen columns of a stripe are read as a whole.
    """
    import_pyarrow()
    places = places_of(location, files)
    heads = map_files(lambda at: _orc_head(places[at], files[at]), range(len(files)))

    def batches(number: int, names: Sequence[str]) -> Iterator[Any]:
        with _opened_orc(places[number]) as orc:
            yield from (orc.read_stripe(i, columns=list(names)) for i in range(orc.nstripes))

    schemas = [schema for schema, _ in heads]
    opened = [file for _, file in heads]
    layout = partial(
        OrcFormat, most_rows=max(n_rows for file in opened for n_rows in (0, *file.blocks))
    )
    return open_tables(location, opened, spec, schemas, batches, layout)
