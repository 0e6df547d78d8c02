"""The passes of a shuffle, dense or CSR: scatter rows to buckets and gather them, or reorder in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.buckets import Buckets
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.readahead import WINDOW_BYTES, read_ahead
from daskcluster.data.shuffle_outputs import Piece, ShuffleOutputs
from daskcluster.data.shuffle_plan import ShufflePlan, SparseShufflePlan
from daskcluster.data.sparse import SparseDataset
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.host import give_back_memory
from daskcluster.randomness import Key
from daskcluster.sparse_rows import SparseRows
from daskcluster.typing import Dataset

Take = Callable[[np.ndarray], np.ndarray]


def run_shuffle(
    dataset: Dataset,
    plan: ShufflePlan,
    key: Key,
    outputs: ShuffleOutputs,
    callbacks: Sequence[Callback],
) -> int:
    """Write the rows of `dataset` to `outputs` in the order of `key`; return the bytes read."""
    with ExitStack() as stack:
        if plan.n_buckets:
            buckets = stack.enter_context(
                Buckets(
                    plan.record,
                    n_buckets=plan.n_buckets,
                    block_rows=plan.block_rows,
                    folder=str(plan.scratch),
                )
            )
            bytes_read = _scatter(dataset, plan, key, buckets, callbacks)
            give_back_memory()
            pieces = _gather(plan, buckets)
        else:
            take, weights, bytes_read = _load(dataset, callbacks)
            pieces = _reorder(take, weights, plan, key)
        with one_pass("shuffle (write)", plan.n_rows, callbacks) as running:
            running.bytes_read = plan.bytes_scratch
            outputs.write(pieces, running.advance)
    return bytes_read


def _scatter(
    dataset: Dataset,
    plan: ShufflePlan,
    key: Key,
    buckets: Buckets,
    callbacks: Sequence[Callback],
) -> int:
    with one_pass("shuffle (scatter)", plan.n_rows, callbacks) as running:
        for chunk in dataset.chunks(dataset.partitions, on_read=running.read):
            for first in range(0, chunk.n_rows, plan.piece_rows):
                part = chunk.slice(first, min(first + plan.piece_rows, chunk.n_rows))
                buckets.append(_records(part, plan, key))
                running.advance(part.n_rows)
        buckets.flush()
    return running.bytes_read


def _records(chunk: Chunk, plan: ShufflePlan, key: Key) -> np.ndarray:
    records = np.empty(chunk.n_rows, plan.record)
    records["key"] = key.words(chunk.start, chunk.stop)
    if plan.indexed:
        records["row"] = np.arange(chunk.start, chunk.stop)
    if plan.weighted:
        records["weight"] = chunk.weights
    records["values"] = chunk.rows
    return records


def _gather(plan: ShufflePlan, buckets: Buckets) -> Iterator[Piece]:
    def load(bucket: int) -> tuple[np.ndarray, np.ndarray]:
        records = buckets.load(bucket)
        # Rows of a bucket are in the order of the source, so this one is by key, then by row.
        return records, np.argsort(records["key"], kind="stable")

    freed = 0
    # A window of no bytes: the next bucket only.
    for records, order in read_ahead(range(plan.n_buckets), load, lambda _: 0, window_bytes=0):
        yield from _ordered(records, order, plan)
        freed += records.nbytes
        del records, order  # not kept while the bucket after the next is read
        if freed >= WINDOW_BYTES:
            give_back_memory()
            freed = 0


def _ordered(records: np.ndarray, order: np.ndarray, plan: ShufflePlan) -> Iterator[Piece]:
    for first in range(0, len(order), plan.piece_rows):
        piece = np.take(records, order[first : first + plan.piece_rows])
        yield (
            piece["values"],
            piece["weight"] if plan.weighted else None,
            piece["row"] if plan.indexed else None,
        )


def _load(dataset: Dataset, callbacks: Sequence[Callback]) -> tuple[Take, np.ndarray | None, int]:
    """Return what gives rows by index, all weights, and the bytes read."""
    weighted = dataset.weights is not None
    if dataset.in_memory:
        return dataset.take, np.asarray(dataset.weights) if weighted else None, 0
    rows = np.empty((dataset.n_rows, dataset.n_features), dataset.dtype)
    weights = np.empty(dataset.n_rows) if weighted else None
    with one_pass("shuffle (read)", dataset.n_rows, callbacks) as running:
        for chunk in dataset.chunks(dataset.partitions, on_read=running.read):
            rows[chunk.start : chunk.stop] = chunk.rows
            if weights is not None:
                weights[chunk.start : chunk.stop] = chunk.weights
            running.advance(chunk.n_rows)
    return lambda wanted: np.take(rows, wanted, axis=0), weights, running.bytes_read


def _reorder(
    take: Take, weights: np.ndarray | None, plan: ShufflePlan, key: Key
) -> Iterator[Piece]:
    order = np.argsort(key.words(0, plan.n_rows), kind="stable")
    for first in range(0, plan.n_rows, plan.piece_rows):
        rows = order[first : first + plan.piece_rows]
        yield take(rows), None if weights is None else weights[rows], rows


class _Running:
    """The pass that is under way."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self.bytes_read = 0

    def read(self, count: int) -> None:
        self.bytes_read += count

    def advance(self, n_rows: int) -> None:
        publish(self._callbacks, PassProgress(n_rows))


