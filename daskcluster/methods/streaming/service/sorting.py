"""What is new at a source, and what is odd: each object beside what the ledger says of it."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from daskcluster.methods.streaming.service.ledger import Arrival, Ledger
from daskcluster.typing import Range


class Oddity(enum.StrEnum):
    """What may be the matter with an object."""

    LATE = "late"
    """Objects that come after it in the order were folded before it; it is folded all the same."""
    CHANGED = "changed"
    """It was folded, and is not what it was; it is not folded again."""
    SHRUNK = "shrunk"
    """It has fewer rows than were folded of it."""
    DUPLICATE = "duplicate"
    """Its files are those of an object with another name; it is not folded."""
    UNSETTLED = "unsettled"
    """It is half-written, or has changed a moment ago; it is looked at again."""
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
        """Whether the object is as it was so long ago, by its own time or by what was seen of it."""
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
    """Whether an object that was refused has changed since."""
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
