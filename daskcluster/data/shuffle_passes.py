"""The plan and the passes of a shuffle: rows go to buckets of neighbouring keys on disk, and back."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
import warnings
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.csr import csr_of
from daskcluster.data.memory import ArrayDataset
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.readahead import WINDOW_BYTES, read_ahead
from daskcluster.data.writer import (
    RowsShape,
    check_chunking,
    good_chunk_rows,
    refuse_row_chunks,
)
from daskcluster.errors import DatasetNotFoundError, DiskSpaceError, MemoryLimitError
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.fingerprint import fingerprint
from daskcluster.host import format_bytes, format_limit, give_back_memory, host_memory
from daskcluster.randomness import Key
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows, join_rows
from daskcluster.storage.checkpoint import CheckpointFolder
from daskcluster.storage.document import Document, read_count
from daskcluster.storage.files import is_full_disk, list_files
from daskcluster.storage.location import Location, locate
from daskcluster.storage.pass_totals import Pace
from daskcluster.storage.staging import claimed
from daskcluster.typing import Dataset, Range

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
    scratch: str,
    chunk_rows: int | None = None,
    shard_rows: int | None = None,
    memory_limit: int | None = None,
    there: int = 0,
) -> ShufflePlan:
    """Decide between memory and disk, and cut the buckets.

    Parameters
    ----------
    dataset : Dataset
    indexed : bool
        The permutation is written too.
    scratch : str
        Folder, there or not yet, see `scratch_folder`.
    chunk_rows, shard_rows : int, optional
        Rows of chunks and shards of the outputs.
    memory_limit : int, optional
        Bytes of the whole process, rows that are in memory already left out.
    there : int
        Bytes that an earlier process has left on scratch.

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
        scratch_free=check_scratch(scratch, max(0, on_disk - there)),
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
            f"memory_limit={format_limit(limit)}: {format_bytes(base)} for libraries, blocks read ahead "
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


_MOST_FILES = 64
"""Open files at most: far below what a process may open, enough to give space back early."""
_HALF = np.uint64(32)


def bucket_of(keys: np.ndarray, n_buckets: int) -> np.ndarray:
    """Return the bucket of each key, (m,): equal ranges of keys, ascending.

    Examples
    --------
    >>> bucket_of(np.array([0, 2**63 - 1, 2**63, 2**64 - 1], np.uint64), 2).tolist()
    [0, 0, 1, 1]
    """
    # Sorting one or two bytes takes a fraction of the time of sorting eight.
    return (((keys >> _HALF) * np.uint64(n_buckets)) >> _HALF).astype(
        np.min_scalar_type(n_buckets - 1)
    )


