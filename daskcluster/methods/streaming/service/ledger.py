"""Ledger of a stream: the objects, versions and rows that were folded, and oddities of each.

Entries are written in segments that never change. A commit of the state names its segments, so that state
and ledger are updated atomically; segments that no commit names have no effect. Consecutive segments of
similar size are rewritten as one, so that there are few segments and each entry is written about log2(n)
times.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
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
class Taken:
    """Status of an object in the ledger.

    Attributes
    ----------
    version : str
    stop : int
        Number of its rows that were folded.
    rejected : str
        Why it was rejected; empty if it was folded.
    """

    version: str
    stop: int
    rejected: str = ""


class Source(Protocol):
    """A source of objects with rows, in an order."""

    has_times: ClassVar[bool]
    """Whether objects have timestamps."""

    def look(self, taken: Mapping[str, Taken]) -> list[Arrival]:
        """List the objects, in the order of the stream.

        Parameters
        ----------
        taken : mapping of str to Taken
            Objects in the ledger, by name. They need not be opened unless they have changed.
        """
        ...

    def open(self, arrival: Arrival, span: Range) -> Dataset:
        """Open rows of an object, to be read once.

        Raises
        ------
        DaskClusterError
            The rows cannot be read.
        """
        ...

    def facts(self) -> dict[str, Any]:
        """Return the settings that identify the source, as plain values without credentials."""
        ...


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
        self.taken: dict[str, Taken] = {}
        self.versions: dict[str, str] = {}
        self.last_name = ""
        self.last_time = (-math.inf, "")

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry) -> None:
        """Add an entry, without writing it."""
        self.entries.append(entry)
        self.taken[entry.name] = Taken(
            entry.version, entry.stop, entry.note if entry.is_rejected else ""
        )
        # Includes rejected objects, so that copies of them are detected.
        self.versions[entry.version] = entry.name
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
    """An oddity of an object, with a message."""

    oddity: Oddity
    name: str
    text: str


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


def sort_out(
    arrivals: Sequence[Arrival],
    ledger: Ledger,
    settling: Settling,
    settled_rows: Callable[[Arrival], int] | None = None,
    *,
    by_time: bool = False,
) -> tuple[list[New], list[Finding]]:
    """Return the rows to fold, in order, and the oddities of objects.

    Parameters
    ----------
    arrivals : sequence of Arrival
        In the order of the stream.
    ledger : Ledger
    settling : Settling
    settled_rows : callable, optional
        Returns the number of rows of a growing object that can be read although its end has just changed.
    by_time : bool
        The order of the stream is by timestamp, not by name.
    """
    new: list[New] = []
    found: list[Finding] = []
    fresh: dict[str, str] = {}
    for arrival in arrivals:
        before = ledger.taken.get(arrival.name)
        first = 0 if before is None or before.rejected else before.stop
        # A rejected object is new again if it has changed since.
        if before is not None and not (before.rejected and arrival.version != before.version):
            found += _of_taken(arrival, before)
            if not arrival.grows or arrival.version != before.version:
                continue
        last = arrival.n_rows
        if not settling.is_settled(arrival):
            last = settled_rows(arrival) if arrival.grows and settled_rows is not None else 0
            if last <= first and arrival.n_rows > first:
                found.append(_unsettled(arrival, "it has just changed"))
        elif arrival.problem:
            found.append(_unsettled(arrival, arrival.problem))
        if last <= first:
            continue
        twin = ledger.versions.get(arrival.version) or fresh.get(arrival.version)
        if not arrival.grows and twin is not None and twin != arrival.name:
            text = f"{arrival.name!r} has the same files as {twin!r}; it is not folded"
            found.append(Finding(Oddity.DUPLICATE, arrival.name, text))
            continue
        last_name = _later_one(arrival, ledger, by_time=by_time)
        if last_name:
            text = f"{arrival.name!r} arrived after {last_name!r} was folded; it is folded now"
            found.append(Finding(Oddity.LATE, arrival.name, text))
        fresh[arrival.version] = arrival.name
        new.append(New(arrival, (first, last), bool(last_name)))
    return new, found


def _later_one(arrival: Arrival, ledger: Ledger, *, by_time: bool) -> str:
    """Return the name of a folded object that is later in the order than `arrival`, or an empty string."""
    if arrival.grows:
        return ""
    if by_time:
        last = ledger.last_time
        return last[1] if (arrival.timestamp, arrival.name) < last else ""
    return ledger.last_name if arrival.name < ledger.last_name else ""


def _of_taken(arrival: Arrival, before: Taken) -> list[Finding]:
    """Return the oddities of an object that is in the ledger."""
    name, n_rows, stop = arrival.name, arrival.n_rows, before.stop
    if before.rejected or (arrival.version == before.version and n_rows >= stop):
        return []
    if 0 < n_rows < stop:
        text = f"{name!r} has {n_rows} rows, but {stop} were folded; the fold is not reverted"
        return [Finding(Oddity.SHRUNK, name, text)]
    text = f"{name!r} has changed since {stop} rows of it were folded; it is not folded again"
    return [Finding(Oddity.CHANGED, name, text)]


def _unsettled(arrival: Arrival, why: str) -> Finding:
    return Finding(Oddity.UNSETTLED, arrival.name, f"{arrival.name!r} waits: {why}")
