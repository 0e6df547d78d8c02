"""The plan of a shuffle: bytes read, held and written, from metadata alone."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.csr import csr_of
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.readahead import WINDOW_BYTES
from daskcluster.data.writer import (
    RowsShape,
    check_chunking,
    good_chunk_rows,
    refuse_row_chunks,
)
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


def record_dtype(shape: RowsShape, *, weighted: bool, indexed: bool) -> np.dtype[Any]:
    """Return the dtype of a row on scratch: its key, its source row and weight if wanted, its values.

    A CSR row has the number of its values, which are elsewhere.

    Examples
    --------
    >>> record = record_dtype(RowsShape(9, 3, np.dtype("f4")), weighted=False, indexed=True)
    >>> record.names, record.itemsize
    (('key', 'row', 'values'), 28)
    """
    fields: list[Any] = [("key", np.uint64)]
    if indexed:
        fields.append(("row", np.int64))
    if weighted:
        fields.append(("weight", np.float64))
    values: Any = ("values", shape.dtype.newbyteorder("="), (shape.n_features,))
    return np.dtype([*fields, values if shape.n_entries is None else ("count", np.int64)])


@dataclass(frozen=True)
class ShufflePlan:
    """Plan of a shuffle. The permutation does not depend on it.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : str
    n_entries : int or None
        The stored values of CSR rows; None for dense rows.
    weighted, indexed : bool
        Whether weights are written, and whether the permutation is.
    chunk_rows : int
        Rows of a chunk of the output; on average for CSR rows, whose chunks are cut by values.
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
    n_entries: int | None
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

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        found = {"passes": self.passes, **vars(self)}
        if self.n_entries is None:
            del found["n_entries"]
        return found

    @property
    def shape(self) -> RowsShape:
        return RowsShape(self.n_rows, self.n_features, np.dtype(self.dtype), self.n_entries)

    @property
    def record(self) -> np.dtype[Any]:
        """Dtype of a row on scratch."""
        return record_dtype(self.shape, weighted=self.weighted, indexed=self.indexed)

    @property
    def entry(self) -> np.dtype[Any]:
        """Dtype of a stored value of a CSR row on scratch."""
        return np.dtype([("column", INDEX_DTYPE), ("value", np.dtype(self.dtype))])


def plan_shuffle(
    dataset: Dataset,
    *,
    indexed: bool,
    chunk_rows: int | None,
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
    chunk_rows, shard_rows : int or None
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
    n, weighted = dataset.n_rows, dataset.weights is not None
    shape = RowsShape.of(dataset)
    head = record_dtype(shape, weighted=weighted, indexed=indexed).itemsize
    others = 8 * weighted + 8 * indexed
    if (csr := csr_of(dataset)) is not None:
        refuse_row_chunks(chunk_rows, shard_rows)
        entry = dataset.dtype.itemsize + INDEX_DTYPE.itemsize
        values = csr.n_entries * entry
        read, written = dataset.bytes_of((0, n)), values + 8 * (n + 1) + n * others
        row, longest = -(-values // n), head + csr.most_entries * entry
        on_disk, held = n * head + values, 2 * row  # what was read, and all of it joined
        chunk = shape.entries_per_chunk
        chunk_rows = max(1, min(n, chunk * n // max(1, csr.n_entries)))
        block_bytes = chunk * entry
    else:
        row = held = shape.n_features * shape.dtype.itemsize
        read, written, longest, on_disk = n * row, n * (row + others), head, n * head
        chunk_rows = good_chunk_rows(row, n) if chunk_rows is None else chunk_rows
        check_chunking(chunk_rows, shard_rows)
        block_bytes = (shard_rows or chunk_rows) * (row + others)
    record = max(1, on_disk // n)
    limit = host_memory() // DEFAULT_SHARE if memory_limit is None else memory_limit
    facts: dict[str, Any] = {
        "n_rows": n,
        "n_features": dataset.n_features,
        "dtype": str(dataset.dtype.newbyteorder("=")),
        "n_entries": shape.n_entries,
        "weighted": weighted,
        "indexed": indexed,
        "chunk_rows": chunk_rows,
        "shard_rows": shard_rows,
        "piece_rows": max(1, READ_BYTES // record),
        "bytes_read": 0
        if dataset.in_memory
        else read + n * getattr(dataset.weights, "stored_bytes", 0),
        "bytes_written": written,
        "memory_limit": limit,
    }
    base = LIBRARIES_BYTES + reading_bytes(dataset, row)
    base += 3 * max(READ_BYTES, longest)  # rows on their way to a bucket or out of one
    base += _BLOCKS_WRITING * block_bytes
    in_memory = (0 if dataset.in_memory else held) + 8 * weighted + _RANK_BYTES + _SORT_BYTES
    if base + n * in_memory <= limit:
        nothing: dict[str, Any] = {"n_buckets": 0, "block_rows": 0, "bytes_scratch": 0}
        nothing |= {"scratch": None, "scratch_free": None}
        return ShufflePlan(**facts, **nothing, memory=base + n * in_memory)
    n_buckets, block_rows, needed = _cut(n, record, longest, base, limit)
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


def _cut(n_rows: int, record: int, longest: int, base: int, limit: int) -> tuple[int, int, int]:
    """Return how many buckets, rows of a block, and the bytes of the larger pass.

    Rows take `record` bytes on average, and `longest` at most.
    """
    loaded = _LOADED * (record + _RANK_BYTES) + _SORT_BYTES

    def most_bytes(n_buckets: int) -> float:
        # Eight standard deviations above the mean; those of the bytes of rows are at most the root of
        # `record` times `longest`.
        mean = n_rows / n_buckets
        rows = mean + 8 * math.sqrt(mean * longest / record)
        return rows * loaded + _LOADED * (longest - record)

    # Buckets of r rows need r * loaded bytes, a block for each of n / r buckets n / r * block: neither
    # exceeds the root of n * loaded * block. Twice that, since the sizes of buckets vary; those of
    # buckets of a few rows vary too much.
    block = max(record, LEAST_BLOCK_BYTES)
    least = max(2 * math.isqrt(n_rows * loaded * block), most_bytes(n_rows), 64 * loaded, 2 * block)
    if base + least > limit:
        raise MemoryLimitError(
            f"Shuffling {n_rows} rows in two passes needs {format_bytes(int(base + least))}, but "
            f"memory_limit={format_bytes(limit)}: {format_bytes(base)} for libraries, blocks read ahead "
            f"and blocks being written, {format_bytes(int(least))} for buckets; raise the limit, or write "
            "dense rows in smaller chunks with chunk_rows or shard_rows."
        )
    room = limit - base
    # As many as the memory asks for; more, if that costs no larger blocks: small buckets overlap better.
    pleasant = min(n_rows * record // _GOOD_BUCKET_BYTES, room // MOST_BLOCK_BYTES)
    n_buckets = max(2, pleasant, -(-n_rows * loaded // room))
    while n_buckets < min(n_rows, room // block) and most_bytes(n_buckets) > room:
        n_buckets += 1 + n_buckets // 16
    block_rows = max(1, min(room // n_buckets, MOST_BLOCK_BYTES) // record)
    filled = n_buckets * block_rows * record
    return n_buckets, block_rows, max(filled, int(most_bytes(n_buckets)))


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
