"""The local engine: threads of this process, each folding whole units into its own statistics."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.reduction import Reduction, StatefulReduction
from daskcluster.engine.engine import Engine, Placement, Traffic
from daskcluster.engine.memory import Footprint, MemoryPlan, project
from daskcluster.engine.tasks import fold, fold_state, group_by_range, output_blocks, write_rows
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.host import host_memory
from daskcluster.typing import Dataset, Range, Sink

T = TypeVar("T")

UNITS_PER_THREAD = 8
"""In-memory rows are cut finer than threads, so that a thread that is held up loses little."""
MIN_UNIT_BYTES = 1 << 18
_POLL_SECONDS = 0.1


def default_threads() -> int:
    """Return the cores that this process may use (`DASKCLUSTER_NUM_THREADS` overrides)."""
    text = os.environ.get("DASKCLUSTER_NUM_THREADS", "")
    if text:
        if not text.isdigit() or int(text) < 1:
            raise InvalidParameterError(
                f"DASKCLUSTER_NUM_THREADS={text!r} should be a whole number >= 1; unset it for all cores."
            )
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine(Engine):
    """Run on threads of this process.

    Parameters
    ----------
    n_threads : int, optional
        Default: every core this process may use.
    memory_limit : int, optional
        Bytes this process may use; partitions stay resident within half of it. Default: the memory
        of the host, or of the control group that confines us.

    Examples
    --------
    >>> from daskcluster.engine.local import LocalEngine
    >>> LocalEngine(n_threads=2)
    LocalEngine(n_threads=2)
    """

    name = "local"

    def __init__(self, n_threads: int | None = None, *, memory_limit: int | None = None) -> None:
        if n_threads is not None and n_threads < 1:
            raise InvalidParameterError(
                f"n_threads={n_threads} should be >= 1; leave it out for all cores."
            )
        self._n_threads = n_threads
        self._memory_limit = memory_limit

    def __repr__(self) -> str:
        return f"LocalEngine(n_threads={self.n_threads})"

    @property
    def n_threads(self) -> int:
        return self._n_threads or default_threads()

    @property
    def memory_limit(self) -> int:
        return self._memory_limit or host_memory()

    def plan(self, dataset: Dataset, footprint: Footprint | None = None) -> MemoryPlan:
        """Project the memory of work on `dataset`; see `daskcluster.engine.memory.project`."""
        return project(
            dataset,
            footprint or Footprint(),
            limit=self.memory_limit,
            n_threads=self.n_threads,
        )

    def place(
        self,
        dataset: Dataset,
        *,
        footprint: Footprint | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> LocalPlacement:
        plan = self.plan(dataset, footprint)
        return LocalPlacement(dataset, self.n_threads, plan.residents, callbacks)

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        # One after the other: each task has the threads to itself.
        return [task() for task in tasks]


class LocalPlacement(Placement):
    """A dataset on local threads; see `LocalEngine`."""

    shares_memory = True

    def __init__(
        self, dataset: Dataset, n_threads: int, residents: int, callbacks: Sequence[Callback]
    ) -> None:
        self.dataset = dataset
        self.callbacks = callbacks
        self.traffic = Traffic()
        self._units = _units(dataset, n_threads)
        self._n_threads = max(1, min(n_threads, len(self._units)))
        self._admitted = set() if dataset.in_memory else set(self._units[:residents])
        self._resident: dict[Range, list[Chunk]] = {}
        self._state: dict[tuple[str, Range], tuple[int, Any]] = {}
        self._stamps: dict[str, int] = {}
        self._pool: ThreadPoolExecutor | None = None

    @property
    def units(self) -> Sequence[Range]:
        return self._units

    def reduce(self, reduction: Reduction, params: Any) -> Any:
        prepared = reduction.prepare(params)

        def work(run: _Pass) -> Any:
            statistics = reduction.zero(prepared)
            for _, chunks in self._read(run):
                fold(reduction, prepared, chunks, statistics, run.on_rows)
            return statistics

        return self._combine(reduction, self._pass(reduction.name, self._units, work))

    def map_state(self, reduction: StatefulReduction, params: Any) -> Any:
        prepared = reduction.prepare(params)
        stamp = self._stamps.get(reduction.name, 0)
        self._stamps[reduction.name] = stamp + 1

        def work(run: _Pass) -> Any:
            statistics = reduction.zero(prepared)
            for span, chunks in self._read(run):
                held, state = self._state.pop((reduction.name, span), (-1, None))
                valid = held == stamp and stamp > 0
                if not valid:
                    state = reduction.fresh(span[1] - span[0], prepared)
                fold_state(reduction, prepared, chunks, span[0], state, valid, statistics)
                self._state[reduction.name, span] = (stamp + 1, state)
                run.on_rows(span[1] - span[0])
            return statistics

        return self._combine(reduction, self._pass(reduction.name, self._units, work))

    def state_of(
        self,
        reduction: StatefulReduction,
        params: Any,
        row: int,
        fn: Callable[[Chunk, Any, Any], T],
    ) -> T:
        starts = [start for start, _ in self._units]
        span = self._units[int(np.searchsorted(starts, row, side="right")) - 1]
        prepared = reduction.prepare(params)
        chunk = self._load(span)
        held, state = self._state.get((reduction.name, span), (-1, None))
        if held != self._stamps.get(reduction.name, 0) or held < 1:
            state = reduction.fresh(span[1] - span[0], prepared)
            reduction.rebuild(chunk, prepared, state)
        return fn(chunk, prepared, state)

    def map_rows(
        self,
        fn: Callable[[Chunk, Any], np.ndarray],
        sink: Sink,
        params: Any,
        *,
        prepare: Callable[[Any], Any] | None = None,
        name: str = "rows",
    ) -> None:
        prepared = prepare(params) if prepare is not None else params
        units: Sequence[Range] = self._units
        if sink.block_rows > 1 and any(stop % sink.block_rows for _, stop in units[:-1]):
            units = output_blocks(self.dataset, sink.block_rows)

        def work(run: _Pass) -> None:
            for span, chunks in self._read(run):
                write_rows(fn, prepared, chunks, span, sink)
                run.on_rows(span[1] - span[0])

        self._pass(name, units, work)

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.dataset.take(rows)

    def close(self) -> None:
        self._resident.clear()
        self._state.clear()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    # -- one pass ------------------------------------------------------------------------------

    def _read(self, run: _Pass) -> Iterator[tuple[Range, list[Chunk]]]:
        """Yield each span with its chunks, resident spans between those that have to be read."""
        taken: deque[Range] = deque()

        def missing() -> Iterator[Range]:
            for span in run.missing():
                taken.append(span)
                yield span

        stream = self.dataset.chunks(missing(), on_read=run.on_read)
        for span, chunks in group_by_range(stream, taken.popleft):
            if span in self._admitted:
                self._resident[span] = chunks
            yield span, chunks
            # Resident spans are spread between the others: the reader works on meanwhile.
            for span in run.resident(run.residents_per_read):
                yield span, self._resident[span]
        for span in run.resident():
            yield span, self._resident[span]

    def _load(self, span: Range) -> Chunk:
        if self.dataset.in_memory:
            return next(iter(self.dataset.chunks([span])))
        return self.dataset.load(span, on_read=self._count_bytes)

    def _count_bytes(self, count: int) -> None:
        self.traffic.bytes_read += count

    def _combine(self, reduction: Reduction | StatefulReduction, parts: list[Any]) -> Any:
        total = parts[0]
        for part in parts[1:]:
            total = reduction.combine(total, part)
        return total

    def _pass(self, name: str, units: Sequence[Range], work: Callable[[_Pass], T]) -> list[T]:
        """Let every thread take units from one queue until it is empty."""
        began = time.perf_counter()
        run = _Pass(units, self._resident)
        publish(self.callbacks, PassStarted(name, self.dataset.n_rows))
        try:
            results = self._run_threads(run, work)
        finally:
            run.stop()
            self.traffic.bytes_read += run.bytes_read
        self.traffic.passes += 1
        publish(self.callbacks, PassEnded(name, time.perf_counter() - began, run.bytes_read))
        return results

    def _run_threads(self, run: _Pass, work: Callable[[_Pass], T]) -> list[T]:
        if self._n_threads == 1 and not self.callbacks:
            return [work(run)]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._n_threads, thread_name_prefix="daskcluster")
        futures = [self._pool.submit(work, run) for _ in range(self._n_threads)]
        pending: Iterable[Future[T]] = futures
        while pending:
            timeout = _POLL_SECONDS if self.callbacks else None
            done, pending = wait(pending, timeout, return_when=FIRST_EXCEPTION)
            if any(future.exception() is not None for future in done):
                run.stop()
            self._report(run)
        return [future.result() for future in futures]

    def _report(self, run: _Pass) -> None:
        rows = run.take_rows()
        if rows and self.callbacks:
            publish(self.callbacks, PassProgress(rows))


class _Pass:
    """What the threads of one pass share: the queues of units, and counters."""

    def __init__(self, units: Sequence[Range], resident: Container[Range]) -> None:
        self._missing = deque(span for span in units if span not in resident)
        self._resident = deque(span for span in units if span in resident)
        self.residents_per_read = -(-len(self._resident) // max(1, len(self._missing)))
        self._lock = threading.Lock()
        self._rows = 0
        self.bytes_read = 0

    def missing(self) -> Iterator[Range]:
        return _drain(self._missing)

    def resident(self, most: int | None = None) -> Iterator[Range]:
        return islice(_drain(self._resident), most)

    def stop(self) -> None:
        self._missing.clear()
        self._resident.clear()

    def on_rows(self, count: int) -> None:
        with self._lock:
            self._rows += count

    def on_read(self, count: int) -> None:
        with self._lock:
            self.bytes_read += count

    def take_rows(self) -> int:
        with self._lock:
            rows, self._rows = self._rows, 0
        return rows


def _drain(queue: deque[Range]) -> Iterator[Range]:
    # popleft is atomic: several threads drain one queue.
    while True:
        try:
            yield queue.popleft()
        except IndexError:
            return


def _units(dataset: Dataset, n_threads: int) -> list[Range]:
    if not dataset.in_memory:
        return list(dataset.partitions)
    row_bytes = max(1, dataset.n_features * dataset.dtype.itemsize)
    least = max(1, MIN_UNIT_BYTES // row_bytes)
    step = max(least, -(-dataset.n_rows // (n_threads * UNITS_PER_THREAD)))
    return [(i, min(i + step, dataset.n_rows)) for i in range(0, dataset.n_rows, step)]
