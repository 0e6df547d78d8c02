"""A reduction is data: how one chunk becomes statistics, and how statistics add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from daskcluster.chunk import Chunk


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Reduction:
    """A picklable description of a pass (every member is a module-level function).

    The laws: `combine` is associative and commutative to the bit, ``zero`` is its neutral
    element, and `chunk` applied to two halves equals `chunk` applied to the whole.

    Attributes
    ----------
    name : str
        What progress displays call the pass.
    prepare : callable (params) -> prepared
        Work done once per task before the first chunk, e.g. packing centres into panels.
    zero : callable (prepared) -> statistics
    chunk : callable (chunk, prepared, statistics) -> None
        Adds the chunk to the statistics in place.
    combine : callable (statistics, statistics) -> statistics
        May reuse its first argument.
    """

    name: str
    zero: Callable[[Any], Any]
    chunk: Callable[[Chunk, Any, Any], None]
    combine: Callable[[Any, Any], Any]
    prepare: Callable[[Any], Any] = _same


@dataclass(frozen=True)
class StatefulReduction:
    """A reduction whose chunk function keeps state for every row of a partition.

    The state is *derived*: a function of rows and parameters. `fresh` allocates it (preallocated,
    constant size), `rebuild` brings a lost one up to date from the parameters alone, which therefore
    carry all that is needed.

    Attributes
    ----------
    row_bytes : int
        State per row, for the memory projection.
    fresh : callable (n_rows, prepared) -> state
        A NumPy array or a tuple of arrays, whose first axis is the row.
    rebuild : callable (chunk, prepared, state_slice) -> None
        Recomputes the state as it was before this pass.
    chunk : callable (chunk, prepared, statistics, state_slice) -> None
    """

    name: str
    row_bytes: int
    zero: Callable[[Any], Any]
    fresh: Callable[[int, Any], Any]
    rebuild: Callable[[Chunk, Any, Any], None]
    chunk: Callable[[Chunk, Any, Any, Any], None]
    combine: Callable[[Any, Any], Any]
    prepare: Callable[[Any], Any] = _same
