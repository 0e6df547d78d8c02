"""Shuffled rows: one permutation for one seed, each as likely as any other, in bounded memory."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array
from scipy.stats import chi2

import daskcluster as dc
from daskcluster.data import shuffle_passes
from daskcluster.data.buckets import Buckets, bucket_of, record_dtype
from daskcluster.data.generate import generate
from daskcluster.data.open import open_dataset
from daskcluster.data.shuffle import prepare, shuffle
from daskcluster.data.shuffle_outputs import shuffle_outputs
from daskcluster.data.shuffle_plan import ShufflePlan
from daskcluster.errors import (
    DatasetNotFoundError,
    DiskSpaceError,
    InvalidDataError,
    InvalidParameterError,
    MemoryLimitError,
    OutputExistsError,
    WrongTypeError,
)
from daskcluster.events import PassEnded, PassProgress, PassStarted
from daskcluster.randomness import Key

SEED = 3


def order_of(n: int, seed: int = SEED) -> np.ndarray:
    """Return the source row of every output row, as the definition has it."""
    keys = Key(seed, "shuffle", 0).philox().random_raw(n)
    return np.lexsort((np.arange(n), keys))


def through(tmp: Path, source: Any, *, seed: int = SEED, **changes: Any) -> tuple[Any, Any]:
    """Shuffle by a plan with other figures; return rows and index."""
    output, index = str(tmp / "o.zarr"), str(tmp / "i.zarr")
    options: dict[str, Any] = {"overwrite": True, "storage_options": None}
    dataset, plan = prepare(source, output, with_index=index, overwrite=True)
    plan = replace(plan, scratch=str(tmp), **changes)
    with shuffle_outputs(output, index, plan, seed, **options) as outputs:
        shuffle_passes.carry_out(dataset, plan, Key(seed, "shuffle"), outputs, ())
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


@pytest.mark.parametrize("name", ["small", "dask", "npy", "array"])
@pytest.mark.parametrize(
    "changes",
    [
        {"n_buckets": 0},
        {"n_buckets": 0, "piece_rows": 17},
        {"n_buckets": 1, "block_rows": 10_000},
        {"n_buckets": 2, "block_rows": 7, "piece_rows": 100},
        {"n_buckets": 13, "block_rows": 100},
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


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("n_buckets", [0, 1, 4])
def test_few_rows(n: int, n_buckets: int, tmp_path: Path) -> None:
    rows = np.arange(2 * n).reshape(n, 2)
    found, index = through(tmp_path, rows, n_buckets=n_buckets, block_rows=2)
    assert sorted(index) == list(range(n))
    assert np.array_equal(found, rows[index])


@pytest.mark.parametrize("n_buckets", [0, 3])
@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", ">f4", "i1", "u1", ">i2", "u4", "i8", "u8", "bool"]
)
def test_every_value_of_every_dtype_stays(dtype: str, n_buckets: int, tmp_path: Path) -> None:
    width = np.dtype(dtype).itemsize
    if dtype == "bool":
        rows = np.random.default_rng(0).random((500, 3)) < 0.5
    else:  # any bits at all: infinities, NaN with payloads, negative zeros
        rows = np.random.default_rng(0).bytes(1500 * width)
        rows = np.frombuffer(rows, dtype).reshape(500, 3)
    found, index = through(tmp_path, rows, n_buckets=n_buckets, block_rows=20)
    assert found.dtype == np.dtype(dtype).newbyteorder("=")
    expected = rows[index].astype(found.dtype)
    assert found.tobytes() == expected.tobytes()


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
    real = shuffle_passes.carry_out

    def planned(dataset: Any, plan: ShufflePlan, *rest: Any) -> int:
        return real(
            dataset, replace(plan, n_buckets=n_buckets, block_rows=9, scratch=str(tmp_path)), *rest
        )

    monkeypatch.setattr("daskcluster.data.shuffle.carry_out", planned)
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


def test_the_index_maps_labels_back(rows: np.ndarray, tmp_path: Path) -> None:
    shuffle(rows, tmp_path / "o.zarr", with_index=tmp_path / "i.zarr")
    index = zarr.open_array(tmp_path / "i.zarr", mode="r")[:]
    here = (zarr.open_array(tmp_path / "o.zarr", mode="r")[:, 0] > 1).astype(np.int32)
    there = np.empty_like(here)
    there[index] = here
    assert index.dtype == np.int64
    assert np.array_equal(there, rows[:, 0] > 1)


# -- every permutation is equally likely -----------------------------------------------------


def small_plan(n: int, n_buckets: int, folder: Path) -> tuple[Any, ShufflePlan]:
    dataset, plan = prepare(np.arange(n)[:, None], folder / "o.zarr", with_index=folder / "i.zarr")
    return dataset, replace(
        plan, n_buckets=n_buckets, block_rows=2, piece_rows=4, scratch=str(folder)
    )


class Noted:
    """Stands in for outputs: keeps the source row of every output row."""

    def write(self, pieces: Any, on_written: Any) -> None:
        self.rows = [int(row) for piece in pieces for row in piece[2]]


def drawn(n: int, n_buckets: int, times: int, folder: Path) -> list[tuple[int, ...]]:
    dataset, plan = small_plan(n, n_buckets, folder)
    found, noted = [], Noted()
    outputs: Any = noted
    with pytest.MonkeyPatch.context() as patch:
        # Thousands of times it would take longer than all the rest.
        patch.setattr(shuffle_passes, "give_back_memory", lambda: None)
        for seed in range(times):
            shuffle_passes.carry_out(dataset, plan, Key(seed, "shuffle"), outputs, ())
            found.append(tuple(noted.rows))
    return found


def is_uniform(counts: np.ndarray, freedom: int) -> bool:
    expected = counts.sum() / counts.size
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return bool(0.001 < chi2.sf(statistic, freedom) < 0.999)


@pytest.mark.parametrize("n_buckets", [0, 3])
def test_all_permutations_are_equally_likely(n_buckets: int, tmp_path: Path) -> None:
    found = drawn(4, n_buckets, 2400, tmp_path)
    counts = np.array([found.count(order) for order in permutations(range(4))])
    assert counts.sum() == 2400
    assert is_uniform(counts, 23)


@pytest.mark.parametrize("n_buckets", [0, 5])
def test_all_positions_are_equally_likely(n_buckets: int, tmp_path: Path) -> None:
    n = 10
    table = np.zeros((n, n), int)
    for order in drawn(n, n_buckets, 2000, tmp_path):
        table[np.arange(n), order] += 1
    assert is_uniform(table, (n - 1) ** 2)


def test_neighbours_part(tmp_path: Path) -> None:
    # A shuffle of chunks, or within a window, would keep rows near their source.
    (order,) = drawn(2000, 6, 1, tmp_path)
    moved = np.abs(np.array(order) - np.arange(2000))
    assert abs(moved.mean() - 2000 / 3) < 4 * 2000 * math.sqrt(1 / 18 / 2000)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 4 / math.sqrt(2000)


def test_random_words_belong_to_rows() -> None:
    key = Key(7, "words")
    whole = key.words(0, 1000)
    for start, stop in ((0, 1), (1, 4), (5, 5), (3, 1000), (998, 1000)):
        assert np.array_equal(key.words(start, stop), whole[start:stop])
    assert np.array_equal((whole >> np.uint64(11)) * 2.0**-53, key.uniforms(0, 1000))


# -- buckets ---------------------------------------------------------------------------------


def records_of(keys: list[int]) -> np.ndarray:
    record = record_dtype(np.dtype("i4"), 1, weighted=False, indexed=False)
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


@pytest.mark.parametrize("n_buckets", [1, 2, 3, 256, 257, 65_536, 65_537, 2**31])
def test_buckets_are_ranges_of_keys(n_buckets: int) -> None:
    keys = np.sort(np.random.default_rng(0).integers(0, 2**64, 5000, np.uint64, endpoint=False))
    keys[0], keys[-1] = 0, 2**64 - 1
    buckets = bucket_of(keys, n_buckets).astype(np.int64)
    assert (np.diff(buckets) >= 0).all()
    assert (buckets[0], buckets[-1]) == (0, n_buckets - 1)
    share = 5000 / n_buckets
    assert abs(np.count_nonzero(buckets == 0) - share) <= 1 + 4 * math.sqrt(share)


def test_scratch_files_have_no_names_and_shrink_while_they_are_read(tmp_path: Path) -> None:
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

    def tell(self) -> int:
        return 0

    def write(self, content: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None: ...


def test_a_disk_that_runs_full_is_named(tmp_path: Path) -> None:
    records = records_of([1, 2, 3])
    with Buckets(records.dtype, n_buckets=1, block_rows=2, folder=str(tmp_path)) as buckets:
        buckets._files[0].close()
        buckets._files[0] = Full()
        with pytest.raises(DiskSpaceError, match=r"scratch folder .* ran full .* scratch="):
            buckets.append(records)


# -- outputs ---------------------------------------------------------------------------------


def test_events_and_figures_are_those_of_the_plan(
    rows: np.ndarray, tmp_path: Path, monkeypatch: Any
) -> None:
    array = zarr.create_array(tmp_path / "x", data=rows, chunks=(500, 7))
    for limit, names in (
        (None, ["shuffle (read)", "shuffle (write)"]),
        ("tight", ["shuffle (scatter)", "shuffle (write)"]),
    ):
        if limit:  # no room for the rows, room for small buckets
            monkeypatch.setattr("daskcluster.data.shuffle_plan._SORT_BYTES", 10**6)
            limit = 400 * 2**20
        options: dict[str, Any] = {"memory_limit": limit, "overwrite": True}
        plan = prepare(array, tmp_path / "o.zarr", **options)[1]
        events: list[Any] = []
        done = shuffle(array, tmp_path / "o.zarr", callbacks=[events.append], **options)
        assert [event.name for event in events if isinstance(event, PassStarted)] == names
        assert [event.name for event in events if isinstance(event, PassEnded)] == names
        counted = sum(event.rows for event in events if isinstance(event, PassProgress))
        assert counted == 2 * len(rows)
        assert done.bytes_read == plan.bytes_read == rows.nbytes
        assert done.bytes_scratch == plan.bytes_scratch == (5003 * 36 if limit else 0)
        assert done.bytes_written == rows.nbytes
        assert done.passes == plan.passes == (2 if limit else 1)


def test_the_seed_is_reported_and_gives_the_same_order_again(
    rows: np.ndarray, tmp_path: Path
) -> None:
    first = shuffle(rows, tmp_path / "a.zarr")
    again = shuffle(rows, tmp_path / "b.zarr", random_state=first.random_state)
    other = shuffle(rows, tmp_path / "c.zarr")
    a, b, c = (zarr.open_array(tmp_path / f"{name}.zarr", mode="r") for name in "abc")
    assert np.array_equal(a[:], b[:])
    assert not np.array_equal(a[:], c[:])
    assert again.random_state != other.random_state
    assert a.attrs["shuffled"] == {"random_state": first.random_state}
    shuffle(rows, tmp_path / "d.zarr", random_state=np.random.default_rng(0))
    with pytest.raises(WrongTypeError, match=r"random_state='x' should be"):
        shuffle(rows, tmp_path / "e.zarr", random_state="x")
    assert not (tmp_path / "e.zarr").exists()


def test_chunks_and_shards(rows: np.ndarray, tmp_path: Path) -> None:
    done = shuffle(rows, tmp_path / "o.zarr", chunk_rows=100, shard_rows=1000)
    array = zarr.open_array(tmp_path / "o.zarr", mode="r")
    assert (array.chunks, array.shards) == ((100, 7), (1000, 7))
    assert (done.chunk_rows, done.shard_rows) == (100, 1000)
    assert array.nchunks_initialized == 60  # all inner chunks of six shards
    assert np.array_equal(array[:], rows[order_of(5003, done.random_state)])


def test_rasters_on_request(tmp_path: Path) -> None:
    raster = np.random.default_rng(0).random((20, 30, 3))
    with pytest.raises(InvalidDataError, match=r"Found array with dim 3.*flatten=True"):
        shuffle(raster, tmp_path / "o.zarr")
    shuffle(raster, tmp_path / "o.zarr", flatten=True, random_state=SEED)
    found = zarr.open_array(tmp_path / "o.zarr", mode="r")[:]
    assert np.array_equal(found, raster.reshape(600, 3)[order_of(600)])


def test_requests_that_are_refused_leave_nothing(
    rows: np.ndarray, tmp_path: Path, monkeypatch: Any
) -> None:
    group = zarr.open_group(tmp_path / "g", mode="w")
    group.create_array("X", data=rows)
    out, index = tmp_path / "o.zarr", tmp_path / "i.zarr"
    (tmp_path / "notes.zarr").mkdir()
    (tmp_path / "notes.zarr" / "mine.txt").write_text("mine")
    before = sorted(os.listdir(tmp_path))
    stored: dict[str, Any] = {"source": tmp_path / "g", "array": "X"}
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"source": np.empty((0, 3))}, InvalidDataError, r"0 sample\(s\)"),
        ({"source": csr_array(np.eye(3))}, WrongTypeError, r"source is sparse \(3 x 3\)"),
        ({"source": np.empty(3)}, InvalidDataError, r"Expected 2D array"),
        ({"source": tmp_path / "none"}, DatasetNotFoundError, r"no dataset at"),
        ({"source": tmp_path / "x.csv"}, InvalidDataError, r"daskcluster convert"),
        ({"chunk_rows": 0}, InvalidParameterError, r"chunk_rows=0 should be >= 1"),
        ({"chunk_rows": 7, "shard_rows": 10}, InvalidParameterError, r"a multiple of chunk_rows=7"),
        ({"with_index": out}, InvalidParameterError, r"should be apart"),
        ({"with_index": out / "index"}, InvalidParameterError, r"should be apart"),
        ({"with_index": tmp_path / "g"}, OutputExistsError, r"is not what this would replace"),
        ({"output": tmp_path / "notes.zarr"}, OutputExistsError, r"remove it yourself"),
        ({**stored, "output": tmp_path / "g"}, InvalidParameterError, r"replace the source"),
        ({**stored, "output": tmp_path / "g" / "X"}, InvalidParameterError, r"replace the source"),
        ({**stored, "with_index": tmp_path / "g" / "X"}, InvalidParameterError, r"with_index=.*"),
        ({"memory_limit": 10**8}, MemoryLimitError, r"needs .* memory_limit=95.4 MiB.*raise the"),
        ({"scratch": tmp_path / "none"}, DatasetNotFoundError, r"scratch folder .*does not exist"),
    ]
    for options, kind, match in cases:
        request: dict[str, Any] = {"source": rows, "output": out, "overwrite": True, **options}
        for function in (shuffle, prepare):
            with pytest.raises(kind, match=match):
                function(**request)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10))
    monkeypatch.setattr("daskcluster.data.shuffle_plan._SORT_BYTES", 10**6)
    with pytest.raises(
        DiskSpaceError, match=r"needs 175\.. KiB of scratch.*10 B free.*scratch="
    ) as full:
        shuffle(rows, out, with_index=None, memory_limit=400 * 2**20)
    assert isinstance(full.value, OSError)
    assert sorted(os.listdir(tmp_path)) == before
    assert not index.exists()


def test_nothing_is_replaced_unless_asked(rows: np.ndarray, tmp_path: Path) -> None:
    out, index = tmp_path / "o.zarr", tmp_path / "i.zarr"
    shuffle(rows, out, random_state=1)
    with pytest.raises(OutputExistsError, match=r"exists already; pass overwrite=True"):
        shuffle(rows, out, random_state=2)
    shuffle(rows, index, random_state=1)
    with pytest.raises(OutputExistsError, match=r"exists already"):
        shuffle(rows, tmp_path / "p.zarr", with_index=index)
    assert not (tmp_path / "p.zarr").exists()
    weights = np.ones(len(rows))
    shuffle(rows, out, random_state=2, weights=weights, with_index=index, overwrite=True)
    assert np.array_equal(
        open_dataset(out, array="X", weights="weights").to_numpy(), rows[order_of(5003, 2)]
    )
    shuffle(rows, out, random_state=3, overwrite=True)  # a group gives way to an array
    assert np.array_equal(open_dataset(out).to_numpy(), rows[order_of(5003, 3)])
    assert sorted(os.listdir(tmp_path)) == ["i.zarr", "o.zarr"]


@pytest.mark.parametrize(
    ("n_buckets", "phase"),
    [
        (0, "shuffle (read)"),
        (0, "shuffle (write)"),
        (5, "shuffle (scatter)"),
        (5, "shuffle (write)"),
    ],
)
def test_an_error_half_way_leaves_what_was_there(
    n_buckets: int, phase: str, rows: np.ndarray, tmp_path: Path
) -> None:
    source = str(tmp_path / "x.zarr")
    zarr.create_array(source, data=rows, chunks=(100, 7))
    shuffle(source, tmp_path / "o.zarr", random_state=1)
    options: dict[str, Any] = {"overwrite": True, "storage_options": None}
    out, index = str(tmp_path / "o.zarr"), str(tmp_path / "i.zarr")
    dataset, plan = prepare(source, out, with_index=index, overwrite=True)
    plan = replace(plan, n_buckets=n_buckets, block_rows=9, piece_rows=50, scratch=str(tmp_path))
    running = []

    def fail(event: Any) -> None:
        if isinstance(event, PassStarted):
            running.append(event.name)
        if isinstance(event, PassProgress) and running[-1] == phase:
            raise OSError("lost")

    with (
        pytest.raises(OSError, match="lost"),
        shuffle_outputs(out, index, plan, SEED, **options) as outputs,
    ):
        shuffle_passes.carry_out(dataset, plan, Key(SEED, "shuffle"), outputs, [fail])
    assert sorted(os.listdir(tmp_path)) == ["o.zarr", "x.zarr"]
    assert np.array_equal(open_dataset(out).to_numpy(), rows[order_of(5003, 1)])


KILLED = """
import os, signal, sys
import daskcluster as dc
from daskcluster.data import shuffle_plan
from daskcluster.events import PassProgress, PassStarted
shuffle_plan._SORT_BYTES = 10**6  # through buckets
shuffle_plan.READ_BYTES = 10**4
names = []
def kill(event):
    if isinstance(event, PassStarted):
        names.append(event.name)
    if isinstance(event, PassProgress) and names[-1] == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
