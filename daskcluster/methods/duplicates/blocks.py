"""The scratch folder of a search, and the blocks on it: rows sorted by cell; equal rows are stored once."""

from __future__ import annotations

import json
import math
import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunk import row_dtype
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.shuffle_passes import LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES, Buckets, one_pass
from daskcluster.errors import CheckpointError
from daskcluster.events import Callback
from daskcluster.storage.files import list_names, read_file, write_file
from daskcluster.storage.location import Location
from daskcluster.typing import Dataset, Range, Visibility

_ALIGN = 64


@dataclass(frozen=True)
class Scratch:
    """A folder of arrays; picklable, without credentials.

    Attributes
    ----------
    place : Location
    durable : bool
        Files survive a power failure.

    Examples
    --------
    >>> from daskcluster.storage.location import locate
    >>> scratch = Scratch(locate("memory://scratch-example"))
    >>> scratch.write("pairs", 7, np.arange(3))
    >>> scratch.read("pairs", 7)[0].tolist(), scratch.finished("pairs")
    ([0, 1, 2], frozenset({7}))
    """

    place: Location
    durable: bool = False

    @property
    def visibility(self) -> Visibility:
        """The processes that can read and write there."""
        return self.place.visibility

    def write(self, kind: str, number: int, *arrays: np.ndarray) -> None:
        """Write arrays to file `number` of a kind."""
        table = json.dumps([[array.dtype.str, list(array.shape)] for array in arrays]).encode()
        parts: list[Any] = [len(table).to_bytes(_ALIGN, "little"), table]
        parts += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays]
        # One copy: the parts, each padded.
        content = b"".join(each for part in parts for each in (part, bytes(-len(part) % _ALIGN)))
        write_file(self.place, _name(kind, number), content, durable=self.durable)

    def read(self, kind: str, number: int) -> list[np.ndarray]:
        """Return the arrays of a file, which are read-only.

        Raises
        ------
        CheckpointError
            The file is gone or damaged.
        """
        name = _name(kind, number)
        content: Any = None
        try:
            if self.place.is_local:  # of files on disk, only what is used is read
                with suppress(FileNotFoundError), open(f"{self.place.url}/{name}", "rb") as file:
                    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            else:
                content = read_file(self.place, name)
            if content is not None:
                return list(_arrays(memoryview(content)))
        except (ValueError, TypeError) as error:
            raise CheckpointError(
                f"The file {name} in {self.place.url!r} is damaged; start again without resume."
            ) from error
        raise CheckpointError(
            f"The file {name} is missing from {self.place.url!r}; was the folder cleaned up? Start again "
            "without resume."
        )

    def finished(self, kind: str) -> frozenset[int]:
        """Return the numbers of the files of a kind."""
        names = list_names(self.place.child(kind))
        return frozenset(int(name[:-5]) for name in names if name[:-5].isdecimal())


@dataclass(frozen=True)
class RowFiles:
    """Results for each row, in files on scratch that outlive the process; a sink of a pass.

    Attributes
    ----------
    scratch : Scratch
    kind : str
        Kind of the files. The number of a file is its first row.
    written : tuple of ranges
        Rows that earlier runs have written, ascending and apart.

    Examples
    --------
    >>> from daskcluster.storage.location import locate
    >>> scratch = Scratch(locate("memory://row-files-example"))
    >>> RowFiles(scratch, "cells").write(2, np.array([7, 8]))
    >>> again = RowFiles.found(scratch, "cells")
    >>> again.has((2, 4)), again.has((0, 4))
    (True, False)
    """

    scratch: Scratch
    kind: str
    written: tuple[Range, ...] = ()

    @classmethod
    def found(cls, scratch: Scratch, kind: str) -> RowFiles:
        """Return the sink of a pass that leaves out the rows of the files that are there."""
        ranges: list[Range] = []
        for first in sorted(scratch.finished(kind)):
            last = first + len(scratch.read(kind, first)[0])
            if ranges and first <= ranges[-1][1]:
                first, last = ranges[-1][0], max(last, ranges.pop()[1])
            ranges.append((first, last))
        return cls(scratch, kind, tuple(ranges))

    @property
    def block_rows(self) -> int:
        return 1

    @property
    def visibility(self) -> Visibility:
        return self.scratch.visibility

    def has(self, span: Range) -> bool:
        """Return whether earlier runs have written all rows of a range."""
        at = bisect_right(self.written, span[0], key=lambda each: each[0]) - 1
        return at >= 0 and span[1] <= self.written[at][1]

    def write(self, start: int, values: np.ndarray) -> None:
        """Write the values of rows from `start` on."""
        self.scratch.write(self.kind, start, values)

    def read(self, out: np.ndarray) -> None:
        """Read the values of all rows; OUT: out (n, ...)."""
        for first in self.scratch.finished(self.kind):
            (values,) = self.scratch.read(self.kind, first)
            out[first : first + len(values)] = values.view(out.dtype)