class Buckets:
    """Records of rows, appended in any order of keys, read back by ranges of keys.

    Use as a context manager. Within a bucket records keep the order in which they were appended. Files have
    no names, so that they go with the process, unless they are `kept`.

    Parameters
    ----------
    record : dtype
        See `record_dtype`.
    n_buckets : int
        Fewer than 2^32.
    block_rows : int
        Records of a bucket that are written at once.
    folder : str
        Where the scratch files are.
    kept : str, optional
        Beginning of the names that the files have in `folder`; see `ScatteredRows`.

    Attributes
    ----------
    counts : ndarray of int64, shape (n_buckets,)
        Records of each bucket.

    Notes
    -----
    Cost: ``n_buckets * block_rows`` records of memory until `flush`; every record is written once and
    read once.

    Examples
    --------
    >>> from daskcluster.data.shuffle_passes import record_dtype
    >>> from daskcluster.data.writer import RowsShape
    >>> record = record_dtype(RowsShape(3, 1, np.dtype("i4")), weighted=False, indexed=False)
    >>> records = np.array([(2**63, [0]), (5, [1]), (9, [2])], record)
    >>> with Buckets(record, n_buckets=2, block_rows=10, folder=tempfile.gettempdir()) as buckets:
    ...     buckets.append(records)
    ...     buckets.flush()
    ...     [buckets.load(i)["values"].ravel().tolist() for i in range(2)]
    [[1, 2], [0]]
    """

    def __init__(
        self,
        record: np.dtype[Any],
        *,
        n_buckets: int,
        block_rows: int,
        folder: str,
        kept: str = "",
    ) -> None:
        self._record = record
        self._folder = folder
        self._kept = kept
        self._pending = np.empty((n_buckets, block_rows), record)
        self._filled = [0] * n_buckets
        self.counts = np.zeros(n_buckets, np.int64)
        self._offsets = [array("Q") for _ in range(n_buckets)]
        self._lengths = [array("Q") for _ in range(n_buckets)]
        n_files = min(n_buckets, _MOST_FILES)
        # Neighbours share a file, so that it can go as soon as they have been read.
        self._home = [bucket * n_files // n_buckets for bucket in range(n_buckets)]
        self._unread = np.bincount(self._home)
        self._files: list[Any] = []
        self._opened = ExitStack()
        self._n_files = n_files

    def append(self, records: np.ndarray, buckets: np.ndarray | None = None) -> None:
        """Scatter records (m,) to their buckets.

        Parameters
        ----------
        records : ndarray of shape (m,)
        buckets : ndarray of shape (m,), optional
            The bucket of each; by default, that of its ``key``.

        Raises
        ------
        DiskSpaceError
            The scratch disk is full.
        """
        if buckets is None:
            buckets = bucket_of(records["key"], len(self._filled))
        order = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=len(self._filled))
        stops = np.cumsum(counts)
        self.counts += counts
        for bucket in np.flatnonzero(counts).tolist():
            stop = stops[bucket]
            self._hold(bucket, records, order[stop - counts[bucket] : stop])

    def _hold(self, bucket: int, records: np.ndarray, rows: np.ndarray) -> None:
        pending = self._pending[bucket]
        while len(rows):
            filled = self._filled[bucket]
            taken = rows[: len(pending) - filled]
            # Clipping does nothing here but spare numpy a buffer.
            np.take(records, taken, out=pending[filled : filled + len(taken)], mode="clip")
            self._filled[bucket] = filled + len(taken)
            rows = rows[len(taken) :]
            if self._filled[bucket] == len(pending):
                self._write(bucket)

    def _write(self, bucket: int) -> None:
        file = self._files[self._home[bucket]]
        block = self._pending[bucket, : self._filled[bucket]]
        self._offsets[bucket].append(file.tell())
        self._lengths[bucket].append(len(block))
        content = block.view(np.uint8).data
        try:
            while content:
                content = content[file.write(content) :]
        except OSError as error:
            if not is_full_disk(error):
                raise
            raise DiskSpaceError(
                f"The scratch folder {self._folder!r} ran full after {int(self.counts.sum())} records "
                f"({error.strerror}); free some space there, raise the limit on the size of a file (ulimit "
                "-f), or name another folder with scratch=."
            ) from error
        self._filled[bucket] = 0

    def flush(self) -> None:
        """Write what is held and free the memory: nothing can be appended any more."""
        self._write_all()
        self._pending = np.empty((0, 0), self._record)

    def _write_all(self) -> None:
        for bucket, filled in enumerate(self._filled):
            if filled:
                self._write(bucket)

    def sync(self) -> tuple[np.ndarray, np.ndarray]:
        """Write what is held, survive a power failure, and return where everything is; see `restore`.

        Returns
        -------
        counts : ndarray of shape (n_buckets,), int64
            Blocks of each bucket.
        blocks : ndarray of shape (m, 2), int64
            Offset and number of records of each block, bucket by bucket.
        """
        self._write_all()
        for file in self._files:
            os.fsync(file.fileno())
        counts = np.array([len(each) for each in self._offsets], np.int64)
        parts = [np.concatenate([np.asarray(each) for each in of]) for of in self._blocks()]
        return counts, np.stack(parts, axis=1).astype(np.int64)

    def _blocks(self) -> tuple[list[Any], list[Any]]:
        return self._offsets, self._lengths

    def restore(self, counts: np.ndarray, blocks: np.ndarray) -> bool:
        """Take up the files of an earlier process at its last `sync`; empty ones without any block.

        Returns
        -------
        bool
            False if the files have less.
        """
        ends = np.zeros(self._n_files, np.int64)
        homes = np.repeat(self._home, counts)
        np.maximum.at(ends, homes, blocks[:, 0] + blocks[:, 1] * self._record.itemsize)
        for file, end in zip(self._files, ends.tolist(), strict=True):
            if os.fstat(file.fileno()).st_size < end:
                return False
        for file, end in zip(self._files, ends.tolist(), strict=True):
            file.truncate(end)
            file.seek(end)
        first = 0
        for bucket, count in enumerate(counts.tolist()):
            own = blocks[first : first + count]
            self._offsets[bucket] = array("Q", own[:, 0].tolist())
            self._lengths[bucket] = array("Q", own[:, 1].tolist())
            self.counts[bucket] = own[:, 1].sum()
            first += count
        return True

    def load(self, bucket: int) -> np.ndarray:
        """Return the records of a bucket (counts[bucket],); each bucket can be read once."""
        home = self._home[bucket]
        file = self._files[home]
        records = np.empty(int(self.counts[bucket]), self._record)
        content = records.view(np.uint8).data
        begin = 0
        for offset, length in zip(self._offsets[bucket], self._lengths[bucket], strict=True):
            file.seek(offset)
            end = begin + length * self._record.itemsize
            self._fill(content[begin:end], file)
            begin = end
        self._unread[home] -= 1
        if not self._unread[home]:
            file.close()
        return records

    def _fill(self, content: memoryview, file: Any) -> None:
        while content:
            count = file.readinto(content)
            if not count:
                raise OSError(
                    f"A scratch file in {self._folder!r} ends before its last row; check the disk."
                )
            content = content[count:]

    def __enter__(self) -> Self:
        for number in range(self._n_files):
            self._files.append(self._opened.enter_context(self._open(number)))
        return self

    def _open(self, number: int) -> Any:
        if not self._kept:
            return tempfile.TemporaryFile(dir=self._folder, buffering=0)
        path = os.path.join(self._folder, f"{self._kept}-{number:02d}.records")
        return open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._opened.close()
        self._pending = np.empty((0, 0), self._record)


