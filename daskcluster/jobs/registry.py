"""Jobs on a cluster: submit them; list, follow and cancel them from any client.

What is known of them is in the scheduler's event log, so it is bounded, outlives clients and workers, and
is lost with the scheduler. A flag on the scheduler asks a job to stop.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import dask

from daskcluster.engine.compat import lock, running_workers
from daskcluster.engine.connect import check_versions, client_here, worker_of_task
from daskcluster.engine.registry import NO_LIMITS, WorkerLimit, limits_of_caller
from daskcluster.errors import (
    EngineError,
    InvalidParameterError,
    JobNotFoundError,
    LeaseError,
    SchedulerUnreachableError,
    WrongTypeError,
)
from daskcluster.jobs import catalogue  # which imports jobs of others, and they may import this
from daskcluster.jobs.identity import (
    check_name,
    given_to,
    located,
    new_name,
    plain_arguments,
)
from daskcluster.jobs.spec import PACE
from daskcluster.storage.lease import what_differs
from daskcluster.storage.location import split_options

if TYPE_CHECKING:
    from distributed import Client, Event, Future

_INDEX = "daskcluster-jobs"
_RUNNING = ("submitted", "running")
_GONE = ("erred", "forgotten")
_SUBMIT_SECONDS = _KNOWN_SECONDS = 60.0


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
    """The jobs of one scheduler, as the jobs themselves and `submit` see them.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Client) -> None:
        self._client = client

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
            return bool(self.flag(name).is_set())
        except (OSError, TimeoutError, RuntimeError):
            return False  # if the scheduler is lost, the next pass raises

    def clear(self, name: str) -> None:
        """Withdraw the cancel request for a job."""
        with _answered():
            self.flag(name).clear()

    def flag(self, name: str) -> Event:
        """Return the event that asks a job to stop."""
        from distributed import Event

        return Event(f"daskcluster-cancel-{name}", client=self._client)

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

    def find(self, name: str) -> JobStatus | None:
        """Return the status of a job, or None if the job is unknown."""
        found = None
        # A job may end after its reports were read and before its task was looked for.
        for _ in range(2):
            entries = [*self.entries(_INDEX), *self.entries(_topic(name))]
            mine = [(stamp, entry) for stamp, entry in entries if entry.get("name") == name]
            found = self._folded(sorted(mine, key=lambda pair: pair[0])) if mine else None
            if found is None or found.state != "lost":
                break
        return found

    def entries(self, topic: str) -> list[tuple[float, Mapping[str, Any]]]:
        """Return the times and messages of a topic of the scheduler's event log."""
        with _answered():
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
        if found.is_over or not found.key or self.state_of(found.key) not in _GONE:
            return found
        return replace(found, state="lost")

    def state_of(self, key: str) -> str:
        """Return the state of a task; "forgotten" if the scheduler has none of this key."""
        with _answered():
            try:
                return str(self._client.run_on_scheduler(_state_of_task, key))
            except (OSError, TimeoutError):
                raise
            except Exception:  # a scheduler without this package cannot tell
                return "unknown"

    def until_known(self, key: str) -> None:
        """Wait until the scheduler has a task: if the client left earlier, the task would be lost.

        Raises
        ------
        SchedulerUnreachableError
        """
        deadline = time.monotonic() + _KNOWN_SECONDS
        while self.state_of(key) == "forgotten":
            if time.monotonic() > deadline:
                raise SchedulerUnreachableError(
                    f"the scheduler did not take the job {key!r} within {_KNOWN_SECONDS:g} s; check its "
                    "log."
                )
            time.sleep(0.02)


def refuse_other(before: JobStatus, kind: str, arguments: Mapping[str, Any]) -> None:
    """Raise if a job differs from the known one of its name, unless that one failed.

    Raises
    ------
    InvalidParameterError
    """
    if before.state == "failed":
        return
    apart = PACE if before.is_over else frozenset()
    known, now = (
        {name: value for name, value in (given or {}).items() if name not in apart}
        for given in (before.arguments, arguments)
    )
    if before.kind != kind:
        what = f"it is the job {before.kind!r} and not {kind!r}"
    elif before.arguments is None or known == now:
        return
    else:
        what = what_differs(known, now)
    raise InvalidParameterError(
        f"the job {before.name!r} ({before.state}) has other arguments: {what}; give another name to start "
        "a new job, or the same arguments to continue this one."
    )


