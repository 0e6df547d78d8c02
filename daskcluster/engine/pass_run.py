"""One pass on a cluster: send rows and tasks, combine results, resend what was lost.

A task is a list of partitions for one slot. Every partition counts exactly once per pass, even if Dask runs
a task twice, or if a task is sent again because one of its dependencies was lost.
"""

from __future__ import annotations

import copy
import pickle
import queue
import shutil
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import Future as Fetched
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from distributed import KilledWorker

from daskcluster.annotations import unannotated
from daskcluster.engine.assignment import Assignment, Slot, Task, TaskQueue
from daskcluster.engine.cache import ResidentCache
from daskcluster.engine.compat import SCATTER_ERRORS, dumps, ended_unexpectedly, processing_keys
from daskcluster.engine.operations import Folding, Operation, Payload, Rows, TaskResult, work
from daskcluster.engine.registry import Demand, Newcomers, WorkerInfo, WorkerRegistry
from daskcluster.errors import DataNotReachableError, EngineError
from daskcluster.host import format_bytes, machine_name, process_token
from daskcluster.storage.pass_totals import PassTotal
from daskcluster.typing import Dataset, Range, Visibility

if TYPE_CHECKING:
    from distributed import Future


_SCATTERS = 10
_PAUSE_SECONDS = 0.2


class DistributedRows:
    """Row ranges assigned to workers, and the rows themselves if workers cannot read them.

    Parameters
    ----------
    registry : WorkerRegistry
    dataset : Dataset
    spans : sequence of (start, stop)
    travels : bool
        Workers cannot read the rows: each range is sent once, to the worker it is assigned to.

    Attributes
    ----------
    name : str
        A unique name.
    """

    def __init__(
        self,
        registry: WorkerRegistry,
        dataset: Dataset,
        spans: Sequence[Range],
        *,
        travels: bool,
    ) -> None:
        self.spans = spans
        self.name = uuid.uuid4().hex
        self.assignment = Assignment([stop - start for start, stop in spans])
        self._registry = registry
        self._dataset = dataset
        self._travels = travels
        self._rows: dict[int, Future] = {}

    def settle(self, threads: Mapping[str, int]) -> None:
        """Assign every range to a current worker; see `Assignment.settle`."""
        self.assignment.settle(threads)
        self.renew(threads)

    def renew(self, workers: Container[str]) -> None:
        """Send rows that no worker has to their assigned worker, or to any if that one has left."""
        if not self._travels:
            return
        for worker, indices in self.assignment.by_worker().items():
            rows = self._rows
            missing = [i for i in indices if i not in rows or rows[i].status != "finished"]
            if not missing:
                continue
            parts: list[Rows] = []
            for index in missing:
                chunk = self._dataset.load(self.spans[index])
                parts.append((chunk.rows, chunk.weights, chunk.normalize))
            places = [worker] if worker in workers else None
            futures = scattered(self._registry, parts, workers=places)
            rows.update(zip(missing, futures, strict=True))

    def rows(self, indices: Sequence[int]) -> list[Future] | None:
        """Return futures of the rows of ranges, as arguments of a task; None if workers read them."""
        return [self._rows[index] for index in indices] if self._travels else None

    def close(self) -> None:
        """Let Dask free the rows."""
        self._rows.clear()


def scattered(registry: WorkerRegistry, data: Any, *, workers: list[str] | None = None) -> Any:
    """Scatter one copy, even if workers leave meanwhile; other workers fetch it on demand.

    ``broadcast`` is not used: Dask would retry forever to copy to a worker that died meanwhile.
    """
    for _ in range(_SCATTERS):
        try:
            return registry.client.scatter(data, workers=workers or registry.allowed(), hash=False)
        except SCATTER_ERRORS:
            workers = None  # any worker that may be used will do
            time.sleep(_PAUSE_SECONDS)
    raise EngineError(
        "data could not be sent to the workers because they keep leaving; use workers that stay until "
        "the end of the work."
    )


SEND_BYTES = 256 * 1024**2
"""Most bytes of rows of this process that are sent to workers on other hosts."""


