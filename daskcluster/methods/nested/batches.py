"""Nested batches: prefixes of one random order of the rows, gathered in this process or left in place.

Every row has a place, 64 random bits that belong to its index. The batch of b rows is those with the b
lowest places, so that a larger batch holds every smaller one, a batch is a simple random sample
however the rows are sorted or chunked, and each partition (hence each worker) holds about its
share of each batch: of the rows that join when a batch grows.

Small batches are gathered into one contiguous block of rows in this process, of which they are views.
Larger ones are datasets that the engine places, and the last one is all rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import OnRead, RowDataset, check_rows
from daskcluster.data.memory import ArrayDataset
from daskcluster.data.recipes import DerivedRecipe
from daskcluster.data.weighted import ArrayWeights
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.local import home_engine
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import Callback, Notice, PassEnded, PassStarted, publish
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows, join_rows
from daskcluster.typing import Dataset, Range, Recipe, Visibility

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
        counted = np.zeros(1 << _BUCKET_BITS, np.int64)  # how many places begin with which bits
        for start, stop in row_blocks(self.n_rows):
            counted += np.bincount(_bucket(self.places(start, stop)), minlength=len(counted))
        ends = np.cumsum(counted)
        inner = [n for n in counts if 0 < n < self.n_rows]
        buckets = np.searchsorted(ends, inner)
        found = self._places_in(set(buckets.tolist()))
        limits = {n: 0 if n <= 0 else 1 << 64 for n in counts}
        for n, bucket in zip(inner, buckets.tolist(), strict=True):
            before = int(ends[bucket - 1]) if bucket else 0
            limits[n] = int(np.sort(found[bucket])[n - before - 1]) + 1
        return [limits[n] for n in counts]

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
            if self._rows is None:
                shape = int(self._ends[-1]), chunk.rows.shape[1]
                self._rows = np.empty(shape, chunk.rows.dtype)
            # Only without a check of bounds does NumPy copy straight to where the rows go.
            np.take(chunk.rows, which, axis=0, out=self._rows[place], mode="clip")

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
        if self._rows is None:
            parts: list[Rows] = [part for parts in self._parts[:number] for part in parts]
            dataset: RowDataset = ArrayDataset(join_rows(parts))
        else:
            dataset = ArrayDataset(self._rows[:end])
        dataset = dataset.normalized() if self._base.normalize else dataset
        if self._weights is None:
            return dataset
        return dataset.with_weights(ArrayWeights(self._weights[:end]))


class NestedBatchDataset(RowDataset):
    """The rows of a dataset whose positions lie in a range, in the order of their indices.

    Nothing is copied: rows are picked from the chunks of the dataset as these are read.

    Parameters
    ----------
    base : RowDataset
    order : NestedOrder
    low, high : int
        Places from `low` to below `high`.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.open import open_source
    >>> base = open_source(np.arange(20.0).reshape(10, 2))
    >>> NestedBatchDataset(base, NestedOrder(10, None), 3, 5).to_numpy()
    array([[6., 7.],
           [8., 9.]])
    """

    def __init__(self, base: RowDataset, order: NestedOrder, low: int, high: int) -> None:
        self.base = base
        self._order, self._low, self._high = order, low, high
        self._base_edges = np.concatenate([[0], np.cumsum(base.chunk_sizes, dtype=np.int64)])
        counts = self._count()
        self._partition_numbers = np.flatnonzero(counts)
        edges = np.concatenate([[0], np.cumsum(counts[self._partition_numbers])]).astype(np.int64)
        super().__init__(base.n_features, base.dtype, edges)
        self.normalize = base.normalize

    def normalized(self) -> NestedBatchDataset:
        return NestedBatchDataset(self.base.normalized(), self._order, self._low, self._high)

    def _count(self) -> np.ndarray:
        """Return how many rows each chunk of the base has."""
        counts = np.zeros(len(self._base_edges) - 1, np.int64)
        for start, stop in row_blocks(self.base.n_rows):
            rows = self._within(start, stop) + start
            partition_numbers = np.searchsorted(self._base_edges, rows, side="right") - 1
            counts += np.bincount(partition_numbers, minlength=len(counts))
        return counts

    def _within(self, start: int, stop: int) -> np.ndarray:
        return self._order.within(start, stop, self._low, self._high)

    # -- facts -----------------------------------------------------------------------------

    @property
    def whole(self) -> RowDataset:
        return self.base.whole

    @property
    def source(self) -> str:
        return f"{self.n_rows} rows of {self.base.source}"

    @property
    def row_bytes(self) -> int:
        """Decoded bytes of one row; of sparse rows, on average."""
        return self.base.row_bytes

    @property
    def own_visibility(self) -> Visibility:
        return self.base.own_visibility

    @property
    def visibility(self) -> Visibility:
        return self.base.visibility

    @property
    def weights(self) -> Any:
        """Weights of these rows, picked from those of the base when they are read; or None."""
        return None if self.base.weights is None else NestedBatchWeights(self)

    def own_recipe(self) -> Recipe:
        arguments = self._order, self._low, self._high
        return DerivedRecipe(NestedBatchDataset, self.base.recipe(), arguments)

    def recipe(self) -> Recipe:
        return self.own_recipe()

    def to_scratch(self, folder: str) -> NestedBatchDataset:
        """Write the base to Zarr in `folder`, and return the same rows of that."""
        return NestedBatchDataset(self.base.to_scratch(folder), self._order, self._low, self._high)

    # -- reading ---------------------------------------------------------------------------

    def chunks(self, ranges: Iterable[Range], *, on_read: OnRead | None = None) -> Iterator[Chunk]:
        """Yield the rows of `ranges` in order, as the base reads them; `on_read` gets the bytes."""
        ahead: deque[Range] = deque()
        position = -1
        for chunk in self.base.chunks(self._base_ranges(ranges, ahead), on_read=on_read):
            first, end = ahead[0]
            position = first if position < 0 else position
            which = self._within(chunk.start, chunk.stop)
            if len(which):
                weights = None if chunk.weights is None else chunk.weights[which]
                yield Chunk(chunk.rows[which], position, weights, chunk.normalize)
            position += len(which)
            if chunk.stop >= end:
                ahead.popleft()
                position = -1
            del chunk  # not kept while the next one is awaited

    def _base_ranges(self, ranges: Iterable[Range], ahead: deque[Range]) -> Iterator[Range]:
        """Yield what has to be read of the base; note in `ahead` its first row here and its end there."""
        for start, stop in ranges:
            if stop > start:
                first, end = self._base_range(start, stop)
                ahead.append((start, end))
                yield first, end

    def _base_range(self, start: int, stop: int) -> Range:
        """Return the range of the base that holds rows `start` to `stop`: whole chunks if it can."""
        chunk = int(np.searchsorted(self._edges, start, side="right")) - 1
        last = int(np.searchsorted(self._edges, stop, side="left")) - 1
        first, end = (
            self._base_edges[self._partition_numbers[chunk]],
            self._base_edges[self._partition_numbers[last] + 1],
        )
        if self._edges[chunk] != start:
            first = self.rows_at(np.array([start]))[0]
        if self._edges[last + 1] != stop:
            end = self.rows_at(np.array([stop - 1]))[0] + 1
        return int(first), int(end)

    def rows_at(self, positions: np.ndarray) -> np.ndarray:
        """Return where in the base the rows at `positions` are, int64."""
        found = np.empty(len(positions), np.int64)
        chunks = np.searchsorted(self._edges, positions, side="right") - 1
        for chunk in np.unique(chunks):
            start, stop = self._base_edges[
                self._partition_numbers[chunk] : self._partition_numbers[chunk] + 2
            ].tolist()
            here = chunks == chunk
            found[here] = start + self._within(start, stop)[positions[here] - self._edges[chunk]]
        return found

    def fetch(self, start: int, stop: int) -> Any:
        return self.load((start, stop)).rows

    def load(self, span: Range, *, on_read: OnRead | None = None) -> Chunk:
        """Return the rows of one range as one chunk that owns its memory."""
        chunks = list(self.chunks([span], on_read=on_read))
        if not chunks:
            return self.base.load((0, 0))
        weights = [chunk.weights for chunk in chunks if chunk.weights is not None]
        rows = join_rows([chunk.rows for chunk in chunks])
        joined = np.concatenate(weights) if weights else None
        return Chunk(rows, span[0], joined, self.normalize)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the given rows, in the given order and dense."""
        return self.base.take(self.rows_at(check_rows(rows, self.n_rows)))


