"""Operations on work items: one picklable class for each pass method of a placement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.statistics import Reduction, StatefulReduction
from daskcluster.engine.work_items import WorkItem, WorkItemReader, wanted_ranges
from daskcluster.sparse_rows import join_rows
from daskcluster.typing import Dataset, Range, Sink, Visibility


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
    """Return rows `first` to `last` of a state: an array, a tuple of arrays, or a `RowState`."""
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
