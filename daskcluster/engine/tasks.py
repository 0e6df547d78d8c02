"""What is done with the chunks of a unit, the same for a local thread and for a Dask worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.reduction import StatefulReduction
from daskcluster.engine.units import Unit, wanted_ranges
from daskcluster.sparse_rows import join_rows
from daskcluster.typing import Dataset, Range, Sink


def state_slice(state: Any, first: int, last: int) -> Any:
    """Return rows `first` to `last` of a state: of an array, a tuple of arrays, or a `RowState`."""
    if isinstance(state, tuple):
        return tuple(part[first:last] for part in state)
    return state[first:last] if isinstance(state, np.ndarray) else state.rows(first, last)


class StateFold:
    """One thread's share of a pass that keeps state.

    A unit is taken up before anything of it is read, or with its first chunk if it is in memory.
    Its state is out of its place from then until the last chunk that was wanted is done, and is
    stamped only then.

    Parameters
    ----------
    reduction : StatefulReduction
    stamp : int
        What valid state carries.
    prepared, statistics : object
        Of the reduction; chunks are added to `statistics`.
    """

    def __init__(
        self, reduction: StatefulReduction, stamp: int, prepared: Any, statistics: Any
    ) -> None:
        self._reduction = reduction
        self._stamp = stamp
        self._prepared = prepared
        self._statistics = statistics
        self._open: dict[Range, tuple[Any, bool]] = {}

    def wanted(self, unit: Unit, edges: np.ndarray) -> list[Range]:
        """Take a unit up and return what has to be read of it: nothing, parts, or the whole."""
        state, is_valid = self._take_up(unit)
        if not is_valid:
            return [unit.span]
        mask = self._reduction.screen(self._prepared, self._statistics, state)
        ranges = wanted_ranges(edges, mask)
        if not ranges:
            self._put_back(unit)
        return ranges

    def add(self, unit: Unit, chunk: Chunk, is_last: bool) -> None:
        """Add one chunk of a unit, bringing its state along."""
        if unit.span not in self._open:
            self._take_up(unit)
        state, is_valid = self._open[unit.span]
        if state is None:
            # Not sooner: of units that are read ahead, only the rows take memory.
            state = self._reduction.fresh(unit.n_rows, self._prepared)
            self._open[unit.span] = state, is_valid
        origin = unit.span[0]
        rows = state_slice(state, chunk.start - origin, chunk.stop - origin)
        if not is_valid:
            self._reduction.rebuild(chunk, self._prepared, rows)
        self._reduction.chunk(chunk, self._prepared, self._statistics, rows)
        if is_last:
            self._put_back(unit)

    def _take_up(self, unit: Unit) -> tuple[Any, bool]:
        stamp, state = -1, None
        if unit.state is not None:
            stamp, state = unit.state.pop_state(self._reduction.name)
        is_valid = stamp == self._stamp and stamp > 0
        self._open[unit.span] = (state if is_valid else None), is_valid
        return self._open[unit.span]

    def _put_back(self, unit: Unit) -> None:
        state, _ = self._open.pop(unit.span)
        if unit.state is not None:
            unit.state.keep_state(self._reduction.name, self._stamp + 1, state)


def write_rows(
    fn: Callable[[Chunk, Any], np.ndarray],
    prepared: Any,
    chunks: Sequence[Chunk],
    span: Range,
    sink: Sink,
) -> None:
    """Compute the rows of one output block and write it with a single call."""
    first, last = span
    parts = [fn(chunk, prepared) for chunk in chunks]
    if parts:
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if len(values) != last - first:
            raise AssertionError(f"rows {first} to {last} gave {len(values)} results")
        sink.write(first, values)


def output_blocks(dataset: Dataset, block_rows: int) -> Sequence[Range]:
    """Cut the dataset where both its partitions and the output's chunks allow it.

    Every cut is a multiple of `block_rows`, so that no output chunk is written by two tasks.
    """
    n_rows = dataset.n_rows
    cuts = {min(n_rows, -(-stop // block_rows) * block_rows) for _, stop in dataset.partitions}
    ordered = sorted(cuts | {0, n_rows})
    return list(pairwise(ordered))


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return consecutive chunks as one; a single one as it is."""
    first = chunks[0]
    if len(chunks) == 1:
        return first
    weights = [chunk.weights for chunk in chunks if chunk.weights is not None]
    return Chunk(
        join_rows([chunk.rows for chunk in chunks]),
        first.start,
        np.concatenate(weights) if weights else None,
    )
