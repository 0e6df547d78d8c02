"""Submit jobs to a cluster; list, read and cancel them from any client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from daskcluster.engine.connect import check_versions
from daskcluster.errors import InvalidParameterError, WrongTypeError
from daskcluster.jobs.naming import check_name, new_name
from daskcluster.jobs.registry import JobRegistry, JobStatus
from daskcluster.storage.location import split_options

if TYPE_CHECKING:
    from distributed import Client, Future


def call(job: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Call the job of that name, here on a worker."""
    return getattr(import_module("daskcluster.jobs"), job)(*arguments, **options)


def submit(
    client: Client,
    job: Callable[..., Any],
    /,
    *arguments: Any,
    name: str | None = None,
    **options: Any,
) -> Future:
    """Run a job on a cluster; this process may leave.

    The job runs as a task of one worker, gives its thread back, and drives the whole cluster from there.
    If that worker is lost, Dask starts it on another one, where it resumes from its checkpoint. If all is
    lost, submit it again under its name to a new cluster.

    Parameters
    ----------
    client : distributed.Client
    job : callable
        `fit`, `predict`, `score`, `sweep`, `build_coreset` or `stream`.
    *arguments, **options
        Of the job. Credentials cannot be among them: workers have their own.
    name : str, optional
        Of the job. A name stands for one run and its arguments: submitted again while it runs, it is the
        same job; after a failure it resumes; after its end its record is returned, if it has an output
        that holds it (a stream polls again, a score is measured again). Default: a new one.

    Returns
    -------
    distributed.Future
        Of the record; its key is the name, unless a task of an earlier run still has that. Need not be
        kept.

    Raises
    ------
    EngineError
        Client, scheduler and workers do not have the same versions.
    InvalidParameterError
        The name is not plain, or the storage options hold a credential.
    SchedulerUnreachableError

    Notes
    -----
    Cost: the job's own, and a few messages to the scheduler in a second.

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

    _check(job, options)
    name = new_name(job.__name__) if name is None else check_name(name)
    check_versions(client)
    registry = JobRegistry(client)
    before = registry.find(name)
    if before is not None and not before.is_over:
        key = before.key or name  # the scheduler has the task: this is another view of it
    else:
        registry.clear(name)
        # A task of an earlier run may be held by somebody: the same key would give its record, unread.
        key = name if before is None else new_name(name)
        registry.announce(
            name, kind=job.__name__, state="submitted", key=key, output=_output(options)
        )
    given = {**options, "name": name}
    future = client.submit(call, job.__name__, arguments, given, key=key, pure=False)
    fire_and_forget(future)
    registry.until_known(key)
    return future


def status(client: Client, name: str) -> JobStatus:
    """Return how a job stands.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError
    """
    return JobRegistry(client).status(name)


def list_jobs(client: Client) -> list[JobStatus]:
    """Return all jobs that the scheduler knows, the last submitted first."""
    return JobRegistry(client).all()


def logs(client: Client, name: str) -> list[tuple[float, str]]:
    """Return time (seconds since the epoch) and text of a job's last lines.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError
    """
    return JobRegistry(client).logs(name)


def cancel(client: Client, name: str) -> JobStatus:
    """Ask a job to stop, and return how it stood; it stops before its next pass or iteration.

    Its checkpoint stays. `Future.cancel` would not do: Dask does not stop what runs already.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError
    """
    return JobRegistry(client).cancel(name)


def wait(client: Client, name: str, timeout: float | None = None) -> JobStatus:
    """Return how a job ended, waiting for its end, at most `timeout` seconds.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError
    """
    return JobRegistry(client).wait(name, timeout=timeout)


def _check(job: Any, options: Mapping[str, Any]) -> None:
    known = getattr(import_module("daskcluster.jobs"), getattr(job, "__name__", ""), None)
    if known is None or known is not job or "name" not in inspect.signature(job).parameters:
        raise WrongTypeError(
            f"job={job!r} should be a function of daskcluster.jobs such as jobs.fit; other functions go to "
            "Client.submit."
        )
    withheld = split_options(options.get("storage_options") or {})[1]
    if withheld:
        raise InvalidParameterError(
            f"storage_options {', '.join(withheld)} would travel in clear; leave them out and "
            "give the workers credentials of their own, through their environment or the cloud's files."
        )


def _output(options: Mapping[str, Any]) -> str:
    return str(options.get("model") or options.get("output") or options.get("state") or "")
