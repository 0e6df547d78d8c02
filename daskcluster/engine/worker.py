"""The body of a Dask task: an operation over partitions in a worker process."""

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
from daskcluster.engine.operations import CacheSlot, Operation, WorkItem, WorkItemReader, WorkQueue
from daskcluster.errors import DaskClusterError
from daskcluster.host import process_token
from daskcluster.typing import Dataset, Range, Recipe

if TYPE_CHECKING:
    from daskcluster.engine.cache import CachedPartition

Rows = tuple[np.ndarray, np.ndarray | None, bool]
"""Rows and weights of one partition sent to a worker, and whether to normalize the rows."""

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
"""Errors that a retry would raise again; others (a store that fails briefly) are left to Dask's retries."""

_FITS_KEPT = 8
"""Number of placements per worker whose prepared parameters (of the last pass) are cached."""


@dataclass(frozen=True)
class Payload:
    """Data common to all tasks of one pass; pickled once per pass.

    Attributes
    ----------
    operation : Operation
    params : object
    recipe : Recipe or None
        None if the rows are sent with the tasks.
    driver : int
        `process_token` of the driver. BLAS threads are limited in worker processes only.
    """

    operation: Operation
    params: Any
    recipe: Recipe | None
    driver: int


@dataclass
class TaskResult:
    """Result of a task over its partitions.

    Attributes
    ----------
    value : object
        The operation's combined value.
    rows, bytes_read : int
    skipped : int
        Number of `rows` that were not read.
    seconds : float
    error : exception or None
        An error that a retry would raise again.
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
        Names of the placement and of the pass; tasks of one pass share its prepared parameters.
    payload : bytes
        A pickled `Payload`.
    spans : sequence of (start, stop)
    resident, states : sequence of CachedPartition or None
        Handles of rows and of state on this worker, per span.
    rows : sequence of (rows, weights, normalize), or None
        Per span, if the rows are sent with the task.
    n_threads : int
        Task threads of the worker.
    """
    began = time.perf_counter()
    try:
        operation, prepared, dataset = _unpacked(name, payload, n_threads)
        places: Sequence[CacheSlot | None] = resident
        if rows is not None:
            places = [_slot_of(*part, span) for part, span in zip(rows, spans, strict=True)]
        queue = WorkQueue(
            dataset,
            [
                WorkItem(span, place if place is not None and place.keeps else None, state)
                for span, place, state in zip(spans, places, states, strict=True)
            ],
        )
        reader = WorkItemReader(queue)
        value = operation.run(reader, prepared)
    except _FINAL as error:
        return TaskResult(error=error)
    seconds = time.perf_counter() - began
    return TaskResult(value, queue.take_rows(), queue.bytes_read, reader.skipped, seconds)


class _PreparedPass:
    """The unpacked payload of a pass, shared by all threads of the process."""

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
    """Configure the threads of a worker process, once: one for BLAS, `n_threads` + 1 for zarr."""
    if process_token() == driver:
        return
    import zarr
    from threadpoolctl import threadpool_limits

    # A task computes on one thread; zarr's pool is per process and decodes for all tasks.
    threadpool_limits(1)
    zarr.config.set({"threading.max_workers": n_threads + 1})


def _slot_of(
    array: np.ndarray, weights: np.ndarray | None, normalize: bool, span: Range
) -> CacheSlot:
    slot = CacheSlot()
    slot.keep_rows([Chunk(array, span[0], weights, normalize)])
    return slot
