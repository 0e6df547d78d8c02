"""What the tasks of a pass return, combined by the driver or, where it is large, by the workers."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from daskcluster.engine.operations import Operation
from daskcluster.engine.registry import WorkerRegistry
from daskcluster.engine.worker import TaskResult

if TYPE_CHECKING:
    from distributed import Client, Future

FAN_IN = 8
_RETRIES = 2
_FETCH_SECONDS = 5.0


class LostError(Exception):
    """What a finished task left behind is gone."""


class Totals:
    """The values of the tasks of one pass.

    Parameters
    ----------
    client : Client
    registry : WorkerRegistry
    operation : Operation
    on_value : callable (value) -> None, optional
        Takes the value of every task, in place of combining them.
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
        """Begin anew, with values that stay on the workers and are combined there."""
        self._on_workers = []

    def fetch(self, future: Future) -> TaskResult:
        """Return what the driver needs of a finished task; called in several threads at a time.

        Raises
        ------
        LostError
            It is gone.
        """
        if self._on_workers is None:
            return self._wait(future, [future])
        return self._wait(self._client.submit(_without_value, future, pure=False), [future])

    def add(self, result: TaskResult, future: Future) -> None:
        """Add what a task returned."""
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
            Values on workers are gone.
        """
        if self._on_workers is None:
            return self._value
        futures = self._on_workers
        while len(futures) > 1:
            groups = [futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN)]
            futures = [
                self._client.submit(_merged, self._operation, group, pure=False, retries=_RETRIES)
                for group in groups
            ]
        return self._wait(futures[0], self._on_workers).value

    def _wait(self, future: Future, sources: Sequence[Future]) -> TaskResult:
        """Return what is made of finished tasks, as long as they are still there."""
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
                # Each attempt starts the transfer anew: a slow line needs a longer one.
                timeout *= 2


def _without_value(result: TaskResult) -> TaskResult:
    return replace(result, value=None)


def _merged(operation: Operation, results: Sequence[TaskResult]) -> TaskResult:
    # The first is copied: `combine` may reuse it, and a merge that is repeated needs it as it was.
    total = copy.deepcopy(results[0].value)
    for result in results[1:]:
        total = operation.combine(total, result.value)
    return TaskResult(value=total)


def size_of(value: Any) -> int:
    """Return the bytes of a value on the wire, without copying its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)