@contextmanager
def one_pass(name: str, n_rows: int, callbacks: Sequence[Callback]) -> Iterator[_Running]:
    """Tell callbacks of the pass that is made within the block."""
    started = time.monotonic()
    running = _Running(callbacks)
    publish(callbacks, PassStarted(name, n_rows))
    yield running
    publish(callbacks, PassEnded(name, time.monotonic() - started, running.bytes_read))


@dataclass(frozen=True)
class _Order:
    """Destinations of rows.

    Attributes
    ----------
    rows : ndarray of shape (n,), int64
        Source row of every output row.
    edges : ndarray of shape (b + 1,)
        The output rows of each bucket.
    bucket : ndarray of shape (n,)
        The bucket of every source row.
    """

    rows: np.ndarray
    edges: np.ndarray
    bucket: np.ndarray

    @classmethod
    def of(cls, dataset: SparseDataset, plan: SparseShufflePlan, key: Key) -> _Order:
        """Order rows by key; cut buckets such that their bytes are about the same."""
        rows = np.argsort(key.words(0, plan.n_rows), kind="stable")
        ends = np.cumsum(np.diff(dataset.indptr)[rows] + 1)  # a row without values counts as well
        wanted = np.arange(1, plan.n_buckets) * (int(ends[-1]) / plan.n_buckets)
        edges = np.concatenate([[0], np.searchsorted(ends, wanted), [plan.n_rows]])
        bucket = np.empty(plan.n_rows, np.min_scalar_type(plan.n_buckets - 1))
        bucket[rows] = np.repeat(np.arange(plan.n_buckets), np.diff(edges))
        return cls(rows, edges, bucket)


