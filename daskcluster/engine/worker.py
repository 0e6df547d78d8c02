"""What a Dask task does: operations over partitions, in the process of a worker."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.engine.operations import Operation
from daskcluster.engine.tasks import group_by_range
from daskcluster.errors import DaskClusterError
from daskcluster.typing import Dataset, Range, Recipe

if TYPE_CHECKING:
    from daskcluster.engine.held import Held

Rows = tuple[np.ndarray, np.ndarray | None]
"""Rows and weights of one partition that were sent to the workers."""

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

_ERRANDS_KEPT = 2


@dataclass(frozen=True)
class Errand:
    """All that the tasks of one pass have in common; travels once a pass, pickled.

    Attributes
    ----------
    operation : Operation
    params : object
    recipe : Recipe or None
        None where the rows travel with the tasks.
    driver_pid : int
        Threads are limited in processes of workers, never in the driver's own.
    """

    operation: Operation
    params: Any
    recipe: Recipe | None
    driver_pid: int


@dataclass
class Outcome:
    """What a task says of its partitions.

    Attributes
    ----------
    value : object
        The operation's combined value.
    rows, bytes_read : int
    seconds : float
    error : exception or None
        An error that a second try would meet again.
    """

    value: Any = None
    rows: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    error: BaseException | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def on_read(self, count: int) -> None:
        with self._lock:
            self.bytes_read += count

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


def work(
    name: str,
    errand: bytes,
    spans: Sequence[Range],
    resident: Sequence[Held | None],
    states: Sequence[Held | None],
    rows: Sequence[Rows] | None,
    n_threads: int = 1,
) -> Outcome:
    """Run one task: the operation of a pass over some spans.

    Parameters
    ----------
    name : str
        Of the pass; tasks of one pass share what is prepared for it.
    errand : bytes
        A pickled `Errand`.
    spans : sequence of (start, stop)
    resident, states : sequence of Held or None
        By span: handles of rows and of state that live on this worker.
    rows : sequence of (rows, weights), or None
        By span, where the rows travel with the task.
    n_threads : int
        Task threads of the worker.
    """
    began = time.perf_counter()
    outcome = Outcome()
    try:
        operation, prepared, dataset = _unpacked(name, errand, n_threads)
        value = operation.begin(prepared)
        for index, chunks in _read(dataset, spans, resident, rows, outcome.on_read):
            operation.visit(spans[index], chunks, prepared, states[index], value)
            outcome.rows += spans[index][1] - spans[index][0]
        outcome.value = value
    except _FINAL as error:
        outcome.error = error
    outcome.seconds = time.perf_counter() - began
    return outcome


class _Slot:
    """What one errand was unpacked to, once for all threads of the process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.content: tuple[Operation, Any, Dataset | None] | None = None


_slots: OrderedDict[str, _Slot] = OrderedDict()
_slots_lock = threading.Lock()


def _unpacked(name: str, errand: bytes, n_threads: int) -> tuple[Operation, Any, Dataset | None]:
    with _slots_lock:
        slot = _slots.setdefault(name, _Slot())
        _slots.move_to_end(name)
        while len(_slots) > _ERRANDS_KEPT:
            _slots.popitem(last=False)
    with slot.lock:
        if slot.content is None:
            unpickled: Errand = pickle.loads(errand)
            make_ready(unpickled.driver_pid, n_threads)
            dataset = None if unpickled.recipe is None else unpickled.recipe.open()
            operation = unpickled.operation
            slot.content = operation, operation.prepare(unpickled.params), dataset
        return slot.content


@cache
def make_ready(driver_pid: int, n_threads: int) -> None:
    """Set up the process of a worker, once: one BLAS thread, zarr's threads."""
    if os.getpid() == driver_pid:
        return
    import zarr
    from threadpoolctl import threadpool_limits

    # One task has one thread; zarr's pool is per process and decodes for all task threads.
    threadpool_limits(1)
    zarr.config.set({"threading.max_workers": n_threads + 1})


def _read(
    dataset: Dataset | None,
    spans: Sequence[Range],
    resident: Sequence[Held | None],
    rows: Sequence[Rows] | None,
    on_read: Callable[[int], None],
) -> Iterator[tuple[int, list[Chunk]]]:
    """Yield every span's index with its chunks, resident ones between those that have to be read."""
    if rows is not None:
        for index, (array, weights) in enumerate(rows):
            yield index, [Chunk(array, spans[index][0], weights)]
        return
    assert dataset is not None
    here: deque[tuple[int, list[Chunk]]] = deque()
    absent = []
    for index, held in enumerate(resident):
        chunks = held.rows() if held is not None else None
        if chunks is None:
            absent.append(index)
        else:
            here.append((index, chunks))
    between = -(-len(here) // max(1, len(absent)))
    # Ranges are drawn lazily, ahead of the chunks that come back in the same order.
    stream = dataset.chunks((spans[i] for i in absent), on_read=on_read)
    ranges, order = iter([spans[i] for i in absent]), iter(absent)
    for _, chunks in group_by_range(stream, lambda: next(ranges)):
        index = next(order)
        held = resident[index]
        if held is not None:
            held.keep_rows(chunks)
        yield index, chunks
        # Resident spans are spread between the others: the reader works on meanwhile.
        for _ in range(min(between, len(here))):
            yield here.popleft()
    while here:
        yield here.popleft()
