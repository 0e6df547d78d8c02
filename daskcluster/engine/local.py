"""The local engine: threads of this process, each folding whole units into its own statistics."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import reduce
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.reduction import Reduction, StatefulReduction
from daskcluster.engine.engine import AHEAD, Engine, Placement, Traffic
from daskcluster.engine.local_pass import LocalPass, local_spans
from daskcluster.engine.memory import Footprint, MemoryPlan, project, with_state
from daskcluster.engine.operations import Fold, FoldState, Inspect, Operation, WriteRows
from daskcluster.engine.places import Place
from daskcluster.engine.tasks import output_blocks
from daskcluster.engine.units import Unit
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.host import (
    MOST_KEPT_BLOCK,
    give_back_memory,
    host_memory,
    keep_no_blocks_over,
    usable_cores,
)
from daskcluster.typing import Dataset, Range, Reachable, Sink

T = TypeVar("T")

_POLL_SECONDS = 0.1
_LEAST_BLOCK = 1024**2
_BLOCK_SHARE = 1 / 512
"""Of a limit that was asked for: no more of what is freed is kept in one place; the sum would break it."""


def default_threads() -> int:
    """Return the cores that this process may use (`DASKCLUSTER_NUM_THREADS` overrides)."""
    text = os.environ.get("DASKCLUSTER_NUM_THREADS", "")
    if text:
        if not text.isdigit() or int(text) < 1:
            raise InvalidParameterError(
                f"DASKCLUSTER_NUM_THREADS={text!r} should be a whole number >= 1; unset it for all cores."
            )
        return int(text)
    return usable_cores()


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
        self._keep_no_large_blocks()
        return LocalPlacement(dataset, self.n_threads, self.plan(dataset, footprint), callbacks)

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run independent calls on the threads and return their results in order."""
        return list(self._run(tasks, len(tasks)))

    def run_ahead(self, tasks: Sequence[Callable[[], T]]) -> Generator[T]:
        """Yield the results of calls in order; with one thread, each is made when it is asked for."""
        return self._run(tasks, AHEAD * self.n_threads)

    def _keep_no_large_blocks(self) -> None:
        if self._memory_limit is not None:
            block = int(self._memory_limit * _BLOCK_SHARE)
            keep_no_blocks_over(min(max(block, _LEAST_BLOCK), MOST_KEPT_BLOCK))

    def _run(self, tasks: Sequence[Callable[[], T]], most: int) -> Generator[T]:
        self._keep_no_large_blocks()
        if self.n_threads == 1 or len(tasks) < 2:
            yield from (task() for task in tasks)
            return
        waiting = iter(tasks)
        with ThreadPoolExecutor(self.n_threads, thread_name_prefix="daskcluster-run") as pool:
            begun = deque(map(pool.submit, islice(waiting, most)))
            try:
                while begun:
                    result = begun.popleft().result()
                    begun.extend(map(pool.submit, islice(waiting, 1)))
                    yield result
                    del result  # not kept while the next one is awaited
            finally:
                # After an error nobody wants the others.
                pool.shutdown(cancel_futures=True)

    def can_read(self, dataset: Reachable) -> bool:
        return True


def home_engine(engine: Engine) -> Engine:
    """Return `engine` if it is local, else one: a cluster has nothing to do for rows of this process."""
    return engine if engine.name == "local" else LocalEngine()


