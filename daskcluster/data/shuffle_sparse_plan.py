"""What a shuffle of sparse rows will read, hold and write; see `daskcluster.data.shuffle_plan`.

Sparse rows have lengths of their own, which are known before they are read. So buckets are runs of the
output of about equal bytes, and values go to scratch without their row: it follows from their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.shuffle_plan import (
    DEFAULT_SHARE,
    IN_MEMORY,
    LEAST_BLOCK_BYTES,
    LIBRARIES_BYTES,
    MOST_BLOCK_BYTES,
    ShufflePlan,
    check_scratch,
    reading_bytes,
)
from daskcluster.data.sparse import SparseDataset
from daskcluster.data.sparse_write import CsrFacts, entries_per_chunk
from daskcluster.data.writer import good_chunk_rows
from daskcluster.errors import MemoryLimitError
from daskcluster.host import format_bytes, host_memory
from daskcluster.sparse_rows import INDEX_DTYPE

_ROW_BYTES = 64
"""Per row: where its values begin, its key while keys are sorted, its place, its bucket, its count."""
_LOADED = 3
"""Buckets in memory: the one that is written, the next one, and rows that are put in order."""
_BLOCKS_WRITING = 5


@dataclass(frozen=True)
class SparseShufflePlan(ShufflePlan):
    """How sparse rows will be shuffled.

    Attributes
    ----------
    n_entries : int
        Stored values.
    block_rows : int
        Stored values of a bucket (not rows) that are written to scratch at once.
    chunk_rows : int
        Rows that a chunk of the output has on average: it is cut by values.
    """

    n_entries: int

    @property
    def record(self) -> np.dtype[Any]:
        """Dtype of a stored value on scratch."""
        return np.dtype([("column", INDEX_DTYPE), ("value", np.dtype(self.dtype))])

    @property
    def rows(self) -> CsrFacts:
        return CsrFacts(self.n_rows, self.n_features, np.dtype(self.dtype), self.n_entries)

    @property
    def beside_rows(self) -> int:
        return good_chunk_rows(8, self.n_rows)


def plan_sparse_shuffle(
    dataset: SparseDataset, *, indexed: bool, memory_limit: int | None, scratch: str
) -> SparseShufflePlan:
    """Decide between memory and disk, and how many buckets; see `plan_shuffle`.

    Raises
    ------
    MemoryLimitError
        Not even small buckets fit.
    DiskSpaceError
        The scratch folder has too little room.
    """
    n, n_entries = dataset.n_rows, dataset.n_entries
    entry = dataset.dtype.itemsize + INDEX_DTYPE.itemsize
    weighted = dataset.weights is not None
    limit = host_memory() // DEFAULT_SHARE if memory_limit is None else memory_limit
    stored = dataset.bytes_of((0, n)) + n * getattr(dataset.weights, "stored_bytes", 0)
    chunk = entries_per_chunk(dataset)
    facts: dict[str, Any] = {
        "n_rows": n,
        "n_features": dataset.n_features,
        "dtype": str(dataset.dtype.newbyteorder("=")),
        "weighted": weighted,
        "indexed": indexed,
        "chunk_rows": max(1, min(n, chunk * n // max(1, n_entries))),
        "shard_rows": None,
        "piece_rows": max(1, READ_BYTES * n // max(READ_BYTES, n_entries * entry)),
        "bytes_read": 0 if dataset.in_memory else stored,
        "bytes_written": n_entries * entry + 8 * (n + 1) + 8 * n * (weighted + indexed),
        "memory_limit": limit,
        "n_entries": n_entries,
    }
    longest = int(np.diff(dataset.indptr).max(initial=0)) * entry
    base = LIBRARIES_BYTES + reading_bytes(dataset, entry * n_entries // max(1, n))
    base += 3 * max(READ_BYTES, longest) + _BLOCKS_WRITING * chunk * entry
    base += n * (_ROW_BYTES + 8 * weighted)
    held = 0 if dataset.in_memory else 2 * n_entries * entry  # what was read, and all of it joined
    if base + held <= limit:
        return SparseShufflePlan(**facts, **IN_MEMORY, memory=base + held)
    n_buckets, block, needed = _cut(n_entries, entry, base, longest, limit)
    return SparseShufflePlan(
        **facts,
        n_buckets=n_buckets,
        block_rows=block,
        scratch=scratch,
        scratch_free=check_scratch(scratch, n_entries * entry),
        bytes_scratch=n_entries * entry,
        memory=base + needed,
    )


def _cut(n_entries: int, entry: int, base: int, longest: int, limit: int) -> tuple[int, int, int]:
    """Return how many buckets, values of a block, and the bytes of the larger pass."""
    total = n_entries * entry
    # Buckets of s bytes need 3 s, a block for each of total / s buckets total / s * block.
    least = _LOADED * longest + math.isqrt(_LOADED * total * LEAST_BLOCK_BYTES) + 1
    if base + least > limit:
        raise MemoryLimitError(
            f"Shuffling {n_entries} stored values in two passes needs {format_bytes(base + least)}, but "
            f"memory_limit={format_bytes(limit)}: {format_bytes(base)} for libraries, blocks read ahead, "
            f"blocks being written and the order of the rows, {format_bytes(least)} for buckets; raise the "
            "limit."
        )
    room = limit - base
    n_buckets = max(2, -(-_LOADED * total // (room - _LOADED * longest)))
    block_bytes = min(room // n_buckets, MOST_BLOCK_BYTES)
    bucket = -(-total // n_buckets) + longest
    return (
        n_buckets,
        max(1, block_bytes // entry),
        max(n_buckets * block_bytes, _LOADED * bucket),
    )
