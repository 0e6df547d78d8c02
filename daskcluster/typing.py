"""Protocols that let layers work together without importing each other.

Dimension legend: n rows, d features, k clusters, b batch size, m coreset size.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from daskcluster.chunk import Chunk

Range = tuple[int, int]
"""Rows ``start`` to ``stop`` of a dataset."""


class Visibility(enum.IntEnum):
    """Who can read a dataset: this process, every process of this host, or everyone."""

    PROCESS = 0
    HOST = 1
    EVERYONE = 2


class ChangeGuard(Protocol):
    """State of stored rows at one moment."""

    def check(self) -> None:
        """Raise `InvalidDataError` if they are not the same any more."""
        ...


class Recipe(Protocol):
    """Recipe of a dataset, sent to tasks in its place: small, picklable, free of credentials."""

    def open(self) -> Dataset:
        """Open the dataset in this process (once; later calls return the same object)."""
        ...


@runtime_checkable
class Dataset(Protocol):
    """Rows readable chunk by chunk, wherever they live."""

    @property
    def n_rows(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the rows as stored; see `daskcluster.chunk.compute_dtype`."""
        ...

    @property
    def chunk_sizes(self) -> tuple[int, ...]: ...
    @property
    def weights(self) -> Any:
        """Row weights (n,), or None."""
        ...

    @property
    def normalize(self) -> bool:
        """True if the blocks of chunks have rows of length one (cosine metric)."""
        ...

    @property
    def partitions(self) -> Sequence[Range]:
        """Consecutive whole chunks: the unit of state, caching and accounting."""
        ...

    @property
    def in_memory(self) -> bool:
        """True if rows are already in this process's memory (views cost nothing)."""
        ...

    @property
    def divisible(self) -> bool:
        """True if rows in memory may be cut other than into `partitions`."""
        ...

    @property
    def visibility(self) -> Visibility: ...

    def normalized(self) -> Dataset:
        """Return the same rows for the cosine metric, without a copy; see `normalize`."""
        ...

    def recipe(self) -> Recipe: ...

    def change_guard(self) -> ChangeGuard | None:
        """Return the change guard of the stored rows; None if there is none."""
        ...

    def bytes_of(self, span: Range) -> int:
        """Return the decoded bytes of the rows of a range, without weights."""
        ...

    def chunks(
        self, ranges: Iterable[Range], *, on_read: Callable[[int], None] | None = None
    ) -> Iterator[Chunk]:
        """Yield the rows of `ranges`, range by range, reading ahead of the caller.

        `ranges` is drawn lazily, and in the caller's thread: what it does when asked for the next
        range may touch what the caller works on. `on_read` hears the decoded bytes of every block
        fetched from the store.
        """
        ...

    def read_edges(self, span: Range) -> np.ndarray:
        """Return where reads within `span` may begin and end, so that nothing is decoded twice.

        int64, strictly increasing, from the start of `span` to its stop: its smallest cheap reads.
        """
        ...

    def load(self, span: Range, *, on_read: Callable[[int], None] | None = None) -> Chunk:
        """Return the rows of one range as one chunk that owns its memory."""
        ...

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the given rows (sorted or not), shape (len(rows), d), source dtype."""
        ...

    def to_numpy(self) -> np.ndarray: ...


class Reachable(Protocol):
    """Something that some processes can open, and perhaps not others: a dataset, a folder."""

    @property
    def visibility(self) -> Visibility: ...


class Sink(Protocol):
    """Takes per-row results; picklable, written in blocks aligned to whole output chunks."""

    @property
    def block_rows(self) -> int:
        """Writes must cover whole multiples of this many rows (1 = no alignment)."""
        ...

    @property
    def visibility(self) -> Visibility:
        """Who can write there: this process, every process of this host, or everyone."""
        ...

    def has(self, span: Range) -> bool:
        """Return True if all rows of a range were written before: they are left out."""
        ...

    def write(self, start: int, values: np.ndarray) -> None: ...
