"""Sources of a stream, and the ledger of the objects, versions and rows of them that were folded.

A source is a Zarr array that grows, a prefix that receives objects, or an iterator.

Entries of the ledger are written in segments that never change. A commit of the state names its segments,
so that state and ledger are updated atomically; segments that no commit names have no effect. Consecutive
segments of similar size are rewritten as one, so that there are few segments and each entry is written
about log2(n) times.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar

from daskcluster.data.missing import presence, without_incomplete
from daskcluster.data.nodes import is_csr, open_array, open_node
from daskcluster.data.open import open_source
from daskcluster.data.row_files import NoRowsError
from daskcluster.data.sources import IN_PLACE
from daskcluster.data.spec import AS_THEY_ARE, RowsSpec
from daskcluster.data.weighted import holds_weighted_rows
from daskcluster.data.writer import ROWS
from daskcluster.data.zarr import PARTS
from daskcluster.errors import (
    CheckpointError,
    DaskClusterError,
    DatasetNotFoundError,
    InvalidParameterError,
    WrongTypeError,
)
from daskcluster.storage.files import (
    StoredFile,
    digest_of_files,
    find_files,
    list_files,
    open_file,
    read_file,
    timestamp_of,
    write_file,
)
from daskcluster.storage.location import Location, locate
from daskcluster.storage.zarr_stores import METADATA, PARTIAL_MARK
from daskcluster.typing import Dataset, Range


@dataclass(frozen=True)
class Arrival:
    """An object of a source.

    Attributes
    ----------
    name : str
        Unique within the source; determines the order of the stream.
    version : str
        A digest that changes when the content does.
    n_rows : int
        Number of rows that can be read.
    timestamp : float
        Its attribute ``timestamp``, or else the time of its last modification; seconds since 1970.
    modified : float
        Time of its last modification, according to the store.
    problem : str
        Why it cannot be read yet; empty if it can.
    grows : bool
        Rows are appended to it, and existing rows do not change.
    array : str
        Name of the array that holds the rows, if it is a group with several arrays.
    """

    name: str
    version: str
    n_rows: int = 0
    timestamp: float = 0.0
    modified: float = 0.0
    problem: str = ""
    grows: bool = False
    array: str = ""


@dataclass(frozen=True)
class Entry:
    """Rows of one object that were folded, or an object that was rejected.

    Attributes
    ----------
    name, version : str
    start, stop : int
        Range of rows of the object.
    first : int
        Number of the first of them in the stream.
    timestamp : float
    note : str
        ``"late"`` if objects later in the order were folded first; ``"rejected: ..."`` if it was rejected.
    """

    name: str
    version: str
    start: int
    stop: int
    first: int
    timestamp: float
    note: str = ""

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    @property
    def is_rejected(self) -> bool:
        return self.note.startswith("rejected")


class Source(ABC):
    """A source of objects with rows, in an order."""

    has_times: ClassVar[bool] = False
    """Whether objects have timestamps."""
    order = "name"
    spec = AS_THEY_ARE
    """How objects are read."""

    @abstractmethod
    def look(self, taken: Mapping[str, Entry]) -> list[Arrival]:
        """List the objects, in the order of the stream.

        Parameters
        ----------
        taken : mapping of str to Entry
            The last entry of each object in the ledger. They need not be opened unless they have changed.
        """

    @abstractmethod
    def open(self, arrival: Arrival, span: Range) -> Dataset:
        """Open rows of an object, to be read once.

        Raises
        ------
        DaskClusterError
            The rows cannot be read.
        """

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the settings that identify the source, as plain values without credentials."""

    def settled_rows(self, arrival: Arrival) -> int:
        """Return the number of rows of an object that writers no longer change while it is written."""
        return 0

    def is_copy(self, name: str, twin: str, version: str) -> bool:
        """Return whether two objects of one version are the same."""
        return True


