"""What happens to the rows of a task: one picklable operation for every verb of a placement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.reduction import Reduction, StatefulReduction
from daskcluster.engine.tasks import fold, fold_state, write_rows
from daskcluster.typing import Range, Reach, Sink

if TYPE_CHECKING:
    from daskcluster.engine.held import Held


class Operation(Protocol):
    """What happens to the rows of a task; picklable."""

    def prepare(self, params: Any) -> Any: ...

    def begin(self, prepared: Any) -> Any:
        """Return the value that `visit` adds to."""
        ...

    def visit(
        self, span: Range, chunks: list[Chunk], prepared: Any, held: Held | None, value: Any
    ) -> None: ...

    def combine(self, first: Any, second: Any) -> Any: ...


@dataclass(frozen=True)
class Fold:
    """The operation of `Placement.reduce`."""

    reduction: Reduction

    def prepare(self, params: Any) -> Any:
        return self.reduction.prepare(params)

    def begin(self, prepared: Any) -> Any:
        return self.reduction.zero(prepared)

    def visit(
        self, span: Range, chunks: list[Chunk], prepared: Any, held: Held | None, value: Any
    ) -> None:
        fold(self.reduction, prepared, chunks, value)

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

    def visit(
        self, span: Range, chunks: list[Chunk], prepared: Any, held: Held | None, value: Any
    ) -> None:
        name = self.reduction.name
        stamp, state = held.pop_state(name) if held is not None else (-1, None)
        valid = stamp == self.stamp and stamp > 0
        if not valid:
            state = self.reduction.fresh(span[1] - span[0], prepared)
        fold_state(self.reduction, prepared, chunks, span[0], state, valid, value)
        if held is not None:
            held.keep_state(name, self.stamp + 1, state)

    def combine(self, first: Any, second: Any) -> Any:
        return self.reduction.combine(first, second)


@dataclass(frozen=True)
class Inspect:
    """The operation of `Placement.state_of`: one partition, as one chunk."""

    reduction: StatefulReduction
    stamp: int
    fn: Callable[[Chunk, Any, Any], Any]

    def prepare(self, params: Any) -> Any:
        return self.reduction.prepare(params)

    def begin(self, prepared: Any) -> list[Any]:
        return []

    def visit(
        self, span: Range, chunks: list[Chunk], prepared: Any, held: Held | None, value: list[Any]
    ) -> None:
        chunk = _joined(chunks)
        stamp, state = held.peek_state(self.reduction.name) if held is not None else (-1, None)
        if stamp != self.stamp or stamp < 1:
            state = self.reduction.fresh(span[1] - span[0], prepared)
            self.reduction.rebuild(chunk, prepared, state)
        value.append(self.fn(chunk, prepared, state))

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

    def visit(
        self, span: Range, chunks: list[Chunk], prepared: Any, held: Held | None, value: list[Any]
    ) -> None:
        write_rows(self.fn, prepared, chunks, span, self.sink or _Collector(value))

    def combine(self, first: list[Any], second: list[Any]) -> list[Any]:
        return first + second


class _Collector:
    """A sink that keeps what is written."""

    block_rows = 1
    reach = Reach.PROCESS

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def write(self, start: int, values: np.ndarray) -> None:
        self._parts.append((start, values))


def _joined(chunks: list[Chunk]) -> Chunk:
    first = chunks[0]
    if len(chunks) == 1:
        return first
    weights = [chunk.weights for chunk in chunks if chunk.weights is not None]
    return Chunk(
        np.concatenate([chunk.rows for chunk in chunks]),
        first.start,
        np.concatenate(weights) if weights else None,
    )
