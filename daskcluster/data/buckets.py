"""Buckets of a shuffle: rows scattered to scratch files by a random key and read back one by one.

The files have no names (the system frees them when the process ends, however it ends), and their
space is given back bucket by bucket as they are read.
"""

from __future__ import annotations

import tempfile
from array import array
from types import TracebackType
from typing import Any, Self

import numpy as np

from daskcluster.data.writer import RowsShape
from daskcluster.errors import DiskSpaceError
from daskcluster.storage.disk_space import is_full_disk

_MOST_FILES = 64
"""Open files at most: far below what a process may open, enough to give space back early."""
_HALF = np.uint64(32)


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

    Use as a context manager. Within a bucket records keep the order in which they were appended.

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

    Notes
    -----
    Cost: ``n_buckets * block_rows`` records of memory until `flush`; every record is written once and
    read once.

    Examples
    --------
    >>> record = record_dtype(RowsShape(3, 1, np.dtype("i4")), weighted=False, indexed=False)
    >>> records = np.array([(2**63, [0]), (5, [1]), (9, [2])], record)
    >>> with Buckets(record, n_buckets=2, block_rows=10, folder=tempfile.gettempdir()) as buckets:
    ...     buckets.append(records)
    ...     buckets.flush()
    ...     [buckets.load(i)["values"].ravel().tolist() for i in range(2)]
    [[1, 2], [0]]
    """

    def __init__(
        self, record: np.dtype[Any], *, n_buckets: int, block_rows: int, folder: str
    ) -> None:
        self._record = record
        self._folder = folder
        self._block_bytes = block_rows * record.itemsize
        self._pending = np.empty((n_buckets, block_rows), record)
        self._filled = [0] * n_buckets
        self._counts = np.zeros(n_buckets, np.int64)
        self._offsets = [array("Q") for _ in range(n_buckets)]
        n_files = min(n_buckets, _MOST_FILES)
        # Neighbours share a file, so that it can go as soon as they have been read.
        self._home = [bucket * n_files // n_buckets for bucket in range(n_buckets)]
        self._unread = np.bincount(self._home)
        self._files: list[Any] = []
        self._n_files = n_files

    @property
    def counts(self) -> np.ndarray:
        """Records of each bucket, int64 (n_buckets,)."""
        return self._counts

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
        self._counts += counts
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
        content = block.view(np.uint8).data
        try:
            while content:
                content = content[file.write(content) :]
        except OSError as error:
            if not is_full_disk(error):
                raise
            raise DiskSpaceError(
                f"The scratch folder {self._folder!r} ran full after {int(self._counts.sum())} records "
                f"({error.strerror}); free some space there, raise the limit on the size of a file (ulimit "
                "-f), or name another folder with scratch=."
            ) from error
        self._filled[bucket] = 0

    def flush(self) -> None:
        """Write what is held and free the memory: nothing can be appended any more."""
        for bucket, filled in enumerate(self._filled):
            if filled:
                self._write(bucket)
        self._pending = np.empty((0, 0), self._record)

    def load(self, bucket: int) -> np.ndarray:
        """Return the records of a bucket (counts[bucket],); each bucket can be read once."""
        home = self._home[bucket]
        file = self._files[home]
        records = np.empty(int(self._counts[bucket]), self._record)
        content = records.view(np.uint8).data
        for block, offset in enumerate(self._offsets[bucket]):
            file.seek(offset)
            begin = block * self._block_bytes
            self._fill(content[begin : begin + self._block_bytes], file)
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
        try:
            for _ in range(self._n_files):
                self._files.append(tempfile.TemporaryFile(dir=self._folder, buffering=0))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        for file in self._files:
            file.close()
        self._files.clear()
        self._pending = np.empty((0, 0), self._record)
