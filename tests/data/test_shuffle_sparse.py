"""Shuffled sparse rows: the permutation of dense ones, in CSR form, through memory or disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy import sparse

from daskcluster import open_dataset
from daskcluster.data.shuffle import prepare, shuffle, write_shuffled
from daskcluster.data.writer import write_rows
from daskcluster.errors import InvalidParameterError, MemoryLimitError
from daskcluster.randomness import Key
from tests.data.permutation import SEED, order_of

N, D = 3001, 40


@pytest.fixture(scope="module")
def matrix() -> Any:
    """CSR rows of very different lengths: some empty, one with every column."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(N, D)) * (rng.random((N, D)) < rng.random((N, 1)) ** 4)
    dense[7], dense[8:20] = np.arange(1, D + 1), 0.0
    return sparse.csr_array(dense.astype(np.float32))


@pytest.fixture
def stored(matrix: Any, tmp_path: Path) -> str:
    url = str(tmp_path / "rows.zarr")
    source = open_dataset(matrix)
    write_rows(url, (chunk.rows for chunk in source.chunks([(0, 1000), (1000, N)])), source)
    return url


def through(tmp: Path, source: Any, weights: Any = None, **changes: Any) -> tuple[Any, Any]:
    """Shuffle by a plan with other figures; return the dataset and the index."""
    output, index = str(tmp / "o.zarr"), str(tmp / "i.zarr")
    dataset, plan = prepare(source, output, weights=weights, with_index=index, overwrite=True)
    plan = replace(plan, scratch=str(tmp), **changes)
    options: dict[str, Any] = {"overwrite": True, "storage_options": None}
    write_shuffled(dataset, plan, Key(SEED, "shuffle"), output, index, (), **options)
    names = {} if weights is None else {"array": "X", "weights": "weights"}
    return open_dataset(output, **names), zarr.open_array(index, mode="r")[:]


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {"n_buckets": 0, "piece_rows": 17},
        {"n_buckets": 5, "block_rows": 7, "piece_rows": 100},
        {"n_buckets": 300, "block_rows": 11},
        {"n_buckets": 2 * N, "block_rows": 3},  # more buckets than rows: most stay empty
    ],
    ids=str,
)
def test_sparse_rows_come_in_the_order_of_dense_ones(
    in_memory: bool, changes: dict[str, Any], matrix: Any, stored: str, tmp_path: Path
) -> None:
    found, index = through(tmp_path, matrix if in_memory else stored, **changes)
    assert np.array_equal(index, order_of(N))
    expected = matrix[index]
    rows = found.to_scipy()
    assert np.array_equal(rows.indptr, expected.indptr)
    assert np.array_equal(rows.indices, expected.indices)
    assert rows.data.tobytes() == expected.data.tobytes()


@pytest.mark.parametrize("n_buckets", [0, 4])
def test_weights_stay_with_their_rows(
    n_buckets: int, matrix: Any, stored: str, tmp_path: Path
) -> None:
    weights = np.random.default_rng(1).random(N)
    found, index = through(tmp_path, stored, weights, n_buckets=n_buckets, block_rows=50)
    assert np.array_equal(np.asarray(found.weights.read(0, N)), weights[index])
    assert (found.to_scipy() != matrix[index]).nnz == 0


@pytest.mark.parametrize("n_buckets", [0, 3])
def test_values_of_one_column_are_added_up(n_buckets: int, tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "twice.zarr", mode="w")
    parts = {"data": [1.0, 2.0, 4.0, 8.0], "indices": [1, 1, 0, 2], "indptr": [0, 2, 3, 4]}
    for name, values in parts.items():
        kind = np.float64 if name == "data" else np.int64
        group.create_array(name, data=np.array(values, kind))
    group.attrs.update({"encoding-type": "csr_matrix", "shape": [3, 3]})
    found, index = through(tmp_path, tmp_path / "twice.zarr", n_buckets=n_buckets, block_rows=2)
    expected = np.array([[0.0, 3, 0], [4, 0, 0], [0, 0, 8]])[index]
    assert np.array_equal(found.to_numpy(), expected)
    assert found.n_entries == 3


def test_a_limit_decides_between_memory_and_disk_and_nothing_else(tmp_path: Path) -> None:
    n, per_row = 300_000, 30
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, 10**6, (n, per_row)), axis=1).astype(np.int32).ravel()
    values = rng.integers(1, 100, n * per_row).astype(np.float64)
    starts = np.arange(n + 1) * per_row
    rows = sparse.csr_array((values, columns, starts), shape=(n, 10**6))
    rows.sum_duplicates()
    source = open_dataset(rows)
    write_rows(tmp_path / "rows.zarr", (c.rows for c in source.chunks(source.partitions)), source)
    passes = []
    for limit in (500 * 2**20, 1200 * 2**20):
        done = shuffle(
            tmp_path / "rows.zarr",
            tmp_path / "o.zarr",
            random_state=SEED,
            memory_limit=limit,
            overwrite=True,
        )
        passes.append(done.passes)
        found = open_dataset(tmp_path / "o.zarr").to_scipy()
        assert found.data.tobytes() == rows[order_of(n)].data.tobytes()
    assert passes == [2, 1]
    with pytest.raises(MemoryLimitError, match=r"Shuffling 300000 rows in two passes needs"):
        shuffle(tmp_path / "rows.zarr", tmp_path / "p.zarr", memory_limit=100 * 2**20)
    assert not (tmp_path / "p.zarr").exists()


def test_chunks_of_rows_are_refused(matrix: Any, tmp_path: Path) -> None:
    for name in ("chunk_rows", "shard_rows"):
        with pytest.raises(InvalidParameterError, match=f"{name}=10 is for dense rows"):
            shuffle(matrix, tmp_path / "o.zarr", **{name: 10})