class ScatteredRows:
    """The rows of a pass that are in buckets already, those of an earlier process included.

    About every minute, what is in the buckets is committed; a later process continues from there.

    Parameters
    ----------
    folder : CheckpointFolder or None
        On a local disk, in the folder of the files; None keeps nothing.
    *buckets : Buckets
        Opened; all that rows are scattered to.

    Attributes
    ----------
    n_rows : int
        Rows that need not be read again.

    Warns
    -----
    RuntimeWarning
        Files of the earlier process are gone.
    """

    def __init__(self, folder: CheckpointFolder | None, *buckets: Buckets) -> None:
        self._folder, self._buckets, self._pace = folder, buckets, Pace()
        self.n_rows = 0
        if folder is None:
            return
        document = folder.latest()
        arrays = {} if document is None else document.arrays
        found = [_restored(each, arrays, number) for number, each in enumerate(buckets)]
        if document is not None and all(found):
            self.n_rows = read_count(document.body, "rows")
        elif document is not None:
            warnings.warn(
                f"Scratch files in {folder.url!r} are gone or too short; the rows are read again.",
                RuntimeWarning,
                stacklevel=3,
            )
            for number, each in enumerate(buckets):
                _restored(each, {}, number)

    def left(self, dataset: Dataset) -> list[Range]:
        """Return the rows that are left, as ranges."""
        done = self.n_rows
        return [(max(done, start), stop) for start, stop in dataset.partitions if stop > done]

    def keep(self, n_rows: int) -> None:
        """Commit that the first `n_rows` rows are in the buckets, if that is due."""
        if self._folder is not None and self._pace.is_due():
            with self._pace.keeping():
                self._commit(n_rows)

    def end(self, n_rows: int) -> None:
        """Write what buckets hold: all rows are there. Nothing can be appended any more."""
        if self._folder is not None and n_rows > self.n_rows:
            self._commit(n_rows)
        for each in self._buckets:
            each.flush()

    def _commit(self, n_rows: int) -> None:
        assert self._folder is not None
        arrays: dict[str, np.ndarray] = {}
        for number, each in enumerate(self._buckets):
            counts, blocks = each.sync()
            if len(blocks):  # a document has no empty arrays
                arrays |= {f"counts_{number}": counts, f"blocks_{number}": blocks}
        self._folder.commit(Document("buckets", {"rows": n_rows}, arrays))


def _restored(buckets: Buckets, arrays: Mapping[str, np.ndarray], number: int) -> bool:
    """Restore buckets from a commit, or empty them."""
    counts = arrays.get(f"counts_{number}", np.zeros(len(buckets.counts), np.int64))
    return buckets.restore(counts, arrays.get(f"blocks_{number}", np.empty((0, 2), np.int64)))


Piece = tuple[Rows, np.ndarray | None, np.ndarray | None]
"""Rows (m, d), dense or CSR, their weights (m,) and their source rows (m,), in the order of the output."""