def _name(kind: str, number: int) -> str:
    return f"{kind}/{number:09d}.rows"


def _arrays(content: memoryview) -> Iterator[np.ndarray]:
    size = int.from_bytes(content[:_ALIGN], "little")
    at = _ALIGN + size + -size % _ALIGN
    for kind, shape in json.loads(bytes(content[_ALIGN : _ALIGN + size])):
        dtype, count = np.dtype(kind), math.prod(shape)
        yield np.frombuffer(content, dtype, count, at).reshape(shape)
        at += dtype.itemsize * count + -dtype.itemsize * count % _ALIGN


ROWS, INDEX = "rows", "index"
"""Kinds of files on scratch: rows of a block with their numbers; what is known of all rows."""

BUCKET_BYTES = 32 << 20
_COMPARED_ROWS = 4096

Piece = tuple[np.ndarray, np.ndarray]
"""Numbers (m,) and values (m, d) of rows."""


@dataclass(frozen=True)
class SortedRows:
    """The places of all rows after sorting.

    Attributes
    ----------
    cells, sizes : ndarray of shape (b,), int64
        Cell and number of rows of each block.
    leaders : ndarray of shape (n,), int64
        The first row that equals each row: itself for rows that are in a block.
    places : ndarray of shape (n,), int64
        Block and position, ``block * block_rows + position``; -1 for rows that equal an earlier one.
    distances : ndarray of shape (n,), float64
        To the centre of the cell.
    """

    cells: np.ndarray
    sizes: np.ndarray
    leaders: np.ndarray
    places: np.ndarray
    distances: np.ndarray