def is_visible_to(dataset: Dataset, workers: Mapping[str, WorkerInfo]) -> bool:
    """Return True if workers on these hosts and in these processes may be able to read the dataset."""
    # The disk of a host may be shared: each worker finds out when it opens the dataset.
    if dataset.visibility in (Visibility.EVERYONE, Visibility.HOST):
        return True
    if getattr(dataset, "on_cluster", False):
        # A task that reads persisted rows would wait for threads that such tasks occupy.
        return False
    return all(worker.process == process_token() for worker in workers.values())


def held_size(dataset: Dataset, span: Range) -> int:
    """Return the bytes of the rows and weights of a range in memory."""
    weights = 8 * (span[1] - span[0]) if dataset.weights is not None else 0
    return dataset.bytes_of(span) + weights


def bring_near(
    dataset: Dataset, workers: Mapping[str, WorkerInfo], cleanup: ExitStack
) -> tuple[Dataset, bool]:
    """Return a dataset for the workers, and whether its rows must be sent with the tasks.

    Rows that only this process can read are sent if they are few. Otherwise, if all workers are on this
    host, they are written once to a scratch folder.

    Parameters
    ----------
    dataset : Dataset
    workers : mapping of worker address to WorkerInfo
    cleanup : ExitStack
        Removes the scratch folder.

    Raises
    ------
    DataNotReachableError
        The rows are too large to send, and the workers are on other hosts.
    """
    if is_visible_to(dataset, workers):
        return dataset, False
    size = held_size(dataset, (0, dataset.n_rows))
    if dataset.in_memory and size <= SEND_BYTES:
        return dataset, True
    to_scratch = getattr(dataset, "to_scratch", None)
    if to_scratch is not None and on_this_host(workers.values()):
        folder = tempfile.mkdtemp(prefix="daskcluster-")
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        written = to_scratch(folder)
        return (written.normalized() if dataset.normalize else written), False
    if size <= SEND_BYTES:
        return dataset, True
    raise DataNotReachableError(
        f"{format_bytes(size)} of rows can be read by this process only, and the workers are on other "
        f"hosts (at most {format_bytes(SEND_BYTES)} are sent to them); write the rows to Zarr on a "
        "bucket or shared disk and open that, or run locally with engine='local'."
    )


def on_this_host(workers: Iterable[WorkerInfo]) -> bool:
    """Return True if all workers run on the machine of this process."""
    return all(worker.host == machine_name() for worker in workers)


INLINE_BYTES = 1 << 20
"""A payload up to this size may be part of every task; a larger one is scattered once."""
INLINE_TOTAL_BYTES = 16 << 20
"""Limit on the payloads inside all tasks of a pass, which pass through client and scheduler."""
TREE_BYTES = 256 * 1024**2
"""If all totals of a pass together are larger than this, they are combined on workers."""
FETCHED_TOGETHER = 8
"""Results fetched in parallel: a transfer takes longer than the driver's work on a result."""


def is_inline(size: int, n_tasks: int) -> bool:
    """Return whether a payload of `size` bytes is part of each of `n_tasks` tasks.

    Examples
    --------
    >>> is_inline(500_000, 2), is_inline(500_000, 1000), is_inline(5_000_000, 2)
    (True, False, False)
    """
    return size <= INLINE_BYTES and size * n_tasks <= INLINE_TOTAL_BYTES


def is_heavy(size: int, n_tasks: int) -> bool:
    """Return whether totals of `size` bytes from each of `n_tasks` tasks are combined on workers.

    Examples
    --------
    >>> is_heavy(1_000_000, 100), is_heavy(1_000_000, 1000)
    (False, True)
    """
    return size * n_tasks > TREE_BYTES


def through_driver(sent: int, returned: int, n_tasks: int) -> int:
    """Return the bytes that client and scheduler handle for each of `n_tasks` tasks.

    Parameters
    ----------
    sent, returned : int
        Bytes of the payload and of the totals of a task.
    n_tasks : int

    Examples
    --------
    >>> through_driver(500_000, 1_000_000, 10)
    1500000
    >>> through_driver(5_000_000, 1_000_000, 1000)
    0
    """
    out = sent if is_inline(sent, n_tasks) else 0
    return out if is_heavy(returned, n_tasks) else out + returned