class Ledger:
    """All entries, in the order in which they were folded.

    `last_name` is the last folded object in the order of names; `last_time` is the timestamp and name of
    the last one in the order of timestamps.

    Examples
    --------
    >>> ledger = Ledger()
    >>> ledger.append(Entry("a.zarr", "v1", 0, 100, 0, 0.0))
    >>> "a.zarr" in ledger.taken, ledger.taken["a.zarr"].stop, ledger.last_name
    (True, 100, 'a.zarr')
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.segments: list[dict[str, Any]] = []
        self.taken: dict[str, Entry] = {}
        self.versions: dict[str, list[str]] = {}
        self.last_name = ""
        self.last_time = (-math.inf, "")

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry) -> None:
        """Add an entry, without writing it."""
        self.entries.append(entry)
        self.taken[entry.name] = entry
        # Includes rejected objects, so that copies of them are detected.
        names = self.versions.setdefault(entry.version, [])
        if entry.name not in names:
            names.append(entry.name)
        if not entry.is_rejected:
            self.last_name = max(self.last_name, entry.name)
            self.last_time = max(self.last_time, (entry.timestamp, entry.name))

    def write(self, place: Location) -> list[dict[str, Any]]:
        """Write new entries, and return the segments of the whole ledger; old files are not removed."""
        first = sum(int(segment["entries"]) for segment in self.segments)
        if first < len(self.entries):
            kept = list(self.segments)
            while kept and int(kept[-1]["entries"]) <= 2 * (len(self.entries) - first):
                first -= int(kept.pop()["entries"])
            lines = (json.dumps(asdict(entry)) + "\n" for entry in self.entries[first:])
            content = "".join(lines).encode()
            digest = hashlib.sha256(content).hexdigest()
            name = f"{first:010d}-{digest[:16]}.jsonl"
            write_file(place, name, content)
            kept.append({"name": name, "entries": len(self.entries) - first, "sha256": digest})
            self.segments = kept
        return self.segments

    @classmethod
    def read(cls, place: Location, segments: Sequence[Mapping[str, Any]]) -> Ledger:
        """Return the ledger that consists of the given segments.

        Raises
        ------
        CheckpointError
            A segment is missing or damaged.
        """
        ledger = cls()
        for segment in segments:
            name = str(segment["name"])
            content = read_file(place, name)
            if content is None or hashlib.sha256(content).hexdigest() != segment["sha256"]:
                problem = "missing" if content is None else "damaged"
                raise CheckpointError(
                    f"The segment {name!r} of the ledger at {place.url!r} is {problem}; restore a backup, "
                    "or start a new state."
                )
            for line in content.decode().splitlines():
                ledger.append(Entry(**json.loads(line)))
        ledger.segments = [dict(segment) for segment in segments]
        return ledger


class Oddity(enum.StrEnum):
    """Irregularities of objects."""

    LATE = "late"
    """Objects later in the order were folded before it; it is folded nevertheless."""
    CHANGED = "changed"
    """It has changed since it was folded; it is not folded again."""
    SHRUNK = "shrunk"
    """It has fewer rows than were folded of it."""
    DUPLICATE = "duplicate"
    """It has the same files as another object; it is not folded."""
    UNSETTLED = "unsettled"
    """It is half-written, or has just changed; it is checked again in the next cycle."""
    CORRUPT = "corrupt"
    """It cannot be read, or has rows that are not finite; it is not folded until it changes."""


@dataclass(frozen=True)
class Finding:
    """An oddity of an object, and what is to be said of it."""

    oddity: Oddity
    name: str
    what: str

    @property
    def text(self) -> str:
        """The message: the name of the object, and `what`."""
        return f"{self.name!r} {self.what}"


@dataclass(frozen=True)
class New:
    """A range of rows of an object to fold."""

    arrival: Arrival
    span: Range
    is_late: bool = False


class Settling:
    """Detects objects that have not changed for some time.

    Parameters
    ----------
    seconds : float
        Minimum time without a change; 0 accepts all objects.
    clock, wall : callable () -> float
        Monotonic seconds, and seconds since 1970.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.seconds = seconds
        self._clock, self._wall = clock, wall
        self._seen: dict[str, tuple[tuple[str, int], float]] = {}

    def is_settled(self, arrival: Arrival) -> bool:
        """Whether the object is unchanged for `seconds`, by its modification time or since first seen."""
        if self.seconds <= 0.0 or self._wall() - arrival.modified >= self.seconds > 0.0:
            self._seen.pop(arrival.name, None)
            return True
        state = arrival.version, arrival.n_rows
        before, since = self._seen.get(arrival.name, (None, 0.0))
        if before != state:
            self._seen[arrival.name] = state, self._clock()
            return False
        return self._clock() - since >= self.seconds