@dataclass
class _Writer:
    """Receives rows in sorted order, and writes blocks of those that equal no earlier one."""

    described: np.ndarray
    scratch: Scratch
    block_rows: int
    leaders: np.ndarray = field(init=False)
    places: np.ndarray = field(init=False)
    table: list[tuple[int, int]] = field(default_factory=list)
    _pending: Piece | None = None
    _last: Piece | None = None

    def __post_init__(self) -> None:
        n = len(self.described)
        self.leaders, self.places = np.arange(n), np.full(n, -1)
        counts = np.bincount(self.described["cell"])
        # Blocks of a cell have about the same number of rows.
        blocks = np.maximum(1, -(-counts // self.block_rows))
        self._most = np.maximum(1, -(-counts // blocks))

    def add(self, numbers: np.ndarray, values: np.ndarray) -> None:
        """Add rows (m, d) with these numbers; they follow all earlier ones in the order."""
        earlier = 0 if self._last is None else len(self._last[0])
        if self._last is not None:
            numbers = np.concatenate([self._last[0], numbers])
            values = np.concatenate([self._last[1], values])
        known = self.described[numbers]
        alike = np.zeros(len(numbers), bool)
        alike[1:] = known[1:] == known[:-1]
        leaders = np.maximum.accumulate(np.where(alike, 0, np.arange(len(numbers))))
        which = np.flatnonzero(alike)
        equal = np.empty(len(which), bool)
        for first in range(0, len(which), _COMPARED_ROWS):
            part = which[first : first + _COMPARED_ROWS]
            same = values[part] == values[leaders[part]]
            equal[first : first + _COMPARED_ROWS] = same.all(axis=1)
        alike[which[~equal]] = False  # other values with the same hash
        self.leaders[numbers[which[equal]]] = numbers[leaders[which[equal]]]
        last = leaders[-1:]
        self._last = numbers[last], values[last].copy()
        kept = np.flatnonzero(~alike[earlier:]) + earlier
        self._extend(numbers[kept], values[kept])

    def _extend(self, numbers: np.ndarray, values: np.ndarray) -> None:
        if self._pending is not None:
            numbers = np.concatenate([self._pending[0], numbers])
            values = np.concatenate([self._pending[1], values])
        start = 0
        while start < len(numbers):
            cell = int(self.described["cell"][numbers[start]])
            stop = start + int(self._most[cell])
            same = self.described["cell"][numbers[start:stop]] == cell
            if same.all() and stop > len(numbers):
                break  # more rows of the cell may follow
            stop = start + int(same.sum())
            self._write(cell, numbers[start:stop], values[start:stop])
            start = stop
        self._pending = numbers[start:].copy(), values[start:].copy()

    def _write(self, cell: int, numbers: np.ndarray, values: np.ndarray) -> None:
        block = len(self.table)
        self.scratch.write(ROWS, block, np.ascontiguousarray(values), numbers)
        self.places[numbers] = block * self.block_rows + np.arange(len(numbers))
        self.table.append((cell, len(numbers)))

    def found(self) -> SortedRows:
        """Return where the rows are, after the last block is written."""
        if self._pending is not None and len(self._pending[0]):
            numbers, values = self._pending
            self._write(int(self.described["cell"][numbers[0]]), numbers, values)
        cells, sizes = np.array(self.table, np.int64).reshape(-1, 2).T
        return SortedRows(
            cells.copy(), sizes.copy(), self.leaders, self.places,
            np.ascontiguousarray(self.described["distance"]),
        )  # fmt: skip


def sort_rows(
    dataset: Dataset,
    described: np.ndarray,
    scratch: Scratch,
    *,
    block_rows: int,
    folder: str,
    callbacks: Sequence[Callback] = (),
) -> tuple[SortedRows, int]:
    """Write the rows to `scratch`, cell by cell, by the distance to the centre; return the bytes read, too.

    Parameters
    ----------
    dataset : Dataset
    described : ndarray of shape (n,), `daskcluster.methods.duplicates.chunkwise.DESCRIBED`
    scratch : Scratch
    block_rows : int
        Most rows of a block.
    folder : str
        Local folder for rows on their way.
    callbacks : sequence of callables

    Notes
    -----
    Cost: one pass; rows that are not in memory are written to local files and read back once on the way.
    Memory: a bucket of 32 MB or more, a few pieces of 8 MB and blocks, and 48 bytes a row.
    """
    # Stable: of equal rows, the first one leads.
    order = np.lexsort((described["hash"], described["distance"], described["cell"]))
    writer = _Writer(described, scratch, block_rows)
    with one_pass("sort", dataset.n_rows, callbacks) as running:
        pieces = _taken if dataset.in_memory else _scattered
        for numbers, values in pieces(dataset, order, folder, running.read):
            writer.add(numbers, values)
            running.advance(len(numbers))
        found = writer.found()
    return found, running.bytes_read


def bucket_rows(dataset: Dataset) -> int:
    """Return the number of rows that are sorted at a time."""
    row = dataset.n_features * row_dtype(dataset.dtype).itemsize + 8
    # A block for each bucket has to fit as well, hence the root.
    least = math.isqrt(dataset.n_rows * row * LEAST_BLOCK_BYTES)
    return max(1, max(BUCKET_BYTES, least) // row)


def _taken(
    dataset: Dataset, order: np.ndarray, folder: str, on_read: Callable[[int], None]
) -> Iterator[Piece]:
    dtype = row_dtype(dataset.dtype)
    step = _piece_rows(dataset.n_features * dtype.itemsize)
    for first in range(0, len(order), step):
        numbers = order[first : first + step]
        yield numbers, dataset.take(numbers).astype(dtype, copy=False)


def _scattered(
    dataset: Dataset, order: np.ndarray, folder: str, on_read: Callable[[int], None]
) -> Iterator[Piece]:
    step, dtype = bucket_rows(dataset), row_dtype(dataset.dtype)
    record = np.dtype([("row", np.int64), ("values", dtype, (dataset.n_features,))])
    n_buckets, part = -(-len(order) // step), _piece_rows(record.itemsize)
    home = np.empty(len(order), np.min_scalar_type(max(1, n_buckets - 1)))
    home[order] = np.arange(len(order)) // step
    held = min(MOST_BLOCK_BYTES, BUCKET_BYTES // n_buckets)
    sizes = {"n_buckets": n_buckets, "block_rows": max(1, held // record.itemsize)}
    with Buckets(record, **sizes, folder=folder) as buckets:
        for chunk in dataset.chunks(dataset.partitions, on_read=on_read):
            for first in range(0, chunk.n_rows, part):
                piece = chunk.slice(first, min(first + part, chunk.n_rows))
                records = np.empty(piece.n_rows, record)
                records["row"] = np.arange(piece.start, piece.stop)
                records["values"] = piece.rows
                buckets.append(records, home[piece.start : piece.stop])
        buckets.flush()
        for bucket in range(n_buckets):
            records = buckets.load(bucket)
            numbers = order[bucket * step : (bucket + 1) * step]
            # A bucket has its rows in the order of the dataset.
            at = np.searchsorted(records["row"], numbers)
            for first in range(0, len(numbers), part):
                here = slice(first, first + part)
                yield numbers[here], records["values"][at[here]]
            del records  # before the next one is read


def _piece_rows(row_bytes: int) -> int:
    """Return how many rows are copied at a time."""
    return max(1, READ_BYTES // row_bytes)