FAN_IN = 8
_RETRIES = 2
_FETCH_SECONDS = 5.0


class LostError(Exception):
    """The result of a finished task was lost."""


class Totals:
    """The values of the tasks of one pass.

    Parameters
    ----------
    registry : WorkerRegistry
    operation : Operation
    on_value : callable (value) -> None, optional
        Called with the value of every task, instead of combining the values.
    """

    def __init__(
        self,
        registry: WorkerRegistry,
        operation: Operation,
        on_value: Callable[[Any], None] | None = None,
    ) -> None:
        self._client = registry.client
        self._registry = registry
        self._operation = operation
        self._on_value = on_value
        self._value: Any = None
        self._on_workers: list[Future] | None = None

    def leave_on_workers(self) -> None:
        """Start again, with values that stay on the workers and are combined there."""
        self._on_workers = []

    def fetch(self, future: Future) -> TaskResult:
        """Return the part of a task's result that the driver needs; thread-safe.

        Raises
        ------
        LostError
            The result was lost.
        """
        if self._on_workers is None:
            return self._wait(future, [future])
        head = unannotated(
            self._client.submit,
            _without_value,
            future,
            workers=self._registry.allowed(),
            pure=False,
        )
        return self._wait(head, [future])

    def add(self, result: TaskResult, future: Future) -> None:
        """Add the result of a task."""
        if self._on_workers is not None:
            self._on_workers.append(future)
        elif self._on_value is not None:
            self._on_value(result.value)
        elif self._value is None:
            self._value = result.value
        else:
            self._value = self._operation.combine(self._value, result.value)

    def combined(self) -> Any:
        """Return the combined value of all tasks so far.

        Raises
        ------
        LostError
            Values on workers were lost.
        """
        if self._on_workers is None:
            return self._value
        futures = self._on_workers
        allowed = self._registry.allowed()
        while len(futures) > 1:
            groups = [futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN)]
            futures = [
                unannotated(
                    self._client.submit,
                    _merged,
                    self._operation,
                    group,
                    workers=allowed,
                    pure=False,
                    retries=_RETRIES,
                )
                for group in groups
            ]
        value = self._wait(futures[0], self._on_workers).value
        self._on_workers = futures
        return value

    def _wait(self, future: Future, sources: Sequence[Future]) -> TaskResult:
        """Wait for a result computed from the finished tasks `sources`, while those still exist."""
        timeout = _FETCH_SECONDS
        while True:
            try:
                result: TaskResult = future.result(timeout=timeout)
                return result
            except CancelledError as error:
                raise LostError from error
            except TimeoutError as error:
                self._registry.present()
                if any(source.status != "finished" for source in sources):
                    raise LostError from error
                # Each attempt restarts the transfer, so a slow connection needs a longer timeout.
                timeout *= 2


def _without_value(result: TaskResult) -> TaskResult:
    return replace(result, value=None)


def _merged(operation: Operation, results: Sequence[TaskResult]) -> TaskResult:
    # Copy the first: `combine` may change it, and a repeated merge needs the original.
    total = copy.deepcopy(results[0].value)
    for result in results[1:]:
        total = operation.combine(total, result.value)
    return TaskResult(value=total)