class NestedBatchWeights:
    """Weights of the rows of a nested batch, taken from those of the base on demand."""

    def __init__(self, nested_batch: NestedBatchDataset) -> None:
        self._nested_batch = nested_batch
        self.shape = (nested_batch.n_rows,)

    def __len__(self) -> int:
        return self._nested_batch.n_rows

    def __getitem__(self, span: slice) -> np.ndarray:
        start, stop, step = span.indices(len(self))
        if stop <= start:
            return np.empty(0)
        rows = self._nested_batch.rows_at(np.arange(start, stop))
        first = int(rows[0])
        weights = np.asarray(self._nested_batch.base.weights[first : int(rows[-1]) + 1], np.float64)
        return weights[rows - first][::step]

    def max(self) -> float:
        """Return the largest weight, block by block."""
        return max(float(self[start:stop].max()) for start, stop in row_blocks(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[0 : len(self)].astype(dtype or np.float64, copy=False)


HOME_BYTES = 256 << 20
"""Batches up to this size are gathered into this process: a round trip to workers takes longer."""


class NestedBatches:
    """Nested batches of a dataset; the first has `size` rows, and the last is the whole dataset.

    Parameters
    ----------
    placement : Placement
        Of the dataset, on the engine.
    engine : Engine
        Places batches that are too large for this process.
    order : NestedOrder
    size : int
    labels : ndarray of shape (n,), int32, optional
        Room for the labels of all rows.
    footprint : Footprint
    callbacks : sequence of callables
    home_bytes : int
        Batches up to this size are gathered in this process.
    number : int
        Of the batch to begin with, from 0.

    Attributes
    ----------
    number : int
        Of the batch, from 0.
    size : int
        Rows of the batch.
    rows : ScaledPlacement
        Its rows, ready for passes.
    labels : ndarray of shape (size,), int32, or None
        Room for labels, if they are kept in this process.
    gathers : int
        Passes over all rows that were made to gather batches.

    Notes
    -----
    Cost: rows in memory are copied ahead, those of the next batch while this one is computed; rows in
    stored order are read as they are needed. From a store, a few random rows touch every chunk, so
    one pass gathers all batches that will be at home.
    """

    def __init__(
        self,
        placement: Placement,
        engine: Engine,
        order: NestedOrder,
        size: int,
        *,
        labels: np.ndarray | None = None,
        footprint: Footprint | None = None,
        callbacks: Sequence[Callback] = (),
        home_bytes: int = HOME_BYTES,
        number: int = 0,
    ) -> None:
        assert isinstance(placement.dataset, RowDataset)
        self._whole, self._dataset = placement, placement.dataset
        self._engine, self._order = engine, order
        self._home = home_engine(engine)
        self._all_labels, self._footprint, self._callbacks = labels, footprint, callbacks
        self._sizes = _sizes(size, self._dataset.n_rows)
        at_home = [b for b in self._sizes[:-1] if b * self._dataset.row_bytes <= home_bytes]
        self._n_at_home = len(at_home)
        gathers = number < self._n_at_home
        self._gathered = GatheredBatches(self._dataset, order, at_home) if gathers else None
        self.number = number - 1
        self._placed: Placement | None = None
        self._bytes_gathered = self._bytes_before = self.gathers = 0
        self.size = 0
        self.labels: np.ndarray | None = None
        self.rows: ScaledPlacement
        self.double()

    @property
    def is_whole(self) -> bool:
        return self.number == len(self._sizes) - 1

    @property
    def bytes_read(self) -> int:
        """All bytes that were read for batches so far."""
        placed = 0 if self._placed is None else self._placed.traffic.bytes_read
        return self._bytes_gathered + self._bytes_before + placed + self._whole.traffic.bytes_read

    @property
    def held(self) -> RowDataset | None:
        """All rows that this process has by now; None if batches stay where they are stored."""
        if self._dataset.in_memory:
            return self._dataset
        return None if self._gathered is None else self._gathered.batch(self._gathered.n_gathered)

    def double(self) -> None:
        """Double the batch, up to all rows; the previous batch is freed."""
        self.close()
        self.number += 1
        self.size = self._sizes[self.number]
        if self.is_whole:
            self._gathered = None
            self.rows, self.labels = ScaledPlacement(self._whole), self._all_labels
        else:
            self._placed = self._place()
            self.labels = np.empty(self.size, np.int32) if self._placed.shares_memory else None
            self.rows = ScaledPlacement(self._placed)

    def close(self) -> None:
        """Free the batch."""
        if self._gathered is not None:
            self._gathered.wait()
        if self._placed is not None:
            self._bytes_before += self._placed.traffic.bytes_read
            self._placed.close()
            self._placed = None

    def _place(self) -> Placement:
        if self.number < self._n_at_home and self._gathered is not None:
            self._gather(self._gathered)
            if self._dataset.in_memory and self.number + 1 < self._n_at_home:
                self._gathered.gather_ahead(self.number + 2)
            batch = self._gathered.batch(self.number + 1)
            return self._home.place(batch, callbacks=self._callbacks)
        self._gathered = None
        self._advise()
        high = self._order.limit(self.size)
        batch = NestedBatchDataset(self._dataset, self._order, 0, high)
        return self._engine.place(batch, footprint=self._footprint, callbacks=self._callbacks)

    def _advise(self) -> None:
        """Say once what random rows cost if they stay in their store."""
        if self.number > self._n_at_home or self._order.key is None or self._dataset.in_memory:
            return
        text = (
            f"batches of {self.size} rows and more stay in their store, and every round reads the chunks "
            "that do not fit into memory, for random rows are in all of them; shuffle the rows once "
            "(daskcluster shuffle) and pass shuffle=False to read the beginning only."
        )
        publish(self._callbacks, Notice(text))

    def _gather(self, gathered: GatheredBatches) -> None:
        scattered = self._order.key is not None and not self._dataset.in_memory
        upto = self._n_at_home if scattered else self.number + 1
        if upto <= gathered.n_gathered:
            return
        began, before = time.perf_counter(), self._bytes_gathered
        publish(self._callbacks, PassStarted("gather a sample", self._sizes[upto - 1]))
        gathered.gather(upto, on_read=self._count)
        self.gathers += int(scattered)
        read = self._bytes_gathered - before
        publish(self._callbacks, PassEnded("gather a sample", time.perf_counter() - began, read))

    def _count(self, n_bytes: int) -> None:
        self._bytes_gathered += n_bytes


def _sizes(size: int, n_rows: int) -> list[int]:
    """Return the sizes of all batches.

    Examples
    --------
    >>> _sizes(100, 500)
    [100, 200, 400, 500]
    """
    sizes = [min(size, n_rows)]
    while sizes[-1] < n_rows:
        sizes.append(min(2 * sizes[-1], n_rows))
    return sizes