def sort_out(source: Source, ledger: Ledger, settling: Settling) -> tuple[list[New], list[Finding]]:
    """Return the rows of a source to fold, in order, and the oddities of objects."""
    new, found, fresh = list[New](), list[Finding](), dict[str, list[str]]()
    for arrival in source.look(ledger.taken):
        name, before = arrival.name, ledger.taken.get(arrival.name)
        first = 0 if before is None or before.is_rejected else before.stop
        # A rejected object is new again if it has changed since.
        if before is not None and not (before.is_rejected and arrival.version != before.version):
            found += _of_taken(arrival, before)
            if not arrival.grows or arrival.version != before.version:
                continue
        last = arrival.n_rows
        if not settling.is_settled(arrival):
            # Of a growing object, rows before its end can be read.
            last = source.settled_rows(arrival)
            if last <= first and arrival.n_rows > first:
                found.append(Finding(Oddity.UNSETTLED, name, "waits: it has just changed"))
        elif arrival.problem:
            found.append(Finding(Oddity.UNSETTLED, name, f"waits: {arrival.problem}"))
        if last <= first:
            continue
        twins = [*fresh.get(arrival.version, ()), *ledger.versions.get(arrival.version, ())]
        version = arrival.version
        others = (each for each in twins if each != name and source.is_copy(name, each, version))
        twin = next(others, None)
        if not arrival.grows and twin is not None:
            what = f"has the same files as {twin!r}; it is not folded"
            found.append(Finding(Oddity.DUPLICATE, name, what))
            continue
        last_name = ledger.last_name if name < ledger.last_name else ""
        if source.order == "time":
            is_late = (arrival.timestamp, name) < ledger.last_time
            last_name = ledger.last_time[1] if is_late else ""
        is_late = bool(last_name) and not arrival.grows
        if is_late:
            what = f"arrived after {last_name!r} was folded; it is folded now"
            found.append(Finding(Oddity.LATE, name, what))
        fresh.setdefault(arrival.version, []).append(name)
        new.append(New(arrival, (first, last), is_late))
    return new, found


def _of_taken(arrival: Arrival, before: Entry) -> list[Finding]:
    """Return the oddities of an object that is in the ledger."""
    n_rows, stop = arrival.n_rows, before.stop
    if before.is_rejected or (arrival.version == before.version and n_rows >= stop):
        return []
    if 0 < n_rows < stop:
        what = f"has {n_rows} rows, but {stop} were folded; the fold is not reverted"
        return [Finding(Oddity.SHRUNK, arrival.name, what)]
    what = f"has changed since {stop} rows of it were folded; it is not folded again"
    return [Finding(Oddity.CHANGED, arrival.name, what)]