def _state_of_task(key: str, dask_scheduler: Any = None) -> str:
    task = dask_scheduler.tasks.get(key)
    return "forgotten" if task is None else str(task.state)


def _topic(name: str) -> str:
    return f"daskcluster-job-{name}"


@contextmanager
def _answered() -> Iterator[None]:
    """Turn errors of a lost scheduler into `SchedulerUnreachableError`."""
    try:
        yield
    except (OSError, TimeoutError) as error:
        raise SchedulerUnreachableError(
            f"the scheduler does not answer ({type(error).__name__}: {error}); check that it runs."
        ) from error


# -- for clients -------------------------------------------------------------------------------------


def call(
    job: str,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    annotations: Mapping[str, Any] = {},
) -> Any:
    """Call a job by name, under annotations; runs on a worker."""
    found = getattr(import_module("daskcluster.jobs"), job, None)
    if found is None:
        error = InvalidParameterError(
            f"the worker {worker_of_task()} knows no job {job!r}; import the module that registers it on "
            "workers, e.g. by DASKCLUSTER_PRELOAD=module in their environment."
        )
        registry = JobRegistry(client_here())
        registry.announce(options["name"], kind=job, state="failed", error=str(error))
        raise error
    # A worker in a process keeps the annotations that held where it was started.
    with dask.annotate(**{**NO_LIMITS, **annotations}):
        return found(*arguments, **options)


def submit(
    client: Client,
    job: Callable[..., Any],
    /,
    *arguments: Any,
    name: str | None = None,
    **options: Any,
) -> Future:
    """Run a job on a cluster; this process need not wait for it.

    The job runs as a task on one worker, secedes from its thread pool, and uses the whole cluster. If that
    worker is lost, Dask restarts the job on another one, where it resumes from its checkpoint. If the
    cluster is lost, submit the job again under its name to a new cluster.

    Parameters
    ----------
    client : distributed.Client
    job : callable
        `fit`, `predict`, `sample`, `score`, `sweep`, `build_coreset` or `stream`.
    *arguments, **options
        Arguments of the job. Credentials are refused: workers must have their own.
    name : str, optional
        Name of the job, which stands for its arguments. Submitted again under its name, a running job is
        not started twice, a failed one resumes, and a finished one returns its record if its output holds
        it (a stream polls again, a score is computed again). Other arguments are refused, unless the
        earlier run failed. Default: a new name.

    Returns
    -------
    distributed.Future
        Future of the record. Its key is the name, unless a task of an earlier run has that key. You need
        not keep it.

    Raises
    ------
    EngineError
        The versions of client, scheduler and workers differ, or no worker is one that annotations allow.
    InvalidParameterError
        The name is invalid or that of a job with other arguments, or URLs or storage options contain a
        credential.
    LeaseError
        Another client has been submitting the job for a minute.
    SchedulerUnreachableError, WrongTypeError

    Notes
    -----
    Cost: that of the job, and a few messages a second to the scheduler. Limits of workers by
    ``dask.annotate`` hold for the job and its passes.

    Examples
    --------
    >>> from distributed import Client
    >>> from daskcluster import jobs
    >>> client = Client("tcp://scheduler:8786")  # doctest: +SKIP
    >>> future = jobs.submit(client, jobs.fit, "s3://bucket/rows.zarr", n_clusters=50,
    ...                      model="s3://bucket/model", name="monday")  # doctest: +SKIP
    >>> jobs.status(client, "monday").state  # doctest: +SKIP
    'running'
    """
    from distributed import fire_and_forget

    kind = getattr(job, "__name__", "")
    known_job = getattr(import_module("daskcluster.jobs"), kind, None)
    if known_job is not job or "name" not in inspect.signature(job).parameters:
        raise WrongTypeError(
            f"job={job!r} should be a function of daskcluster.jobs such as jobs.fit; other functions go to "
            "Client.submit."
        )
    withheld = split_options(options.get("storage_options") or {})[1]
    if withheld:
        raise InvalidParameterError(
            f"storage_options {', '.join(withheld)} would be sent in plain text; leave them out and give "
            "the workers credentials of their own, through their environment or the cloud's files."
        )
    name = new_name(kind) if name is None else check_name(name)
    asked = plain_arguments(kind, given_to(job, arguments, options))
    known = located(asked)
    limits = limits_of_caller()
    check_versions(client)
    registry = JobRegistry(client)
    with registry.submitting(name):
        before = registry.find(name)
        if before is not None:
            refuse_other(before, kind, known)
        if before is not None and not before.is_over:
            key = before.key or name  # the scheduler has the task: return another future of it
        else:
            there, limit = running_workers(client), WorkerLimit.of_caller()
            if there and not any(limit.admitted(there)):
                raise EngineError(limit.unmatched(there))
            registry.clear(name)
            # Some client may still hold a task of an earlier run, or one of its own; under the same key,
            # Dask would return its result.
            is_free = before is None and registry.state_of(name) in ("forgotten", "unknown")
            key = name if is_free else new_name(name)
            facts = {"kind": kind, "key": key, "output": catalogue.output_of(kind, known)}
            registry.announce(name, state="submitted", arguments=known, **facts)
        given = {**options, "name": name}
        future = client.submit(call, kind, arguments, given, limits, key=key, pure=False)
        fire_and_forget(future)
        registry.until_known(key)
    return future


