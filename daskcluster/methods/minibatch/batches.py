"""Mini-batches: every row once per pass, in an order that depends on the seed and the pass alone.

The orders of the passes are concatenated and cut into batches of one size: a batch may hold the last rows
of a pass and the first ones of the next. With replacement, rows are drawn independently instead.

Out of core, batches come from pools of row groups that are read ahead. A pass cuts the dataset into strata
of consecutive row groups, as many as a pool holds groups, and takes one group of every stratum for each
pool, in an order drawn for each stratum. In whatever order rows are stored, sorted by cluster for instance,
a pool sees all of the dataset. What remains is a bias: rows of a group come in the same pool, and the share
of a cluster varies from pool to pool more than it does among uniform draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.data_statistics import refuse_rows
from daskcluster.data.readahead import read_ahead
from daskcluster.events import Callback, Notice, publish
from daskcluster.host import format_bytes
from daskcluster.methods.minibatch.chunkwise import Batch
from daskcluster.methods.minibatch.kernels.batch import shuffle_next
from daskcluster.methods.nested.batches import GatheredBatches, NestedOrder
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows, join_rows
from daskcluster.typing import Dataset, Range

LEAST_GROUPS = 64
"""Row groups that a pool should hold: few enough to be read, many enough to be everywhere."""

_POOLS = 3
"""Pools in memory: the one in use, the next one, and the one that is being read."""


@dataclass(frozen=True)
class Segment:
    """Rows in memory, their numbers, and the key of the order in which they are drawn."""

    rows: Rows
    weights: np.ndarray | None
    spans: tuple[Range, ...]
    key: Key

    def row_of(self, place: int) -> int:
        """Return the row of the dataset at a place of `rows`."""
        return int(self.rows_of(np.array([place]))[0])

    def rows_of(self, places: np.ndarray) -> np.ndarray:
        """Return the rows of the dataset at some places of `rows`, int64."""
        spans = np.array(self.spans, np.int64)
        starts = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0])])
        home = np.searchsorted(starts, places, side="right") - 1
        return np.asarray(spans[home, 0] + places - starts[home])


@dataclass(frozen=True)
class PoolPlace:
    """Numbers of a pool: its pass, its number within the pass, and its number over all passes."""

    epoch: int
    pool: int
    number: int


@dataclass(frozen=True)
class Pools:
    """Row groups of the pools of every pass.

    Attributes
    ----------
    dataset : Dataset
    edges : ndarray of int64, shape (n_groups + 1,)
        Row groups: the smallest pieces that are cheap to read.
    n_pools : int
        Number of pools of a pass.
    seed : int
    on_read : callable (int) -> None
        Called with decoded bytes, in a reading thread.
    """

    dataset: Dataset
    edges: np.ndarray
    n_pools: int
    seed: int
    on_read: Callable[[int], None]

    @classmethod
    def plan(
        cls,
        dataset: Dataset,
        seed: int,
        wanted_rows: int,
        room_bytes: int,
        *,
        on_read: Callable[[int], None],
    ) -> Pools:
        """Choose the number of groups of a pool.

        At least 64, and enough for `wanted_rows`; fewer only where three pools would not fit
        `room_bytes`.
        """
        edges = dataset.read_edges((0, dataset.n_rows))
        n_groups = len(edges) - 1
        mean = dataset.bytes_of((0, dataset.n_rows)) / n_groups
        fitting = max(1, int(room_bytes / _POOLS / mean))
        wanted = max(LEAST_GROUPS, -(-wanted_rows * n_groups // dataset.n_rows))
        per_pool = min(wanted, fitting, n_groups)
        return cls(dataset, edges, -(-n_groups // per_pool), seed, on_read)

    @property
    def n_groups(self) -> int:
        return len(self.edges) - 1

    @property
    def per_pool(self) -> int:
        """Groups of a pool, and strata of the dataset."""
        return -(-self.n_groups // self.n_pools)

    def notice(self, *, replacement: bool = False) -> str:
        """Return the difference between batches from these pools and uniform draws, and the remedy."""
        size = self.dataset.bytes_of((0, self.dataset.n_rows)) // self.n_pools
        order = "drawn with replacement" if replacement else "shuffled, every row once a pass"
        text = (
            f"Batches are drawn from pools of {self.per_pool:,} of {self.n_groups:,} row groups "
            f"({format_bytes(size)}), taken from all over the dataset and {order}. Rows of a group "
            "share a pool, so batches vary a little more than uniform draws."
        )
        if self.per_pool >= min(LEAST_GROUPS, self.n_groups):
            return text
        return (
            f"{text} With fewer than {LEAST_GROUPS} groups that can be much more if the rows are "
            "sorted: shuffle them (`daskcluster shuffle`), or rewrite them in smaller chunks "
            "(`daskcluster convert`)."
        )

    def groups(self, epoch: int) -> list[np.ndarray]:
        """Return the groups of every pool of a pass, ascending."""
        strata = np.arange(self.per_pool * self.n_pools).reshape(self.per_pool, self.n_pools)
        drawn = Key(self.seed, "pools", epoch).generator().permuted(strata, axis=1)
        pools = (np.sort(column[column < self.n_groups]) for column in drawn.T)
        return [groups for groups in pools if len(groups)]

    def find(self, position: int) -> tuple[PoolPlace, int]:
        """Return the pool of a row, and the number of rows before it in that pool.

        Parameters
        ----------
        position : int
            Position of the row, among the rows of all pools of all passes.
        """
        epoch, left = divmod(position, self.dataset.n_rows)
        before = sum(len(self.groups(earlier)) for earlier in range(epoch))
        sizes = [(self.edges[pool + 1] - self.edges[pool]).sum() for pool in self.groups(epoch)]
        edges = np.concatenate([[0], np.cumsum(sizes)])
        pool = int(np.searchsorted(edges, left, side="right")) - 1
        return PoolPlace(epoch, pool, before + pool), left - int(edges[pool])

    def read(self, first: PoolPlace | None = None) -> Iterator[Segment]:
        """Yield pool after pool, pass after pass; the next one is read while one is used."""
        jobs = self._jobs(first or PoolPlace(0, 0, 0))
        return read_ahead(
            jobs,
            self._read,
            lambda job: sum(map(self.dataset.bytes_of, job[1])),
            shares_window=False,
        )

    def _jobs(self, first: PoolPlace) -> Iterator[tuple[Key, tuple[Range, ...]]]:
        number, skipped = first.number, first.pool
        for epoch in count(first.epoch):
            pools, skipped = self.groups(epoch)[skipped:], 0
            for groups in pools:
                yield Key(self.seed, "pool", number), self._spans(groups)
                number += 1

    def _spans(self, groups: np.ndarray) -> tuple[Range, ...]:
        """Return the ranges of rows of some groups, neighbours in one."""
        breaks = np.flatnonzero(np.diff(groups) != 1) + 1
        runs = np.split(groups, breaks)
        return tuple((int(self.edges[run[0]]), int(self.edges[run[-1] + 1])) for run in runs)

    def _read(self, job: tuple[Key, tuple[Range, ...]]) -> Segment:
        key, spans = job
        n_rows = sum(stop - start for start, stop in spans)
        chunks = self.dataset.chunks(spans, on_read=self.on_read)
        rows, weights = _gathered(chunks, n_rows)
        return Segment(rows, weights, spans, key)


def _gathered(chunks: Iterator[Chunk], n_rows: int) -> tuple[Rows, np.ndarray | None]:
    """Return the rows and weights of chunks, one after the other, in memory of their own."""
    sparse: list[SparseRows] = []
    weights: list[np.ndarray] = []
    rows: Any = None
    at = 0
    for chunk in chunks:
        if chunk.weights is not None:
            weights.append(np.array(chunk.weights))
        if isinstance(chunk.rows, SparseRows):
            sparse.append(chunk.rows.owned())
            continue
        if rows is None:
            rows = np.empty((n_rows, chunk.rows.shape[1]), chunk.rows.dtype)
        rows[at : at + chunk.n_rows] = chunk.rows
        at += chunk.n_rows
    found = join_rows(sparse) if sparse else rows
    return found, np.concatenate(weights) if weights else None


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
    callbacks : sequence of callables
        Called with `notice` as an event, if there is one.

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
        callbacks: Sequence[Callback] = (),
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
            publish(callbacks, Notice(self.notice))
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
        return int(self.rows_of_last()[position])

    def refuse_bad(self, batch: Batch) -> None:
        """Raise `InvalidDataError` if a row of the last batch is not finite, or out of range."""
        where, normalize = " of those seen so far", self.dataset.normalize
        refuse_rows(batch.taken(), self.row_of, where, normalize=normalize)

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
