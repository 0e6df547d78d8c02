"""Abstract base classes of the engines: `Engine`, and `Placement`, a dataset on an engine.

An engine knows no algorithm. It *places* a dataset: it decides which partitions stay in memory and which
thread or worker processes each one. It then maps reductions over the placement and counts passes and bytes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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
    count_rows,
    output_blocks,
)
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.storage.pass_totals import PassTotal, PassTotals
from daskcluster.typing import ChangeGuard, Dataset, Range, Reachable, Sink

T = TypeVar("T")

AHEAD = 4
"""Calls of `Engine.run_ahead` in flight per thread: threads never wait for the driver, few results pile
up."""


@dataclass(frozen=True)
class PassWork:
    """An operation on rows of a placement.

    Attributes
    ----------
    operation : Operation
    params : object
    work_items : sequence of int, optional
        Default: all.
    spans : sequence of (start, stop), optional
        Rows in place of work items.
    on_value : callable (value) -> None, optional
        Receives the value of every task, instead of combining them; only if tasks cannot write.
    report : bool
        Publish progress.
    total : PassTotal, optional
        Keeps the total of the rows that are done, from time to time.
    """

    operation: Operation
    params: Any
    work_items: Sequence[int] | None = None
    spans: Sequence[Range] | None = None
    on_value: Callable[[Any], None] | None = None
    report: bool = True
    total: PassTotal | None = None


@dataclass
class Traffic:
    """Passes over the data and decoded bytes fetched from the store."""

    passes: int = 0
    bytes_read: int = 0


class Placement(ABC):
    """A dataset prepared on an engine for one fit or predict.

    Use it as a context manager. Leaving it frees resident partitions and state, and raises
    `InvalidDataError` if the stored rows changed in the meantime, since results would mix two versions of
    them.

    The public methods, the events and the counters are the same for all engines. A subclass implements how
    a pass runs (`_run`) and where state is stored.

    Parameters
    ----------
    dataset : Dataset
    callbacks : sequence of callables, default ()
        Called with `PassStarted`, `PassProgress` and `PassEnded` in the driver's thread.
    source : Dataset, optional
        The same rows as the tasks read them, if the tasks read a copy. Default: `dataset`.

    Attributes
    ----------
    dataset : Dataset
    callbacks : sequence of callables, default ()
    traffic : Traffic
        Passes and bytes since the placement was created.
    totals : PassTotals or None
        Where totals of long passes over stored rows are kept, so that an interrupted one resumes.
    """

    shares_memory: bool = False
    """Tasks see this process's arrays, so a chunkwise function may write into one."""
    loses_state: bool = True
    """State of rows may be lost, as with a worker, and is then computed again."""

    def __init__(
        self, dataset: Dataset, callbacks: Sequence[Callback], source: Dataset | None = None
    ) -> None:
        self.dataset = dataset
        self.callbacks = callbacks
        self.traffic = Traffic()
        self.totals: PassTotals | None = None
        self._source = dataset if source is None else source
        self._state_versions: dict[str, int] = {}
        self._guard: ChangeGuard | None = None

    # -- operations --------------------------------------------------------------------------------

    def reduce(self, reduction: Reduction, params: Any) -> Any:
        """Map `reduction` over all rows and return the combined statistics. One pass."""
        return self._total(Fold(reduction), params)

    def map_state(self, reduction: StatefulReduction, params: Any, *, keeps: bool = True) -> Any:
        """Like `reduce`, with per-row state that stays in place between calls. One pass.

        State belongs to the placement and to ``reduction.name``; a placement holds the state of one
        reduction at a time. The version of a state is the number of the call that completed it. Each call
        sets the version of a work item when its last requested chunk is done. If the version is not that of
        the previous call (the state was never made, was lost, or its task died half-way), the state of the
        whole work item is made again: `fresh`, then `rebuild` from `params`. The result is the same either
        way.

        If rows are not in memory, only the storage chunks with rows selected by
        ``reduction.filter_rows`` are read (`Dataset.read_edges`). ``traffic.bytes_read`` counts these
        chunks only; progress counts the skipped rows as done. Other passes may run between two calls.

        If the pass resumes, rows that an earlier process has finished have no state: the next call makes it
        again. Pass ``keeps=False`` if it cannot.
        """
        version = self._state_versions.get(reduction.name, 0)
        self._state_versions[reduction.name] = version + 1
        self._reserve_state(reduction.row_bytes, is_new=not version)
        return self._total(FoldState(reduction, version), params, keeps=keeps)

    def _total(self, operation: Fold | FoldState, params: Any, *, keeps: bool = True) -> Any:
        name, n_rows = operation.reduction.name, self.dataset.n_rows
        # Rows in memory go with the process, and their passes are short.
        if self.totals is None or self.dataset.in_memory or not keeps:
            with self._counted(name):
                return self._run(PassWork(operation, params))
        total = self.totals.begin(operation.reduction, params)
        left = total.left(self.work_items)
        with self._counted(name, count_rows(total.spans)):
            found = None
            if left is None or left:
                found = self._run(PassWork(operation, params, left, total=total))
            return total.end(found, n_rows)

    def state_of(
        self,
        reduction: StatefulReduction,
        params: Any,
        row: int,
        fn: Callable[[Chunk, Any, Any], T],
    ) -> T:
        """Return ``fn(chunk, prepared, state)`` for the work item that holds `row`.

        Pass the `params` that the next `map_state` call would get: missing state is rebuilt from them.
        """
        operation = Inspect(reduction, self._state_versions.get(reduction.name, 0), fn)
        item = int(self.items_of(row))
        found: T = self._run(PassWork(operation, params, [item], report=False))[0]
        return found

    def drop_state(self, name: str) -> None:
        """Free the state of reduction `name`; the next `map_state` call makes it again."""
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

        Blocks that the sink already has are skipped.
        """
        blocks = self.work_items
        if sink.block_rows > 1 and any(stop % sink.block_rows for _, stop in blocks[:-1]):
            blocks = output_blocks(self._source, sink.block_rows)
        left = [span for span in blocks if not sink.has(span)]
        if not left:
            return
        with self._counted(name, self.dataset.n_rows - count_rows(left)):
            if self._tasks_can_write(sink):
                self._run(PassWork(WriteRows(fn, prepare, sink), params, spans=left))
            else:
                write = partial(_write_all, sink)
                self._run(
                    PassWork(WriteRows(fn, prepare, None), params, spans=left, on_value=write)
                )

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the given rows, source dtype, shape (len(rows), d)."""
        return self.dataset.take(rows)

    # -- implemented by subclasses -----------------------------------------------------------------

    @property
    @abstractmethod
    def work_items(self) -> Sequence[Range]:
        """Row ranges that cover the dataset in order; state is stored per range."""

    @property
    @abstractmethod
    def n_threads(self) -> int:
        """Threads that compute at the same time, over all workers."""

    @abstractmethod
    def state_room(self) -> int:
        """Return how many bytes of per-row state the placement can hold.

        This is half of the memory limit, minus the libraries and what other runs hold on the workers; it is
        less if the working set takes more than the other half. Resident rows are dropped to make room for
        state. State beyond this size still works: a cluster keeps what fits and rebuilds the rest in every
        call, local threads keep all of it.
        """

    @abstractmethod
    def close(self) -> None:
        """Free resident partitions and state."""

    @abstractmethod
    def _run(self, work: PassWork) -> Any:
        """Run an operation on the rows, count the bytes read, and return the combined value."""

    @abstractmethod
    def _reserve_state(self, row_bytes: int, *, is_new: bool) -> None:
        """Make room for state; `is_new` if no state of this name exists yet."""

    @abstractmethod
    def _free_state(self) -> None:
        """Free all state; its room becomes available to resident rows."""

    def _tasks_can_write(self, sink: Sink) -> bool:
        """Return whether tasks can write to the sink; if not, their rows are returned to the driver."""
        return True

    def shared_folder(self) -> str | None:
        """Return a folder on disk that all tasks share, for a second copy of state that may be lost.

        Return None if no state can be lost (threads of this process), or if the workers are not known to
        share a disk. The folder is removed with the placement.
        """
        return None

    # -- common to all passes ----------------------------------------------------------------------

    def items_of(self, rows: Any) -> Any:
        """Return the numbers of the work items that hold `rows`."""
        starts = [start for start, _ in self.work_items]
        return np.searchsorted(starts, rows, side="right") - 1

    @contextmanager
    def _counted(self, name: str, rows_done: int = 0) -> Iterator[None]:
        """Count one pass and publish its progress; `rows_done` rows count as done from the start."""
        if not self.callbacks:
            yield
            self.traffic.passes += 1
            return
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

    def __enter__(self) -> Self:
        self._guard = self.dataset.change_guard()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
        # Changed rows may also have caused this error: a failed read, or rows that contradict the
        # statistics.
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
            Memory of the work per thread and per row, for the memory projection.
        callbacks : sequence of callables, default ()
            Called with the events of passes.

        Raises
        ------
        MemoryLimitError
            The work exceeds the engine's memory limit even without resident partitions.
        DataNotReachableError
            The workers cannot read the dataset.
        """

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run independent picklable calls (restarts, sweeps) and return their results in order.

        Each call uses one thread; as many run at a time as there are threads.

        Raises
        ------
        EngineError
            A call killed every worker that ran it.

        Notes
        -----
        Cost: on a cluster, one task per call; calls and results pass through the scheduler.
        """
        return list(self._run(tasks, len(tasks)))

    def listeners(self) -> tuple[Callback, ...]:
        """Return the engine's own callbacks for one fit, in addition to those of the caller."""
        return ()

    def named(self, name: str) -> Engine:
        """Return this engine for the job `name`; its listeners report fits under that name."""
        return self

    def run_ahead(self, tasks: Sequence[Callable[[], T]]) -> Generator[T]:
        """Yield the results of `tasks` in order, while later calls already run; see `run`.

        The caller's work on one result overlaps with the calls that follow. At most `AHEAD` calls per
        thread are started and not yet taken. Closing the iterator early (``close``) drops the calls that
        have not started. With one thread of this process, calls run as results are requested.
        """
        return self._run(tasks, AHEAD * self.n_threads)

    @abstractmethod
    def _run(self, tasks: Sequence[Callable[[], T]], most: int) -> Generator[T]:
        """Yield the results of calls in order, at most so many of them started and not yet taken."""

    @abstractmethod
    def can_read(self, dataset: Reachable) -> bool:
        """Return True if calls passed to `run` can open `dataset` (or another `Reachable`)."""