def status(client: Client, name: str) -> JobStatus:
    """Return the status of a job.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError

    Notes
    -----
    Cost: up to three requests to the scheduler, for the job's last messages and the state of its task.
    """
    found = JobRegistry(client).find(name)
    if found is None:
        raise JobNotFoundError(
            f"the scheduler {client.scheduler.address} knows no job {name!r}; list its jobs with "
            "`daskcluster jobs list` (jobs are forgotten when the scheduler ends)."
        )
    return found


def list_jobs(client: Client) -> list[JobStatus]:
    """Return the status of all jobs that the scheduler knows, the last submitted first."""
    registry = JobRegistry(client)
    names = {entry["name"]: None for _, entry in registry.entries(_INDEX)}
    found = filter(None, map(registry.find, names))
    return sorted(found, key=lambda job: job.submitted, reverse=True)


def logs(client: Client, name: str) -> list[tuple[float, str]]:
    """Return the time (seconds since the epoch) and text of a job's last log lines.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError

    Notes
    -----
    Cost: a few requests to the scheduler, which keeps the last lines only.
    """
    status(client, name)
    found = []
    for stamp, entry in JobRegistry(client).entries(_topic(name)):
        text = str(entry.get("line", ""))
        if "state" in entry:
            detail = entry.get("error") or entry.get("worker")
            text = f"{entry['state']}: {detail}" if detail else str(entry["state"])
        if text:
            found.append((stamp, text))
    return found


def cancel(client: Client, name: str) -> JobStatus:
    """Ask a job to stop, which it does at its next pass or iteration; return its status before that.

    The checkpoint is kept. Use this instead of `Future.cancel`: Dask does not stop running tasks.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError

    Notes
    -----
    Cost: a few requests to the scheduler.
    """
    before, registry = status(client, name), JobRegistry(client)
    if not before.is_over:
        with _answered():
            registry.flag(name).set()
        registry.report(name, "asked to stop")
    return before


def wait(client: Client, name: str, timeout: float | None = None) -> JobStatus:
    """Wait until a job ends, at most `timeout` seconds; return its status.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError

    Notes
    -----
    Cost: that of `status`, first after 0.1 s and then less often, at least every 2 s.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = 0.1
    while True:
        found = status(client, name)
        if found.is_over or (deadline is not None and time.monotonic() > deadline):
            return found
        time.sleep(pause)
        pause = min(2.0, pause * 1.5)
