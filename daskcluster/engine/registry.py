"""The workers of a cluster: which may be used, how many a fit needs, and those that join meanwhile.

The registry is refreshed before every pass, and Dask's annotations of the caller limit it. Dask's adaptive
scaling counts the tasks that wait. A fit has a pass of tasks at a time, often less than a second of work,
so its cluster would shrink to one worker although hundreds of passes are to come: it shows its demand.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import Future as Joining
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import dask
import psutil
from dask.utils import parse_timedelta

from daskcluster.annotations import unannotated
from daskcluster.chunk import compute_dtype
from daskcluster.engine.assignment import LEAST_MEASURED_SECONDS
from daskcluster.engine.compat import paused_workers, running_workers, threads_of
from daskcluster.engine.operations import count_rows, make_ready
from daskcluster.errors import (
    DaskClusterError,
    DataNotReachableError,
    EngineError,
    InvalidParameterError,
    SchedulerUnreachableError,
)
from daskcluster.host import format_bytes, host_memory, machine_name, process_token
from daskcluster.typing import Range, Recipe

if TYPE_CHECKING:
    from distributed import Client, Future

NO_LIMITS: Mapping[str, Any] = {"workers": [], "resources": {}, "allow_other_workers": False}
"""Annotations that say which workers may be used, without saying it; all others are ignored."""
_MOST_SHOWN = 8


@cache
def _ip_of(place: str) -> str:
    """Return the IP of a host given by name, with the port if it has one; other text as it is."""
    host, colon, port = place.rpartition(":")
    if not (colon and port.isdigit()):
        host, colon, port = place, "", ""
    try:
        return f"{socket.gethostbyname(host)}{colon}{port}"
    except (OSError, UnicodeError):
        return place


@dataclass(frozen=True)
class WorkerLimit:
    """The workers that ``dask.annotate(workers=..., resources=...)`` allows.

    Parameters
    ----------
    workers : tuple
        Names or addresses of workers, or names or IPs of hosts; empty for any.
    resources : mapping of name to amount
        Each worker must have as much, in use or not.

    Examples
    --------
    >>> limit = WorkerLimit(resources={"GPU": 1})
    >>> limit
    dask.annotate(resources={'GPU': 1})
    >>> workers = {"tcp://10.0.0.5:40001": {"name": "a", "host": "10.0.0.5", "resources": {"GPU": 2}}}
    >>> list(limit.admitted(workers))
    ['tcp://10.0.0.5:40001']
    """

    workers: tuple[Any, ...] = ()
    resources: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_caller(cls) -> WorkerLimit:
        """Return the limit that holds here; a preference (``allow_other_workers=True``) is none.

        Raises
        ------
        InvalidParameterError
            An annotation is a function of a task's key.
        """
        found = limits_of_caller()
        if found.get("allow_other_workers"):
            return cls()
        workers = found.get("workers") or ()
        return cls(
            workers=tuple(workers) if isinstance(workers, list | tuple | set) else (workers,),
            resources=found.get("resources") or {},
        )

    @property
    def is_strict(self) -> bool:
        """Whether some workers must not be used."""
        return bool(self.workers or self.resources)

    def admitted(self, workers: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return those of `workers` that may be used.

        Parameters
        ----------
        workers : mapping of address to the scheduler's information
        """
        named = {
            ":".join(map(str, worker)) if isinstance(worker, list | tuple) else str(worker)
            for worker in self.workers
        }
        spellings = {
            address: {address, address.rpartition("/")[2], str(info.get("name")), info.get("host")}
            for address, info in workers.items()
        }
        # Only what is no worker's name or address is looked up, which may take seconds.
        named |= {_ip_of(each) for each in named - set().union(*spellings.values())}
        found = {}
        for address, info in workers.items():
            there = info.get("resources") or {}
            suffices = all(there.get(name, -1) >= least for name, least in self.resources.items())
            if suffices and (named & spellings[address] or not named):
                found[address] = info
        return found

    def unmatched(self, there: Mapping[str, Mapping[str, Any]]) -> str:
        """Return the text of an error: none of these workers is admitted."""
        return (
            f"no worker matches {self}; the cluster has {described(there)}. Start workers that match "
            "(`dask worker ADDRESS --name NAME --resources 'NAME=AMOUNT'`), or change or leave out the "
            "annotation."
        )

    def __repr__(self) -> str:
        given: dict[str, Any] = {"workers": list(self.workers), "resources": dict(self.resources)}
        shown = [f"{name}={value!r}" for name, value in given.items() if value]
        return f"dask.annotate({', '.join(shown)})"