def size_of(value: Any) -> int:
    """Return the pickled size of a value in bytes, without copying its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


POLL_SECONDS = 0.5
_TREE_ATTEMPTS = 4
_MOST_SENDS = 8
_MOST_DEATHS = 3
"""Deaths of workers until a task is quarantined. Dask counts from zero when a task is sent again."""


class PassRun:
    """One pass over partitions on the workers.

    Parameters
    ----------
    registry : WorkerRegistry
    rows : DistributedRows
    cache : ResidentCache or None
    payload : Payload
    n_threads : mapping of worker address to number of threads
    on_rows : callable (int) -> None
        Called with the number of rows of every finished task.
    on_value : callable (value) -> None, optional
        Called with the value of every task, instead of combining the values.
    demand : Demand, optional
        Raised to the threads that the pass can use, as soon as the speed of a task is measured.
    total : PassTotal, optional
        Keeps the combined value of the tasks that are done, from time to time.

    Attributes
    ----------
    bytes_read : int
    speeds : dict of slot to (rows, seconds)
        Rows and time of the first task of every slot.
    """

    def __init__(
        self,
        registry: WorkerRegistry,
        rows: DistributedRows,
        cache: ResidentCache | None,
        payload: Payload,
        *,
        n_threads: Mapping[str, int],
        on_rows: Callable[[int], None],
        on_value: Callable[[Any], None] | None = None,
        demand: Demand | None = None,
        total: PassTotal | None = None,
    ) -> None:
        self._client = registry.client
        self._registry = registry
        self._rows = rows
        self._cache = cache
        self._payload = payload
        self._n_threads = dict(n_threads)
        self._demand, self._total = demand, total
        self._done: list[int] = []
        self._on_rows = on_rows
        self._totals = Totals(registry, payload.operation, on_value)
        self._name = rows.name, uuid.uuid4().hex
        self._packed = b""
        self._sent: bytes | Future = b""
        self._present = set(n_threads)
        self._met = set(n_threads)
        self._unassigned: set[str] = set()
        self.bytes_read = 0
        self.speeds: dict[Slot, tuple[int, float]] = {}

    @cached_property
    def _returned(self) -> int:
        """Size of a task's totals in bytes; 0 if the operation does not fold."""
        operation = self._payload.operation
        if not isinstance(operation, Folding):
            return 0
        return size_of(operation.begin(operation.prepare(self._payload.params)))

    def bytes_of_a_task(self, n_tasks: int) -> int:
        """Return the bytes sent and returned through the driver with each of `n_tasks` tasks."""
        self._packed = dumps(self._payload)
        return through_driver(len(self._packed), self._returned, n_tasks)

    def run(self, tasks: TaskQueue) -> Any:
        """Run the tasks and return their combined value."""
        self._pack(tasks.n_tasks)
        if not is_heavy(self._returned, tasks.n_tasks):
            self.settle(tasks)
            return self._totals.combined()
        for _ in range(_TREE_ATTEMPTS):
            self._totals.leave_on_workers()
            self.settle(tasks.again())
            try:
                return self._totals.combined()
            except LostError:
                self.renew()
        raise EngineError(
            f"the totals of a pass were lost {_TREE_ATTEMPTS} times because workers left; use workers "
            "that stay until the end of the work."
        )

    # -- until every partition is settled ----------------------------------------------------------

    def settle(self, tasks: TaskQueue) -> None:
        """Run tasks until every partition is settled."""
        self._tasks, self._done = tasks, []
        self._in_flight: dict[str, tuple[Future, Task]] = {}
        self._quarantined: deque[Task] = deque()
        self._arrived: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._fetched: dict[str, Fetched[TaskResult]] = {}
        self._pool = ThreadPoolExecutor(FETCHED_TOGETHER, thread_name_prefix="daskcluster-fetch")
        self._newcomers = Newcomers(self._registry, self._pool)
        try:
            for slot, indices in tasks.initial.items():
                if indices:
                    self._send(Task(slot, indices, is_initial=True))
                else:
                    self._feed(slot)
            # Queue a second task behind the first one, so that no slot waits for a round trip.
            for slot in tasks.initial:
                self._feed(slot)
            while self._in_flight or self._send_left():
                for future in self._next():
                    self._settle(future)
                self._keep_total()
        except BaseException:
            self.cancel([future for future, _ in self._in_flight.values()])
            raise
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _keep_total(self) -> None:
        """Keep the total of the partitions that are done, if it is due and some are left."""
        if self._total is None or not (self._done and self._in_flight and self._total.is_due()):
            return
        with suppress(LostError):  # the next attempt, or the end of the pass, makes it again
            value = self._totals.combined()
            self._total.keep(value, [self._rows.spans[index] for index in self._done])

    def _send(self, task: Task) -> None:
        if task.sends >= _MOST_SENDS:
            raise EngineError(
                f"{self._named(task)} were sent to workers {task.sends} times and lost each time because "
                "workers left; use workers that stay until the end of the work."
            )
        task = replace(task, slot=self.locate(task.slot))
        future = self.submit(task)
        self._in_flight[future.key] = (future, task)
        future.add_done_callback(self._arrived.put)

    def _feed(self, slot: Slot) -> None:
        indices = self._tasks.take(slot)
        if indices:
            self._send(Task(slot, indices))

    def _send_left(self) -> bool:
        """Send what no slot will ask for, else the next quarantined partition; False without any."""
        tasks = [Task(slot, indices) for slot, indices in self._tasks.take_rest().items()]
        if not tasks and self._quarantined:
            tasks = [self._quarantined.popleft()]
        for task in tasks:
            self._send(task)
        return bool(tasks)

    def _next(self) -> Sequence[Future]:
        """Return the futures that have arrived, at least one; fetch the results of several in parallel."""
        while True:
            self._admit()
            try:
                arrived = [self._arrived.get(timeout=POLL_SECONDS)]
                break
            except queue.Empty:
                self._send_stranded()
        while len(arrived) < FETCHED_TOGETHER and not self._arrived.empty():
            arrived.append(self._arrived.get())
        for future in arrived if len(arrived) > 1 else ():
            if future.key in self._in_flight and future.status == "finished":
                self._fetched[future.key] = self._pool.submit(self.fetch, future)
        return arrived

    def _admit(self) -> None:
        """Give tasks to workers that have joined since the pass began, two for each thread."""
        if self._tasks.is_shared:
            for worker, n_threads in self._newcomers.ready(self._n_threads).items():
                self._n_threads[worker] = n_threads
                self._see({*self._present, worker})
                for slot in [Slot(worker, thread) for thread in range(n_threads)] * 2:
                    self._feed(slot)

    def _send_stranded(self) -> None:
        in_flight = {key: task for key, (_, task) in self._in_flight.items()}
        for key in self.stranded(in_flight):
            future, task = self._in_flight.pop(key)
            self.cancel([future])
            self._resend(task, key)

    def _settle(self, future: Future) -> None:
        if future.key not in self._in_flight:
            return
        status = future.status
        if status == "pending":
            # The result was lost and Dask runs the task again.
            self._fetched.pop(future.key, None)
            future.add_done_callback(self._arrived.put)
            return
        _, task = self._in_flight.pop(future.key)
        if status == "finished":
            self._accept(task, future)
        elif status == "error":
            error = future.exception()
            if not isinstance(error, KilledWorker):
                raise error
            self._quarantine(task, error)
        else:
            self._resend(task, future.key)

    def _accept(self, task: Task, future: Future) -> None:
        under_way = self._fetched.pop(future.key, None)
        try:
            result = self.fetch(future) if under_way is None else under_way.result()
        except LostError:
            self._recover(task, future)
            return
        if result.error is not None:
            raise result.error
        self.take_result(task, result, future)
        if not task.alone:
            self._feed(task.slot)

    def _recover(self, task: Task, future: Future) -> None:
        """Wait for a task whose result was lost if Dask runs it again; otherwise send it again."""
        if future.status in ("cancelled", "lost"):
            self._resend(task, future.key)
            return
        self._in_flight[future.key] = (future, task)
        future.add_done_callback(self._arrived.put)

    def _resend(self, task: Task, key: str) -> None:
        """Send a lost task again, or quarantine it if it keeps killing workers."""
        self.renew()
        deaths = task.deaths + self.deaths(key)
        if deaths >= _MOST_DEATHS:
            self._quarantine(task, None)
            return
        self._send(replace(task, sends=task.sends + 1, deaths=deaths, is_initial=False))

    def _quarantine(self, task: Task, error: BaseException | None) -> None:
        """Run the partitions of a task one by one, with no other task running, to find the fatal ones."""
        if task.alone:
            raise EngineError(
                f"{self._named(task)} kill every worker that reads them, even when nothing else runs, "
                "most often because it runs out of memory; give workers more memory, or rewrite the "
                "data with smaller chunks (`daskcluster convert`)."
            ) from error
        self.renew()
        self._quarantined.extend(Task(task.slot, (i,), alone=True) for i in task.indices)
        self._feed(task.slot)

    def _named(self, task: Task) -> str:
        parts = [self._rows.spans[index] for index in task.indices]
        return f"rows {parts[0][0]} to {parts[-1][1] - 1}"

    # -- requests to the cluster -------------------------------------------------------------------

    def submit(self, task: Task) -> Future:
        """Send one task."""
        worker, indices = task.slot.worker, task.indices
        none = [None] * len(indices)
        resident, states = self._cache.on(worker, indices) if self._cache else (none, none)
        return unannotated(
            self._client.submit,
            work,
            self._name,
            self._sent,
            [self._rows.spans[index] for index in indices],
            resident,
            states,
            self._rows.rows(indices),
            self._n_threads.get(worker, 1),
            key=f"daskcluster-pass-{uuid.uuid4().hex}",
            workers=[worker],
            # Dask gives a task that may run elsewhere to any idle worker. The task of a worker that has
            # left is sent again: `stranded`.
            allow_other_workers=not self._registry.limit.is_strict,
            retries=_RETRIES,
            pure=False,
        )

    def cancel(self, futures: Sequence[Future]) -> None:
        """Cancel tasks, unless the scheduler is gone."""
        if self._client.status == "running":
            self._client.cancel(list(futures), force=True)

    def fetch(self, future: Future) -> TaskResult:
        """Return the part of a result that the driver needs; see `Totals.fetch`."""
        return self._totals.fetch(future)

    def take_result(self, task: Task, result: TaskResult, future: Future) -> None:
        """Add a result to the totals; called once per task, in the driver's thread."""
        self.bytes_read += result.bytes_read
        # The time of skipped rows says nothing about the slot's speed.
        if task.is_initial and not result.skipped:
            self.speeds[task.slot] = (result.rows, result.seconds)
        if self._demand is not None and not result.skipped:
            self._demand.learn(result.rows, result.seconds, self._rows.spans)
        self._totals.add(result, future)
        self._done += task.indices
        self._on_rows(result.rows)

    def locate(self, slot: Slot) -> Slot:
        """Return the slot itself, or a slot of another worker if its own has left."""
        if slot.worker in self._present or not self._present:
            return slot
        others = sorted(self._present)
        return Slot(others[hash(slot) % len(others)], slot.thread)

    def stranded(self, in_flight: Mapping[str, Task]) -> Collection[str]:
        """Return the keys of tasks that wait for a lost worker; raise if no workers remain.

        Dask sends the tasks of a lost worker elsewhere. If there is no other worker at that moment, it
        waits for the lost one, even if others join later.
        """
        self._see(self._registry.present())
        lost = {key for key, task in in_flight.items() if task.slot.worker not in self._present}
        stranded: set[str] = set()
        if lost and self._present:
            lost -= processing_keys(self._client, lost)
            # A task found unassigned twice in a row is not just moving between workers.
            stranded = lost & self._unassigned
        self._unassigned = lost
        return stranded

    def deaths(self, key: str) -> int:
        """Count the workers that died while they had a task; retired workers do not count."""
        gone = self._met - self._present
        return sum(ended_unexpectedly(self._client, worker, key) for worker in gone)

    def renew(self) -> None:
        """Send dependencies of tasks again that were lost with their workers."""
        self._see(self._registry.refresh())
        if not isinstance(self._sent, bytes) and self._sent.status != "finished":
            self._pack(len(self._rows.spans))
        self._rows.renew(self._present)

    def _see(self, workers: Iterable[str]) -> None:
        self._present = set(workers)
        self._met |= self._present

    def _pack(self, n_tasks: int) -> None:
        packed, self._packed = self._packed or dumps(self._payload), b""
        inline = is_inline(len(packed), n_tasks)
        self._sent = packed if inline else scattered(self._registry, packed)
