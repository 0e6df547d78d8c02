"""The body of a task, the same for a local thread and for a Dask worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.reduction import Reduction, StatefulReduction
from daskcluster.typing import Dataset, Range, Sink

OnRows = Callable[[int], None]


def fold(
    reduction: Reduction,
    prepared: Any,
    chunks: Iterable[Chunk],
    statistics: Any,
    on_rows: OnRows | None = None,
) -> Any:
    """Add every chunk to `statistics` and return it."""
    for chunk in chunks:
        reduction.chunk(chunk, prepared, statistics)
        if on_rows is not None:
            on_rows(chunk.n_rows)
    return statistics


def state_slice(state: Any, first: int, last: int) -> Any:
    """Return rows `first` to `last` of a state: an array, or a tuple of arrays."""
    if isinstance(state, tuple):
        return tuple(part[first:last] for part in state)
    return state[first:last]


def fold_state(
    reduction: StatefulReduction,
    prepared: Any,
    chunks: Iterable[Chunk],
    origin: int,
    state: Any,
    valid: bool,
    statistics: Any,
) -> Any:
    """Add one unit's chunks to `statistics`, bringing its `state` (from row `origin`) along."""
    for chunk in chunks:
        rows = state_slice(state, chunk.start - origin, chunk.stop - origin)
        if not valid:
            reduction.rebuild(chunk, prepared, rows)
        reduction.chunk(chunk, prepared, statistics, rows)
    return statistics


def write_rows(
    fn: Callable[[Chunk, Any], np.ndarray],
    prepared: Any,
    chunks: Iterable[Chunk],
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


def group_by_range(chunks: Iterator[Chunk], taken: Callable[[], Range | None]) -> Iterator[Any]:
    """Yield ``(range, [chunks])`` for a stream of chunks that follows ranges in order.

    `taken` returns the ranges in the order in which the stream consumed them.
    """
    span: Range | None = None
    held: list[Chunk] = []
    for chunk in chunks:
        if span is None:
            span = taken()
        held.append(chunk)
        if span is not None and chunk.stop >= span[1]:
            yield span, held
            span, held = None, []
