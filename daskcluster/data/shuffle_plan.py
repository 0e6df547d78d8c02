"""The plan of a shuffle: bytes read, held and written, from metadata alone."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.buckets import record_dtype
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.readahead import WINDOW_BYTES
from daskcluster.data.sparse import SparseDataset
from daskcluster.data.sparse_zarr import CsrLayout, entries_per_chunk
from daskcluster.data.writer import good_chunk_rows
from daskcluster.errors import DatasetNotFoundError, DiskSpaceError, MemoryLimitError
from daskcluster.host import format_bytes, host_memory
from daskcluster.sparse_rows import INDEX_DTYPE
from daskcluster.storage.location import Location
from daskcluster.typing import Dataset

LIBRARIES_BYTES = 170 * 1024**2
"""Resident size of a process that has imported what a shuffle may need: zarr, dask.array, s3fs."""
DEFAULT_SHARE = 4
"""Without a limit, a quarter of the host's memory."""

_LOADED = 2
"""Buckets in memory: the one that is written, and the next one, read ahead."""
_RANK_BYTES = 8
"""Per row of a bucket in memory: its order."""
_SORT_BYTES = 16
"""Per row while one bucket is sorted: its keys, and what the sort needs."""
_BLOCKS_WRITING = 5
"""Output blocks: one that fills, two that wait or are written, two being encoded."""
_GOOD_BUCKET_BYTES = 256 << 20
MOST_BLOCK_BYTES = 4 << 20
LEAST_BLOCK_BYTES = 4096
"""A smaller block costs a disk as much: below this the memory is too small for two passes."""


@dataclass(frozen=True)
class ShufflePlan:
    """Plan of a shuffle. The permutation does not depend on it.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : str
    weighted, indexed : bool
        Whether weights are written, and whether the permutation is.
    chunk_rows : int
    shard_rows : int or None
    n_buckets : int
        0: the rows are shuffled in memory, in one pass.
    piece_rows : int
        Rows that are scattered, or gathered, at once.
    block_rows : int
        Rows of a bucket that are written to scratch at once.
    scratch : str or None
        Folder of the scratch files; None if there are none.
    scratch_free : int or None
    bytes_read, bytes_scratch, bytes_written : int
        Decoded bytes of the source, bytes on scratch at most (written once, read once), decoded bytes
        of the outputs.
    memory, memory_limit : int
        Projected peak, and what is allowed.
    """

    n_rows: int
    n_features: int
    dtype: str
    weighted: bool
    indexed: bool
    chunk_rows: int
    shard_rows: int | None
    n_buckets: int
    piece_rows: int
    block_rows: int
    scratch: str | None
    scratch_free: int | None
    bytes_read: int
    bytes_scratch: int
    bytes_written: int
    memory: int
    memory_limit: int

    @property
    def passes(self) -> int:
        """Number of times that rows are read: from the source, and from scratch files if they are used."""
        return 2 if self.n_buckets else 1

    @property
    def vector_chunk_rows(self) -> int:
        """Rows of a chunk of the weights, and of the index."""
        return self.chunk_rows

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return {"passes": self.passes, **vars(self)}

    @property
    def record(self) -> np.dtype[Any]:
        """Dtype of a row on scratch."""
        return record_dtype(
            np.dtype(self.dtype), self.n_features, weighted=self.weighted, indexed=self.indexed
        )


IN_MEMORY: dict[str, Any] = {
    "n_buckets": 0,
    "block_rows": 0,
    "scratch": None,
    "scratch_free": None,
    "bytes_scratch": 0,
}