def _grid(array: Any) -> list[int]:
    stored = array.shards or array.chunks
    return [-(-length // step) for length, step in zip(array.shape, stored, strict=True)]


def leading_rows(array: Any, names: Collection[str], first: int) -> int:
    """Return the end of the rows that are stored without a gap from row `first` on.

    Parameters
    ----------
    array : zarr.Array
    names : collection of str
        Names of the files below the array.
    first : int
        Rows before it are not checked.

    Returns
    -------
    int
        The row after the last of them; `first` if its chunk is missing.
    """
    steps, grid = array.shards or array.chunks, _grid(array)
    others = [range(count) for count in grid[1:]]
    for chunk in range(first // steps[0], grid[0]):
        keys = (array.metadata.encode_chunk_key((chunk, *rest)) for rest in product(*others))
        if not all(key in names for key in keys):
            return max(first, min(chunk * steps[0], array.shape[0]))
    return int(array.shape[0])


def missing_chunks(node: Any, names: Collection[str]) -> tuple[int, int]:
    """Return the numbers of missing and of all chunks (or shards) of an array or CSR group.

    Parameters
    ----------
    node : zarr.Array or zarr.Group
    names : collection of str
        Names of the files below it.
    """
    if is_csr(node):
        missing = total = 0
        for part in PARTS:
            below = {name[len(part) + 1 :] for name in names if name.startswith(f"{part}/")}
            lacking, count = missing_chunks(node[part], below)
            missing, total = missing + lacking, total + count
        return missing, total
    places = list(product(*(range(count) for count in _grid(node))))
    keys = map(node.metadata.encode_chunk_key, places)
    return sum(key not in names for key in keys), len(places)


@dataclass(frozen=True)
class GrowingArray(Source):
    """Rows that are appended to a Zarr array.

    Attributes
    ----------
    location : Location
        Location of the array, or of the group that holds it.
    spec : RowsSpec
        How it is read, and which array of a group it is.
    allow_missing : bool
        Read missing chunks as the fill value.
    """

    location: Location
    spec: RowsSpec = AS_THEY_ARE
    allow_missing: bool = False

    @property
    def array(self) -> str:
        return self.spec.array or ""

    @property
    def name(self) -> str:
        return self.array or self.location.url.rsplit("/", 1)[-1]

    def look(self, taken: Mapping[str, Entry]) -> list[Arrival]:
        """Return the array, with the rows that are stored without a gap after those in `taken`."""
        array = open_array(self.location, self.array)
        files = list_files(self.location.child(self.array) if self.array else self.location)
        before = taken.get(self.name)
        first = 0 if before is None else before.stop
        n_rows = int(array.shape[0])
        if not self.allow_missing and n_rows > first:
            n_rows = leading_rows(array, {file.name for file in files}, first)
        problem = ""
        if n_rows < array.shape[0]:
            problem = f"rows {n_rows} to {array.shape[0]} are not stored yet"
        modified = max((file.modified for file in files), default=0.0)
        stamp = timestamp_of(array.attrs.get("timestamp"), modified)
        # Its version is of what does not change when it grows.
        facts = [str(array.dtype), *map(str, array.chunks), *map(str, array.shape[1:])]
        version = "-".join([*facts, str(array.metadata.zarr_format)])
        return [Arrival(self.name, version, n_rows, stamp, modified, problem, grows=True)]

    def settled_rows(self, arrival: Arrival) -> int:
        """Return the number of rows before the last chunk, which writers no longer change."""
        array = open_array(self.location, self.array)
        step: int = (array.shards or array.chunks)[0]
        return (max(1, arrival.n_rows) - 1) // step * step

    def open(self, arrival: Arrival, span: Range) -> Dataset:
        """Open the current array, without the warning about missing chunks at its end."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The array at .* lacks", UserWarning)
            options = self.location.storage_options() or None
            return open_source(self.location.url, self.spec, storage_options=options)

    def facts(self) -> dict[str, Any]:
        return {"kind": "growing array", "url": self.location.url, "array": self.array}


TABLES = (".parquet", ".pq")
ORDERS = ("name", "time")

_OF_GROUPS = ("X", "data")
"""Default names of the array of rows in a group."""


@dataclass(frozen=True)
class Prefix(Source):
    """Objects below a folder or prefix.

    Attributes
    ----------
    location : Location
    spec : RowsSpec
        How each object is read.
    pattern : str
        Pattern of the names of objects, with ``*`` and ``?``; relative to the location.
    order : {"name", "time"}
        By name, or by timestamp and then by name.
    allow_missing : bool
        Read missing chunks as the fill value.
    without : tuple of str
        URL prefixes of files that are not objects, such as the output of the stream itself.
    """

    has_times: ClassVar[bool] = True

    location: Location
    spec: RowsSpec = AS_THEY_ARE
    pattern: str = "*"
    order: str = "name"
    allow_missing: bool = False
    without: tuple[str, ...] = ()

    def look(self, taken: Mapping[str, Entry]) -> list[Arrival]:
        """Return all objects; those in `taken` are opened only if they have changed."""
        found = [
            self._arrival(name, files, taken.get(name))
            for name, files in self._objects()
            if fnmatch(name, self.pattern)
        ]
        if self.order == "time":
            return sorted(found, key=lambda arrival: (arrival.timestamp, arrival.name))
        return found

    def open(self, arrival: Arrival, span: Range) -> Dataset:
        """Open an object; a Parquet file is read as a whole."""
        place = self.location.child(arrival.name)
        if not arrival.name.lower().endswith(TABLES):
            own = self.spec  # of which columns are those of tables
            spec = RowsSpec(array=arrival.array or None, weights=own.weights, decode=own.decode)
            return open_source(place.url, spec, storage_options=place.storage_options() or None)
        table = self._table(place)
        chunk = table.load((0, table.n_rows))
        rows: Any = open_source(chunk.rows, weights=chunk.weights)
        return rows.with_facts(feature_names=table.feature_names)

    def _table(self, place: Location) -> Any:
        spec = replace(self.spec, array=None, decode=None)
        table: Any = open_source(place.url, spec, storage_options=place.storage_options() or None)
        if self.spec.missing == "drop":
            return without_incomplete(table, presence(table.to_numpy()))
        return table

    def facts(self) -> dict[str, Any]:
        found = {
            "kind": "prefix",
            "url": self.location.url,
            "pattern": self.pattern,
            "array": self.spec.array or "",
            "order": self.order,
        }
        # States of streams without a choice of columns stay those of the same source.
        if not self.spec.chooses_columns and self.spec.missing in (None, "error"):
            return found
        columns = {name: getattr(self.spec, name) for name in ("features", "drop", "id_column")}
        return {**found, "columns": {**columns, "weights": None, "nulls": self.spec.missing}}

    # -- listing ----------------------------------------------------------------------------------

    def _objects(self) -> Iterator[tuple[str, list[StoredFile]]]:
        """Yield the name and the files of every object, in the order of names."""
        base = self.location.url.rstrip("/")
        files = [
            file
            for file in list_files(self.location)
            if not any(f"{base}/{file.name}".startswith(url) for url in self.without)
        ]
        folders = sorted(
            file.name.rpartition("/")[0]
            for file in files
            if file.name.rpartition("/")[2] in METADATA and "/" in file.name
        )
        roots = set[str]()  # the outermost folders that are Zarr arrays or groups
        for folder in folders:
            if roots.isdisjoint(_folders_of(folder)):
                roots.add(folder)
        members, others = dict[str, list[StoredFile]](), list[str]()
        for file in files:
            is_table = file.name.lower().endswith(TABLES)
            top = file.name if is_table else file.name.partition("/")[0]
            owner = next((each for each in _folders_of(file.name) if each in roots), top)
            if owner == file.name and not is_table:
                others.append(file.name)  # e.g. the metadata of an enclosing group
            else:
                members.setdefault(owner, []).append(file)
        rows = [name for name in others if name.lower().endswith(IN_PLACE)]
        if rows and not members:
            warnings.warn(
                f"{self.location.url!r} holds {len(rows)} files that a stream does not read, e.g. "
                f"{rows[0]!r}; write Parquet files or Zarr arrays there, or use daskcluster convert.",
                UserWarning,
                stacklevel=2,
            )
        yield from sorted(members.items())

    def is_copy(self, name: str, twin: str, version: str) -> bool:
        """Return whether two objects of one version are the same; see `_is_copy`."""
        return _is_copy(self.location.child(name), self.location.child(twin), version)

    def _arrival(self, name: str, files: Sequence[StoredFile], before: Entry | None) -> Arrival:
        modified = max(file.modified for file in files)
        found = Arrival(name, digest_of_files(files, name), 0, modified, modified)
        if before is not None and before.version == found.version:
            return replace(found, n_rows=before.stop)
        try:
            return self._inspected(found, files)
        except DatasetNotFoundError as error:
            return replace(found, problem=f"half-written: {error}")
        except (DaskClusterError, KeyError, ValueError, OSError) as error:
            text = f"metadata cannot be read ({type(error).__name__}: {error})"
            return replace(found, problem=text)

    def _inspected(self, found: Arrival, files: Sequence[StoredFile]) -> Arrival:
        """Return the object with its number of rows, timestamp, problem and array, from its metadata."""
        name, place = found.name, self.location.child(found.name)
        if name.lower().endswith(TABLES):
            try:
                return replace(found, n_rows=int(self._table(place).n_rows))
            except NoRowsError:  # a whole file, which later files do not wait for
                return found
        names = {file.name[len(name) + 1 :] for file in files}
        if not names & set(METADATA):
            return replace(found, problem="half-written: it has no metadata")
        if PARTIAL_MARK in names:
            return replace(found, problem="half-written: its writer has not finished")
        root: Any = open_node(place)
        given = self._array_of(root)
        array = ROWS if holds_weighted_rows(root) else given
        node = root[array] if array else root
        stamp = root.attrs.get("timestamp", node.attrs.get("timestamp"))
        found = replace(found, timestamp=timestamp_of(stamp, found.modified), array=given)
        below = {each[len(array) + 1 :] for each in names if each.startswith(f"{array}/")}
        missing, total = missing_chunks(node, below if array else names)
        if missing and not self.allow_missing:
            text = f"half-written: {missing} of {total} chunks are missing"
            return replace(found, problem=text)
        shape = node.attrs["shape"] if not hasattr(node, "shape") else node.shape
        n_rows = int(shape[0])
        return replace(found, n_rows=n_rows, problem="" if n_rows else "it has no rows")

    def _array_of(self, node: Any) -> str:
        """Return the name of the array of a group that holds the rows; empty if `node` is an array."""
        if self.spec.array or hasattr(node, "shape"):
            return "" if hasattr(node, "shape") else self.spec.array or ""
        if holds_weighted_rows(node) or node.attrs.get("encoding-type"):
            return ""
        names = [name for name, array in node.arrays() if array.ndim > 1]
        if len(names) == 1:
            return str(names[0])
        return next((name for name in _OF_GROUPS if name in node), "")


def _folders_of(name: str) -> Iterator[str]:
    """Yield the folders that a file or folder is in, the outermost first."""
    parts = name.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


@lru_cache(4096)
def _is_copy(place: Location, twin: Location, version: str) -> bool:
    """Compare the bytes of objects where the store has no tags of contents, as a disk.

    There, a version is size and time, which files that are written one right after the other may have in
    common. An object that was changed since, or moved, is taken for the same.
    """
    try:
        mine, theirs = (
            sorted(find_files(each), key=lambda file: file.name) for each in (place, twin)
        )
    except FileNotFoundError:
        return True
    untagged = (file for file in mine if file.version == f"{file.size}-{file.modified!r}")
    return mine != theirs or all(_same_bytes(place, twin, file.name) for file in untagged)


def _same_bytes(one: Location, other: Location, name: str) -> bool:
    with open_file(one, name) as first, open_file(other, name) as second:
        while part := first.read(_BLOCK_BYTES):
            if part != second.read(_BLOCK_BYTES):
                return False
        return not second.read(1)


_BLOCK_BYTES = 1 << 20


class Portions(Source):
    """A source of chunks of rows from an iterator.

    Parameters
    ----------
    chunks : iterable
        Chunks of any kind that `open_dataset` takes, or pairs (name, chunk). Chunks without names are
        numbered. A chunk whose name has been folded before, for example after a restart of the program,
        is not folded again.
    most : int
        Maximum number of chunks per cycle.

    Examples
    --------
    >>> import numpy as np
    >>> source = Portions([np.zeros((3, 2)), np.ones((4, 2))])
    >>> [(arrival.name, arrival.n_rows) for arrival in source.look({})]
    [('00000000', 3), ('00000001', 4)]
    >>> source.look({})
    []
    """

    def __init__(self, chunks: Iterable[Any], most: int = 64) -> None:
        self._chunks: Iterator[Any] = iter(chunks)
        self._most = most
        self._number = 0
        self._held: dict[str, Dataset] = {}

    def look(self, taken: Mapping[str, Entry]) -> list[Arrival]:
        """Return the next chunks, without those in `taken`, and release the previous ones."""
        self._held.clear()
        found: list[Arrival] = []
        for item in self._chunks:
            is_named = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
            name, rows = item if is_named else (f"{self._number:08d}", item)
            self._number += 1
            if name in taken:
                continue
            dataset = open_source(rows)
            self._held[name] = dataset
            digest = hashlib.sha256(f"{name} {dataset.n_rows}".encode()).hexdigest()[:16]
            found.append(Arrival(name, digest, dataset.n_rows))
            if len(found) == self._most:
                break
        return found

    def open(self, arrival: Arrival, span: Range) -> Dataset:
        if arrival.name not in self._held:
            raise DatasetNotFoundError(
                f"the chunk {arrival.name!r} is no longer available; supply it again."
            )
        return self._held[arrival.name]

    def facts(self) -> dict[str, Any]:
        return {"kind": "iterator"}


_WILD = "*?["


def open_stream_source(
    source: Any,
    spec: RowsSpec = AS_THEY_ARE,
    *,
    order: str = "name",
    allow_missing: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
) -> Source:
    """Open a source of a stream.

    Parameters
    ----------
    source : str, path, or iterable
        The URL of a Zarr array that grows; a folder or prefix that receives arrays, groups and Parquet
        files (it need not exist yet), or a pattern such as ``s3://bucket/in/2026-*.zarr``; or an iterator
        of chunks.
    spec : RowsSpec
        How each object is read.
    order : {"name", "time"}
        Order of objects that are available at the same time.
    allow_missing : bool
        Read missing chunks as the fill value.
    storage_options : mapping, optional
    without : tuple of str
        URLs whose contents do not belong to the source.

    Raises
    ------
    InvalidParameterError, WrongTypeError
    """
    if order not in ORDERS:
        raise InvalidParameterError(f"order={order!r} should be one of {', '.join(ORDERS)}.")
    if spec.missing not in (None, "error", "drop"):
        raise InvalidParameterError(
            f"missing={spec.missing!r} needs the means of all rows, which a stream never has; leave rows "
            "out with missing='drop', or fill them in before they are stored."
        )
    if not isinstance(source, (str, os.PathLike)):
        if not hasattr(source, "__iter__") or hasattr(source, "shape"):
            raise WrongTypeError(
                f"the source of a stream should be a URL or an iterator, got {type(source).__name__}."
            )
        return Portions(source)
    head = text = os.fspath(source)
    parts, wild = text.split("/"), ""
    for number, part in enumerate(parts):
        if any(sign in part for sign in _WILD):
            # A folder without wildcards, and the pattern below it.
            head, wild = "/".join(parts[:number]) or "/", "/".join(parts[number:])
            break
    location = locate(head, storage_options)
    for url in without:
        if locate(url, storage_options).holds(location):
            raise InvalidParameterError(
                f"The stream writes to {url!r}, which would replace its source {text!r} or hide it; write "
                "to another URL."
            )
    if not wild and _is_array(location, spec.array):
        spec.refuse_all_but(("array", "decode"), f"{text!r} is a Zarr array")
        return GrowingArray(location, spec, allow_missing)
    return Prefix(
        location,
        spec,
        pattern=wild or "*",
        order=order,
        allow_missing=allow_missing,
        without=tuple(f"{locate(url).url}/" for url in without),
    )


def _is_array(location: Location, array: str | None) -> bool:
    """Whether there is an array at the location, or one named `array` in a group there."""
    try:
        node: Any = open_node(location)
    except DatasetNotFoundError:
        return False
    return hasattr(node, "shape") or (array is not None and array in node)
