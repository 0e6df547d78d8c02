"""The body of a Dask task: operations over partitions in the process of a worker."""

from __future__ import annotations

import pickle
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.engine.operations import Operation
from daskcluster.engine.work_items import CacheSlot, WorkItem, WorkItemReader, WorkQueue
from daskcluster.errors import DaskClusterError
from daskcluster.host import process_token
from daskcluster.typing import Dataset, Range, Recipe

if TYPE_CHECKING:
    from daskcluster.engine.cache import CachedPartition

Rows = tuple[np.ndarray, np.ndarray | None, bool]
"""Rows and weights of one partition that were sent to the workers, and whether to normalize the rows."""

_FINAL = (
    DaskClusterError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)
"""Errors that a second try would meet again; others (a store that hiccups) are left to Dask's retries."""

_FITS_KEPT = 8
"""Fits at once on a worker whose parameters stay prepared, each with those of its last pass."""


@dataclass(frozen=True)
class Payload:
    """All that the tasks of one pass have in common; travels once a pass, pickled.

    Attributes
    ----------
    operation : Operation
    params : object
    recipe : Recipe or None
        None where the rows travel with the tasks.
    driver : int
        Its `process_token`: threads are limited in processes of workers, never in the driver's own.
    """

    operation: Operation
    params: Any
    recipe: Recipe | None
    driver: int


@dataclass
class TaskResult:
    """What a task says of its partitions.

    Attributes
    ----------
    value : object
        The operation's combined value.
    rows, bytes_read : int
    skipped : int
        Those of the rows that did not have to be read.
    seconds : float
    error : exception or None
        An error that a second try would meet again.
    """

    value: Any = None
    rows: int = 0
    bytes_read: int = 0
    skipped: int = 0
    seconds: float = 0.0
    error: BaseException | None = None


def work(
    name: tuple[str, str],
    payload: bytes,
    spans: Sequence[Range],
    resident: Sequence[CachedPartition | None],
    states: Sequence[CachedPartition | None],
    rows: Sequence[Rows] | None,
    n_threads: int = 1,
) -> TaskResult:
    """Run one task: the operation of a pass over some spans.

    Parameters
    ----------
    name : (str, str)
        Of the placement and of the pass; tasks of one pass share what is prepared for it.
    payload : bytes
        A pickled `Payload`.
    spans : sequence of (start, stop)
    resident, states : sequence of CachedPartition or None
        By span: handles of rows and of state that live on this worker.
    rows : sequence of (rows, weights, normalize), or None
        By span, where the rows travel with the task.
    n_threads : int
        Task threads of the worker.
    """
    began = time.perf_counter()
    try:
        operation, prepared, dataset = _unpacked(name, payload, n_threads)
        queue = WorkQueue(dataset, _work_items(spans, resident, states, rows))
        reader = WorkItemReader(queue)
        value = operation.run(reader, prepared)
    except _FINAL as error:
        return TaskResult(error=error)
    seconds = time.perf_counter() - began
    return TaskResult(value, queue.take_rows(), queue.bytes_read, reader.skipped, seconds)


class _PreparedPass:
    """What the payload of a pass was unpacked to, once for all threads of the process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.content: tuple[Operation, Any, Dataset | None] | None = None


_prepared: OrderedDict[str, _PreparedPass] = OrderedDict()
_prepared_lock = threading.Lock()


def _unpacked(
    name: tuple[str, str], payload: bytes, n_threads: int
) -> tuple[Operation, Any, Dataset | None]:
    placement, of_pass = name
    with _prepared_lock:
        slot = _prepared.get(placement)
        if slot is None or slot.name != of_pass:
            slot = _prepared[placement] = _PreparedPass(of_pass)
        _prepared.move_to_end(placement)
        while len(_prepared) > _FITS_KEPT:
            _prepared.popitem(last=False)
    with slot.lock:
        if slot.content is None:
            unpickled: Payload = pickle.loads(payload)
            make_ready(unpickled.driver, n_threads)
            dataset = None if unpickled.recipe is None else unpickled.recipe.open()
            operation = unpickled.operation
            slot.content = operation, operation.prepare(unpickled.params), dataset
        return slot.content


@cache
def make_ready(driver: int, n_threads: int) -> None:
    """Set up the process of a worker, once: one BLAS thread, zarr's threads."""
    if process_token() == driver:
        return
    import zarr
    from threadpoolctl import threadpool_limits

    # One task has one thread; zarr's pool is per process and decodes for all task threads.
    threadpool_limits(1)
    zarr.config.set({"threading.max_workers": n_threads + 1})


def _work_items(
    spans: Sequence[Range],
    resident: Sequence[CachedPartition | None],
    states: Sequence[CachedPartition | None],
    rows: Sequence[Rows] | None,
) -> list[WorkItem]:
    places: Sequence[CacheSlot | None] = resident
    if rows is not None:
        places = [_slot_of(*part, span) for part, span in zip(rows, spans, strict=True)]
    return [
        WorkItem(span, place if place is not None and place.keeps else None, state)
        for span, place, state in zip(spans, places, states, strict=True)
    ]


def _slot_of(
    array: np.ndarray, weights: np.ndarray | None, normalize: bool, span: Range
) -> CacheSlot:
    slot = CacheSlot()
    slot.keep_rows([Chunk(array, span[0], weights, normalize)])
    return slot
