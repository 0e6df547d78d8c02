"""Shuffled rows: one permutation for one seed, each as likely as any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset
from daskcluster.data.shuffle import prepare, shuffle, write_shuffled
from daskcluster.data.shuffle_passes import ShufflePlan
from daskcluster.randomness import Key
from tests.data.permutation import SEED, order_of


def through(tmp: Path, source: Any, *, seed: int = SEED, **changes: Any) -> tuple[Any, Any]:
    """Shuffle by a plan with other figures; return rows and index."""
    output, index = str(tmp / "o.zarr"), str(tmp / "i.zarr")
    options: dict[str, Any] = {"overwrite": True, "storage_options": None}
    dataset, plan = prepare(source, output, with_index=index, overwrite=True)
    plan = replace(plan, scratch=str(tmp), **changes)
    write_shuffled(dataset, plan, Key(seed, "shuffle"), output, index, (), **options)
    return zarr.open_array(output, mode="r")[:], zarr.open_array(index, mode="r")[:]


def sources(rows: np.ndarray, tmp: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    import dask.array as da

    for name, chunks, shards in (
        ("one", (len(rows), 7), None),
        ("small", (97, 7), None),
        ("columns", (1000, 3), None),
        ("sharded", (100, 7), (500, 7)),
    ):
        array = zarr.create_array(
            tmp / name, shape=rows.shape, chunks=chunks, shards=shards, dtype=rows.dtype
        )
        array[:] = rows
    group = zarr.open_group(tmp / "group", mode="w")
    group.create_array("cells", data=rows, chunks=(1024, 7))
    zarr.create_array(tmp / "v2", data=rows, chunks=(333, 7), zarr_format=2)
    np.save(tmp / "rows.npy", rows)
    memmap = np.memmap(tmp / "raw", rows.dtype, "w+", shape=rows.shape)
    memmap[:] = rows
    blocks = da.from_array(rows, chunks=(700, 3))
    return {
        **{name: (tmp / name, {}) for name in ("one", "small", "columns", "sharded", "v2")},
        "group": (tmp / "group", {"array": "cells"}),
        "npy": (tmp / "rows.npy", {}),
        "memmap": (memmap, {}),
        "array": (rows, {}),
        "columns first": (np.asfortranarray(rows), {}),
        "zarr object": (zarr.open_array(tmp / "small", mode="r"), {}),
        "dask": (da.concatenate([blocks[:500], blocks[:0], blocks[500:]]), {}),
    }


def test_the_permutation_is_that_of_the_definition_for_any_source(
    rows: np.ndarray, tmp_path: Path
) -> None:
    expected = rows[order_of(len(rows))]
    for name, (source, options) in sources(rows, tmp_path).items():
        done = shuffle(source, tmp_path / "o.zarr", random_state=SEED, overwrite=True, **options)
        assert np.array_equal(open_dataset(tmp_path / "o.zarr").to_numpy(), expected), name
        assert (done.n_rows, done.n_features, done.dtype) == (5003, 7, "float32")


@pytest.mark.parametrize("name", ["small", "dask"])
@pytest.mark.parametrize(
    "changes",
    [
        {"n_buckets": 0, "piece_rows": 17},
        {"n_buckets": 1, "block_rows": 10_000},
        {"n_buckets": 2, "block_rows": 7, "piece_rows": 100},
        {"n_buckets": 100, "block_rows": 1},
        {"n_buckets": 300, "block_rows": 5, "piece_rows": 1000},
        {"n_buckets": 8000, "block_rows": 2},  # most of them stay empty or have one row
    ],
    ids=str,
)
def test_memory_and_disk_give_the_same_permutation(
    name: str, changes: dict[str, Any], rows: np.ndarray, tmp_path: Path
) -> None:
    source, _ = sources(rows, tmp_path)[name]
    found, index = through(tmp_path, source, **changes)
    assert np.array_equal(index, order_of(len(rows)))
    assert np.array_equal(found, rows[index])


def test_a_limit_decides_between_memory_and_disk_and_nothing_else(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 2**31, (600_000, 16)).astype(np.int32)
    source = tmp_path / "rows.npy"
    np.save(source, rows)
    passes, n_buckets = [], []
    for limit in (300 * 2**20, 320 * 2**20, 800 * 2**20):
        done = shuffle(
            source, tmp_path / "o.zarr", random_state=SEED, memory_limit=limit, overwrite=True
        )
        found = zarr.open_array(tmp_path / "o.zarr", mode="r")[:]
        assert np.array_equal(found, rows[order_of(len(rows))])
        passes.append(done.passes)
        n_buckets.append(done.n_buckets)
    assert passes == [2, 2, 1]
    assert n_buckets[0] > n_buckets[1] >= 2
    assert n_buckets[2] == 0


def test_few_rows(tmp_path: Path) -> None:
    for n, n_buckets in ((1, 0), (1, 4), (3, 0), (2, 1), (3, 4)):
        rows = np.arange(2 * n).reshape(n, 2)
        found, index = through(tmp_path, rows, n_buckets=n_buckets, block_rows=2)
        assert sorted(index) == list(range(n)), (n, n_buckets)
        assert np.array_equal(found, rows[index])


@pytest.mark.parametrize("n_buckets", [0, 3])
def test_every_value_of_every_dtype_stays(n_buckets: int, tmp_path: Path) -> None:
    for dtype in ("f2", "f4", "f8", ">f4", "i1", "u1", ">i2", "u4", "i8", "u8", "bool"):
        if dtype == "bool":
            rows = np.random.default_rng(0).random((500, 3)) < 0.5
        else:  # any bits at all: infinities, NaN with payloads, negative zeros
            content = np.random.default_rng(0).bytes(1500 * np.dtype(dtype).itemsize)
            rows = np.frombuffer(content, dtype).reshape(500, 3)
        found, index = through(tmp_path, rows, n_buckets=n_buckets, block_rows=20)
        assert found.dtype == np.dtype(dtype).newbyteorder("=")
        assert found.tobytes() == rows[index].astype(found.dtype).tobytes(), dtype


@pytest.mark.parametrize("n_buckets", [0, 4])
@pytest.mark.parametrize("stored", [False, True])
def test_weights_travel_with_their_rows(
    stored: bool, n_buckets: int, rows: np.ndarray, tmp_path: Path, monkeypatch: Any
) -> None:
    weights = np.linspace(0, 1, len(rows))
    source: Any = tmp_path / "g"
    group = zarr.open_group(source, mode="w")
    group.create_array("rows", data=rows, chunks=(500, 7))
    group.create_array("w", data=weights, chunks=(700,))
    dataset = open_dataset(source, array="rows", weights="w" if stored else weights)

    def planned(dataset: Any, plan: ShufflePlan, *rest: Any, **options: Any) -> int:
        plan = replace(plan, n_buckets=n_buckets, block_rows=9, scratch=str(tmp_path))
        return write_shuffled(dataset, plan, *rest, **options)

    monkeypatch.setattr("daskcluster.data.shuffle.write_shuffled", planned)
    done = shuffle(
        dataset, tmp_path / "o.zarr", random_state=SEED, with_index=tmp_path / "i", shard_rows=600,
        chunk_rows=200,
    )  # fmt: skip
    index = zarr.open_array(tmp_path / "i", mode="r")[:]
    assert np.array_equal(index, order_of(len(rows)))
    assert (done.array, done.weights) == ("X", "weights")
    found = open_dataset(tmp_path / "o.zarr", array=done.array, weights=done.weights)
    assert np.array_equal(found.to_numpy(), rows[index])
    assert np.array_equal(np.asarray(found.weights), weights[index])
    members = dict(zarr.open_group(tmp_path / "o.zarr", mode="r").arrays())
    assert {(a.chunks[0], a.shards[0]) for a in members.values()} == {(200, 600)}
