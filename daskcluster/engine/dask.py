"""The Dask engine: passes over a dataset on the workers of a cluster.

Each pass is one task per worker thread, or several of a few seconds, and small ones for load balance. Only
totals are returned. Tasks of one pass never depend on tasks of another, so losing a worker costs no more
than the seconds of its task; `daskcluster.engine.pass_run` sends it to another worker.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, MutableSequence, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, TypeVar

from distributed import wait

from daskcluster.annotations import unannotated
from daskcluster.engine.assignment import MAX_REMAINING_TASKS, TaskQueue
from daskcluster.engine.cache import ResidentCache, cached_bytes
from daskcluster.engine.connect import TIMEOUT, Client, KilledWorker, check_versions, connect
from daskcluster.engine.engine import Engine, PassWork, Placement
from daskcluster.engine.fit_log import FitLog
from daskcluster.engine.memory import BASELINE_BYTES, RESIDENT_SHARE, Footprint, MemoryPlan, project
from daskcluster.engine.operations import FoldState, Payload
from daskcluster.engine.pass_run import (
    POLL_SECONDS,
    DistributedRows,
    PassRun,
    bring_near,
    held_size,
    on_this_host,
)
from daskcluster.engine.registry import Demand, WorkerInfo, WorkerLimit, WorkerRegistry
from daskcluster.errors import EngineError, WrongTypeError
from daskcluster.events import Callback, WorkersPrepare, publish
from daskcluster.host import process_token
from daskcluster.typing import Dataset, Range, Reachable, Sink, Visibility

if TYPE_CHECKING:
    from distributed import Future
    from distributed.security import Security


class DaskPlacement(Placement):
    """A dataset on the workers of a cluster; see `DaskEngine`."""

    def __init__(
        self,
        registry: WorkerRegistry,
        demand: Demand,
        dataset: Dataset,
        source: Dataset,
        *,
        travels: bool,
        footprint: Footprint,
        callbacks: Sequence[Callback],
        cleanup: ExitStack,
    ) -> None:
        super().__init__(dataset, callbacks, source)
        self._client = registry.client
        self._registry = registry
        self._travels = travels
        self._cleanup = cleanup
        self._rows = DistributedRows(registry, source, source.partitions, travels=travels)
        stays = footprint.keeps_rows and not (travels or source.in_memory)
        self._cache = ResidentCache(
            registry.client,
            [stop - start for start, stop in self._rows.spans],
            [held_size(source, span) for span in self._rows.spans] if stays else [],
            footprint.row_bytes,
            is_strict=registry.limit.is_strict,
        )
        self._demand = demand
        demand.show(self.n_threads)
        self._baselines: dict[str, int] = {}
        self._folder: str | None = None

    @property
    def work_items(self) -> Sequence[Range]:
        return self._rows.spans

    @property
    def n_threads(self) -> int:
        return sum(worker.n_threads for worker in self._registry.refresh().values())

    def state_room(self) -> int:
        with self._registry.watched():
            return self._cache.state_room(self._room(self._registry.refresh()))

    def shared_folder(self) -> str | None:
        if not on_this_host(self._registry.refresh().values()):
            return None
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="daskcluster-state-")
            self._cleanup.callback(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def close(self) -> None:
        self._cache.close()
        self._rows.close()
        self._cleanup.close()

    def _tasks_can_write(self, sink: Sink) -> bool:
        return sink.visibility is Visibility.EVERYONE or (
            sink.visibility is Visibility.HOST and on_this_host(self._registry.refresh().values())
        )

    def _reserve_state(self, row_bytes: int, *, is_new: bool) -> None:
        self._cache.reserve_state(row_bytes)

    def _free_state(self) -> None:
        self._cache.drop_state()

    # -- one pass ----------------------------------------------------------------------------------

    def _run(self, work: PassWork) -> Any:
        operation, spans = work.operation, work.spans
        recipe = None if self._travels else self._source.recipe()
        with ExitStack() as cleanup:
            rows = self._rows
            if spans is not None and list(spans) != list(self.work_items):
                rows = DistributedRows(self._registry, self._source, spans, travels=self._travels)
                cleanup.callback(rows.close)
            cleanup.enter_context(self._registry.watched())
            workers = self._settle(rows)
            run = PassRun(
                self._registry,
                rows,
                self._cache if rows is self._rows else None,
                Payload(operation, work.params, recipe, process_token()),
                n_threads={address: worker.n_threads for address, worker in workers.items()},
                on_rows=self._report_rows if work.report else lambda count: None,
                on_value=work.on_value,
                demand=self._demand,
                total=work.total,
            )
            n_tasks = len(rows.assignment.lists) * (1 + MAX_REMAINING_TASKS)
            tasks = TaskQueue.cut(
                rows.assignment,
                stay=isinstance(operation, FoldState),
                only=None if work.work_items is None else frozenset(work.work_items),
                n_bytes=run.bytes_of_a_task(n_tasks),
            )
            try:
                value = run.run(tasks)
            finally:
                self.traffic.bytes_read += run.bytes_read
        if work.report:  # the time of a single work item says nothing about speed
            rows.assignment.learn(run.speeds)
        return value

    def _settle(self, rows: DistributedRows) -> dict[str, WorkerInfo]:
        """Refresh the list of workers and assign partitions and cache handles to them."""
        workers = self._registry.refresh()
        rows.settle({address: worker.n_threads for address, worker in workers.items()})
        if rows is self._rows:
            self._cache.arrange(rows.assignment.by_worker(), lambda: self._room(workers))
        return workers

    def _room(self, workers: Mapping[str, WorkerInfo]) -> dict[str, int]:
        """Return the bytes that all runs may cache per worker: half its limit less its baseline."""
        new = [address for address in workers if address not in self._baselines]
        held = cached_bytes(self._client, new)
        for address in new:
            resident = workers[address].resident
            # Bytes in handles are no part of the baseline; libraries that are not imported yet are.
            self._baselines[address] = max(BASELINE_BYTES, resident - held[address])
        return {
            address: int(worker.limit * RESIDENT_SHARE) - self._baselines[address]
            for address, worker in workers.items()
        }


T = TypeVar("T")

_MOST_SENDS = 3


class DaskEngine(Engine):
    """Run passes on the workers of a Dask cluster.

    Results are bit-identical to those of local threads, for any set of workers. Workers may join and leave
    during a fit. ``dask.annotate(workers=..., resources=...)`` around a fit limits it to the workers that
    match; other annotations are ignored.

    Parameters
    ----------
    client_or_address : distributed.Client or str
        A connected client, or the address of a scheduler.
    memory_limit : int, optional
        Bytes that all workers together may use. Default: the sum of the workers' own limits, which always
        apply as well.
    timeout : float, default 10.0
        Seconds to wait for the scheduler, and for a first worker if there is none.
    security : distributed.security.Security, optional
        Certificates for an address; see `daskcluster.engine.tls.client_security`. Default: those of
        Dask's configuration. Ignored for a connected client, which has its own.

    Attributes
    ----------
    client : distributed.Client
    job : str
        Name of the job that uses the engine, shown with its fits on the dashboard; empty if there is none.

    Raises
    ------
    SchedulerUnreachableError
        No scheduler answered in time.
    WrongTypeError
        `client_or_address` is neither a synchronous client nor an address.

    Notes
    -----
    Cost: each pass sends its parameters to every worker: inside the tasks up to 1 MiB (16 MiB for all
    tasks), otherwise scattered once. Each task returns the totals of its partitions; all totals pass
    through the client if they are at most 256 MiB together, and are combined on the workers otherwise.
    Cached rows and state take at most half of each worker's memory limit.

    Examples
    --------
    >>> from daskcluster.engine.dask import DaskEngine
    >>> with DaskEngine("tcp://127.0.0.1:8786") as engine:  # doctest: +SKIP
    ...     KMeans(n_clusters=8, engine=engine).fit("s3://bucket/rows.zarr")
    """

    name = "dask"

    def __init__(
        self,
        client_or_address: Client | str,
        *,
        memory_limit: int | None = None,
        timeout: float = TIMEOUT,
        security: Security | None = None,
    ) -> None:
        self._owns_client = isinstance(client_or_address, str)
        self._timeout = timeout
        self._memory_limit = memory_limit
        self.job = ""
        self.client: Client
        if isinstance(client_or_address, str):
            self.client = connect(client_or_address, timeout, security=security)
        elif isinstance(client_or_address, Client) and not client_or_address.asynchronous:
            self.client = client_or_address
        else:
            raise WrongTypeError(
                f"engine={client_or_address!r} should be a synchronous distributed.Client or the "
                "address of a scheduler; create it with Client(address)."
            )
        self._registry = WorkerRegistry(self.client, timeout, memory_limit)

    def __repr__(self) -> str:
        return f"DaskEngine({self.client.scheduler_info(n_workers=0)['address']!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Withdraw the demand for workers, and close the client if this engine connected it."""
        self._registry.close()
        if self._owns_client:
            self.client.close()

    def listeners(self) -> tuple[Callback, ...]:
        return (FitLog(self.client, self.job),)

    def named(self, name: str) -> DaskEngine:
        engine = DaskEngine(self.client, memory_limit=self._memory_limit, timeout=self._timeout)
        engine.job = name
        return engine

    def is_on_this_host(self) -> bool:
        """Return True if all workers run on the machine of this process."""
        return on_this_host(self._registry.refresh().values())

    @property
    def n_threads(self) -> int:
        """Number of task threads of all current workers."""
        return sum(worker.n_threads for worker in self._registry.refresh().values())

    @property
    def n_workers(self) -> int:
        """Number of current workers."""
        return len(self._registry.refresh())

    def plan(self, dataset: Dataset, footprint: Footprint | None = None) -> MemoryPlan:
        """Project the memory of work on `dataset`; see `daskcluster.engine.memory.project`.

        Raises
        ------
        MemoryLimitError
            The work exceeds the memory limit of all workers together, or that of the smallest worker.

        Notes
        -----
        Cost: one request to the scheduler and one to each new worker; no pass.
        """
        return _plan(dataset, footprint or Footprint(), self._registry.refresh())

    def place(
        self,
        dataset: Dataset,
        *,
        footprint: Footprint | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> DaskPlacement:
        # Threads of the placement look for workers too, and annotations hold in the caller's only.
        limit = WorkerLimit.of_caller()
        cleanup = ExitStack()
        demand = cleanup.enter_context(Demand(self.client))
        registry = WorkerRegistry(self.client, self._timeout, self._memory_limit, demand, limit)
        try:
            with registry.watched():
                check_versions(self.client)
                demand.show(1)
                self._registry.close()  # its demand has kept the first worker until now
                near, travels = bring_near(dataset, registry.refresh(), cleanup)
                if not travels:
                    publish(callbacks, WorkersPrepare())
                    registry.open(near.recipe())
                _plan(near, footprint or Footprint(), registry.refresh())
        except BaseException:
            cleanup.close()
            raise
        return DaskPlacement(
            registry,
            demand,
            dataset,
            near,
            travels=travels,
            footprint=footprint or Footprint(),
            callbacks=callbacks,
            cleanup=cleanup,
        )

    def _run(self, tasks: Sequence[Callable[[], T]], most: int) -> Generator[T]:
        waiting = iter(tasks)
        started: deque[_Call] = deque()
        try:
            with self._registry.watched():
                self._registry.refresh()
                started.extend(map(self._begin, islice(waiting, most)))
            while started:
                with self._registry.watched():
                    result = self._first_result(started)
                    self.client.cancel([started.popleft().future], force=True)
                    started.extend(map(self._begin, islice(waiting, 1)))
                yield result
                del result  # free it before waiting for the next one
        finally:
            self._cancel(started)

    def _cancel(self, calls: MutableSequence[_Call]) -> None:
        if self.client.status == "running":
            self.client.cancel([call.future for call in calls], force=True)
        # A traceback keeps this frame alive, and with it the futures and their results on the cluster.
        calls.clear()

    def _begin(self, task: Callable[[], T]) -> _Call:
        workers = self._registry.allowed()
        key = f"daskcluster-run-{uuid.uuid4().hex}"
        send = self.client.submit
        future = unannotated(send, _call, task, key=key, workers=workers, pure=False)
        return _Call(task, future, frozenset(workers or ()))

    def _first_result(self, calls: Sequence[_Call]) -> Any:
        """Wait for the first of the calls; raise if no workers remain."""
        try:
            while not calls[0].future.done():
                with suppress(TimeoutError), self.client.as_current():
                    wait([calls[0].future], timeout=POLL_SECONDS)
                    break
                self._send_stranded(calls, self._registry.present())
            return self.client.gather(calls[0].future)
        except KilledWorker as error:
            raise EngineError(
                "a task killed every worker that ran it, most often because it ran out of memory; give "
                "workers more memory, or use fewer threads."
            ) from error

    def can_read(self, dataset: Reachable) -> bool:
        """Return True if all workers are expected to reach `dataset`; nothing is opened to find out."""
        if dataset.visibility is Visibility.EVERYONE:
            return True
        return dataset.visibility is Visibility.HOST and self.is_on_this_host()

    def _send_stranded(self, calls: Iterable[_Call], present: Set[str]) -> None:
        """Send calls again that are restricted to workers which have all left."""
        for call in calls:
            if not call.workers or not present or call.workers & present or call.future.done():
                continue
            if call.sends >= _MOST_SENDS:
                raise EngineError(
                    f"a task was sent to workers {call.sends} times and lost each time because workers "
                    "left; give workers more memory, or use workers that stay until the end of the work."
                )
            self.client.cancel([call.future], force=True)
            again = self._begin(call.task)
            call.future, call.workers, call.sends = again.future, again.workers, call.sends + 1


@dataclass
class _Call:
    """A call that was sent to any of `workers`; to any worker at all if there are none."""

    task: Callable[[], Any]
    future: Future
    workers: frozenset[str]
    sends: int = 1


def _call(task: Callable[[], T]) -> T:
    return task()


def _plan(dataset: Dataset, footprint: Footprint, workers: Mapping[str, WorkerInfo]) -> MemoryPlan:
    footprint = footprint.of_workers()
    for worker in workers.values():
        project(
            dataset,
            replace(footprint, row_bytes=0),
            limit=worker.limit,
            n_threads=worker.n_threads,
        )
    return project(
        dataset,
        footprint,
        limit=sum(worker.limit for worker in workers.values()),
        n_threads=sum(worker.n_threads for worker in workers.values()),
        n_processes=len(workers),
    )
