"""What a Dask task does: operations over partitions, in the process of a worker."""

from __future__ import annotations

import pickle
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.engine.operations import Operation
from daskcluster.engine.places import Place
from daskcluster.engine.units import Unit, UnitReader
from daskcluster.errors import DaskClusterError
from daskcluster.host import process_token
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

_FITS_KEPT = 8
"""Fits at once on a worker whose parameters stay prepared, each with those of its last pass."""


@dataclass(frozen=True)
class Errand:
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
class Outcome:
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
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def on_read(self, count: int) -> None:
        with self._lock:
            self.bytes_read += count

    def on_rows(self, count: int) -> None:
        self.rows += count

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


def work(
    name: tuple[str, str],
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
    name : (str, str)
        Of the placement and of the pass; tasks of one pass share what is prepared for it.
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
        units = _reader(dataset, _units(spans, resident, states, rows), outcome)
        outcome.value = operation.run(units, prepared)
        outcome.skipped = units.skipped
    except _FINAL as error:
        outcome.error = error
    outcome.seconds = time.perf_counter() - began
    return outcome


class _Slot:
    """What the errand of a pass was unpacked to, once for all threads of the process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.content: tuple[Operation, Any, Dataset | None] | None = None


_slots: OrderedDict[str, _Slot] = OrderedDict()
_slots_lock = threading.Lock()


def _unpacked(
    name: tuple[str, str], errand: bytes, n_threads: int
) -> tuple[Operation, Any, Dataset | None]:
    placement, of_pass = name
    with _slots_lock:
        slot = _slots.get(placement)
        if slot is None or slot.name != of_pass:
            slot = _slots[placement] = _Slot(of_pass)
        _slots.move_to_end(placement)
        while len(_slots) > _FITS_KEPT:
            _slots.popitem(last=False)
    with slot.lock:
        if slot.content is None:
            unpickled: Errand = pickle.loads(errand)
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


def _units(
    spans: Sequence[Range],
    resident: Sequence[Held | None],
    states: Sequence[Held | None],
    rows: Sequence[Rows] | None,
) -> list[Unit]:
    places: Sequence[Place | None] = resident
    if rows is not None:
        places = [_place_of(*part, span) for part, span in zip(rows, spans, strict=True)]
    return [
        Unit(span, place if place is not None and place.keeps else None, state)
        for span, place, state in zip(spans, places, states, strict=True)
    ]


def _place_of(array: np.ndarray, weights: np.ndarray | None, span: Range) -> Place:
    place = Place()
    place.keep_rows([Chunk(array, span[0], weights)])
    return place


def _reader(dataset: Dataset | None, units: Sequence[Unit], outcome: Outcome) -> UnitReader:
    present = [unit for unit in units if unit.is_present]
    absent = [unit for unit in units if not unit.is_present]
    return UnitReader(
        dataset,
        absent,
        present,
        per_read=-(-len(present) // max(1, len(absent))),
        on_read=outcome.on_read,
        on_rows=outcome.on_rows,
    )
