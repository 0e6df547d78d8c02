"""Submit jobs to a cluster; list, follow and cancel them from any client."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import dask

from daskcluster.engine.compat import running_workers
from daskcluster.engine.connect import check_versions
from daskcluster.engine.registry import NO_LIMITS, WorkerLimit, limits_of_caller
from daskcluster.errors import (
    DaskClusterError,
    EngineError,
    InvalidParameterError,
    LeaseError,
    WrongTypeError,
)
from daskcluster.jobs.arguments import (
    check_name,
    given_to,
    located,
    new_name,
    output_of,
    plain_arguments,
)
from daskcluster.jobs.registry import JobRegistry, JobStatus, refuse_other
from daskcluster.storage.location import split_options

if TYPE_CHECKING:
    from distributed import Client, Future


_STORE_SECONDS = 10.0


def call(
    job: str,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    annotations: Mapping[str, Any] = {},
) -> Any:
    """Call a job by name, under annotations; runs on a worker."""
    found = getattr(import_module("daskcluster.jobs"), job, None)
    if found is None:
        from daskcluster.jobs.run import registry_of, worker_here

        error = InvalidParameterError(
            f"the worker {worker_here()} knows no job {job!r}; import the module that registers it on "
            "workers, e.g. by DASKCLUSTER_PRELOAD=module in their environment."
        )
        registry = registry_of(None)
        if registry is not None:
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
        Another job writes the output.
    SchedulerUnreachableError, WrongTypeError

    Notes
    -----
    Cost: that of the job, and a few messages a second to the scheduler. Before it starts, a worker looks
    at the state next to the output. Limits of workers by ``dask.annotate`` hold for the job and its passes.

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
    kind = job.__name__
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
            _look_on_worker(client, kind, name, asked, options.get("storage_options"))
            registry.clear(name)
            # Some client may still hold a task of an earlier run, or one of its own; under the same key,
            # Dask would return its result.
            key = name if before is None and not registry.has_task(name) else new_name(name)
            facts = {"kind": kind, "key": key, "output": output_of(kind, known)}
            registry.announce(name, state="submitted", arguments=known, **facts)
        given = {**options, "name": name}
        future = client.submit(call, kind, arguments, given, limits, key=key, pure=False)
        fire_and_forget(future)
        registry.until_known(key)
    return future


def _look_on_worker(
    client: Client,
    job: str,
    name: str,
    asked: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
) -> None:
    """Raise if no worker may run the job, or if the state next to its output is that of another one.

    A worker looks, since it has the credentials and the folders of the job. If it cannot tell now, the job
    itself will.
    """
    there, limit = running_workers(client), WorkerLimit.of_caller()
    admitted = list(limit.admitted(there))
    if there and not admitted:
        raise EngineError(limit.unmatched(there))
    if not admitted or not output_of(job, asked):
        return
    given = job, name, asked, storage_options
    found = client.run(refusal_of_store, *given, workers=admitted[:1], on_error="return")
    for refusal in found.values():
        if isinstance(refusal, InvalidParameterError | LeaseError):
            raise refusal


async def refusal_of_store(*given: Any) -> DaskClusterError | None:
    """Return the error with which the state in the store refuses a job; runs on a worker."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(_refusal, *given), _STORE_SECONDS)
    except TimeoutError:
        return None


def _refusal(
    job: str, name: str, asked: Mapping[str, Any], storage_options: Mapping[str, Any] | None
) -> DaskClusterError | None:
    from daskcluster.jobs.run import lease_of

    try:
        lease_of(job, name, output_of(job, asked), located(asked), storage_options).earlier()
    except (InvalidParameterError, LeaseError) as error:
        return error
    except Exception:  # the job reports what is wrong with its store
        return None
    return None


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