def limits_of_caller() -> dict[str, Any]:
    """Return the annotations that hold here and limit workers, as ``dask.annotate`` takes them.

    Raises
    ------
    InvalidParameterError
        One is a function of a task's key.
    """
    found = {name: value for name, value in dask.get_annotations().items() if name in NO_LIMITS}
    for name, value in found.items():
        if callable(value):
            raise InvalidParameterError(
                f"dask.annotate({name}={value!r}) chooses by the key of a task, and one limit holds for "
                "all tasks of a fit; give names, addresses or amounts, or leave the annotation out."
            )
    return found


def described(workers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return names, addresses and resources of workers as text.

    Examples
    --------
    >>> described({"tcp://10.0.0.5:40001": {"name": "a", "resources": {"GPU": 1}}})
    "tcp://10.0.0.5:40001 (name 'a', resources {'GPU': 1})"
    """
    shown = [
        f"{address} (name {info.get('name')!r}, resources {info.get('resources') or 'none'})"
        for address, info in list(workers.items())[:_MOST_SHOWN]
    ]
    more = len(workers) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


RESOURCE = "daskcluster-demand"
"""A resource that no worker has: tasks that require it wait, and the scheduler counts them."""
THREAD_SECONDS = 0.25
"""Least work of a thread in a pass for which one more thread is worth its cost."""
MOST_THREADS = 400
"""Threads that a fit asks for at most: each is ten tasks for the scheduler. A larger cluster stays."""


class Demand:
    """Tasks that wait on the scheduler while a fit needs workers, and are never run.

    They stand for the passes to come. `Scheduler.adaptive_target`, which `cluster.adapt` and the Kubernetes
    operator ask, then returns as many workers as the fit can use. The demand never shrinks: a worker that
    leaves takes its cached rows and state with it.

    Parameters
    ----------
    client : Client

    Notes
    -----
    Cost: ten waiting tasks per thread.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: list[Future] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, n_threads: int) -> None:
        """Raise the demand to `n_threads`."""
        # Tasks of unknown duration for which Dask asks for one thread.
        target = parse_timedelta(dask.config.get("distributed.adaptive.target-duration"))
        unknown = parse_timedelta(dask.config.get("distributed.scheduler.unknown-task-duration"))
        missing = n_threads * max(1, math.ceil(target / unknown)) - len(self._waiting)
        if missing > 0 and self._client.status == "running":
            self._waiting += unannotated(
                self._client.map,
                _nothing,
                range(missing),
                key=RESOURCE,
                resources={RESOURCE: 1},
                pure=False,
            )

    def learn(self, rows: int, seconds: float, spans: Sequence[Range]) -> None:
        """Raise the demand to what a pass over `spans` can use, after a task took `seconds`."""
        # The speed of very short tasks is noise.
        if rows and seconds > LEAST_MEASURED_SECONDS:
            self.show(useful_threads(seconds / rows * count_rows(spans), len(spans)))

    def close(self) -> None:
        """Withdraw the demand."""
        self._waiting.clear()


def useful_threads(pass_seconds: float, n_partitions: int) -> int:
    """Return how many threads are worth their cost in passes of so many seconds of one thread.

    Examples
    --------
    >>> useful_threads(0.1, 100), useful_threads(3.0, 100), useful_threads(3600.0, 100)
    (1, 12, 100)
    """
    return max(1, min(int(pass_seconds / THREAD_SECONDS), n_partitions, MOST_THREADS))


def _nothing(number: int) -> None:
    """Stand for work to come; never run unless a worker offers the resource."""


_log = logging.getLogger("distributed.worker.daskcluster")

_STEP_SECONDS = 0.1
_NOTICE_SECONDS = 1.0


@dataclass(frozen=True)
class WorkerInfo:
    """A worker's report about itself, with what the scheduler says of it.

    Attributes
    ----------
    host : str
        Name of the machine and id of its boot, since two containers may have the same name.
    process : int
        Its `process_token`.
    resident : int
        Resident memory of the process when it was first queried, in bytes.
    host_bytes : int
        Bytes that the process may use if Dask sets no limit.
    trouble : str
        Why the worker cannot take part; empty if it can.
    n_threads : int
    limit : int
        Bytes it may use.
    """

    host: str = ""
    process: int = 0
    resident: int = 0
    host_bytes: int = 0
    trouble: str = ""
    n_threads: int = 1
    limit: int = 0


async def report_worker(recipe: Recipe | None, driver: int, dask_worker: Any = None) -> WorkerInfo:
    """Open the dataset, load the kernels and report; runs on a worker, outside its task threads."""
    return await asyncio.to_thread(_report_worker, recipe, driver, threads_of(dask_worker))


