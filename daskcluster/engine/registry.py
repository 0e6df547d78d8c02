"""The registry of the workers of a cluster, refreshed before every pass."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from daskcluster.chunk import compute_dtype
from daskcluster.engine.compat import running_workers, threads_of
from daskcluster.engine.demand import Demand
from daskcluster.engine.worker import make_ready
from daskcluster.engine.worker_limit import WorkerLimit
from daskcluster.errors import (
    DaskClusterError,
    EngineError,
    ReachError,
    SchedulerUnreachableError,
)
from daskcluster.host import host_memory, machine_name, process_token
from daskcluster.typing import Dataset, Recipe

if TYPE_CHECKING:
    from distributed import Client

_log = logging.getLogger("distributed.worker.daskcluster")

_STEP_SECONDS = 0.1
_NOTICE_SECONDS = 1.0


@dataclass(frozen=True)
class WorkerReport:
    """A report of a worker's process about itself.

    Attributes
    ----------
    host : str
        Name of the machine and id of its boot, since two containers may have the same name.
    process : int
        Its `process_token`.
    resident : int
        Resident memory of the process, in bytes.
    host_bytes : int
        Bytes that the process may use if Dask sets no limit.
    trouble : str
        Why the worker cannot take part; empty if it can.
    """

    host: str
    process: int
    resident: int
    host_bytes: int
    trouble: str = ""


@dataclass(frozen=True)
class WorkerInfo:
    """A usable worker.

    Attributes
    ----------
    n_threads : int
    limit : int
        Bytes it may use.
    resident : int
        Memory of its process when it was first queried, in bytes.
    host : str
    process : int
        Its `process_token`.
    """

    n_threads: int
    limit: int
    resident: int
    host: str
    process: int


async def report_worker(
    recipe: Recipe | None, driver: int, dask_worker: Any = None
) -> WorkerReport:
    """Open the dataset, load the kernels and report; runs on a worker, outside its task threads."""
    return await asyncio.to_thread(_report_worker, recipe, driver, threads_of(dask_worker))


def _report_worker(recipe: Recipe | None, driver: int, n_threads: int) -> WorkerReport:
    make_ready(driver, n_threads)
    trouble = "" if recipe is None else _trouble(recipe)
    if recipe is not None and not trouble:
        _warm_up_for(recipe.open())
    return WorkerReport(
        host=machine_name(),
        process=process_token(),
        resident=psutil.Process().memory_info().rss,
        host_bytes=host_memory(),
        trouble=trouble,
    )


def _warm_up_for(dataset: Dataset) -> None:
    # Imported here, since the driver may never need them.
    from daskcluster.kernels.compiling import watched
    from daskcluster.kernels.warm_up import warm_up

    # Only sparse rows have a number of entries.
    with watched(_log_compiling):
        warm_up(dtype=compute_dtype(dataset.dtype), is_sparse=hasattr(dataset, "n_entries"))


def _log_compiling(number: int) -> None:
    if number == 1:
        _log.info("compiling kernels; this happens once on each machine")


def _trouble(recipe: Recipe) -> str:
    try:
        recipe.open()
    except Exception as error:  # whatever the error, the driver should name the worker
        return f"{type(error).__name__}: {error}"
    return ""


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
        self._client = client
        self._limit = limit
        self._demand = Demand(client) if demand is None else demand
        self._timeout = timeout
        self._memory_limit = memory_limit
        self._recipe: Recipe | None = None
        self._reports: dict[str, WorkerReport] = {}
        if client.scheduler is None:
            raise SchedulerUnreachableError(
                "the Dask client is closed, so its workers cannot be reached; read results that they "
                "compute, such as labels_, before you close it, or fit again with a new client."
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
        ReachError
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
        while self._client.status == "running" and time.monotonic() < deadline:
            time.sleep(_STEP_SECONDS)
        return bool(self._client.status != "running")

    def _running(self) -> dict[str, Mapping[str, Any]]:
        """Return the scheduler's information on every worker that accepts tasks."""
        deadline = time.monotonic() + self._timeout
        while self._client.status != "running":
            if self._client.status == "closed" or time.monotonic() > deadline:
                raise SchedulerUnreachableError(
                    f"the scheduler {self._address} no longer answers (the client is "
                    f"{self._client.status}); restart it and repeat the call."
                )
            time.sleep(_STEP_SECONDS)
        return running_workers(self._client)

    def _inspect(self, addresses: list[str]) -> None:
        if not addresses:
            return
        found = self._client.run(
            report_worker, self._recipe, process_token(), workers=addresses, on_error="return"
        )
        for address, result in found.items():
            if isinstance(result, WorkerReport):
                self._reports[address] = result
            elif not isinstance(result, OSError):  # an OSError means that the worker has just left
                self._reports[address] = WorkerReport(
                    host="",
                    process=0,
                    resident=0,
                    host_bytes=0,
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
            workers[address] = WorkerInfo(
                n_threads=int(info["nthreads"]),
                limit=limit,
                resident=found.resident,
                host=found.host,
                process=found.process,
            )
        return workers

    def _refuse_trouble(self, workers: Iterable[str]) -> None:
        for address in workers:
            found = self._reports.get(address)
            if found is None:
                continue
            if found.trouble and not found.process:
                raise EngineError(found.trouble)
            if found.trouble:
                raise ReachError(
                    f"worker {address} on {found.host.partition('/')[0]} cannot open the dataset "
                    f"({found.trouble}); put the data where every worker can read it (a bucket, a "
                    "shared disk), give the workers its credentials, or run locally with engine='local'."
                )

    def _nobody(self, there: Mapping[str, Mapping[str, Any]]) -> str:
        if there and not self.limit.admitted(there):
            return f"After {self._timeout:g} s, {self.limit.unmatched(there)}"
        return (
            f"no Dask worker appeared within {self._timeout:g} s; start workers (`dask worker ADDRESS`), "
            "scale the cluster up, or run locally with engine='local'."
        )
