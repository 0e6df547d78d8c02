"""The local engine: threads of this process, each with its own statistics of whole work items."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import cache, reduce
from itertools import islice, pairwise
from numbers import Real
from typing import Any, TypeVar

from daskcluster.engine.engine import Engine, PassWork, Placement
from daskcluster.engine.memory import (
    Footprint,
    MemoryPlan,
    project,
    resident_partitions,
    with_state,
)
from daskcluster.engine.operations import (
    CacheSlot,
    Operation,
    SingleItem,
    WorkItem,
    WorkItemReader,
    WorkQueue,
)
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback
from daskcluster.host import (
    MOST_KEPT_BLOCK,
    give_back_memory,
    host_memory,
    keep_no_blocks_over,
    usable_cores,
)
from daskcluster.typing import Dataset, Range, Reachable

T = TypeVar("T")

_POLL_SECONDS = 0.1
_LEAST_BLOCK = 1024**2
_BLOCK_SHARE = 1 / 512
"""Largest freed block that malloc may keep, as a share of an explicit limit: many such blocks would exceed
it."""


ITEMS_PER_THREAD, FEW_ITEMS_PER_THREAD = 8, 4
"""Work items per thread for rows in memory. Several per thread limit the cost of a delayed thread. Each one
costs interpreter time under the GIL, so there are fewer where they are small."""
LARGE_ITEM = 3
"""The first work item of each thread is this many times as large as the others, which balance the
threads."""
MIN_ITEM_BYTES, SMALL_ITEM_BYTES = 1 << 18, 1 << 24


def default_threads() -> int:
    """Return the number of cores that this process may use; `DASKCLUSTER_NUM_THREADS` overrides it."""
    text = os.environ.get("DASKCLUSTER_NUM_THREADS", "")
    if text:
        if not text.isdigit() or int(text) < 1:
            raise InvalidParameterError(
                f"DASKCLUSTER_NUM_THREADS={text!r} should be a whole number >= 1; unset it for all cores."
            )
        return int(text)
    return usable_cores()


def _is_size(value: Any) -> bool:
    return isinstance(value, Real) and float(value) >= 1.0


class LocalEngine(Engine):
    """Run passes on threads of this process.

    Parameters
    ----------
    n_threads : int, optional
        Default: every core that this process may use.
    memory_limit : int, optional
        Bytes that this process may use; resident partitions take at most half of it. Default: the memory of
        the host, or of the control group (container) that confines the process.

    Notes
    -----
    Cost: each thread holds its own statistics, two partitions and a read-ahead window during a pass.
    Resident partitions are read once and stay in memory; all others are read in every pass.

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
        if memory_limit is not None and not _is_size(memory_limit):
            raise InvalidParameterError(
                f"memory_limit={memory_limit!r} should be a number of bytes, e.g. 4_000_000_000; leave it "
                "out for all of the host's memory."
            )
        self._n_threads = n_threads
        self._memory_limit = None if memory_limit is None else int(memory_limit)

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
            started = deque(map(pool.submit, islice(waiting, most)))
            try:
                while started:
                    result = started.popleft().result()
                    started.extend(map(pool.submit, islice(waiting, 1)))
                    yield result
                    del result  # free it before waiting for the next one
            finally:
                # After an error, drop the other tasks.
                pool.shutdown(cancel_futures=True)

    def can_read(self, dataset: Reachable) -> bool:
        return True


