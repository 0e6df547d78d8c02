"""Partitions that are read as a whole: where they are cut, and what they hand over."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from scipy import sparse

from daskcluster.data.open import open_dataset
from daskcluster.data.partitioned import PartitionedDataset
from daskcluster.engine.local import LocalEngine

ROWS = np.arange(80.0).reshape(20, 4)


@pytest.mark.parametrize("kind", ["memory", "stored", "sparse"])
def test_a_partition_is_one_chunk_on_any_number_of_threads(kind):
    weights = np.linspace(0, 1, 20)
    given = {
        "memory": ROWS,
        "stored": zarr.array(ROWS, chunks=(3, 4)),
        "sparse": sparse.csr_array(ROWS),
    }[kind]
    base = open_dataset(given, weights=weights)
    rows = PartitionedDataset(base, np.array([0, 9, 12, 20]))
    assert rows.partitions == ((0, 9), (9, 12), (12, 20))
    assert (rows.n_rows, rows.in_memory, rows.bytes_of((0, 9))) == (
        20,
        base.in_memory,
        base.bytes_of((0, 9)),
    )
    read = []
    found = list(rows.chunks(rows.partitions, on_read=read.append))
    assert [(chunk.start, chunk.stop) for chunk in found] == list(rows.partitions)
    assert bool(sum(read)) == (kind == "stored")
    for chunk in found:
        dense = chunk.rows if isinstance(chunk.rows, np.ndarray) else chunk.rows.toarray()
        np.testing.assert_array_equal(dense, ROWS[chunk.start : chunk.stop])
        np.testing.assert_array_equal(chunk.weights, weights[chunk.start : chunk.stop])
    again = rows.recipe().open()
    assert again.partitions == rows.partitions
    with LocalEngine(5).place(rows) as placement:
        assert list(placement.work_items) == list(rows.partitions)
