"""Submit jobs to a cluster; list, follow and cancel them from any client."""

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
    """Call a job by name; runs on a worker."""
    return getattr(import_module("daskcluster.jobs"), job)(*arguments, **options)


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
        Name of the job, which identifies it with its arguments. Submitted again under its name, a running
        job is not started twice, a failed one resumes, and a finished one returns its record if its output
        holds it (a stream polls again, a score is computed again). Default: a new name.

    Returns
    -------
    distributed.Future
        Future of the record. Its key is the name, unless a task of an earlier run has that key. You need
        not keep it.

    Raises
    ------
    EngineError
        The versions of client, scheduler and workers differ.
    InvalidParameterError
        The name is invalid, or the storage options contain a credential.
    SchedulerUnreachableError

    Notes
    -----
    Cost: that of the job, and a few messages a second to the scheduler.

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
        key = before.key or name  # the scheduler has the task: return another future of it
    else:
        registry.clear(name)
        # Some client may still hold a task of an earlier run; under the same key, Dask would return its old
        # record.
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
    """Return the status of a job.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError

    Notes
    -----
    Cost: up to three requests to the scheduler, for the job's last messages and the state of its task.
    """
    return JobRegistry(client).status(name)


def list_jobs(client: Client) -> list[JobStatus]:
    """Return the status of all jobs that the scheduler knows, the last submitted first."""
    return JobRegistry(client).all()


def logs(client: Client, name: str) -> list[tuple[float, str]]:
    """Return the time (seconds since the epoch) and text of a job's last log lines.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError

    Notes
    -----
    Cost: a few requests to the scheduler, which keeps the last lines only.
    """
    return JobRegistry(client).logs(name)


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
    return JobRegistry(client).cancel(name)


def wait(client: Client, name: str, timeout: float | None = None) -> JobStatus:
    """Wait until a job ends, at most `timeout` seconds; return its status.

    Raises
    ------
    JobNotFoundError, SchedulerUnreachableError

    Notes
    -----
    Cost: that of `status`, first after 0.1 s and then less often, at least every 2 s.
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
            f"storage_options {', '.join(withheld)} would be sent in plain text; leave them out and give "
            "the workers credentials of their own, through their environment or the cloud's files."
        )


def _output(options: Mapping[str, Any]) -> str:
    return str(options.get("model") or options.get("output") or options.get("state") or "")