def shuffled_rows(
    dataset: Dataset,
    plan: ShufflePlan,
    key: Key,
    callbacks: Sequence[Callback],
    stack: ExitStack,
    *,
    done: int = 0,
    kept: CheckpointFolder | None = None,
) -> tuple[Iterator[Piece], int]:
    """Read the rows of `dataset`; return what yields them in the order of `key`, and the bytes read.

    Scratch files are closed by `stack`.

    Parameters
    ----------
    dataset, plan, key, callbacks, stack
    done : int
        Rows of the order to leave out, at its beginning.
    kept : CheckpointFolder, optional
        Folder in which scratch files stay for a later process, and from which those of an earlier one are
        taken up.
    """
    if done == plan.n_rows:
        return iter(()), 0
    if not plan.n_buckets:
        rows, weights, bytes_read = _load(dataset, plan, callbacks)
        return _reordered(rows, weights, plan, key, done), bytes_read

    def buckets(name: str, record: np.dtype[Any], rows: int) -> Buckets:
        folder, n_buckets = str(plan.scratch), plan.n_buckets
        kept_as = ""
        if kept is not None:
            folder, kept_as = kept.url, name
        opened = Buckets(record, n_buckets=n_buckets, block_rows=rows, folder=folder, kept=kept_as)
        return stack.enter_context(opened)

    records, entries = buckets("rows", plan.record, plan.block_rows), None
    if plan.n_entries is not None:
        held = max(1, plan.block_rows * plan.n_entries // plan.n_rows)
        entries = buckets("entries", plan.entry, held)
    scattered = ScatteredRows(kept, *filter(None, (records, entries)))
    with one_pass("shuffle (scatter)", plan.n_rows, callbacks) as running:
        running.advance(scattered.n_rows)
        for chunk in dataset.chunks(scattered.left(dataset), on_read=running.read):
            for part in chunk.split(plan.piece_rows, READ_BYTES):
                _scatter(part, plan, key, records, entries)
                running.advance(part.n_rows)
                scattered.keep(part.stop)
        scattered.end(plan.n_rows)
    give_back_memory()
    return _gather(plan, records, entries, done), running.bytes_read


def _reordered(
    rows: Rows, weights: np.ndarray | None, plan: ShufflePlan, key: Key, done: int
) -> Iterator[Piece]:
    order = np.argsort(key.words(0, plan.n_rows), kind="stable")
    for first in range(done, plan.n_rows, plan.piece_rows):
        part = order[first : first + plan.piece_rows]
        found = rows[part] if isinstance(rows, SparseRows) else np.take(rows, part, axis=0)
        yield found, None if weights is None else weights[part], part


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


def _gather(
    plan: ShufflePlan, records: Buckets, entries: Buckets | None, done: int
) -> Iterator[Piece]:
    def load(bucket: int) -> tuple[np.ndarray, np.ndarray, SparseRows | None]:
        found, rows = records.load(bucket), None
        if entries is not None:
            values = entries.load(bucket)
            indptr = np.concatenate([[0], np.cumsum(found["count"])])
            rows = SparseRows(values["value"], values["column"], indptr, plan.n_features)
        # Rows of a bucket are in the order of the source, so this one is by key, then by row.
        return found, np.argsort(found["key"], kind="stable"), rows

    freed = 0
    ends = np.cumsum(records.counts)
    begin = int(
        np.searchsorted(ends, done, side="right")
    )  # the first bucket with rows that are left
    skipped = done - int(ends[begin] - records.counts[begin])
    buckets = range(begin, plan.n_buckets)
    for found, order, rows in read_ahead(buckets, load, lambda _: 0, shares_window=False):
        first_row, skipped = skipped, 0
        for first in range(first_row, len(order), plan.piece_rows):
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
    if isinstance(dataset, ArrayDataset):
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


@contextmanager
def kept_scratch(
    folder: str, name: str, facts: Mapping[str, Any], *, kept: bool
) -> Iterator[CheckpointFolder | None]:
    """Yield the folder of scratch files that stay if the block raises or dies; they go at its end.

    Parameters
    ----------
    folder : str
        Local folder for scratch files, which is made.
    name : str
        Name of what is made of the files: of one name, one process at a time has them.
    facts : mapping
        Everything that the files depend on, as plain values.
    kept : bool
        Otherwise nothing is kept, and what an earlier process has kept goes at the end.

    Raises
    ------
    CheckpointError
        The files that were kept are of other rows or arguments.
    OutputExistsError
        Another process uses them.
    """
    top = scratch_of(folder, name)
    if not kept:
        yield None
        shutil.rmtree(top, ignore_errors=True)
        return
    found = CheckpointFolder(top, facts)
    os.makedirs(found.url, exist_ok=True)
    with claimed(top):
        yield found
        shutil.rmtree(top, ignore_errors=True)


def scratch_of(folder: str, name: str) -> str:
    """Return the folder below `folder` in which scratch files of that name are kept."""
    return os.path.join(folder, f"daskcluster-scratch-{fingerprint(name)}")


def kept_bytes(folder: str) -> int:
    """Return the bytes of the files below a folder; 0 if there is none."""
    return sum(file.size for file in list_files(locate(folder)))


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
