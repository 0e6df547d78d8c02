"""What was folded into a stream, once, and how it arrived: the list of objects, versions and rows.

Entries are written in segments that are never changed. A commit of the state names the segments that
belong to it, so that both come about together; segments that no commit names are of no effect. Neighbours
of about the same size are written anew as one, so that there are few of them, and each entry is written
about log2(n) times.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

from daskcluster.errors import CheckpointError
from daskcluster.storage.files import read_file, write_file
from daskcluster.storage.location import Location
from daskcluster.typing import Dataset, Range


@dataclass(frozen=True)
class Arrival:
    """An object of a source.

    Attributes
    ----------
    name : str
        Unique within the source, and its place in the order of the stream.
    version : str
        Changes when the content does.
    n_rows : int
        Rows that can be read.
    timestamp : float
        The object's own, in seconds since 1970: its attribute ``timestamp``, or when it was last modified.
    modified : float
        When it was last modified, by the store.
    problem : str
        Why it cannot be read yet; empty if it can.
    grows : bool
        Rows are appended to it; what was read of it stays as it is.
    array : str
        Which array of it holds the rows, if it is a group that has several.
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
class Taken:
    """What was folded of an object so far.

    Attributes
    ----------
    version : str
    stop : int
        Rows of it that were folded.
    rejected : str
        Why it was not; empty if it was.
    """

    version: str
    stop: int
    rejected: str = ""


class Source(Protocol):
    """Where rows come from, in order."""

    has_times: ClassVar[bool]
    """Whether objects have time stamps of their own."""

    def look(self, taken: Mapping[str, Taken]) -> list[Arrival]:
        """Return what is there, in the order of the stream.

        Parameters
        ----------
        taken : mapping of str to Taken
            What was folded, by name: what has not changed since then need not be opened.
        """
        ...

    def open(self, arrival: Arrival, span: Range) -> Dataset:
        """Open rows of an object, to be read once.

        Raises
        ------
        DaskClusterError
            They cannot be read.
        """
        ...

    def facts(self) -> dict[str, Any]:
        """Return what decides what the stream consists of, as plain values without credentials."""
        ...


@dataclass(frozen=True)
class Entry:
    """Rows of one object that were folded, or an object that was refused.

    Attributes
    ----------
    name, version : str
    start, stop : int
        Rows of the object.
    first : int
        Which row of the stream the first one is.
    timestamp : float
    note : str
        ``"late"`` if objects after it were folded before; ``"rejected: ..."`` if it was refused.
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


class Ledger:
    """All entries, in the order in which they were folded.

    `last_name` and `last_time`, a time stamp and a name, tell which object that was folded comes last in
    the order of names, and in that of time stamps.

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
        self.taken: dict[str, Taken] = {}
        self.versions: dict[str, str] = {}
        self.last_name = ""
        self.last_time = (-math.inf, "")

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry) -> None:
        """Note one more entry, not yet written."""
        self.entries.append(entry)
        self.taken[entry.name] = Taken(
            entry.version, entry.stop, entry.note if entry.is_rejected else ""
        )
        # Of what was refused, too: a copy of it is a copy whenever it is looked at.
        self.versions[entry.version] = entry.name
        if not entry.is_rejected:
            self.last_name = max(self.last_name, entry.name)
            self.last_time = max(self.last_time, (entry.timestamp, entry.name))

    @property
    def n_written(self) -> int:
        return sum(int(segment["entries"]) for segment in self.segments)

    def write(self, place: Location) -> list[dict[str, Any]]:
        """Write what is new, and return the segments of the whole ledger; old ones stay where they are."""
        if self.n_written < len(self.entries):
            kept = list(self.segments)
            first = self.n_written
            while kept and int(kept[-1]["entries"]) <= 2 * (len(self.entries) - first):
                first -= int(kept.pop()["entries"])
            content = _lines(self.entries[first:])
            digest = hashlib.sha256(content).hexdigest()
            name = f"{first:010d}-{digest[:16]}.jsonl"
            write_file(place, name, content)
            kept.append({"name": name, "entries": len(self.entries) - first, "sha256": digest})
            self.segments = kept
        return self.segments

    @classmethod
    def read(cls, place: Location, segments: Sequence[Mapping[str, Any]]) -> Ledger:
        """Return the ledger of the given segments.

        Raises
        ------
        CheckpointError
            One is missing or damaged.
        """
        ledger = cls()
        for segment in segments:
            for entry in _entries(place, segment):
                ledger.append(entry)
        ledger.segments = [dict(segment) for segment in segments]
        return ledger


def _lines(entries: Sequence[Entry]) -> bytes:
    return "".join(json.dumps(asdict(entry)) + "\n" for entry in entries).encode()


def _entries(place: Location, segment: Mapping[str, Any]) -> Iterator[Entry]:
    name = str(segment["name"])
    content = read_file(place, name)
    if content is None or hashlib.sha256(content).hexdigest() != segment["sha256"]:
        raise CheckpointError(
            f"The segment {name!r} of the ledger at {place.url!r} is "
            f"{'missing' if content is None else 'damaged'}; restore a copy, or begin another state."
        )
    for line in content.decode().splitlines():
        yield Entry(**json.loads(line))
