"""Partitions that are read as a whole: where they are cut, and what they hand over."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from scipy import sparse

from daskcluster.data import partitioned
from daskcluster.data.open import open_dataset
from daskcluster.data.partitioned import PartitionedDataset, partition_edges
from daskcluster.engine.local import LocalEngine

ROWS = np.arange(80.0).reshape(20, 4)


def stored(chunk):
    return open_dataset(zarr.array(ROWS, chunks=(chunk, 4)))


@pytest.mark.parametrize(
    ("chunk", "wanted", "edges"),
    [
        (4, 1, [0, 20]),
        (4, 2, [0, 12, 20]),
        (4, 3, [0, 8, 12, 20]),
        (3, 50, [0, 3, 6, 9, 12, 15, 18, 20]),
        (20, 4, [0, 20]),
    ],
)
def test_partitions_of_stored_rows_begin_where_chunks_do(chunk, wanted, edges):
    assert partition_edges(stored(chunk), wanted).tolist() == edges


def test_rows_in_memory_are_cut_anywhere():
    assert partition_edges(open_dataset(ROWS), 3).tolist() == [0, 6, 13, 20]
    assert partition_edges(open_dataset(ROWS), 99).tolist() == list(range(21))


def test_rows_beyond_a_size_are_cut_by_themselves(monkeypatch):
    rows = open_dataset(ROWS)
    assert partition_edges(rows, None).tolist() == [0, 20]
    monkeypatch.setattr(partitioned, "WHOLE_BYTES", 639)
    monkeypatch.setattr(partitioned, "MOST_BYTES", 200)
    assert partition_edges(rows, None).tolist() == [0, 5, 10, 15, 20]


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
