"""Mini-batches: every row once per pass, in an order that depends on the seed and the pass alone.

The orders of the passes are concatenated and cut into batches of one size: a batch may hold the last rows
of a pass and the first ones of the next. With replacement, rows are drawn independently instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from types import TracebackType
from typing import Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.methods.minibatch.chunkwise.batch import Batch
from daskcluster.methods.minibatch.kernels.batch import shuffle_next
from daskcluster.methods.minibatch.pool import LEAST_GROUPS, Pools, Segment
from daskcluster.methods.nested.gathered import GatheredBatches, NestedOrder
from daskcluster.randomness import Key
from daskcluster.sparse_rows import join_rows
from daskcluster.typing import Dataset

ROOM_BYTES = 256 << 20
"""Rows up to this size are read once and kept; of larger data, pools of this size all together."""


def whole(dataset: Dataset, on_read: Callable[[int], None] | None = None) -> Chunk:
    """Return all rows as one chunk: views of what is in memory, anything else is read."""
    span = (0, dataset.n_rows)
    if dataset.in_memory:
        return next(iter(dataset.chunks([span])))
    return dataset.load(span, on_read=on_read)


def fits(dataset: Dataset, room_bytes: int = ROOM_BYTES) -> bool:
    """True if all rows are kept, so that batches are uniform draws; else batches come from pools."""
    return dataset.in_memory or dataset.bytes_of((0, dataset.n_rows)) <= room_bytes


def order_bytes(dataset: Dataset) -> int:
    """Return the bytes of a row other than its values while batches are drawn: its weight and two indices.

    One index is for the order of batches, the other for the order of a sample.
    """
    return 16 + (0 if dataset.weights is None else 8)


def held_bytes(dataset: Dataset, room_bytes: int = ROOM_BYTES) -> int:
    """Return the bytes that `Batches` hold at most, in the process that draws them.

    Rows in memory cost only the orders in which they are drawn. Other rows are read into
    memory of their own: all of them, or those of three pools.
    """
    n, orders = dataset.n_rows, order_bytes(dataset)
    if dataset.in_memory:
        return orders * n
    size = dataset.bytes_of((0, n))
    reading = 2 * max((dataset.bytes_of(span) for span in dataset.partitions), default=0)
    if fits(dataset, room_bytes):
        return size + max(orders * n, reading)
    return min(size, room_bytes) + max(orders * n * room_bytes // size, reading)


class Batches:
    """Draws batches of a dataset, without end. A context manager: leaving it stops reading.

    Parameters
    ----------
    dataset : Dataset
    batch_size : int
        Rows of every batch; all rows, if there are fewer and they are drawn without replacement.
    seed : int
    room_bytes : int
        Memory for rows that are read ahead, if they are not in memory already.
    least_rows : int
        Rows that a pool should hold, if possible.
    skipped : int
        Number of batches drawn before; drawing continues after them.
    replacement : bool
        Draw rows independently, so that a batch may hold a row several times. From pools, each draws as
        many rows as it holds.

    Attributes
    ----------
    passes : int
        Passes over all rows that `sample` took.
    is_pooled, is_wide : bool
        They come from pools, not from all rows; and pools hold enough row groups to be from all over.
    notice : str
        Difference from a uniform draw; empty if there is none.
    bytes_read : int
        Decoded bytes fetched from the store so far.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int,
        *,
        room_bytes: int = ROOM_BYTES,
        least_rows: int = 0,
        skipped: int = 0,
        replacement: bool = False,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size if replacement else min(batch_size, dataset.n_rows)
        self.replacement = replacement
        self.bytes_read = self.passes = 0
        self.notice = ""
        self.is_pooled = not fits(dataset, room_bytes)
        self._seed, self.is_wide = seed, False
        self._last: list[tuple[Segment, np.ndarray]] = []
        position = skipped * self.batch_size
        if not self.is_pooled:
            epoch, gone = divmod(position, dataset.n_rows)
            self._segments = self._whole(epoch)
        else:
            wanted = max(8 * self.batch_size, least_rows)
            pools = Pools.plan(dataset, seed, wanted, room_bytes, on_read=self._count)
            self.notice = pools.notice(replacement=replacement)
            self.is_wide = pools.per_pool >= LEAST_GROUPS
            place, gone = pools.find(position)
            self._segments = pools.read(place)
        self._drawn = self._next_segment()
        self._drawn.take(gone)

    def _count(self, n_bytes: int) -> None:
        self.bytes_read += n_bytes

    def _next_segment(self) -> _Drawn:
        return _Drawn(next(self._segments), replacement=self.replacement)

    def _whole(self, first: int) -> Iterator[Segment]:
        chunk, span = whole(self.dataset, self._count), (0, self.dataset.n_rows)
        for epoch in count(first):
            yield Segment(chunk.rows, chunk.weights, (span,), Key(self._seed, "batches", epoch))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with closing(self._segments):  # type: ignore[type-var]
            self._last = []

    def next(self) -> Batch:
        """Return the next batch. Rows that lie in memory are not copied."""
        self._last = []
        wanted = self.batch_size
        while wanted:
            if not self._drawn.left:
                self._drawn = self._next_segment()
            listed = self._drawn.take(min(wanted, self._drawn.left))
            self._last.append((self._drawn.segment, listed))
            wanted -= len(listed)
        return _joined(self._last, self.dataset.normalize)

    def row_of(self, position: int) -> int:
        """Return the row of the dataset at a position of the last batch."""
        for segment, listed in self._last:
            if position < len(listed):
                return segment.row_of(int(listed[position]))
            position -= len(listed)
        raise IndexError(position)

    def rows_of_last(self) -> np.ndarray:
        """Return the rows of the dataset in the last batch or sample, int64 (b,)."""
        return np.concatenate([segment.rows_of(listed) for segment, listed in self._last])

    def held(self) -> tuple[Chunk, Callable[[int], int]]:
        """Return the rows now in memory, and a function from their places to rows of the dataset."""
        segment = self._drawn.segment
        return Chunk(segment.rows, 0, segment.weights, self.dataset.normalize), segment.row_of

    def sample(self, m: int, key: Key, *, uniform: bool = False) -> Batch:
        """Return `m` distinct rows (or all there are) at random, of those that batches come from first.

        Batches are not changed by it.

        Parameters
        ----------
        m : int
        key : Key
        uniform : bool
            Draw from all rows, in whatever order they are stored. If batches come from pools, that takes
            a pass: a few random rows are in nearly every chunk.
        """
        if uniform and self.is_pooled:
            segment = self._gathered(min(m, self.dataset.n_rows), key)
            self._last = [(segment, np.arange(len(segment.rows)))]
            return _joined(self._last, self.dataset.normalize)
        segment = self._drawn.segment
        order = np.arange(len(segment.rows))
        m = min(m, len(order))
        shuffle_next(order, 0, key.uniforms(0, m))
        self._last = [(segment, np.sort(order[:m]))]
        return _joined(self._last, self.dataset.normalize)

    def _gathered(self, m: int, key: Key) -> Segment:
        nested_batches = GatheredBatches(self.dataset, NestedOrder(self.dataset.n_rows, key), [m])
        nested_batches.gather(1, on_read=self._count)
        self.passes += 1
        chunk = whole(nested_batches.batch(1))
        spans = tuple((row, row + 1) for row in nested_batches.index(1).tolist())
        return Segment(chunk.rows, chunk.weights, spans, key)


