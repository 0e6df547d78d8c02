"""The passes of a shuffle of sparse rows: the same permutation as that of dense rows, in CSR form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.buckets import Buckets
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.readahead import read_ahead
from daskcluster.data.shuffle_outputs import Piece, ShuffleOutputs
from daskcluster.data.shuffle_passes import one_pass
from daskcluster.data.shuffle_sparse_plan import SparseShufflePlan
from daskcluster.data.sparse import SparseDataset
from daskcluster.events import Callback
from daskcluster.host import give_back_memory
from daskcluster.randomness import Key
from daskcluster.sparse_rows import SparseRows


@dataclass(frozen=True)
class _Order:
    """Where rows go.

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


def carry_out_sparse(
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
