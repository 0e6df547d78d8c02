"""Operations on work items, one picklable class for each pass method of a placement, and tasks of Dask.

Work items are row ranges with cached rows and state. Local threads and Dask workers take them from a queue
with the same reader. A work item need not be read whole: when the reader reaches it, a pass with state says
which parts it needs.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from typing import Any, Protocol

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.statistics import Reduction, StatefulReduction
from daskcluster.errors import DaskClusterError
from daskcluster.host import process_token
from daskcluster.sparse_rows import join_rows
from daskcluster.typing import Dataset, Range, Recipe, Sink, Visibility


class CacheSlot:
    """Cache of one work item: its rows, if resident, and the state of one reduction.

    The version of a state is the number of the call that completed it. State is taken out while a task
    works on it, so that a task that dies half-way leaves no partial state behind.

    Examples
    --------
    >>> slot = CacheSlot()
    >>> slot.keep_state("bounds", 1, "state")
    >>> slot.pop_state("bounds"), slot.pop_state("bounds")
    ((1, 'state'), (-1, None))
    """

    keeps = True
    """False: values stored here are dropped."""

    def __init__(self, rows: list[Chunk] | None = None) -> None:
        self._rows = rows
        self._state: tuple[str, int, Any] = ("", -1, None)
        self._lock = threading.Lock()

    def rows(self) -> list[Chunk] | None:
        """Return the resident chunks, or None."""
        return self._rows

    def keep_rows(self, chunks: Sequence[Chunk]) -> None:
        if self.keeps and self._rows is None:
            self._rows = list(chunks)

    def drop_rows(self) -> None:
        self._rows = None

    def pop_state(self, name: str) -> tuple[int, Any]:
        """Take out the state of reduction `name` with its version; drop the state of any other."""
        with self._lock:
            found, self._state = self._state, ("", -1, None)
        return found[1:] if found[0] == name else (-1, None)

    def peek_state(self, name: str) -> tuple[int, Any]:
        """Return the state and its version without taking it out."""
        found = self._state
        return found[1:] if found[0] == name else (-1, None)

    def keep_state(self, name: str, version: int, state: Any) -> None:
        if self.keeps:
            self._state = (name, version, state)

    def drop_state(self) -> None:
        self._state = ("", -1, None)


@dataclass(frozen=True)
class WorkItem:
    """Rows that one thread processes together.

    Attributes
    ----------
    span : (start, stop)
    rows : CacheSlot or None
        Holds the rows, now or once they are read; None if they are not cached.
    state : CacheSlot or None
        Holds the state between calls; None if state is not cached.
    """

    span: Range
    rows: CacheSlot | None = None
    state: CacheSlot | None = None

    @property
    def n_rows(self) -> int:
        return self.span[1] - self.span[0]

    @property
    def is_present(self) -> bool:
        """Whether its rows are in memory."""
        return self.rows is not None and self.rows.rows() is not None


Wanted = Callable[[WorkItem, np.ndarray], Sequence[Range]]
"""Called with a work item and its read edges; returns the parts to read, in order, from edge to edge."""


class WorkQueue:
    """Queue of work items shared by threads; each item is handed out once.

    Parameters
    ----------
    dataset : Dataset or None
        Source of the work items that are not in memory; None if all are.
    work_items : sequence of WorkItem

    Attributes
    ----------
    bytes_read : int
        Decoded bytes fetched from the store.
    left : list of WorkItem
        Those that were never handed out, once the queue is held.
    """

    def __init__(self, dataset: Dataset | None, work_items: Sequence[WorkItem]) -> None:
        self.dataset = dataset
        self.bytes_read = 0
        self._n_items = len(work_items)
        self._present = deque(item for item in work_items if item.is_present)
        self._absent = deque(item for item in work_items if not item.is_present)
        self._per_read = -(-len(self._present) // max(1, len(self._absent)))
        self._lock = threading.Lock()
        self._rows = 0
        self.left: list[WorkItem] = []

    @property
    def is_single(self) -> bool:
        """Whether at most one work item is left, so that a second thread is useless."""
        return len(self._absent) + len(self._present) <= 1

    def absent(self) -> Iterator[WorkItem]:
        """Yield work items to read, in advance of their use."""
        return _drain(self._absent)

    def present(self) -> Iterator[WorkItem]:
        """Yield all remaining work items that are in memory."""
        return _drain(self._present)

    def between_reads(self) -> Iterator[WorkItem]:
        """Yield the in-memory work items to process after one that was read, while more is prefetched."""
        return islice(_drain(self._present), self._per_read)

    def stop(self) -> None:
        """Empty the queue: threads stop after their current work items."""
        self._absent.clear()
        self._present.clear()

    def hold(self) -> None:
        """Hand out nothing more, once anything was: what is `left` belongs to another queue."""
        if len(self._absent) + len(self._present) < self._n_items:
            self.left += [*_drain(self._absent), *_drain(self._present)]

    def take_rows(self) -> int:
        """Return the number of rows processed since the last call."""
        with self._lock:
            rows, self._rows = self._rows, 0
        return rows

    def add_rows(self, count: int) -> None:
        """Count processed rows, including those that were skipped."""
        with self._lock:
            self._rows += count

    def add_bytes(self, count: int) -> None:
        with self._lock:
            self.bytes_read += count


def _drain(work_items: deque[WorkItem]) -> Iterator[WorkItem]:
    # popleft is atomic, so several threads may drain one queue.
    while True:
        try:
            yield work_items.popleft()
        except IndexError:
            return


class WorkItemReader:
    """Reads the work items that one thread takes from a queue.

    Parameters
    ----------
    queue : WorkQueue

    Attributes
    ----------
    skipped : int
        Number of rows that were not read.
    """

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self.skipped = 0

    def whole(self) -> Iterator[tuple[WorkItem, list[Chunk]]]:
        """Yield every work item with all its chunks."""
        chunks: list[Chunk] = []
        for item, chunk, is_last in self.parts():
            chunks.append(chunk)
            del chunk
            if is_last:
                yield item, chunks
                chunks = []

    def parts(self, wanted: Wanted | None = None) -> Iterator[tuple[WorkItem, Chunk, bool]]:
        """Yield ``(item, chunk, is_last)`` for the chunks of the work items, item by item.

        Parameters
        ----------
        wanted : callable, optional
            Called for every work item that has to be read and will not be resident, before its chunks, in
            the thread that takes them. If it returns no ranges, the work item is skipped.
        """
        queue = self._queue
        if queue.dataset is not None:
            for item, chunk, is_last in self._read(queue.dataset, wanted):
                yield item, chunk, is_last
                queue.add_rows(chunk.n_rows)
                del chunk  # free it before waiting for the next one
                if is_last:
                    yield from self._in_memory(queue.between_reads())
        yield from self._in_memory(queue.present())

    def _in_memory(self, work_items: Iterable[WorkItem]) -> Iterator[tuple[WorkItem, Chunk, bool]]:
        for item in work_items:
            chunks = (item.rows.rows() if item.rows is not None else None) or []
            for i, chunk in enumerate(chunks, 1):
                yield item, chunk, i == len(chunks)
                self._queue.add_rows(chunk.n_rows)

    def _read(
        self, dataset: Dataset, wanted: Wanted | None
    ) -> Iterator[tuple[WorkItem, Chunk, bool]]:
        ahead: deque[tuple[WorkItem, int]] = deque()
        kept: list[Chunk] = []
        for chunk in dataset.chunks(
            self._ranges(dataset, wanted, ahead), on_read=self._queue.add_bytes
        ):
            item, stop = ahead[0]
            is_last = chunk.stop >= stop
            if item.rows is not None:
                kept.append(chunk)
            if is_last:
                ahead.popleft()
                if item.rows is not None:
                    item.rows.keep_rows(kept)
                    kept = []
            yield item, chunk, is_last
            del chunk

    def _ranges(
        self, dataset: Dataset, wanted: Wanted | None, ahead: deque[tuple[WorkItem, int]]
    ) -> Iterator[Range]:
        """Yield the ranges to read; append the work item and end of each to `ahead`."""
        for item in self._queue.absent():
            parts: Sequence[Range] = [item.span]
            if wanted is not None and item.rows is None and not dataset.in_memory:
                parts = wanted(item, dataset.read_edges(item.span))
            skipped = item.n_rows - count_rows(parts)
            if skipped:
                self.skipped += skipped
                self._queue.add_rows(skipped)
            if parts:
                ahead.append((item, parts[-1][1]))
                yield from parts


class SingleItem(WorkItemReader):
    """Reads the one work item of few rows in memory, for which a queue would take longer than a pass."""

    def __init__(self, item: WorkItem, chunks: list[Chunk]) -> None:
        self.skipped = 0
        self._item, self._chunks = item, chunks

    def parts(self, wanted: Wanted | None = None) -> Iterator[tuple[WorkItem, Chunk, bool]]:
        for number, chunk in enumerate(self._chunks, 1):
            yield self._item, chunk, number == len(self._chunks)


def count_rows(spans: Iterable[Range]) -> int:
    """Return the number of rows in ranges."""
    return sum(stop - start for start, stop in spans)


def wanted_ranges(edges: np.ndarray, mask: np.ndarray | None) -> list[Range]:
    """Return the ranges between edges that hold a wanted row, adjacent ones merged.

    Parameters
    ----------
    edges : ndarray of int64, shape (n_parts + 1,)
    mask : ndarray of bool, shape (n_rows,), or None
        Which rows from ``edges[0]`` to ``edges[-1]`` are wanted; None for all.

    Raises
    ------
    ValueError
        A mask of another shape or dtype.

    Examples
    --------
    >>> import numpy as np
    >>> mask = np.array([0, 0, 0, 1, 1, 0, 0, 0], bool)
    >>> wanted_ranges(np.array([10, 12, 14, 16, 18]), mask)
    [(12, 16)]
    >>> wanted_ranges(np.array([10, 12, 14, 16, 18]), None)
    [(10, 18)]
    """
    start, stop = int(edges[0]), int(edges[-1])
    if mask is None:
        return [(start, stop)]
    if mask.shape != (stop - start,) or mask.dtype != np.bool_:
        raise ValueError(
            f"filter_rows returned shape={mask.shape}, dtype={mask.dtype} for rows {start} to {stop - 1}; "
            f"it should return one bool for every row, shape ({stop - start},), or None for all rows."
        )
    hit = np.logical_or.reduceat(mask, edges[:-1] - start)
    turns = np.flatnonzero(np.diff(hit.astype(np.int8), prepend=0, append=0))
    bounds = edges[turns].tolist()
    return list(zip(bounds[::2], bounds[1::2], strict=True))


class Operation(Protocol):
    """Computation over the work items of a thread; picklable."""

    def prepare(self, params: Any) -> Any: ...

    def begin(self, prepared: Any) -> Any:
        """Return the value for zero work items."""
        ...

    def run(self, work_items: WorkItemReader, prepared: Any) -> Any:
        """Return the combined value of all work items from `work_items`."""
        ...

    def combine(self, first: Any, second: Any) -> Any: ...


class Folding:
    """An operation whose value is the statistics of a reduction."""

    reduction: Reduction | StatefulReduction

    def prepare(self, params: Any) -> Any:
        return self.reduction.prepare(params)

    def begin(self, prepared: Any) -> Any:
        return self.reduction.zero(prepared)

    def combine(self, first: Any, second: Any) -> Any:
        return self.reduction.combine(first, second)


@dataclass(frozen=True)
class Fold(Folding):
    """The operation of `Placement.reduce`."""

    reduction: Reduction

    def run(self, work_items: WorkItemReader, prepared: Any) -> Any:
        value = self.begin(prepared)
        for _, chunk, _ in work_items.parts():
            self.reduction.chunk(chunk, prepared, value)
            del chunk
        return value


@dataclass(frozen=True)
class FoldState(Folding):
    """The operation of `Placement.map_state`; state is valid if it has this `version`."""

    reduction: StatefulReduction
    version: int

    def run(self, work_items: WorkItemReader, prepared: Any) -> Any:
        value = self.begin(prepared)
        fold = StateFold(self.reduction, self.version, prepared, value)
        for item, chunk, is_last in work_items.parts(fold.wanted):
            fold.add(item, chunk, is_last)
            del chunk
        return value


class _Listing:
    """An operation whose value is a list."""

    def begin(self, prepared: Any) -> list[Any]:
        return []

    def combine(self, first: list[Any], second: list[Any]) -> list[Any]:
        return first + second


@dataclass(frozen=True)
class Inspect(_Listing):
    """The operation of `Placement.state_of`: one work item, as one chunk."""

    reduction: StatefulReduction
    version: int
    fn: Callable[[Chunk, Any, Any], Any]

    def prepare(self, params: Any) -> Any:
        return self.reduction.prepare(params)

    def run(self, work_items: WorkItemReader, prepared: Any) -> list[Any]:
        value = self.begin(prepared)
        for item, chunks in work_items.whole():
            chunk, version, state = joined(chunks), -1, None
            if item.state is not None:
                version, state = item.state.peek_state(self.reduction.name)
            if version != self.version or version < 1:
                state = self.reduction.fresh(item.n_rows, prepared)
                self.reduction.rebuild(chunk, prepared, state)
            value.append(self.fn(chunk, prepared, state))
        return value


@dataclass(frozen=True)
class WriteRows(_Listing):
    """The operation of `Placement.map_rows`; without a sink it returns rows as (start, values)."""

    fn: Callable[[Chunk, Any], np.ndarray]
    prepare_params: Callable[[Any], Any] | None
    sink: Sink | None

    def prepare(self, params: Any) -> Any:
        return params if self.prepare_params is None else self.prepare_params(params)

    def run(self, work_items: WorkItemReader, prepared: Any) -> list[Any]:
        value = self.begin(prepared)
        sink = self.sink or _Collector(value)
        for item, chunks in work_items.whole():
            write_rows(self.fn, prepared, chunks, item.span, sink)
            del chunks
        return value


class _Collector:
    """A sink that collects what is written in a list."""

    block_rows = 1
    visibility = Visibility.PROCESS

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def has(self, span: Range) -> bool:
        return False

    def write(self, start: int, values: np.ndarray) -> None:
        self._parts.append((start, values))


def state_slice(state: Any, first: int, last: int) -> Any:
    """Return rows `first` to `last` of a state: an array, a tuple of arrays, or one with ``rows``."""
    if isinstance(state, tuple):
        return tuple(part[first:last] for part in state)
    return state[first:last] if isinstance(state, np.ndarray) else state.rows(first, last)


class StateFold:
    """One thread's share of a pass with state.

    The state of a work item is taken out of its slot before any of its rows are read, or with the first
    chunk if it is in memory. It is put back, with the version of this call, when the last requested chunk
    is done.

    Parameters
    ----------
    reduction : StatefulReduction
    version : int
        Version of valid state.
    prepared, statistics : object
        Those of the reduction; chunks are added to `statistics`.
    """

    def __init__(
        self, reduction: StatefulReduction, version: int, prepared: Any, statistics: Any
    ) -> None:
        self._reduction = reduction
        self._version = version
        self._prepared = prepared
        self._statistics = statistics
        self._open: dict[Range, tuple[Any, bool]] = {}

    def wanted(self, item: WorkItem, edges: np.ndarray) -> list[Range]:
        """Take out the state of a work item; return the ranges to read: none, parts, or all of it."""
        state, is_valid = self._take_up(item)
        if not is_valid:
            return [item.span]
        mask = self._reduction.filter_rows(self._prepared, self._statistics, state)
        ranges = wanted_ranges(edges, mask)
        if not ranges:
            self._put_back(item)
        return ranges

    def add(self, item: WorkItem, chunk: Chunk, is_last: bool) -> None:
        """Add one chunk of a work item to the statistics, with its state."""
        if item.span not in self._open:
            self._take_up(item)
        state, is_valid = self._open[item.span]
        if state is None:
            # Allocate state only now, so that work items that are read ahead take memory for rows only.
            state = self._reduction.fresh(item.n_rows, self._prepared)
            self._open[item.span] = state, is_valid
        origin = item.span[0]
        rows = state_slice(state, chunk.start - origin, chunk.stop - origin)
        if not is_valid:
            self._reduction.rebuild(chunk, self._prepared, rows)
        self._reduction.chunk(chunk, self._prepared, self._statistics, rows)
        if is_last:
            self._put_back(item)

    def _take_up(self, item: WorkItem) -> tuple[Any, bool]:
        version, state = -1, None
        if item.state is not None:
            version, state = item.state.pop_state(self._reduction.name)
        is_valid = version == self._version and version > 0
        self._open[item.span] = (state if is_valid else None), is_valid
        return self._open[item.span]

    def _put_back(self, item: WorkItem) -> None:
        state, _ = self._open.pop(item.span)
        if item.state is not None:
            item.state.keep_state(self._reduction.name, self._version + 1, state)


def write_rows(
    fn: Callable[[Chunk, Any], np.ndarray],
    prepared: Any,
    chunks: Sequence[Chunk],
    span: Range,
    sink: Sink,
) -> None:
    """Compute the rows of one output block and write them with a single call."""
    first, last = span
    parts = [fn(chunk, prepared) for chunk in chunks]
    if parts:
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if len(values) != last - first:
            raise AssertionError(f"rows {first} to {last} gave {len(values)} results")
        sink.write(first, values)


def output_blocks(dataset: Dataset, block_rows: int) -> Sequence[Range]:
    """Cut the dataset at partition ends, rounded up to whole output chunks.

    Every cut is a multiple of `block_rows`, so that no two tasks write to the same output chunk.
    """
    n_rows = dataset.n_rows
    cuts = {min(n_rows, -(-stop // block_rows) * block_rows) for _, stop in dataset.partitions}
    ordered = sorted(cuts | {0, n_rows})
    return list(pairwise(ordered))


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return consecutive chunks as one; a single chunk is not copied."""
    first = chunks[0]
    if len(chunks) == 1:
        return first
    weights = [chunk.weights for chunk in chunks if chunk.weights is not None]
    return Chunk(
        join_rows([chunk.rows for chunk in chunks]),
        first.start,
        np.concatenate(weights) if weights else None,
        first.normalize,
    )


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
    resident: Sequence[CacheSlot | None],
    states: Sequence[CacheSlot | None],
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
    resident, states : sequence of CacheSlot or None
        Handles of rows and of state on this worker, per span.
    rows : sequence of (rows, weights, normalize), or None
        Per span, if the rows are sent with the task.
    n_threads : int
        Task threads of the worker.
    """
    began = time.perf_counter()
    try:
        operation, prepared, dataset = _unpacked(name, payload, n_threads)
        if rows is not None:
            resident = [
                CacheSlot([Chunk(array, span[0], weights, normalize)])
                for (array, weights, normalize), span in zip(rows, spans, strict=True)
            ]
        queue = WorkQueue(
            dataset,
            [
                WorkItem(span, place if place is not None and place.keeps else None, state)
                for span, place, state in zip(spans, resident, states, strict=True)
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
