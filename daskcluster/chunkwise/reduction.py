"""A reduction is data: how one chunk becomes statistics, and how statistics add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from daskcluster.chunk import Chunk


def _same(value: Any) -> Any:
    return value


def _all_rows(prepared: Any, statistics: Any, state: Any) -> None:
    return None


class RowState(Protocol):
    """Per-row state that is more than arrays: its rows can be viewed, and it knows its size."""

    @property
    def nbytes(self) -> int: ...

    def rows(self, first: int, last: int) -> Self:
        """Return a view of rows `first` to `last`; what is written there is written here."""
        ...


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
    """A reduction that keeps state for every row of a unit, and may leave rows unread.

    The state is *derived*: a function of rows and parameters. `fresh` allocates it (preallocated; a
    `RowState` may take more later, within `row_bytes`), `rebuild` brings a lost one up to date from the
    parameters alone, which therefore carry all that is needed. `screen` makes accelerated passes cheap
    out of core: storage chunks in which it wants no row are neither read nor decoded.

    Attributes
    ----------
    name : str
    row_bytes : int
        State per row, for the memory projection.
    prepare, zero, combine : callable
        As in `Reduction`.
    fresh : callable (n_rows, prepared) -> state
        A NumPy array or a tuple of arrays, whose first axis is the row, or a `RowState`.
    rebuild : callable (chunk, prepared, state_slice) -> None
        Recomputes the state as it was before this pass.
    chunk : callable (chunk, prepared, statistics, state_slice) -> None
        Adds the chunk to the statistics and brings its state along.
    screen : callable (prepared, statistics, state) -> ndarray of bool, shape (n_rows,), or None
        Asked once for every unit with valid state whose rows would have to be read, before anything
        of it is read. Returns which rows of the unit `chunk` has to see, None for all of them. It
        may add to the statistics what needs no rows, and change the state. Storage chunks without
        such a row are not read, and `chunk` is not called for them; of the others it sees every row.
        Not asked for units that are in memory already, nor for those that are read to stay there:
        `chunk` is called for the whole of them. Hence `screen` followed by `chunk` on the rows that
        it names gives what `chunk` alone gives on the whole unit. By default all rows are wanted.
    """

    name: str
    row_bytes: int
    zero: Callable[[Any], Any]
    fresh: Callable[[int, Any], Any]
    rebuild: Callable[[Chunk, Any, Any], None]
    chunk: Callable[[Chunk, Any, Any, Any], None]
    combine: Callable[[Any, Any], Any]
    prepare: Callable[[Any], Any] = _same
    screen: Callable[[Any, Any, Any], np.ndarray | None] = _all_rows
