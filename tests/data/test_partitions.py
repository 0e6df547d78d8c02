"""The partition rule: clamp(total / 1024, 1 MB, 64 MB), whole chunks, at least 1,024 rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskcluster.data.partitions import (
    LEAST_BYTES,
    MOST_BYTES,
    cut_rows,
    group_chunks,
    least_rows,
    partition_rows,
    read_spans,
)


@pytest.mark.parametrize(
    ("n_rows", "row_bytes", "expected"),
    [
        (10_000, 64, LEAST_BYTES // 64),  # small data: 1 MB
        (160_000_000, 64, 160_000_000 // 1024),  # 10 GB: a 1024th
        (4_000_000_000, 64, MOST_BYTES // 64),  # 256 GB: 64 MB
        (10_000, 3072, 1024),  # wide rows: at least 1,024
        (10_000, 1 << 20, 64),  # so wide that 64 MB matter more
    ],
)
def test_rows_of_a_partition(n_rows: int, row_bytes: int, expected: int) -> None:
    assert partition_rows(n_rows, row_bytes) == expected


sizes = st.lists(st.integers(1, 5000), min_size=1, max_size=60)


@given(sizes, st.sampled_from([4, 64, 3136, 100_000]))
def test_partitions_are_whole_chunks(chunks: list[int], row_bytes: int) -> None:
    edges = np.concatenate([[0], np.cumsum(chunks)])
    parts = group_chunks(edges, row_bytes)
    assert parts[0][0] == 0
    assert parts[-1][1] == edges[-1]
    assert [stop for _, stop in parts[:-1]] == [start for start, _ in parts[1:]]
    assert set(np.array(parts).ravel()) <= set(edges.tolist())
    least = min(least_rows(row_bytes), int(edges[-1]))
    assert all(stop - start >= least for start, stop in parts)


@given(st.integers(1, 100_000), st.sampled_from([1, 64, 3136, 100_000]))
def test_arrays_are_cut_evenly(n_rows: int, row_bytes: int) -> None:
    edges = cut_rows(n_rows, row_bytes)
    cuts = np.diff(edges)
    assert edges[0] == 0
    assert edges[-1] == n_rows
    assert cuts.min() >= min(n_rows, least_rows(row_bytes))
    assert cuts.max() - cuts.min() <= 1


@given(sizes, st.sampled_from([64, 3136, 100_000]), st.data())
def test_reads_are_cut_at_chunk_edges(
    chunks: list[int], row_bytes: int, data: st.DataObject
) -> None:
    edges = np.concatenate([[0], np.cumsum(chunks)])
    start = data.draw(st.integers(0, int(edges[-1]) - 1))
    stop = data.draw(st.integers(start + 1, int(edges[-1])))
    spans = read_spans((start, stop), edges, row_bytes)
    assert spans[0][0] == start
    assert spans[-1][1] == stop
    assert [b for _, b in spans[:-1]] == [a for a, _ in spans[1:]]
    assert all(b in edges for _, b in spans[:-1])