@cache
def _threads(process: int, n_threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process that run passes: to start new ones would take 0.2 ms a pass.

    A process that was forked has none of the threads of its parent.
    """
    return ThreadPoolExecutor(n_threads, thread_name_prefix="daskcluster")


def home_engine(engine: Engine) -> Engine:
    """Return `engine` if it is local, else a new local engine: rows of this process need no cluster."""
    return engine if engine.name == "local" else LocalEngine()


def local_spans(dataset: Dataset, n_threads: int) -> Sequence[Range]:
    """Return the row range of every work item: the partitions, or finer cuts of rows in memory."""
    if not (dataset.in_memory and dataset.divisible):
        return list(dataset.partitions)
    row_bytes = dataset.bytes_of((0, dataset.n_rows)) // max(1, dataset.n_rows)
    least, small = (max(1, n // max(1, row_bytes)) for n in (MIN_ITEM_BYTES, SMALL_ITEM_BYTES))
    finest, coarsest = (
        -(-dataset.n_rows // (n_threads * work_items))
        for work_items in (ITEMS_PER_THREAD, FEW_ITEMS_PER_THREAD)
    )
    step = max(least, finest, min(small, coarsest))
    n_large = n_threads * LARGE_ITEM * step
    is_few = step == coarsest and n_large < dataset.n_rows
    large = range(0, n_large if is_few else 0, LARGE_ITEM * step)
    edges = [*large, *range(large.stop, dataset.n_rows, step), dataset.n_rows]
    return list(pairwise(edges))


class LocalPlacement(Placement):
    """A dataset on local threads; see `LocalEngine`."""

    shares_memory = True
    loses_state = False

    def __init__(
        self,
        dataset: Dataset,
        n_threads: int,
        plan: MemoryPlan,
        callbacks: Sequence[Callback],
        spans: Sequence[Range] | None = None,
    ) -> None:
        super().__init__(dataset, callbacks)
        self._spans = local_spans(dataset, n_threads) if spans is None else spans
        self._n_threads = max(1, min(n_threads, len(self._spans)))
        self._announced = self._plan = plan
        # Admission into exactly the planned bytes selects the partitions of the plan again.
        self._resident = resident_partitions(dataset, plan.resident)
        self._slots = [CacheSlot() for _ in self._spans]
        self._single: SingleItem | None = None
        if dataset.in_memory and len(self._spans) == 1 and not callbacks:
            own = WorkItem(self._spans[0], state=self._slots[0])
            self._single = SingleItem(own, list(dataset.chunks(self._spans)))

    @property
    def work_items(self) -> Sequence[Range]:
        return self._spans

    @property
    def n_threads(self) -> int:
        return self._n_threads

    def state_room(self) -> int:
        return self._announced.state_room

    def close(self) -> None:
        for slot in self._slots:
            slot.drop_rows()
            slot.drop_state()

    def _reserve_state(self, row_bytes: int, *, is_new: bool) -> None:
        self._make_room(row_bytes * self.dataset.n_rows)
        if is_new and not self.dataset.in_memory:
            give_back_memory()  # return memory freed by earlier passes to the system first

    def _free_state(self) -> None:
        for slot in self._slots:
            slot.drop_state()
        if not self.dataset.in_memory:
            give_back_memory()  # so that partitions may become resident
        self._make_room(0)

    def _make_room(self, state: int) -> None:
        """Drop resident partitions until `state` bytes, or the announced ones if more, fit."""
        state = max(state, self._announced.state)
        if state != self._plan.state:
            self._plan = with_state(self._announced, self.dataset, state)
            self._resident = resident_partitions(self.dataset, self._plan.resident)
            for index, slot in enumerate(self._slots):
                if index not in self._resident:
                    slot.drop_rows()

    def _run(self, work: PassWork) -> Any:
        """Let all threads take work items from one queue until it is empty; combine their results."""
        operation = work.operation
        if self._single is not None and work.spans is None:
            return operation.run(self._single, operation.prepare(work.params))
        own = [
            WorkItem(span, rows=slot if index in self._resident else None, state=slot)
            for index, (span, slot) in enumerate(zip(self._spans, self._slots, strict=True))
        ]
        if work.work_items is not None:
            own = [own[index] for index in work.work_items]
        if work.spans is not None:
            kept = {item.span: item for item in own}
            own = [kept.get(span) or WorkItem(span) for span in work.spans]
        prepared, values, left = operation.prepare(work.params), list[Any](), own
        while True:
            queue = WorkQueue(self.dataset, left)
            try:
                values += self._run_threads(queue, operation, prepared, work)
            finally:
                queue.stop()
                self.traffic.bytes_read += queue.bytes_read
            values = [reduce(operation.combine, values)]
            left = queue.left
            if not left:
                return values[0]
            assert work.total is not None
            waiting = {item.span for item in left}
            done = [item.span for item in own if item.span not in waiting]
            work.total.keep(values[0], done)

    def _run_threads(
        self, queue: WorkQueue, operation: Operation, prepared: Any, pass_work: PassWork
    ) -> list[Any]:
        """Let threads empty the queue, or hold it when the total of the pass is due to be kept."""

        def work() -> Any:
            return operation.run(WorkItemReader(queue), prepared)

        report, total = pass_work.report and bool(self.callbacks), pass_work.total
        if not report and total is None and (self._n_threads == 1 or queue.is_single):
            return [work()]
        pool = _threads(os.getpid(), self._n_threads)
        # This thread takes part where items are short: small passes are over before another one starts.
        takes_part = not report and self.dataset.in_memory
        futures = [pool.submit(work) for _ in range(self._n_threads - takes_part)]
        pending: Iterable[Future[Any]] = futures
        polls = report or total is not None
        try:
            own = [work()] if takes_part else []
            while pending:
                done, pending = wait(
                    pending, _POLL_SECONDS if polls else None, return_when=FIRST_EXCEPTION
                )
                if any(future.exception() is not None for future in done):
                    queue.stop()
                if report:
                    self._report_rows(queue.take_rows())
                if total is not None and total.is_due():
                    queue.hold()
        except BaseException:
            queue.stop()
            wait(futures)
            raise
        return own + [future.result() for future in futures]


_NO_PLAN = MemoryPlan(0, 0, 0, 0, 0, 0)


class InlinePlacement(LocalPlacement):
    """Run passes immediately in the calling thread.

    For few rows, such as a leaf of a stream, where setting up threads would take longer than the pass.
    Results are bit-identical to those of the other engines.

    Parameters
    ----------
    dataset : Dataset
        Must be in memory.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.open import open_source
    >>> from daskcluster.engine.scaled import ScaledPlacement
    >>> with InlinePlacement(open_source(np.eye(3))) as placement:
    ...     data_statistics = ScaledPlacement(placement).known()
    >>> data_statistics.n_rows
    3
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset, 1, _NO_PLAN, (), spans=[(0, dataset.n_rows)])


class InlineEngine(LocalEngine):
    """Run on few in-memory rows in the calling thread: every placement is an `InlinePlacement`."""

    def __init__(self) -> None:
        super().__init__(1)

    def place(
        self,
        dataset: Dataset,
        *,
        footprint: Footprint | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> InlinePlacement:
        return InlinePlacement(dataset)
