"""Buckets: ranges of keys, in the order of the rows, on scratch disk that is given back."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskcluster.data.shuffle_passes import Buckets, record_dtype
from daskcluster.data.writer import RowsShape
from daskcluster.errors import (
    DiskSpaceError,
)


def records_of(keys: list[int]) -> np.ndarray:
    record = record_dtype(RowsShape(9, 1, np.dtype("i4")), weighted=False, indexed=False)
    return np.array([(key, [i]) for i, key in enumerate(keys)], record)


def test_equal_keys_keep_the_order_of_their_rows(tmp_path: Path) -> None:
    records = records_of([5, 2**63, 5, 0, 2**63, 5, 2**64 - 1])
    for n_buckets, block_rows in ((1, 100), (2, 2), (3, 1)):
        with Buckets(
            records.dtype, n_buckets=n_buckets, block_rows=block_rows, folder=str(tmp_path)
        ) as buckets:
            for first in range(0, len(records), 2):
                buckets.append(records[first : first + 2])
            buckets.flush()
            found = []
            for bucket in range(n_buckets):
                part = buckets.load(bucket)
                found += part["values"][np.argsort(part["key"], kind="stable"), 0].tolist()
        assert found == [3, 0, 2, 5, 1, 4, 6]


def test_scratch_files_are_unlinked_and_truncated_as_they_are_read(tmp_path: Path) -> None:
    keys = np.random.default_rng(0).integers(0, 2**64, 4000, np.uint64, endpoint=False)
    records = records_of([int(key) for key in keys])
    with Buckets(records.dtype, n_buckets=200, block_rows=3, folder=str(tmp_path)) as buckets:
        buckets.append(records)
        buckets.flush()
        assert os.listdir(tmp_path) == []
        sizes = []
        for bucket in range(200):
            buckets.load(bucket)
            sizes.append(sum(os.fstat(f.fileno()).st_size for f in buckets._files if not f.closed))
    assert len(buckets.counts) == 200
    assert buckets.counts.sum() == 4000
    assert sizes[100] < 0.55 * records.nbytes
    assert sizes[-1] == 0


class Full:
    """A file on a disk without room."""

    def __init__(self, code: int) -> None:
        self._code = code

    def tell(self) -> int:
        return 0

    def write(self, content: Any) -> int:
        raise OSError(self._code, os.strerror(self._code))

    def close(self) -> None: ...


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_that_runs_full_is_named(code: int, tmp_path: Path) -> None:
    records = records_of([1, 2, 3])
    with Buckets(records.dtype, n_buckets=1, block_rows=2, folder=str(tmp_path)) as buckets:
        buckets._files[0].close()
        buckets._files[0] = Full(code)
        with pytest.raises(DiskSpaceError, match=r"scratch folder .* ran full .* scratch="):
            buckets.append(records)
