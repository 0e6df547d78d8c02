"""Leases: the right of one process to write an output. Each lease is a file that is created once.

Layout::

    <output>.partial/jobs/00000003.json         a lease; the highest number holds the output
    <output>.partial/jobs/00000003.begun.json   outputs of this job may exist from now on
    <output>.partial/jobs/00000003.ended.json   how the job ended; a new job may take the lease
    <output>.partial/...                        checkpoints

A run of the same job takes over the lease; the previous run is dead, or will notice and stop. A run of
another job is refused until the holder has ended. Clocks are never compared.
"""

from __future__ import annotations

import json
import os
import platform
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from daskcluster.errors import InvalidParameterError, LeaseError
from daskcluster.storage.checkpoint import differences
from daskcluster.storage.files import create_file, list_names, read_file, remove_file
from daskcluster.storage.location import Location, locate

_FORMAT = "daskcluster-lease"
_VERSION = 2
_LEASE = re.compile(r"(\d{8})\.json")
_ATTEMPTS = 20


def folder_of(output: str, storage_options: Mapping[str, Any] | None = None) -> Location:
    """Return the location of the state of the job that writes `output`."""
    place = locate(output, storage_options)
    return replace(place, url=f"{place.url.rstrip('/')}.partial")


@dataclass(frozen=True)
class Holder:
    """A lease as stored.

    Attributes
    ----------
    number : int
    name, token : str
        Name of the job, and a token of this run.
    arguments : dict
        Arguments of the job.
    attempt : int
        Number of this run of the job, from 1.
    started : bool
        Whether outputs of this job may exist.
    state : str
        Empty while the job runs, then done, failed or cancelled.
    record : dict or None
        Result of a job that is done.
    since, host : str
        Start time and host, for display.
    version : int
        Version of the form of leases.
    """

    number: int
    name: str
    token: str
    arguments: dict[str, Any]
    attempt: int = 1
    started: bool = False
    state: str = ""
    record: dict[str, Any] | None = None
    since: str = ""
    host: str = ""
    version: int = _VERSION