class _Drawn:
    """A segment whose rows are drawn one after the other, as many as it has."""

    def __init__(self, segment: Segment, *, replacement: bool) -> None:
        self.segment = segment
        self._order = None if replacement else np.arange(len(segment.rows))
        self._random = segment.key.generator()
        self._at = 0

    @property
    def left(self) -> int:
        return len(self.segment.rows) - self._at

    def take(self, m: int) -> np.ndarray:
        first, self._at = self._at, self._at + m
        uniforms = self._random.random(m)
        if self._order is None:
            n = len(self.segment.rows)
            return np.minimum((uniforms * n).astype(np.int64), n - 1)
        shuffle_next(self._order, first, uniforms)
        return self._order[first : self._at]


def _joined(parts: list[tuple[Segment, np.ndarray]], normalize: bool) -> Batch:
    first = parts[0][0]
    if all(segment.rows is first.rows for segment, _ in parts):
        listed = parts[0][1] if len(parts) == 1 else np.concatenate([part for _, part in parts])
        return Batch(first.rows, listed, first.weights, normalize)
    rows = join_rows([segment.rows[listed] for segment, listed in parts])
    weights = [s.weights[listed] for s, listed in parts if s.weights is not None]
    joined = np.concatenate(weights) if weights else None
    return Batch(rows, np.arange(len(rows)), joined, normalize)