def plan_shuffle(
    dataset: Dataset,
    *,
    indexed: bool,
    chunk_rows: int,
    shard_rows: int | None,
    memory_limit: int | None,
    scratch: str,
) -> ShufflePlan:
    """Decide between memory and disk, and cut the buckets.

    Parameters
    ----------
    dataset : Dataset
    indexed : bool
        The permutation is written too.
    chunk_rows, shard_rows : int
        Of the outputs.
    memory_limit : int or None
        Bytes of the whole process, rows that are in memory already left out.
    scratch : str
        Folder, there or not yet, see `scratch_folder`.

    Raises
    ------
    MemoryLimitError
        Not even small buckets fit.
    DiskSpaceError
        The scratch folder has too little room.
    """
    weighted = dataset.weights is not None
    row = dataset.n_features * dataset.dtype.itemsize
    written = row + 8 * weighted + 8 * indexed
    record = record_dtype(
        dataset.dtype, dataset.n_features, weighted=weighted, indexed=indexed
    ).itemsize
    stored = row + getattr(dataset.weights, "stored_bytes", 0)
    limit = host_memory() // DEFAULT_SHARE if memory_limit is None else memory_limit
    facts: dict[str, Any] = {
        "n_rows": dataset.n_rows,
        "n_features": dataset.n_features,
        "dtype": str(dataset.dtype.newbyteorder("=")),
        "weighted": weighted,
        "indexed": indexed,
        "chunk_rows": chunk_rows,
        "shard_rows": shard_rows,
        "piece_rows": max(1, READ_BYTES // record),
        "bytes_read": 0 if dataset.in_memory else dataset.n_rows * stored,
        "bytes_written": dataset.n_rows * written,
        "memory_limit": limit,
    }
    base = LIBRARIES_BYTES + reading_bytes(dataset, row)
    base += 3 * max(READ_BYTES, record)  # rows on their way to a bucket or out of one
    base += _BLOCKS_WRITING * (shard_rows or chunk_rows) * written
    held = (0 if dataset.in_memory else row) + 8 * weighted + _RANK_BYTES + _SORT_BYTES
    if base + dataset.n_rows * held <= limit:
        return ShufflePlan(**facts, **IN_MEMORY, memory=base + dataset.n_rows * held)
    n_buckets, block_rows, needed = _cut(dataset.n_rows, record, base, limit)
    on_disk = dataset.n_rows * record
    return ShufflePlan(
        **facts,
        n_buckets=n_buckets,
        block_rows=block_rows,
        scratch=scratch,
        scratch_free=check_scratch(scratch, on_disk),
        bytes_scratch=on_disk,
        memory=base + needed,
    )


def reading_bytes(dataset: Dataset, row: int) -> int:
    """Return the bytes that reading ahead takes, where a row has `row` bytes."""
    if dataset.in_memory:
        return 0
    largest = max(READ_BYTES, max(dataset.chunk_sizes) * row)
    # Each reader decodes into a second buffer; the caller holds one block.
    own = (1 + getattr(dataset, "n_readers", 1)) * largest
    return max(WINDOW_BYTES + largest, 2 * largest) + own


def _cut(n_rows: int, record: int, base: int, limit: int) -> tuple[int, int, int]:
    """Return how many buckets, rows of a block, and the bytes of the larger pass."""
    loaded = _LOADED * (record + _RANK_BYTES) + _SORT_BYTES
    # Buckets of r rows need r * loaded bytes, a block for each of n / r buckets n / r * block: neither
    # exceeds the root of n * loaded * block. Twice that, since the sizes of buckets vary; those of
    # buckets of a few rows vary too much.
    block = max(record, LEAST_BLOCK_BYTES)
    least = max(2 * math.isqrt(n_rows * loaded * block), 64 * loaded, 2 * block)
    if base + least > limit:
        raise MemoryLimitError(
            f"Shuffling {n_rows} rows in two passes needs {format_bytes(base + least)}, but memory_limit="
            f"{format_bytes(limit)}: {format_bytes(base)} for libraries, blocks read ahead and blocks "
            f"being written, {format_bytes(least)} for buckets; raise the limit, or write smaller chunks "
            "with chunk_rows or shard_rows."
        )
    room = limit - base
    # As many as the memory asks for; more, if that costs no larger blocks: small buckets overlap better.
    pleasant = min(n_rows * record // _GOOD_BUCKET_BYTES, room // MOST_BLOCK_BYTES)
    n_buckets = max(2, pleasant, -(-n_rows * loaded // room))
    while n_buckets < n_rows and _most_rows(n_rows, n_buckets) * loaded > room:
        n_buckets += 1 + n_buckets // 16
    block_rows = max(1, min(room // n_buckets, MOST_BLOCK_BYTES) // record)
    filled = n_buckets * block_rows * record
    return n_buckets, block_rows, max(filled, int(_most_rows(n_rows, n_buckets) * loaded))


def _most_rows(n_rows: int, n_buckets: int) -> float:
    """Return what a bucket does not exceed: eight standard deviations above the mean."""
    mean = n_rows / n_buckets
    return mean + 8 * math.sqrt(mean)


def scratch_folder(scratch: Any, output: Location) -> str:
    """Return the folder of scratch files: the given one, one next to a local output, or a temporary one.

    Raises
    ------
    DatasetNotFoundError
        `scratch` is not a folder.
    """
    if scratch is None:
        return os.path.dirname(output.url) if output.is_local else tempfile.gettempdir()
    folder = os.path.abspath(os.path.expanduser(os.fspath(scratch)))
    if not os.path.isdir(folder):
        raise DatasetNotFoundError(
            f"The scratch folder {folder!r} does not exist; make it, or name another folder of this host."
        )
    return folder


def check_scratch(folder: str, needed: int) -> int:
    """Return the free bytes of a scratch folder; refuse one that has too few."""
    there = folder
    while not os.path.exists(there):  # the output's folder may be made with it
        there = os.path.dirname(there)
    free = shutil.disk_usage(there).free
    if free < needed:
        raise DiskSpaceError(
            f"Shuffling in two passes needs {format_bytes(needed)} of scratch disk, but {there!r} has "
            f"{format_bytes(free)} free; free some, name a larger disk with scratch=, or raise "
            "memory_limit so that the rows fit."
        )
    return free


_ROW_BYTES = 64
"""Per row: where its values begin, its key while keys are sorted, its place, its bucket, its count."""
_SPARSE_LOADED = 3
"""Buckets in memory: the one that is written, the next one, and rows that are put in order."""


@dataclass(frozen=True)
class SparseShufflePlan(ShufflePlan):
    """Plan of a shuffle of sparse rows.

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
    def rows(self) -> CsrLayout:
        return CsrLayout(self.n_rows, self.n_features, np.dtype(self.dtype), self.n_entries)

    @property
    def vector_chunk_rows(self) -> int:
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
    n_buckets, block, needed = _cut_sparse(n_entries, entry, base, longest, limit)
    return SparseShufflePlan(
        **facts,
        n_buckets=n_buckets,
        block_rows=block,
        scratch=scratch,
        scratch_free=check_scratch(scratch, n_entries * entry),
        bytes_scratch=n_entries * entry,
        memory=base + needed,
    )


def _cut_sparse(
    n_entries: int, entry: int, base: int, longest: int, limit: int
) -> tuple[int, int, int]:
    """Return how many buckets, values of a block, and the bytes of the larger pass."""
    total = n_entries * entry
    # Buckets of s bytes need 3 s, a block for each of total / s buckets total / s * block.
    least = _SPARSE_LOADED * longest + math.isqrt(_SPARSE_LOADED * total * LEAST_BLOCK_BYTES) + 1
    if base + least > limit:
        raise MemoryLimitError(
            f"Shuffling {n_entries} stored values in two passes needs {format_bytes(base + least)}, but "
            f"memory_limit={format_bytes(limit)}: {format_bytes(base)} for libraries, blocks read ahead, "
            f"blocks being written and the order of the rows, {format_bytes(least)} for buckets; raise the "
            "limit."
        )
    room = limit - base
    n_buckets = max(2, -(-_SPARSE_LOADED * total // (room - _SPARSE_LOADED * longest)))
    block_bytes = min(room // n_buckets, MOST_BLOCK_BYTES)
    bucket = -(-total // n_buckets) + longest
    return (
        n_buckets,
        max(1, block_bytes // entry),
        max(n_buckets * block_bytes, _SPARSE_LOADED * bucket),
    )
