"""The passes of a shuffle: scatter to buckets and gather from them, or reorder in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.buckets import Buckets
from daskcluster.data.readahead import WINDOW_BYTES, read_ahead
from daskcluster.data.shuffle_outputs import Piece, ShuffleOutputs
from daskcluster.data.shuffle_plan import ShufflePlan
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.host import give_back_memory
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

Take = Callable[[np.ndarray], np.ndarray]


def carry_out(
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
    begun = time.monotonic()
    running = _Running(callbacks)
    publish(callbacks, PassStarted(name, n_rows))
    yield running
    publish(callbacks, PassEnded(name, time.monotonic() - begun, running.bytes_read))
