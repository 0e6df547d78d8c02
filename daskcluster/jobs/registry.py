"""The registry of jobs on a scheduler: states and last log lines, readable by any client.

All of it is in the scheduler's event log, so it is bounded, outlives clients and workers, and is lost with
the scheduler. A flag on the scheduler asks a job to stop.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from daskcluster.engine.compat import lock
from daskcluster.errors import (
    InvalidParameterError,
    JobNotFoundError,
    LeaseError,
    SchedulerUnreachableError,
)
from daskcluster.jobs.arguments import PACE
from daskcluster.storage.lease import what_differs

if TYPE_CHECKING:
    from distributed import Client, Event

_INDEX = "daskcluster-jobs"
_RUNNING = ("submitted", "running")
_GONE = ("erred", "forgotten")
_SUBMIT_SECONDS = 60.0


@dataclass(frozen=True)
class JobStatus:
    """The status of a job.

    Attributes
    ----------
    name, kind : str
    state : {"submitted", "running", "done", "failed", "cancelled", "lost"}
        A job is lost if it has not ended and the scheduler has no task for it, since every worker that ran
        it died. Submit it again under its name: it resumes from its checkpoint.
    output : str
        The URL that the job writes.
    arguments : dict or None
        Arguments of the job as plain values, without those at their defaults.
    key : str
        Key of the job's Dask task.
    worker : str
    attempt : int
        Number of the run, from 1; a job runs again if its worker is lost.
    submitted, updated : float
        Seconds since the epoch, by the scheduler's clock.
    iteration, max_iter : int or None
    inertia : float or None
    rows_seen : int or None
        Rows that a stream has read since its start.
    phase : str
        Name of the current pass over the rows.
    share : float or None
        Share of the rows that the pass has processed.
    record : dict or None
        Result of a job that is done.
    error : str
        Error of a job that failed.

    Notes
    -----
    Cost: up to three requests to the scheduler; see `daskcluster.jobs.status`.
    """

    name: str
    kind: str = ""
    state: str = "submitted"
    output: str = ""
    arguments: dict[str, Any] | None = None
    key: str = ""
    worker: str = ""
    attempt: int = 1
    submitted: float = 0.0
    updated: float = 0.0
    iteration: int | None = None
    max_iter: int | None = None
    inertia: float | None = None
    rows_seen: int | None = None
    phase: str = ""
    share: float | None = None
    record: dict[str, Any] | None = None
    error: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in _RUNNING

    def as_dict(self) -> dict[str, Any]:
        """Return the status as plain JSON values."""
        return asdict(self)


_FIELDS = frozenset(each.name for each in fields(JobStatus))


class JobRegistry:
    """The jobs of one scheduler.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    # -- by jobs ------------------------------------------------------------------------------------

    def announce(self, name: str, **facts: Any) -> None:
        """Post a change of state, which appears in the list of all jobs."""
        self._post([_INDEX, _topic(name)], {"name": name, **facts})

    def report(self, name: str, line: str, **facts: Any) -> None:
        """Post progress: a log line (may be empty) and new values of status fields."""
        self._post(_topic(name), {"name": name, "line": line, **facts})

    def _post(self, topic: Any, message: dict[str, Any]) -> None:
        # A job must not fail because a message cannot be delivered.
        with suppress(OSError, TimeoutError, RuntimeError):
            self._client.log_event(topic, message)

    def is_cancelled(self, name: str) -> bool:
        """Return whether the job was asked to stop."""
        try:
            return bool(self._flag(name).is_set())
        except (OSError, TimeoutError, RuntimeError):
            return False  # if the scheduler is lost, the next pass raises

    def clear(self, name: str) -> None:
        """Withdraw the cancel request for a job."""
        with _answered():
            self._flag(name).clear()

    # -- for clients ----------------------------------------------------------------------------------

    @contextmanager
    def submitting(self, name: str) -> Iterator[None]:
        """Let one client at a time submit a job of this name, so that each sees the other's.

        Raises
        ------
        LeaseError
            Another client has been submitting it for a minute.
        """
        mutex = lock(self._client, f"daskcluster-submit-{name}")
        with _answered():
            is_mine = mutex.acquire(timeout=_SUBMIT_SECONDS)
        if not is_mine:
            raise LeaseError(
                f"another client has been submitting the job {name!r} for {_SUBMIT_SECONDS:g} s; look at "
                "its status, and submit it again if it does not run."
            )
        try:
            yield
        finally:
            with suppress(OSError, TimeoutError, RuntimeError):
                mutex.release()

    def has_task(self, key: str) -> bool:
        """Return whether the scheduler has a task of this key."""
        with _answered():
            return self._task_state(key) not in ("forgotten", "unknown")

    def find(self, name: str) -> JobStatus | None:
        """Return the status of a job, or None if the job is unknown."""
        with _answered():
            # A job may end after its reports were read and before its task was looked for.
            for _ in range(2):
                entries = [*self._entries(_INDEX), *self._entries(_topic(name))]
                mine = sorted(
                    ((stamp, entry) for stamp, entry in entries if entry.get("name") == name),
                    key=lambda pair: pair[0],
                )
                found = self._folded(mine) if mine else None
                if found is None or found.state != "lost":
                    break
            return found

    def status(self, name: str) -> JobStatus:
        """Return the status of a job.

        Raises
        ------
        JobNotFoundError
        """
        found = self.find(name)
        if found is None:
            raise JobNotFoundError(
                f"the scheduler {self._client.scheduler.address} knows no job {name!r}; list its jobs "
                "with `daskcluster jobs list` (jobs are forgotten when the scheduler ends)."
            )
        return found

    def all(self) -> list[JobStatus]:
        """Return the status of all known jobs, the last submitted first."""
        with _answered():
            names = {entry["name"]: stamp for stamp, entry in self._entries(_INDEX)}
        found = [self.find(name) for name in names]
        return sorted(filter(None, found), key=lambda job: job.submitted, reverse=True)

    def logs(self, name: str) -> list[tuple[float, str]]:
        """Return the time and text of a job's last log lines.

        Raises
        ------
        JobNotFoundError
        """
        self.status(name)
        with _answered():
            entries = self._entries(_topic(name))
        return [(stamp, text) for stamp, entry in entries if (text := _line(entry))]

    def cancel(self, name: str) -> JobStatus:
        """Ask a job to stop; return its status before that.

        Raises
        ------
        JobNotFoundError
        """
        before = self.status(name)
        if not before.is_over:
            with _answered():
                self._flag(name).set()
            self.report(name, "asked to stop")
        return before

    def wait(self, name: str, *, timeout: float | None = None) -> JobStatus:
        """Wait until a job ends; return its status.

        Parameters
        ----------
        name : str
        timeout : float, optional
            Seconds after which to return the current status anyway.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.1
        while True:
            found = self.status(name)
            if found.is_over or (deadline is not None and time.monotonic() > deadline):
                return found
            time.sleep(pause)
            pause = min(2.0, pause * 1.5)

    def until_known(self, key: str, timeout: float = 60.0) -> None:
        """Wait until the scheduler has a task: if the client left earlier, the task would be lost.

        Raises
        ------
        SchedulerUnreachableError
        """
        deadline = time.monotonic() + timeout
        with _answered():
            while self._task_state(key) == "forgotten":
                if time.monotonic() > deadline:
                    raise SchedulerUnreachableError(
                        f"the scheduler did not take the job {key!r} within {timeout:g} s; check its log."
                    )
                time.sleep(0.02)

    # -- the log --------------------------------------------------------------------------------------

    def _flag(self, name: str) -> Event:
        from distributed import Event

        return Event(f"daskcluster-cancel-{name}", client=self._client)

    def _entries(self, topic: str) -> list[tuple[float, Mapping[str, Any]]]:
        events = self._client.get_events(topic) or ()
        return [(stamp, entry) for stamp, entry in events if isinstance(entry, dict)]

    def _folded(self, entries: list[tuple[float, Mapping[str, Any]]]) -> JobStatus:
        facts: dict[str, Any] = {}
        for stamp, entry in entries:
            if entry.get("state") == "submitted":
                facts = {"submitted": stamp}
            news = {key: value for key, value in entry.items() if key in _FIELDS}
            if "arguments" in facts and news.get("key") and news["key"] == facts.get("key"):
                # Relative paths mean what they meant where the job was submitted.
                news.pop("arguments", None)
            facts |= news
            facts["updated"] = stamp
        facts.setdefault("submitted", entries[0][0])
        if facts.get("arguments") is not None:  # on its way, a list becomes a tuple
            facts["arguments"] = json.loads(json.dumps(facts["arguments"]))
        found = JobStatus(**facts)
        if found.is_over or not found.key or self._task_state(found.key) not in _GONE:
            return found
        return JobStatus(**{**facts, "state": "lost"})

    def _task_state(self, key: str) -> str | None:
        try:
            return str(self._client.run_on_scheduler(_state_of_task, key))
        except (OSError, TimeoutError):
            raise
        except Exception:  # a scheduler without this package cannot tell
            return "unknown"


def refuse_other(before: JobStatus, kind: str, arguments: Mapping[str, Any]) -> None:
    """Raise if a job differs from the known one of its name, unless that one failed.

    Raises
    ------
    InvalidParameterError
    """
    if before.state == "failed":
        return
    if before.kind != kind:
        what = f"it is the job {before.kind!r} and not {kind!r}"
    elif before.arguments is None or _compared(before, arguments) == _compared(
        before, before.arguments
    ):
        return
    else:
        what = what_differs(_compared(before, before.arguments), _compared(before, arguments))
    raise InvalidParameterError(
        f"the job {before.name!r} ({before.state}) has other arguments: {what}; give another name to start "
        "a new job, or the same arguments to continue this one."
    )


def _compared(before: JobStatus, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that must be the same."""
    return {n: v for n, v in arguments.items() if not (before.is_over and n in PACE)}


def _state_of_task(key: str, dask_scheduler: Any = None) -> str:
    task = dask_scheduler.tasks.get(key)
    return "forgotten" if task is None else str(task.state)


def _topic(name: str) -> str:
    return f"daskcluster-job-{name}"


def _line(entry: Mapping[str, Any]) -> str:
    state = entry.get("state")
    if state is None:
        return str(entry.get("line", ""))
    detail = entry.get("error") or entry.get("worker") or ""
    return f"{state}: {detail}" if detail else str(state)


@contextmanager
def _answered() -> Iterator[None]:
    """Turn errors of a lost scheduler into `SchedulerUnreachableError`."""
    try:
        yield
    except (OSError, TimeoutError) as error:
        raise SchedulerUnreachableError(
            f"the scheduler does not answer ({type(error).__name__}: {error}); check that it runs."
        ) from error