dc.shuffle(
    sys.argv[1], sys.argv[2], memory_limit=400 * 2**20, chunk_rows=50, callbacks=[kill],
    with_index=sys.argv[2] + ".index",
)
"""


@pytest.mark.parametrize("phase", ["shuffle (scatter)", "shuffle (write)"])
def test_killed_half_way_there_is_no_output(phase: str, rows: np.ndarray, tmp_path: Path) -> None:
    source, out = str(tmp_path / "x.npy"), str(tmp_path / "o.zarr")
    np.save(source, rows)
    done = subprocess.run([sys.executable, "-c", KILLED, source, out, phase], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    for url in (out, f"{out}.index"):
        assert not os.path.exists(url)
    left = sorted(name.partition("partial-")[0] for name in os.listdir(tmp_path))
    assert left == ["o.zarr.", "o.zarr.index.", "x.npy"]  # and no scratch files
    shuffle(source, out, random_state=SEED)  # what is left is in nobody's way
    assert np.array_equal(open_dataset(out).to_numpy(), rows[order_of(5003)])


def test_a_store_without_rename(tmp_path: Path, rows: np.ndarray) -> None:
    url, index = "memory://shuffle/o.zarr", "memory://shuffle/i.zarr"
    shuffle(rows, url, with_index=index, random_state=SEED)
    assert np.array_equal(open_dataset(url).to_numpy(), rows[order_of(5003)])
    with pytest.raises(OutputExistsError):
        shuffle(rows, url)


def test_s3_to_s3(
    s3: dict[str, Any], rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = np.arange(len(rows)) % 5
    shuffle(
        rows, "s3://rows/shuffle/source.zarr", weights=weights, random_state=1, chunk_rows=500,
        storage_options=s3,
    )  # fmt: skip
    # Through buckets, in the folder that is named, since a bucket has none beside it.
    monkeypatch.setattr("daskcluster.data.shuffle_plan._SORT_BYTES", 10**6)
    done = shuffle(
        "s3://rows/shuffle/source.zarr", "s3://rows/shuffle/o.zarr", array="X", weights="weights",
        random_state=SEED, with_index="s3://rows/shuffle/i.zarr", chunk_rows=1000,
        memory_limit=500 * 2**20, scratch=tmp_path, storage_options=s3,
    )  # fmt: skip
    assert done.passes == 2
    first = order_of(5003, 1)
    index = zarr.open_array("s3://rows/shuffle/i.zarr", mode="r", storage_options=s3)[:]
    assert np.array_equal(index, order_of(5003))
    found = open_dataset(
        "s3://rows/shuffle/o.zarr", array="X", weights="weights", storage_options=s3
    )
    assert np.array_equal(found.to_numpy(), rows[first][index])
    assert np.array_equal(np.asarray(found.weights), weights[first][index])
    with pytest.raises(DatasetNotFoundError):
        open_dataset("s3://rows/shuffle/none.zarr", storage_options=s3)
    assert os.listdir(tmp_path) == []


def test_the_public_name() -> None:
    assert dc.shuffle is shuffle


MEASURED = """
import json, re, sys
import daskcluster as dc
done = dc.shuffle(
    sys.argv[1], sys.argv[2], random_state=0, memory_limit=int(sys.argv[3]), overwrite=True,
    with_index=sys.argv[2] + ".index",
)
# Not ru_maxrss: a new process begins with that of the one which started it.
peak = int(re.search("VmHWM: *(.*) kB", open("/proc/self/status").read().replace("\\t", ""))[1]) * 1024
print(json.dumps({"peak": peak, "passes": done.passes, "read": done.bytes_read}))
"""


def measure(source: str, output: str, limit: int) -> dict[str, int]:
    program = [sys.executable, "-c", MEASURED, source, output, str(limit)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("limit", [320 * 2**20, 400 * 2**20])
def test_memory_of_two_passes_stays_within_the_limit(tmp_path: Path, limit: int) -> None:
    source, out = str(tmp_path / "x.zarr"), str(tmp_path / "o.zarr")
    peaks = []
    for n in (1_500_000, 12_000_000):
        generate(source, n_rows=n, n_features=16, n_clusters=4, n_threads=2, overwrite=True)
        found = measure(source, out, limit)
        assert (found["passes"], found["read"]) == (2, n * 64)
        peaks.append(found["peak"])
    assert max(peaks) <= limit
    index = zarr.open_array(f"{out}.index", mode="r")
    assert np.array_equal(index[:1000], order_of(n, 0)[:1000])


@pytest.mark.slow
def test_memory_of_one_pass_stays_within_the_limit(tmp_path: Path) -> None:
    source, out = str(tmp_path / "x.zarr"), str(tmp_path / "o.zarr")
    generate(source, n_rows=4_000_000, n_features=16, n_clusters=4, n_threads=2)
    found = measure(source, out, 640 * 2**20)
    assert found["passes"] == 1
    assert found["peak"] <= 640 * 2**20