def _report_worker(recipe: Recipe | None, driver: int, n_threads: int) -> WorkerInfo:
    make_ready(driver, n_threads)
    trouble = ""
    if recipe is not None:
        try:
            dataset = recipe.open()
        except Exception as error:  # whatever the error, the driver should name the worker
            trouble = f"{type(error).__name__}: {error}"
        else:
            # Imported here, since the driver may never need them.
            from daskcluster.kernels.compiling import watched
            from daskcluster.kernels.warm_up import warm_up

            is_sparse = getattr(dataset, "csr", None) is not None
            with watched(_log_compiling):
                warm_up(dtype=compute_dtype(dataset.dtype), is_sparse=is_sparse)
    return WorkerInfo(
        host=machine_name(),
        process=process_token(),
        resident=psutil.Process().memory_info().rss,
        host_bytes=host_memory(),
        trouble=trouble,
    )


def _log_compiling(number: int) -> None:
    if number == 1:
        _log.info("compiling kernels; this happens once on each machine")


class WorkerRegistry:
    """Keeps track of the usable workers; queries each new one once.

    Parameters
    ----------
    client : Client
    timeout : float
        Seconds to wait for a first worker, and for a scheduler that does not answer.
    memory_limit : int, optional
        Bytes that all workers together may use, if less than the sum of their own limits.
    demand : Demand, optional
        Raised while there is no worker; stays raised, or the workers that came for it would leave.
    limit : WorkerLimit, optional
        The workers that may be used. Default: those that annotations allow where a method is called.
    """

    def __init__(
        self,
        client: Client,
        timeout: float,
        memory_limit: int | None = None,
        demand: Demand | None = None,
        limit: WorkerLimit | None = None,
    ) -> None:
        self.client = client
        self._limit = limit
        self._demand = Demand(client) if demand is None else demand
        self._timeout = timeout
        self._memory_limit = memory_limit
        self._recipe: Recipe | None = None
        self._reports: dict[str, WorkerInfo] = {}
        if client.scheduler is None:
            raise SchedulerUnreachableError(
                "the Dask client is closed, so its workers cannot be reached; read results that they "
                "compute, such as labels_, before you close it. A fitted model needs no client: use "
                "set_params(engine=None), or set_params(engine=client) with another one."
            )
        self._address = client.scheduler.address
        self._alone_since: float | None = None
        self._refreshing = threading.Lock()

    @property
    def limit(self) -> WorkerLimit:
        """The workers that may be used."""
        return WorkerLimit.of_caller() if self._limit is None else self._limit

    def allowed(self) -> list[str] | None:
        """Return the addresses to which tasks must be restricted; None if any worker may run them.

        Raises
        ------
        EngineError, SchedulerUnreachableError
            As `refresh`.
        """
        return sorted(self.refresh()) if self.limit.is_strict else None

    def open(self, recipe: Recipe) -> None:
        """Let every worker open the dataset; from then on, only workers that can read it are used.

        Raises
        ------
        DataNotReachableError
            A worker cannot; the error names it and says why.
        """
        self._recipe = recipe
        self._reports.clear()
        self.refresh()
        self._refuse_trouble(self._reports)

    def refresh(self) -> dict[str, WorkerInfo]:
        """Return the workers that take part in the next pass, by address.

        Raises
        ------
        EngineError
            No worker appeared within the timeout, or none that annotations allow.
        SchedulerUnreachableError
            The scheduler is gone.
        """
        with self._refreshing:
            return self._refresh()

    def close(self) -> None:
        """Withdraw the demand for a worker."""
        self._demand.close()

    def _refresh(self) -> dict[str, WorkerInfo]:
        limit, deadline = self.limit, time.monotonic() + self._timeout
        while True:
            there = self._running()
            admitted = limit.admitted(there)
            self._inspect([address for address in admitted if address not in self._reports])
            self._reports = {a: found for a, found in self._reports.items() if a in there}
            workers = self._members(admitted)
            if workers:
                return workers
            self._refuse_trouble(admitted)
            if time.monotonic() > deadline:
                raise EngineError(self._nobody(there))
            # An adaptive cluster starts workers only if tasks are waiting.
            self._demand.show(1)
            time.sleep(_STEP_SECONDS)

    def present(self) -> set[str]:
        """Return the addresses of the workers that may be used; empty for at most `timeout` seconds.

        Raises
        ------
        EngineError
            There has been no worker for the length of the timeout.
        """
        there = self._running()
        found = set(self.limit.admitted(there))
        now = time.monotonic()
        if found:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since > self._timeout:
            raise EngineError(self._nobody(there))
        return found

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Turn the errors of tasks whose scheduler is lost into one that says so.

        Raises
        ------
        SchedulerUnreachableError
        """
        try:
            yield
        except DaskClusterError:
            raise
        except Exception as error:
            if not self._is_lost(error):
                raise
            self._running()
            raise SchedulerUnreachableError(
                f"the connection to the scheduler {self._address} was lost for a while, and with it all "
                "running tasks; repeat the call."
            ) from error

    def _is_lost(self, error: Exception) -> bool:
        # Pending requests fail a moment before the client notices that the connection is closed.
        grace = _NOTICE_SECONDS if isinstance(error, OSError | CancelledError) else 0.0
        deadline = time.monotonic() + grace
        while self.client.status == "running" and time.monotonic() < deadline:
            time.sleep(_STEP_SECONDS)
        return bool(self.client.status != "running")

    def _running(self) -> dict[str, Mapping[str, Any]]:
        """Return the scheduler's information on every worker that accepts tasks."""
        deadline = time.monotonic() + self._timeout
        while self.client.status != "running":
            if self.client.status == "closed" or time.monotonic() > deadline:
                raise SchedulerUnreachableError(
                    f"the scheduler {self._address} no longer answers (the client is "
                    f"{self.client.status}); restart it and repeat the call."
                )
            time.sleep(_STEP_SECONDS)
        return running_workers(self.client)

    def _inspect(self, addresses: list[str]) -> None:
        if not addresses:
            return
        found = self.client.run(
            report_worker, self._recipe, process_token(), workers=addresses, on_error="return"
        )
        for address, result in found.items():
            if isinstance(result, WorkerInfo):
                self._reports[address] = result
            elif not isinstance(result, OSError):  # an OSError means that the worker has just left
                self._reports[address] = WorkerInfo(
                    trouble=f"worker {address} cannot take part ({result}); install the same versions "
                    "of daskcluster and its dependencies on every worker (use the same image).",
                )

    def _members(self, there: Mapping[str, Mapping[str, Any]]) -> dict[str, WorkerInfo]:
        ready = {a: found for a, found in self._reports.items() if a in there and not found.trouble}
        neighbours = [found.host for found in ready.values()]
        workers = {}
        for address, found in ready.items():
            info = there[address]
            limit = int(
                info.get("memory_limit") or found.host_bytes // neighbours.count(found.host)
            )
            if self._memory_limit is not None:
                limit = min(limit, self._memory_limit // len(ready))
            workers[address] = replace(found, n_threads=int(info["nthreads"]), limit=limit)
        return workers

    def _refuse_trouble(self, workers: Iterable[str]) -> None:
        for address in workers:
            found = self._reports.get(address)
            if found is None:
                continue
            if found.trouble and not found.process:
                raise EngineError(found.trouble)
            if found.trouble:
                raise DataNotReachableError(
                    f"worker {address} on {found.host.partition('/')[0]} cannot open the dataset "
                    f"({found.trouble}); put the data where every worker can read it (a bucket, a "
                    "shared disk), give the workers its credentials, or run locally with engine='local'."
                )

    def _nobody(self, there: Mapping[str, Mapping[str, Any]]) -> str:
        if there and not self.limit.admitted(there):
            return f"After {self._timeout:g} s, {self.limit.unmatched(there)}"
        paused = paused_workers(self.client)
        if paused:
            address, (used, limit) = max(paused.items(), key=lambda found: found[1])
            return (
                f"no Dask worker took tasks within {self._timeout:g} s, and {len(paused)} are paused, "
                f"since they use most of their memory: {address} has {format_bytes(used)} of "
                f"{format_bytes(limit)}. Dask gives them no tasks until that falls; restart them "
                "(client.restart()), or start workers with more memory."
            )
        return (
            f"no Dask worker appeared within {self._timeout:g} s; start workers (`dask worker ADDRESS`), "
            "scale the cluster up, or run locally with engine='local'."
        )


JOIN_SECONDS = 1.0
"""How often a pass looks for workers that have joined."""


class Newcomers:
    """Finds workers that join during a pass, and prepares them in a thread of the driver.

    A new worker opens the dataset and loads the kernels first, which may take seconds.

    Parameters
    ----------
    registry : WorkerRegistry
    pool : ThreadPoolExecutor
    """

    def __init__(self, registry: WorkerRegistry, pool: ThreadPoolExecutor) -> None:
        self._registry, self._pool = registry, pool
        self._joining: Joining[Mapping[str, WorkerInfo]] | None = None
        self._looked = time.monotonic()

    def ready(self, known: Iterable[str]) -> dict[str, int]:
        """Return the threads of the workers that can take tasks now and are not `known`, by address."""
        if self._joining is not None and self._joining.done():
            workers, self._joining = self._joining.result(), None
            return {a: workers[a].n_threads for a in sorted(workers.keys() - set(known))}
        if self._joining is None and time.monotonic() - self._looked > JOIN_SECONDS:
            self._looked = time.monotonic()
            if self._registry.present() - set(known):
                self._joining = self._pool.submit(self._registry.refresh)
        return {}