class Lease:
    """The right to write one output, until another process takes it.

    Parameters
    ----------
    folder : Location
        See `folder_of`.
    name : str
        Name of the job.
    arguments : mapping
        Arguments of the job, as plain values.

    Examples
    --------
    >>> folder = folder_of("memory://doctest/leased")
    >>> first = Lease(folder, "monday", {"n_clusters": 5})
    >>> first.take()
    >>> Lease(folder, "tuesday", {}).take()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    LeaseError: 'memory://doctest/leased' is being written by the job 'monday'
    >>> again = Lease(folder, "monday", {"n_clusters": 5})
    >>> again.take()
    >>> again.attempt, again.check()
    (2, None)
    >>> first.check()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    LeaseError: the job 'monday' was restarted
    >>> again.end("done", {"inertia": 1.0})
    """

    def __init__(self, folder: Location, name: str, arguments: Mapping[str, Any]) -> None:
        self.folder = folder
        self.name = name
        self._place = folder.child("jobs")
        self._arguments = json.loads(json.dumps(dict(arguments)))
        self._token = uuid.uuid4().hex
        self._number = 0
        self.attempt = 0
        self.started = False

    @property
    def is_held(self) -> bool:
        """Whether this run has taken the lease; another run may have taken it over since."""
        return self._number > 0

    def earlier(self) -> Holder | None:
        """Return the last run of the same job, unless another job has held the output since.

        Raises
        ------
        InvalidParameterError
            That run had other arguments and has not failed.
        LeaseError
            Another job holds the output.
        """
        return self._earlier(self._last())

    def take(self) -> None:
        """Take the lease, if it is free, its job has ended, or its holder is a run of this job.

        Raises
        ------
        LeaseError
            Another job holds it.
        """
        for _ in range(_ATTEMPTS):
            # Read once for both checks: a holder that came between two reads would go unchecked.
            last = self._last()
            earlier = self._earlier(last)
            number = 1 if last is None else last.number + 1
            # Recurring jobs, such as streams, start again after they were done.
            attempt = 1 if earlier is None or earlier.state == "done" else earlier.attempt + 1
            started = earlier is not None and earlier.started
            lease = {
                "format": _FORMAT,
                "version": _VERSION,
                "name": self.name,
                "token": self._token,
                "arguments": self._arguments,
                "attempt": attempt,
                "begun": started,
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
                "host": f"{platform.node()}/{os.getpid()}",
            }
            content = json.dumps(lease, indent=1).encode()
            is_mine = create_file(self._place, _file(number), content) and self._is_mine(number)
            if is_mine and self._numbers()[-1:] != [number]:
                # It reuses the number of a removed lease, although higher ones exist.
                remove_file(self._place, _file(number))
            elif is_mine:
                self._number, self.attempt, self.started = number, attempt, started
                for name in list_names(self._place):
                    older = name.lstrip(".")[
                        :8
                    ]  # files that killed runs were writing begin with a dot
                    if older.isdecimal() and int(older) < number:
                        remove_file(self._place, name)
                return
        raise LeaseError(
            f"the lease at {self._place.url!r} could not be taken in {_ATTEMPTS} attempts: other runs of "
            f"the job {self.name!r} keep taking it; submit a job only once."
        )

    def check(self) -> None:
        """Raise if another process has taken the lease.

        Raises
        ------
        LeaseError
        """
        # Check the owner too: on some stores two runs can create the same file, and the later one wins.
        if not (self._numbers()[-1:] == [self._number] and self._is_mine(self._number)):
            raise LeaseError(
                f"the job {self.name!r} was restarted by another process, which now writes "
                f"{self.folder.url.removesuffix('.partial')!r}; this run stops, and has written nothing "
                "since."
            )

    def begin(self) -> None:
        """Record that outputs are about to be written."""
        self.check()
        if not self.started:
            self._mark("begun", {})
            self.started = True

    def end(self, state: str, record: Mapping[str, Any] | None = None) -> None:
        """Record how the job ended: done, failed or cancelled."""
        self._mark("ended", {"state": state, "record": None if record is None else dict(record)})

    def leave(self) -> None:
        """Remove the lease of a run that failed before it kept or wrote anything, and empty folders."""
        for name in list_names(self._place):
            if name.lstrip(".").startswith(_file(self._number).removesuffix("json")):
                remove_file(self._place, name)
        if self.folder.is_local:
            for place in (self._place, self.folder):
                with suppress(OSError):  # other files are there, or another run was faster
                    os.rmdir(place.url)

    # -- the store ---------------------------------------------------------------------------------

    def _earlier(self, last: Holder | None) -> Holder | None:
        if last is None:
            return None
        if last.name != self.name and last.state:
            return None
        if last.name != self.name:
            raise LeaseError(
                f"{self.folder.url.removesuffix('.partial')!r} is being written by the job {last.name!r} "
                f"(since {last.since}, on {last.host}); wait for it, cancel it or write elsewhere. If that "
                f"job is dead, submit it again under its name, or remove {self._place.url!r}."
            )
        if last.arguments != self._arguments:
            if last.state != "failed":
                what = what_differs(last.arguments, self._arguments)
                raise InvalidParameterError(
                    f"the job {self.name!r} was started with other arguments: {what}; give the same ones "
                    "to resume it, or another name to start a new one."
                )
            return None
        return last

    def _numbers(self) -> list[int]:
        found = map(_LEASE.fullmatch, list_names(self._place))
        return sorted(int(match.group(1)) for match in found if match)

    def _is_mine(self, number: int) -> bool:
        return _parsed(read_file(self._place, _file(number))).get("token") == self._token

    def _last(self) -> Holder | None:
        for number in reversed(self._numbers()):
            lease = _parsed(read_file(self._place, _file(number)))
            if lease.pop("format", None) != _FORMAT:
                continue
            marked = read_file(self._place, _file(number, "begun")) is not None
            ended = _parsed(read_file(self._place, _file(number, "ended")))
            lease["started"] = bool(lease.pop("begun", False)) or marked
            return Holder(number=number, **lease, **ended)
        return None

    def _mark(self, what: str, facts: Mapping[str, Any]) -> None:
        create_file(self._place, _file(self._number, what), json.dumps(facts, indent=1).encode())


class _Default:
    def __repr__(self) -> str:
        return "the default"


def what_differs(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return as text which arguments of a job differ; those that are missing have their defaults.

    Examples
    --------
    >>> what_differs({"n_clusters": 5, "tol": 0.0}, {"n_clusters": 6})
    'n_clusters was 5 and is 6, tol was 0.0 and is the default'
    """
    left_out = dict.fromkeys([*before, *now], _Default())
    return differences({**left_out, **before}, {**left_out, **now})


def _file(number: int, what: str = "") -> str:
    return f"{number:08d}.{what}.json" if what else f"{number:08d}.json"


def _parsed(content: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}
