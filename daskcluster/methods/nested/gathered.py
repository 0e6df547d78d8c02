"""Nested batches gathered into this process: one contiguous block of rows; batches are views of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import OnRead, RowDataset
from daskcluster.data.memory import ArrayDataset, MemorySparseDataset
from daskcluster.data.weighted import ArrayWeights
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows, join_rows
from daskcluster.typing import Dataset, Range

_BLOCK_ROWS = 1 << 20
_BUCKET_BITS = 16


@dataclass(frozen=True)
class NestedOrder:
    """An order of all rows of a dataset.

    Attributes
    ----------
    n_rows : int
    key : Key or None
        Of the random places; None for the stored order, in which the place of a row is its index.

    Examples
    --------
    >>> order = NestedOrder(1000, Key(0, "example"))
    >>> small, large = order.limit(10), order.limit(20)
    >>> len(order.within(0, 1000, 0, small)), len(order.within(0, 1000, small, large))
    (10, 10)
    """

    n_rows: int
    key: Key | None

    def places(self, start: int, stop: int) -> np.ndarray:
        """Return the places of rows `start` to `stop`, uint64."""
        if self.key is None:
            return np.arange(start, stop, dtype=np.uint64)
        return self.key.words(start, stop)

    def limit(self, n: int) -> int:
        """Return the least number that is above the places of the first `n` rows of the order."""
        return self.limits([n])[0]

    def limits(self, counts: Sequence[int]) -> list[int]:
        """Return `limit` of several numbers of rows.

        Notes
        -----
        Cost: no row is read; every random place is drawn twice, in memory of 20 MB.
        """
        if self.key is None:
            return [max(0, n) if n < self.n_rows else 1 << 64 for n in counts]
        ends = np.cumsum(self._histogram())
        inner = [n for n in counts if 0 < n < self.n_rows]
        buckets = np.searchsorted(ends, inner)
        found = self._places_in(set(buckets.tolist()))
        limits = {n: 0 if n <= 0 else 1 << 64 for n in counts}
        for n, bucket in zip(inner, buckets.tolist(), strict=True):
            before = int(ends[bucket - 1]) if bucket else 0
            limits[n] = int(np.sort(found[bucket])[n - before - 1]) + 1
        return [limits[n] for n in counts]

    def _histogram(self) -> np.ndarray:
        """Return how many places begin with which bits."""
        counts = np.zeros(1 << _BUCKET_BITS, np.int64)
        for start, stop in row_blocks(self.n_rows):
            counts += np.bincount(_bucket(self.places(start, stop)), minlength=len(counts))
        return counts

    def _places_in(self, buckets: set[int]) -> dict[int, np.ndarray]:
        """Return the places that begin with these bits."""
        found: dict[int, list[np.ndarray]] = {bucket: [] for bucket in buckets}
        for start, stop in row_blocks(self.n_rows):
            places = self.places(start, stop)
            home = _bucket(places)
            for bucket, parts in found.items():
                parts.append(places[home == bucket])
        return {bucket: np.concatenate(parts) for bucket, parts in found.items()}

    def within(self, start: int, stop: int, low: int, high: int) -> np.ndarray:
        """Return which of rows `start` to `stop` have a place from `low` to below `high`.

        Counted from `start`, ascending, int64.
        """
        if self.key is None:
            first, last = np.clip([low, high], start, stop) - start
            return np.arange(first, last)
        if high <= low:
            return np.empty(0, np.int64)
        places = self.places(start, stop)
        return np.flatnonzero((places >= np.uint64(low)) & (places <= np.uint64(high - 1)))


def _bucket(places: np.ndarray) -> np.ndarray:
    return (places >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)


def row_blocks(n_rows: int) -> Iterator[Range]:
    """Yield runs of rows whose places are drawn at a time."""
    for start in range(0, n_rows, _BLOCK_ROWS):
        yield start, min(start + _BLOCK_ROWS, n_rows)


_MOST = (1 << 64) - 1


class GatheredBatches:
    """The first nested batches of a dataset in memory, one after the other.

    Memory for all of them is reserved at once and filled as they come, so that a batch grows in place.

    Parameters
    ----------
    base : Dataset
    order : NestedOrder
    sizes : sequence of int
        Sizes of the batches that may be gathered, ascending.

    Attributes
    ----------
    n_gathered : int
        Number of batches gathered so far.
    """

    def __init__(self, base: Dataset, order: NestedOrder, sizes: Sequence[int]) -> None:
        self._base, self._order = base, order
        self._ends = np.array([0, *sizes], np.int64)
        self._limits = order.limits(self._ends.tolist())
        self._filled = self._ends[:-1].copy()
        self._rows: np.ndarray | None = None
        self._parts: list[list[SparseRows]] = [[] for _ in sizes]
        self._weights = None if base.weights is None else np.empty(self._ends[-1])
        self.n_gathered = 0
        self._ahead: Future[None] | None = None

    def gather(self, upto: int, *, on_read: OnRead | None = None) -> None:
        """Read all missing batches before number `upto` in one pass."""
        self.wait()
        self._gather(upto, on_read)

    def gather_ahead(self, upto: int) -> None:
        """Do as `gather` in a thread, while others compute."""
        self.wait()
        if upto > self.n_gathered:
            pool = ThreadPoolExecutor(1, thread_name_prefix="daskcluster-nested")
            self._ahead = pool.submit(self._gather, upto, None)
            pool.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until nothing is gathered any more."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.result()

    def _gather(self, upto: int, on_read: OnRead | None) -> None:
        if upto <= self.n_gathered:
            return
        # In the stored order they lie together; random ones may be anywhere.
        span = (0, self._base.n_rows)
        if self._order.key is None:
            span = int(self._ends[self.n_gathered]), int(self._ends[upto])
        for chunk in self._base.chunks([span], on_read=on_read):
            nested_batches = self._batches_of(chunk.start, chunk.stop)
            for nested_batch in range(self.n_gathered, upto):
                self._put(chunk, np.flatnonzero(nested_batches == nested_batch), nested_batch)
        self.n_gathered = upto

    def _batches_of(self, start: int, stop: int) -> np.ndarray:
        """Return the number of the batch that each row joins; for rows that join none, that of batches."""
        places = self._order.places(start, stop)
        # The last limit may be just beyond what 64 bits hold.
        inner = np.array([min(limit, _MOST) for limit in self._limits[1:]], np.uint64)
        return np.searchsorted(inner, places, side="right")

    def _put(self, chunk: Chunk, which: np.ndarray, nested_batch: int) -> None:
        if not len(which):
            return
        place = slice(int(self._filled[nested_batch]), int(self._filled[nested_batch]) + len(which))
        self._filled[nested_batch] = place.stop
        if self._weights is not None and chunk.weights is not None:
            self._weights[place] = chunk.weights[which]
        if isinstance(chunk.rows, SparseRows):
            self._parts[nested_batch].append(chunk.rows[which])
        else:
            # Only without a check of bounds does NumPy copy straight to where the rows go.
            np.take(chunk.rows, which, axis=0, out=self._room(chunk.rows)[place], mode="clip")

    def _room(self, rows: np.ndarray) -> np.ndarray:
        if self._rows is None:
            self._rows = np.empty((int(self._ends[-1]), rows.shape[1]), rows.dtype)
        return self._rows

    def index(self, number: int) -> np.ndarray:
        """Return the positions in the base of the rows of the first `number` batches, int64."""
        found: list[list[np.ndarray]] = [[] for _ in range(number)]
        for start, stop in row_blocks(self._base.n_rows):
            nested_batches = self._batches_of(start, stop)
            for nested_batch, parts in enumerate(found):
                parts.append(start + np.flatnonzero(nested_batches == nested_batch))
        return np.concatenate([part for parts in found for part in parts])

    def batch(self, number: int) -> RowDataset:
        """Return the rows of the first `number` batches as a dataset in memory."""
        end = int(self._ends[number])
        dataset: Any
        if self._rows is None:
            parts: list[Rows] = [part for parts in self._parts[:number] for part in parts]
            dataset = MemorySparseDataset(join_rows(parts))  # type: ignore[arg-type]
        else:
            dataset = ArrayDataset(self._rows[:end])
        dataset = dataset.normalized() if self._base.normalize else dataset
        if self._weights is None:
            return dataset
        return dataset.with_weights(ArrayWeights(self._weights[:end]))
