"""What a shuffle writes, refuses and leaves behind, and the memory it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset
from daskcluster.data.generate import generate
from daskcluster.data.shuffle import prepare, shuffle, write_shuffled
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
from tests.data.permutation import SEED, order_of


def test_events_and_figures_are_those_of_the_plan(
    rows: np.ndarray, tmp_path: Path, monkeypatch: Any
) -> None:
    array = zarr.create_array(tmp_path / "x", data=rows, chunks=(500, 7))
    for limit, names in (
        (None, ["shuffle (read)", "shuffle (write)"]),
        ("tight", ["shuffle (scatter)", "shuffle (write)"]),
    ):
        if limit:  # no room for the rows, room for small buckets
            monkeypatch.setattr("daskcluster.data.shuffle_passes._SORT_BYTES", 10**6)
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
        ({"source": np.empty(3)}, InvalidDataError, r"Expected 2D array"),
        ({"source": tmp_path / "none"}, DatasetNotFoundError, r"no dataset at"),
        ({"source": tmp_path / "x.csv"}, DatasetNotFoundError, r"There is no file or folder at"),
        ({"chunk_rows": 0}, InvalidParameterError, r"chunk_rows=0 should be >= 1"),
        ({"chunk_rows": 7, "shard_rows": 10}, InvalidParameterError, r"a multiple of chunk_rows=7"),
        ({"with_index": out}, InvalidParameterError, r"different URLs"),
        ({"with_index": out / "index"}, InvalidParameterError, r"different URLs"),
        ({"with_index": tmp_path / "g"}, OutputExistsError, r"is not of a kind that overwrite"),
        ({"output": tmp_path / "notes.zarr"}, OutputExistsError, r"remove it yourself"),
        ({**stored, "output": tmp_path / "g"}, InvalidParameterError, r"replace the source"),
        ({**stored, "output": tmp_path / "g" / "X"}, InvalidParameterError, r"replace the source"),
        ({**stored, "with_index": tmp_path / "g" / "X"}, InvalidParameterError, r"with_index=.*"),
        ({"memory_limit": 10**8}, MemoryLimitError, r"needs .* memory_limit=100 MB.*raise the"),
        ({"scratch": tmp_path / "none"}, DatasetNotFoundError, r"scratch folder .*does not exist"),
    ]
    for options, kind, match in cases:
        request: dict[str, Any] = {"source": rows, "output": out, "overwrite": True, **options}
        for function in (shuffle, prepare):
            with pytest.raises(kind, match=match):
                function(**request)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10))
    monkeypatch.setattr("daskcluster.data.shuffle_passes._SORT_BYTES", 10**6)
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
def test_an_error_half_way_keeps_the_previous_output(
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

    with pytest.raises(OSError, match="lost"):
        write_shuffled(dataset, plan, Key(SEED, "shuffle"), out, index, [fail], **options)
    assert sorted(os.listdir(tmp_path)) == ["o.zarr", "x.zarr"]
    assert np.array_equal(open_dataset(out).to_numpy(), rows[order_of(5003, 1)])


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
    # Through buckets, in the folder that is named, since a bucket has none next to it.
    monkeypatch.setattr("daskcluster.data.shuffle_passes._SORT_BYTES", 10**6)
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
