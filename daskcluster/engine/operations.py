"""What a thread does with its units: one picklable operation for every verb of a placement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.reduction import Reduction, StatefulReduction
from daskcluster.engine.tasks import StateFold, joined, write_rows
from daskcluster.engine.units import UnitReader
from daskcluster.typing import Range, Reach, Sink


class Operation(Protocol):
    """What is done with the units of a thread; picklable."""

    def prepare(self, params: Any) -> Any: ...

    def begin(self, prepared: Any) -> Any:
        """Return the value of no unit at all."""
        ...

    def run(self, units: UnitReader, prepared: Any) -> Any:
        """Return the value of all units that `units` hands over."""
        ...

    def combine(self, first: Any, second: Any) -> Any: ...


@dataclass(frozen=True)
class Fold:
    """The operation of `Placement.reduce`."""

    reduction: Reduction

    def prepare(self, params: Any) -> Any:
        return self.reduction.prepare(params)

    def begin(self, prepared: Any) -> Any:
        return self.reduction.zero(prepared)

    def run(self, units: UnitReader, prepared: Any) -> Any:
        value = self.begin(prepared)
        for _, chunk, _ in units.parts():
            self.reduction.chunk(chunk, prepared, value)
            del chunk
        return value

    def combine(self, first: Any, second: Any) -> Any:
        return self.reduction.combine(first, second)


@dataclass(frozen=True)
class FoldState:
    """The operation of `Placement.map_state`: `stamp` is what valid state carries."""

    reduction: StatefulReduction
    stamp: int

    def prepare(self, params: Any) -> Any:
        return self.reduction.prepare(params)

    def begin(self, prepared: Any) -> Any:
        return self.reduction.zero(prepared)

    def run(self, units: UnitReader, prepared: Any) -> Any:
        value = self.begin(prepared)
        fold = StateFold(self.reduction, self.stamp, prepared, value)
        for unit, chunk, is_last in units.parts(fold.wanted):
            fold.add(unit, chunk, is_last)
            del chunk
        return value

    def combine(self, first: Any, second: Any) -> Any:
        return self.reduction.combine(first, second)


@dataclass(frozen=True)
class Inspect:
    """The operation of `Placement.state_of`: one unit, as one chunk."""

    reduction: StatefulReduction
    stamp: int
    fn: Callable[[Chunk, Any, Any], Any]

    def prepare(self, params: Any) -> Any:
        return self.reduction.prepare(params)

    def begin(self, prepared: Any) -> list[Any]:
        return []

    def run(self, units: UnitReader, prepared: Any) -> list[Any]:
        value = self.begin(prepared)
        for unit, chunks in units.whole():
            chunk, stamp, state = joined(chunks), -1, None
            if unit.state is not None:
                stamp, state = unit.state.peek_state(self.reduction.name)
            if stamp != self.stamp or stamp < 1:
                state = self.reduction.fresh(unit.n_rows, prepared)
                self.reduction.rebuild(chunk, prepared, state)
            value.append(self.fn(chunk, prepared, state))
        return value

    def combine(self, first: list[Any], second: list[Any]) -> list[Any]:
        return first + second


@dataclass(frozen=True)
class WriteRows:
    """The operation of `Placement.map_rows`; without a sink the rows come back as (start, values)."""

    fn: Callable[[Chunk, Any], np.ndarray]
    prepare_params: Callable[[Any], Any] | None
    sink: Sink | None

    def prepare(self, params: Any) -> Any:
        return params if self.prepare_params is None else self.prepare_params(params)

    def begin(self, prepared: Any) -> list[Any]:
        return []

    def run(self, units: UnitReader, prepared: Any) -> list[Any]:
        value = self.begin(prepared)
        sink = self.sink or _Collector(value)
        for unit, chunks in units.whole():
            write_rows(self.fn, prepared, chunks, unit.span, sink)
            del chunks
        return value

    def combine(self, first: list[Any], second: list[Any]) -> list[Any]:
        return first + second


class _Collector:
    """A sink that keeps what is written."""

    block_rows = 1
    reach = Reach.PROCESS

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def has(self, span: Range) -> bool:
        return False

    def write(self, start: int, values: np.ndarray) -> None:
        self._parts.append((start, values))
