"""Transfer of rows and parameters to workers, and combination of their results."""

from __future__ import annotations

import copy
import pickle
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from daskcluster.annotations import unannotated
from daskcluster.engine.assignment import Assignment
from daskcluster.engine.compat import SCATTER_ERRORS
from daskcluster.engine.operations import Operation
from daskcluster.engine.registry import WorkerInfo, WorkerRegistry
from daskcluster.engine.worker import Rows, TaskResult
from daskcluster.errors import EngineError, ReachError
from daskcluster.host import format_bytes, machine_name, process_token
from daskcluster.typing import Dataset, Range, Visibility

if TYPE_CHECKING:
    from distributed import Client, Future


_SCATTERS = 10
_PAUSE_SECONDS = 0.2


class DistributedRows:
    """Row ranges assigned to workers, and the rows themselves if workers cannot read them.

    Parameters
    ----------
    client : Client
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
        client: Client,
        registry: WorkerRegistry,
        dataset: Dataset,
        spans: Sequence[Range],
        *,
        travels: bool,
    ) -> None:
        self.spans = spans
        self.name = uuid.uuid4().hex
        self.assignment = Assignment([stop - start for start, stop in spans])
        self._client = client
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
            futures = scattered(self._client, self._registry, parts, workers=places)
            rows.update(zip(missing, futures, strict=True))

    def rows(self, indices: Sequence[int]) -> list[Future] | None:
        """Return futures of the rows of ranges, as arguments of a task; None if workers read them."""
        return [self._rows[index] for index in indices] if self._travels else None

    def close(self) -> None:
        """Let Dask free the rows."""
        self._rows.clear()


def scattered(
    client: Client, registry: WorkerRegistry, data: Any, *, workers: list[str] | None = None
) -> Any:
    """Scatter one copy, even if workers leave meanwhile; other workers fetch it on demand.

    ``broadcast`` is not used: Dask would retry forever to copy to a worker that died meanwhile.
    """
    for _ in range(_SCATTERS):
        try:
            return client.scatter(data, workers=workers or registry.allowed(), hash=False)
        except SCATTER_ERRORS:
            workers = None  # any worker that may be used will do
            time.sleep(_PAUSE_SECONDS)
    raise EngineError(
        "data could not be sent to the workers because they keep leaving; use workers that stay until "
        "the end of the work."
    )


SEND_BYTES = 256 * 1024**2
"""Most bytes of rows of this process that are sent to workers on other hosts."""


@runtime_checkable
class Portable(Protocol):
    """A dataset that can be written to a folder for other processes of this host."""

    def to_scratch(self, folder: str) -> Dataset: ...


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
    ReachError
        The rows are too large to send, and the workers are on other hosts.
    """
    if is_visible_to(dataset, workers):
        return dataset, False
    size = held_size(dataset, (0, dataset.n_rows))
    if dataset.in_memory and size <= SEND_BYTES:
        return dataset, True
    here = on_this_host(workers.values())
    if here and isinstance(dataset, Portable):
        folder = tempfile.mkdtemp(prefix="daskcluster-")
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        written = dataset.to_scratch(folder)
        return (written.normalized() if dataset.normalize else written), False
    if size <= SEND_BYTES:
        return dataset, True
    raise ReachError(
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
    client : Client
    registry : WorkerRegistry
    operation : Operation
    on_value : callable (value) -> None, optional
        Called with the value of every task, instead of combining the values.
    """

    def __init__(
        self,
        client: Client,
        registry: WorkerRegistry,
        operation: Operation,
        on_value: Callable[[Any], None] | None = None,
    ) -> None:
        self._client = client
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
        """Return the combined value of all tasks.

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
        return self._wait(futures[0], self._on_workers).value

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