class _SparseShuffle:
    """One shuffle under way: what is known of rows as they are read."""

    def __init__(self, dataset: SparseDataset, plan: SparseShufflePlan) -> None:
        self._dataset, self._plan = dataset, plan
        # Of rows in canonical form: values of a column that is there twice have been added up.
        self._counts = np.empty(plan.n_rows, np.int64)
        self._weights = np.empty(plan.n_rows) if plan.weighted else None

    def scatter(
        self, order: _Order, buckets: Buckets, on_read: Callable[[int], None]
    ) -> Iterator[int]:
        """Put the values of all rows into their buckets; yield how many rows are done at a time."""
        for chunk in self._dataset.chunks(self._dataset.partitions, on_read=on_read):
            for first, last in chunk.rows.cuts(READ_BYTES):
                part = chunk.slice(first, last)
                self._note(part)
                rows: SparseRows = part.rows
                counts = self._counts[part.start : part.stop]
                buckets.append(
                    self._records(rows), np.repeat(order.bucket[part.start : part.stop], counts)
                )
                yield part.n_rows
        buckets.flush()

    def gather(self, order: _Order, buckets: Buckets) -> Iterator[Piece]:
        """Yield the rows of bucket after bucket in order; the next bucket is read ahead."""

        def load(bucket: int) -> tuple[SparseRows, np.ndarray, np.ndarray]:
            wanted = order.rows[order.edges[bucket] : order.edges[bucket + 1]]
            stored = np.sort(wanted)  # a bucket has its rows in the order of the source
            records = buckets.load(bucket)
            indptr = np.concatenate([[0], np.cumsum(self._counts[stored])])
            rows = SparseRows(records["value"], records["column"], indptr, self._plan.n_features)
            return rows, stored, wanted

        # A window of no bytes: the next bucket only.
        numbers = range(self._plan.n_buckets)
        for rows, stored, wanted in read_ahead(numbers, load, lambda _: 0, window_bytes=0):
            for part in self._parts(wanted):
                yield self._piece(rows[np.searchsorted(stored, part)], part)
            del rows
            give_back_memory()

    def load(self, on_read: Callable[[int], None]) -> Iterator[int]:
        """Read all rows; see `reorder`."""
        n_entries = self._plan.n_entries
        data, columns = np.empty(n_entries, self._plan.dtype), np.empty(n_entries, np.int32)
        filled = 0
        for chunk in self._dataset.chunks(self._dataset.partitions, on_read=on_read):
            self._note(chunk)
            last = filled + len(chunk.rows.data)
            data[filled:last], columns[filled:last] = chunk.rows.data, chunk.rows.indices
            filled = last
            yield chunk.n_rows
        indptr = np.concatenate([[0], np.cumsum(self._counts)])
        self._rows = SparseRows(data[:filled], columns[:filled], indptr, self._plan.n_features)

    def reorder(self, order: np.ndarray) -> Iterator[Piece]:
        """Yield the rows that `load` has read, in order."""
        for part in self._parts(order):
            yield self._piece(self._rows[part], part)

    def _note(self, chunk: Chunk) -> None:
        self._counts[chunk.start : chunk.stop] = np.diff(chunk.rows.indptr)
        if self._weights is not None:
            self._weights[chunk.start : chunk.stop] = chunk.weights

    def _records(self, rows: SparseRows) -> np.ndarray:
        records = np.empty(len(rows.data), self._plan.record)
        records["column"], records["value"] = rows.indices, rows.data
        return records

    def _parts(self, order: np.ndarray) -> Iterator[np.ndarray]:
        step = self._plan.piece_rows
        return (order[first : first + step] for first in range(0, len(order), step))

    def _piece(self, rows: SparseRows, numbers: np.ndarray) -> Piece:
        return rows, None if self._weights is None else self._weights[numbers], numbers


def run_sparse_shuffle(
    dataset: SparseDataset,
    plan: SparseShufflePlan,
    key: Key,
    outputs: ShuffleOutputs,
    callbacks: Sequence[Callback],
) -> int:
    """Write the rows of `dataset` to `outputs` in the order of `key`; return the bytes read."""
    shuffle = _SparseShuffle(dataset, plan)
    if not plan.n_buckets:
        with one_pass("shuffle (read)", plan.n_rows, callbacks) as reading:
            for n_rows in shuffle.load(reading.read):
                reading.advance(n_rows)
        order = np.argsort(key.words(0, plan.n_rows), kind="stable")
        with one_pass("shuffle (write)", plan.n_rows, callbacks) as writing:
            outputs.write(shuffle.reorder(order), writing.advance)
        return reading.bytes_read
    places = _Order.of(dataset, plan, key)
    sizes = {"n_buckets": plan.n_buckets, "block_rows": plan.block_rows}
    with Buckets(plan.record, **sizes, folder=str(plan.scratch)) as buckets:
        with one_pass("shuffle (scatter)", plan.n_rows, callbacks) as reading:
            for n_rows in shuffle.scatter(places, buckets, reading.read):
                reading.advance(n_rows)
        give_back_memory()
        with one_pass("shuffle (write)", plan.n_rows, callbacks) as writing:
            writing.bytes_read = plan.bytes_scratch
            outputs.write(shuffle.gather(places, buckets), writing.advance)
    return reading.bytes_read