class LocalPlacement(Placement):
    """A dataset on local threads; see `LocalEngine`."""

    shares_memory = True

    def __init__(
        self,
        dataset: Dataset,
        n_threads: int,
        plan: MemoryPlan,
        callbacks: Sequence[Callback],
        spans: Sequence[Range] | None = None,
    ) -> None:
        self.dataset = dataset
        self.callbacks = callbacks
        self.traffic = Traffic()
        self._spans = local_spans(dataset, n_threads) if spans is None else spans
        self._n_threads = max(1, min(n_threads, len(self._spans)))
        self._announced = self._plan = plan
        self._places = [Place() for _ in self._spans]
        self._stamps: dict[str, int] = {}
        self._pool: ThreadPoolExecutor | None = None

    @property
    def units(self) -> Sequence[Range]:
        return self._spans

    def reduce(self, reduction: Reduction, params: Any) -> Any:
        return self._pass(reduction.name, Fold(reduction), params, self._units())

    def reduce_units(self, reduction: Reduction, params: Any, units: Sequence[int]) -> Any:
        own = self._units()
        chosen = [own[index] for index in units]
        return self._pass(reduction.name, Fold(reduction), params, chosen, is_part=True)

    @property
    def n_threads(self) -> int:
        return self._n_threads

    def map_state(self, reduction: StatefulReduction, params: Any) -> Any:
        stamp = self._stamps.get(reduction.name, 0)
        self._stamps[reduction.name] = stamp + 1
        self._reserve_state(reduction.row_bytes * self.dataset.n_rows)
        if not stamp and not self.dataset.in_memory:
            give_back_memory()  # what passes before have freed gives way to the state
        return self._pass(reduction.name, FoldState(reduction, stamp), params, self._units())

    def state_of(
        self,
        reduction: StatefulReduction,
        params: Any,
        row: int,
        fn: Callable[[Chunk, Any, Any], T],
    ) -> T:
        operation = Inspect(reduction, self._stamps.get(reduction.name, 0), fn)
        run = LocalPass(self.dataset, [self._units()[self.unit_of(row)]])
        try:
            found: T = operation.run(run.reader(), operation.prepare(params))[0]
        finally:
            self.traffic.bytes_read += run.bytes_read
        return found

    def state_room(self) -> int:
        return self._announced.state_room

    def drop_state(self, name: str) -> None:
        if self._stamps.pop(name, None) is not None:
            for place in self._places:
                place.drop_state()
            if not self.dataset.in_memory:
                give_back_memory()  # partitions may become resident in its stead
            self._reserve_state(0)

    def map_rows(
        self,
        fn: Callable[[Chunk, Any], np.ndarray],
        sink: Sink,
        params: Any,
        *,
        prepare: Callable[[Any], Any] | None = None,
        name: str = "rows",
    ) -> None:
        units = self._units()
        if sink.block_rows > 1 and any(stop % sink.block_rows for _, stop in self._spans[:-1]):
            units = [Unit(span) for span in output_blocks(self.dataset, sink.block_rows)]
        left = [unit for unit in units if not sink.has(unit.span)]
        if left:
            before = sum(unit.n_rows for unit in units) - sum(unit.n_rows for unit in left)
            self._pass(name, WriteRows(fn, prepare, sink), params, left, before=before)

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.dataset.take(rows)

    def close(self) -> None:
        self._places = [Place() for _ in self._spans]
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    # -- one pass ------------------------------------------------------------------------------

    def _reserve_state(self, n_bytes: int) -> None:
        """Let resident partitions give way to this much state, or to what was announced if more."""
        n_bytes = max(n_bytes, self._announced.state)
        if n_bytes != self._plan.state:
            self._plan = with_state(self._announced, self.dataset, n_bytes)
            for place in self._places[self._plan.residents :]:
                place.drop_rows()

    def _units(self) -> list[Unit]:
        return [
            Unit(span, rows=place if index < self._plan.residents else None, state=place)
            for index, (span, place) in enumerate(zip(self._spans, self._places, strict=True))
        ]

    def _pass(
        self,
        name: str,
        operation: Operation,
        params: Any,
        units: Sequence[Unit],
        *,
        is_part: bool = False,
        before: int = 0,
    ) -> Any:
        """Let every thread take units from one queue until it is empty; combine what they found."""
        began = time.perf_counter()
        run = LocalPass(self.dataset, units)
        prepared = operation.prepare(params)
        if not is_part:
            publish(self.callbacks, PassStarted(name, self.dataset.n_rows))
        if before:
            publish(self.callbacks, PassProgress(before))
        try:
            values = self._run_threads(run, lambda: operation.run(run.reader(), prepared))
        finally:
            run.stop()
            self.traffic.bytes_read += run.bytes_read
        if not is_part:
            self.traffic.passes += 1
            seconds = time.perf_counter() - began
            publish(self.callbacks, PassEnded(name, seconds, run.bytes_read))
        return reduce(operation.combine, values)

    def _run_threads(self, run: LocalPass, work: Callable[[], T]) -> list[T]:
        if self._n_threads == 1 and not self.callbacks:
            return [work()]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._n_threads, thread_name_prefix="daskcluster")
        futures = [self._pool.submit(work) for _ in range(self._n_threads)]
        pending: Iterable[Future[T]] = futures
        while pending:
            timeout = _POLL_SECONDS if self.callbacks else None
            done, pending = wait(pending, timeout, return_when=FIRST_EXCEPTION)
            if any(future.exception() is not None for future in done):
                run.stop()
            self._report(run)
        return [future.result() for future in futures]

    def _report(self, run: LocalPass) -> None:
        rows = run.take_rows()
        if rows and self.callbacks:
            publish(self.callbacks, PassProgress(rows))
