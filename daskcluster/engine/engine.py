"""The interface of an engine, and the placement of a dataset on it, which runs passes.

An engine knows no algorithm. It *places* a dataset: it decides which partitions stay in memory, and who
works on each. Then it maps reductions over the placement, and counts passes and bytes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.statistics import Reduction, StatefulReduction
from daskcluster.engine.memory import Footprint
from daskcluster.engine.operations import (
    Fold,
    FoldState,
    Inspect,
    Operation,
    WriteRows,
    output_blocks,
)
from daskcluster.engine.segments import Segment, Segments, next_segment_count
from daskcluster.engine.work_items import count_rows
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.typing import ChangeGuard, Dataset, Range, Reachable, Sink

T = TypeVar("T")

AHEAD = 4
"""Calls of `Engine.run_ahead` on their way for each thread: none waits for the driver, results stay few."""


@dataclass
class Traffic:
    """Passes over the data and decoded bytes fetched from the store."""

    passes: int = 0
    bytes_read: int = 0


class Placement(ABC):
    """A dataset made ready on an engine, for the length of one fit or predict.

    Use as a context manager: leaving it frees resident partitions and state, and raises `InvalidDataError`
    if stored rows were changed meanwhile, since results would mix two versions of them.

    The verbs, and what is published and counted of a pass, are the same everywhere. An engine says how a
    pass is run (`_run`) and what becomes of state.

    Parameters
    ----------
    dataset : Dataset
    callbacks : sequence of callables
        Hear `PassStarted`, `PassProgress` and `PassEnded`, in the driver's thread.
    source : Dataset, optional
        The same rows as the tasks read them, if those are elsewhere.

    Attributes
    ----------
    dataset : Dataset
    callbacks : sequence of callables
    traffic : Traffic
        Counted over the placement's life.
    """

    shares_memory: bool = False
    """Tasks see this process's arrays, so a chunkwise function may write into one."""

    def __init__(
        self, dataset: Dataset, callbacks: Sequence[Callback], source: Dataset | None = None
    ) -> None:
        self.dataset = dataset
        self.callbacks = callbacks
        self.traffic = Traffic()
        self._source = dataset if source is None else source
        self._state_versions: dict[str, int] = {}
        self._guard: ChangeGuard | None = None

    # -- the verbs -----------------------------------------------------------------------------

    def reduce(self, reduction: Reduction, params: Any) -> Any:
        """Map `reduction` over all rows and return the combined statistics. One pass."""
        with self._counted(reduction.name):
            return self._run(Fold(reduction), params)

    def reduce_items(self, reduction: Reduction, params: Any, work_items: Sequence[int]) -> Any:
        """Reduce only these `work_items` (at least one), as part of a pass that the caller counts."""
        return self._run(Fold(reduction), params, work_items=work_items)

    def reduce_in_segments(self, reduction: Reduction, params: Any, segments: Segments) -> Any:
        """Like `reduce`, in segments: `segments` hears of each and says where to resume. One pass.

        Rows in memory are one segment: there is little to lose.
        """
        n_work_items = len(self.work_items)
        segment = segments.begin(
            n_work_items, n_work_items if self.dataset.in_memory else self.n_threads
        )
        with self._counted(reduction.name, self._rows_before(segment)):
            step = 1
            while not segment.is_last:
                started = time.perf_counter()
                found = self.reduce_items(reduction, params, segment.work_items(step))
                total = found if segment.total is None else reduction.combine(segment.total, found)
                segment = segment.after(step, total)
                segments.ended(segment)
                step = next_segment_count(step, time.perf_counter() - started)
            return segment.total

    def map_state(self, reduction: StatefulReduction, params: Any) -> Any:
        """Like `reduce`, with per-row state that stays where it is between calls.

        State belongs to the placement and to ``reduction.name``; a placement holds that of one
        reduction at a time. Each call marks the state of every work item with the number of the call, its
        version, as the last chunk of the work item that was wanted is done. State that does not carry the
        version of the call before (never made, lost, or left half-way by a task that died) is made anew:
        `fresh`, then `rebuild` from `params`, on the whole work item. The result is the same either way.

        Rows that are not in memory are read only where ``reduction.filter_rows`` wants them, in
        whole storage chunks (`Dataset.read_edges`): ``traffic.bytes_read`` counts those alone, and
        progress counts the others as done. Passes of other verbs may come in between.
        """
        version = self._state_versions.get(reduction.name, 0)
        self._state_versions[reduction.name] = version + 1
        self._reserve_state(reduction.row_bytes, is_new=not version)
        with self._counted(reduction.name):
            return self._run(FoldState(reduction, version), params)

    def state_of(
        self,
        reduction: StatefulReduction,
        params: Any,
        row: int,
        fn: Callable[[Chunk, Any, Any], T],
    ) -> T:
        """Return ``fn(chunk, prepared, state)`` for the work item that holds `row`.

        `params` are those of a next `map_state` call: where the state is missing it is rebuilt.
        """
        operation = Inspect(reduction, self._state_versions.get(reduction.name, 0), fn)
        found: T = self._run(operation, params, work_items=[self.item_of(row)], report=False)[0]
        return found

    def drop_state(self, name: str) -> None:
        """Free the state of the reduction of that name; a later call of it starts anew."""
        if self._state_versions.pop(name, None) is not None:
            self._free_state()

    def map_rows(
        self,
        fn: Callable[[Chunk, Any], np.ndarray],
        sink: Sink,
        params: Any,
        *,
        prepare: Callable[[Any], Any] | None = None,
        name: str = "rows",
    ) -> None:
        """Write ``fn(chunk, prepared)`` (first axis: the chunk's rows) to `sink`. One pass.

        Units whose rows the sink has already are left out.
        """
        blocks = self.work_items
        if sink.block_rows > 1 and any(stop % sink.block_rows for _, stop in blocks[:-1]):
            blocks = output_blocks(self._source, sink.block_rows)
        left = [span for span in blocks if not sink.has(span)]
        if not left:
            return
        with self._counted(name, self.dataset.n_rows - count_rows(left)):
            if self._tasks_can_write(sink):
                self._run(WriteRows(fn, prepare, sink), params, spans=left)
            else:
                operation = WriteRows(fn, prepare, None)
                self._run(operation, params, spans=left, on_value=partial(_write_all, sink))

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the given rows, source dtype, shape (len(rows), d)."""
        return self.dataset.take(rows)

    # -- what an engine says -------------------------------------------------------------------

    @property
    @abstractmethod
    def work_items(self) -> Sequence[Range]:
        """Ranges of rows in which state is kept; they cover the dataset in order."""

    @property
    @abstractmethod
    def n_threads(self) -> int:
        """Threads that compute at the same time, over all workers."""

    @abstractmethod
    def state_room(self) -> int:
        """Return how many bytes of per-row state the placement can hold.

        Half of the memory limit less what the libraries take, and what other runs hold on the workers;
        or less, if a large working set leaves no half. Resident rows give way to state. More can be
        asked for: a cluster keeps what fits and makes the rest anew in every call, local threads keep
        all of it.
        """

    @abstractmethod
    def close(self) -> None:
        """Free resident partitions and state."""

    @abstractmethod
    def _run(
        self,
        operation: Operation,
        params: Any,
        *,
        work_items: Sequence[int] | None = None,
        spans: Sequence[Range] | None = None,
        on_value: Callable[[Any], None] | None = None,
        report: bool = True,
    ) -> Any:
        """Run an operation on all or some `work_items`, or on `spans`; return the combined value.

        Counts bytes, and publishes progress if `report`. `on_value` takes the value of every task in place
        of combining them; it is given only if `_tasks_can_write` said no.
        """

    @abstractmethod
    def _reserve_state(self, row_bytes: int, *, is_new: bool) -> None:
        """Make room for state; `is_new` if there has been none of this name."""

    @abstractmethod
    def _free_state(self) -> None:
        """Free all state; rows may have its room."""

    def _tasks_can_write(self, sink: Sink) -> bool:
        """Whether tasks reach the sink; else their rows come to the driver."""
        return True

    def shared_folder(self) -> str | None:
        """Return a folder on disk where all tasks can read what others wrote, for what may be lost.

        None where nothing is lost (threads of this process), or where workers share no disk that we know
        of. Removed with the placement.
        """
        return None

    # -- what all passes have in common --------------------------------------------------------

    def item_of(self, row: int) -> int:
        """Return the number of the work item that holds `row`."""
        starts = [start for start, _ in self.work_items]
        return int(np.searchsorted(starts, row, side="right")) - 1

    @contextmanager
    def _counted(self, name: str, rows_done: int = 0) -> Iterator[None]:
        """Count one pass and publish how it goes; `rows_done` need not be visited."""
        began, bytes_before = time.perf_counter(), self.traffic.bytes_read
        publish(self.callbacks, PassStarted(name, self.dataset.n_rows))
        self._report_rows(rows_done)
        yield
        self.traffic.passes += 1
        seconds = time.perf_counter() - began
        publish(self.callbacks, PassEnded(name, seconds, self.traffic.bytes_read - bytes_before))

    def _report_rows(self, rows: int) -> None:
        if rows:
            publish(self.callbacks, PassProgress(rows))

    def _rows_before(self, segment: Segment) -> int:
        work_items = self.work_items
        return count_rows(
            work_items[item] for item in replace(segment, done=0).work_items(segment.done)
        )

    def __enter__(self) -> Self:
        self._guard = self.dataset.change_guard()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        # Rows that changed may also be why a read failed, or why rows do not fit what was known of them.
        if self._guard is not None and (kind is None or issubclass(kind, (ValueError, OSError))):
            self._guard.check()


def _write_all(sink: Sink, parts: Sequence[tuple[int, np.ndarray]]) -> None:
    for start, values in parts:
        sink.write(start, values)


class Engine(ABC):
    """Runs passes: on local threads, or on a Dask cluster."""

    name: str

    @property
    @abstractmethod
    def n_threads(self) -> int:
        """Threads that compute at the same time, over all workers."""

    @abstractmethod
    def place(
        self,
        dataset: Dataset,
        *,
        footprint: Footprint | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Placement:
        """Make `dataset` ready for passes.

        Parameters
        ----------
        dataset : Dataset
        footprint : Footprint, optional
            What the work will need per thread and per row, for the memory projection.
        callbacks : sequence of callables
            Hear the progress of passes.

        Raises
        ------
        MemoryLimitError
            Even without resident partitions the work does not fit the engine's memory limit.
        ReachError
            The workers cannot read the dataset.
        """

    @abstractmethod
    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run independent picklable calls (restarts, sweeps) and return their results in order.

        As many at a time as there are threads: a call computes on one.
        """

    def listeners(self) -> tuple[Callback, ...]:
        """Return the callbacks of one fit on this engine, in addition to those that the caller names."""
        return ()

    def named(self, name: str) -> Engine:
        """Return this engine for a job of that name, under which its listeners know it."""
        return self

    @abstractmethod
    def run_ahead(self, tasks: Sequence[Callable[[], T]]) -> Generator[T]:
        """Yield the results of calls such as `run` takes, in order, with some calls running ahead.

        What the caller does with one result overlaps with the calls that follow, of which at most
        `AHEAD` for each thread are started or done but not taken yet. Leaving the iterator early
        (``close``) drops the calls that have not started.
        """

    @abstractmethod
    def can_read(self, dataset: Reachable) -> bool:
        """Return True if calls that `run` is given can open `dataset` (or another given object)."""
