"""The passes of a shuffle, dense or CSR: scatter rows to buckets and gather them, or reorder in memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.buckets import Buckets, bucket_of
from daskcluster.data.memory import MemoryDataset
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.readahead import WINDOW_BYTES, read_ahead
from daskcluster.data.shuffle_plan import ShufflePlan
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.host import give_back_memory
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows, join_rows
from daskcluster.typing import Dataset, Range

Piece = tuple[Rows, np.ndarray | None, np.ndarray | None]
"""Rows (m, d), dense or CSR, their weights (m,) and their source rows (m,), in the order of the output."""


def shuffled_rows(
    dataset: Dataset,
    plan: ShufflePlan,
    key: Key,
    callbacks: Sequence[Callback],
    stack: ExitStack,
) -> tuple[Iterator[Piece], int]:
    """Read the rows of `dataset`; return what yields them in the order of `key`, and the bytes read.

    Scratch files are closed by `stack`.
    """
    if not plan.n_buckets:
        rows, weights, bytes_read = _load(dataset, plan, callbacks)
        return _reordered(rows, weights, plan, key), bytes_read

    def buckets(record: np.dtype[Any], rows: int) -> Buckets:
        folder, n_buckets = str(plan.scratch), plan.n_buckets
        return stack.enter_context(
            Buckets(record, n_buckets=n_buckets, block_rows=rows, folder=folder)
        )

    records, entries = buckets(plan.record, plan.block_rows), None
    if plan.n_entries is not None:
        entries = buckets(plan.entry, max(1, plan.block_rows * plan.n_entries // plan.n_rows))
    with one_pass("shuffle (scatter)", plan.n_rows, callbacks) as running:
        for chunk in dataset.chunks(dataset.partitions, on_read=running.read):
            for part in _parts(chunk, plan):
                _scatter(part, plan, key, records, entries)
                running.advance(part.n_rows)
        records.flush()
        if entries is not None:
            entries.flush()
    give_back_memory()
    return _gather(plan, records, entries), running.bytes_read


def _reordered(
    rows: Rows, weights: np.ndarray | None, plan: ShufflePlan, key: Key
) -> Iterator[Piece]:
    order = np.argsort(key.words(0, plan.n_rows), kind="stable")
    for first in range(0, plan.n_rows, plan.piece_rows):
        part = order[first : first + plan.piece_rows]
        found = rows[part] if isinstance(rows, SparseRows) else np.take(rows, part, axis=0)
        yield found, None if weights is None else weights[part], part


def _parts(chunk: Chunk, plan: ShufflePlan) -> Iterator[Chunk]:
    step = plan.piece_rows
    cuts: Iterable[Range] = ((at, at + step) for at in range(0, chunk.n_rows, step))
    if isinstance(chunk.rows, SparseRows):
        cuts = chunk.rows.cuts(READ_BYTES)
    for first, last in cuts:
        yield chunk.slice(first, min(last, chunk.n_rows))


def _scatter(
    chunk: Chunk, plan: ShufflePlan, key: Key, records: Buckets, entries: Buckets | None
) -> None:
    found = np.empty(chunk.n_rows, plan.record)
    found["key"] = key.words(chunk.start, chunk.stop)
    if plan.indexed:
        found["row"] = np.arange(chunk.start, chunk.stop)
    if plan.weighted:
        found["weight"] = chunk.weights
    if entries is None:
        found["values"] = chunk.rows
    else:
        # In canonical form: values of a column that is there twice have been added up.
        found["count"] = counts = np.diff(chunk.rows.indptr)
        values = np.empty(len(chunk.rows.data), plan.entry)
        values["column"], values["value"] = chunk.rows.indices, chunk.rows.data
        entries.append(values, np.repeat(bucket_of(found["key"], plan.n_buckets), counts))
    records.append(found)


def _gather(plan: ShufflePlan, records: Buckets, entries: Buckets | None) -> Iterator[Piece]:
    def load(bucket: int) -> tuple[np.ndarray, np.ndarray, SparseRows | None]:
        found, rows = records.load(bucket), None
        if entries is not None:
            values = entries.load(bucket)
            indptr = np.concatenate([[0], np.cumsum(found["count"])])
            rows = SparseRows(values["value"], values["column"], indptr, plan.n_features)
        # Rows of a bucket are in the order of the source, so this one is by key, then by row.
        return found, np.argsort(found["key"], kind="stable"), rows

    freed = 0
    # A window of no bytes: the next bucket only.
    for found, order, rows in read_ahead(range(plan.n_buckets), load, lambda _: 0, window_bytes=0):
        for first in range(0, len(order), plan.piece_rows):
            part = order[first : first + plan.piece_rows]
            piece = np.take(found, part)
            yield (
                piece["values"] if rows is None else rows[part],
                piece["weight"] if plan.weighted else None,
                piece["row"] if plan.indexed else None,
            )
        freed += found.nbytes + (0 if rows is None else rows.nbytes)
        del found, order, rows  # not kept while the bucket after the next is read
        if freed >= WINDOW_BYTES:
            give_back_memory()
            freed = 0


def _load(
    dataset: Dataset, plan: ShufflePlan, callbacks: Sequence[Callback]
) -> tuple[Rows, np.ndarray | None, int]:
    """Return all rows, their weights, and the bytes read."""
    if isinstance(dataset, MemoryDataset):
        return dataset.held, np.asarray(dataset.weights) if plan.weighted else None, 0
    dense = np.empty((plan.n_rows, plan.n_features * (plan.n_entries is None)), dataset.dtype)
    weights, parts = np.empty(plan.n_rows * plan.weighted), []
    with one_pass("shuffle (read)", plan.n_rows, callbacks) as running:
        for chunk in dataset.chunks(dataset.partitions, on_read=running.read):
            if plan.n_entries is None:
                dense[chunk.start : chunk.stop] = chunk.rows
            else:
                parts.append(chunk.rows)
            if plan.weighted:
                weights[chunk.start : chunk.stop] = chunk.weights
            running.advance(chunk.n_rows)
    rows = join_rows(parts) if parts else dense
    return rows, weights if plan.weighted else None, running.bytes_read


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
