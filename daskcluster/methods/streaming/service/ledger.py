"""The ledger of a stream: the objects, versions and rows that were folded, and how each arrived.

Entries are written in segments that are never changed. A commit of the state names the segments that
belong to it, so that both come about together; segments that no commit names are of no effect. Neighbours
of about the same size are written anew as one, so that there are few of them, and each entry is written
about log2(n) times.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """Progress on an object: the rows folded so far.

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
    """A source of rows in order."""

    has_times: ClassVar[bool]
    """True if objects have time stamps of their own."""

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
        # Refused objects count, too: a copy of one is a copy at any time.
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


class Oddity(enum.StrEnum):
    """Kinds of problems with an object."""

    LATE = "late"
    """Objects that come after it in the order were folded before it; it is folded all the same."""
    CHANGED = "changed"
    """It was folded, and is not what it was; it is not folded again."""
    SHRUNK = "shrunk"
    """It has fewer rows than were folded of it."""
    DUPLICATE = "duplicate"
    """Its files are those of an object with another name; it is not folded."""
    UNSETTLED = "unsettled"
    """It is half-written, or changed a moment ago; it is checked again."""
    CORRUPT = "corrupt"
    """It cannot be read, or holds rows that are not finite; it is not folded until it changes."""


@dataclass(frozen=True)
class Finding:
    """One odd object."""

    oddity: Oddity
    name: str
    text: str


@dataclass(frozen=True)
class New:
    """Rows that are to be folded."""

    arrival: Arrival
    span: Range
    is_late: bool = False


class Settling:
    """Knows which objects have not changed for a while.

    Parameters
    ----------
    seconds : float
        How long; 0 takes them as they are.
    clock, wall : callable () -> float
        Seconds that pass, and seconds since 1970.
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
        """Return True if the object has not changed for that long, by its own time or since it was seen."""
        if self.seconds <= 0.0 or self._wall() - arrival.modified >= self.seconds > 0.0:
            self._seen.pop(arrival.name, None)
            return True
        state = arrival.version, arrival.n_rows
        before, since = self._seen.get(arrival.name, (None, 0.0))
        if before != state:
            self._seen[arrival.name] = state, self._clock()
            return False
        return self._clock() - since >= self.seconds


def sort_out(
    arrivals: Sequence[Arrival],
    ledger: Ledger,
    settling: Settling,
    settled_rows: Callable[[Arrival], int] | None = None,
    *,
    by_time: bool = False,
) -> tuple[list[New], list[Finding]]:
    """Return what is to be folded, in order, and what is odd.

    Parameters
    ----------
    arrivals : sequence of Arrival
        In the order of the stream.
    ledger : Ledger
    settling : Settling
    settled_rows : callable, optional
        How many rows of an object that grows are safe although its end has just changed.
    by_time : bool
        The order of the stream is that of time stamps, not that of names.
    """
    new: list[New] = []
    found: list[Finding] = []
    fresh: dict[str, str] = {}
    for arrival in arrivals:
        before = ledger.taken.get(arrival.name)
        first = 0 if before is None or before.rejected else before.stop
        if before is not None and not _is_fresh(arrival, before.version, before.rejected):
            found += _of_taken(arrival, before.version, before.stop, before.rejected)
            if not arrival.grows or arrival.version != before.version:
                continue
        last = arrival.n_rows
        if not settling.is_settled(arrival):
            last = settled_rows(arrival) if arrival.grows and settled_rows is not None else 0
            if last <= first and arrival.n_rows > first:
                found.append(_unsettled(arrival, "it changed a moment ago"))
        elif arrival.problem:
            found.append(_unsettled(arrival, arrival.problem))
        if last <= first:
            continue
        twin = ledger.versions.get(arrival.version) or fresh.get(arrival.version)
        if not arrival.grows and twin is not None and twin != arrival.name:
            text = f"{arrival.name!r} has the files of {twin!r}; it is not folded"
            found.append(Finding(Oddity.DUPLICATE, arrival.name, text))
            continue
        last_name = _later_one(arrival, ledger, by_time=by_time)
        if last_name:
            text = f"{arrival.name!r} comes after {last_name!r} was folded; it is folded now"
            found.append(Finding(Oddity.LATE, arrival.name, text))
        fresh[arrival.version] = arrival.name
        new.append(New(arrival, (first, last), bool(last_name)))
    return new, found


def _later_one(arrival: Arrival, ledger: Ledger, *, by_time: bool) -> str:
    """Return which object was folded although it comes after this one in the order; empty if none was."""
    if arrival.grows:
        return ""
    if by_time:
        last = ledger.last_time
        return last[1] if (arrival.timestamp, arrival.name) < last else ""
    return ledger.last_name if arrival.name < ledger.last_name else ""


def _is_fresh(arrival: Arrival, version: str, rejected: str) -> bool:
    """Return True if a refused object has changed since."""
    return bool(rejected) and arrival.version != version


def _of_taken(arrival: Arrival, version: str, stop: int, rejected: str) -> list[Finding]:
    """Say what has become of an object that the ledger has."""
    name = arrival.name
    if arrival.version == version and arrival.n_rows >= stop:
        return []
    if rejected:
        return []
    if 0 < arrival.n_rows < stop:
        text = (
            f"{name!r} has {arrival.n_rows} rows, {stop} of it were folded; nothing is taken back"
        )
        return [Finding(Oddity.SHRUNK, name, text)]
    text = f"{name!r} is not what it was when {stop} rows of it were folded; it is not folded again"
    return [Finding(Oddity.CHANGED, name, text)]


def _unsettled(arrival: Arrival, why: str) -> Finding:
    return Finding(Oddity.UNSETTLED, arrival.name, f"{arrival.name!r} waits: {why}")
