"""``daskcluster partition``: the function, on disk and in a bucket; a plan; kill and resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import Result

import daskcluster as dc
from tests.cli.conftest import kill_at

Run = Callable[..., Result]
Record = Callable[..., dict[str, Any]]

X = np.random.default_rng(0).normal(size=(1500, 8)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an own folder, with ``X.npy`` in it, that the test runs in."""
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    return tmp_path


def test_the_command_equals_the_function(folder: Path, record: Record) -> None:
    done = record(
        "partition", "X.npy", "--target-size", "100", "--max-size", "150",
        "--output", "parts.zarr", "--centroids", "centres.npy", "--checkpoint", "state",
    )  # fmt: skip
    found = dc.partition(X, 100, max_size=150)
    group = zarr.open_group("parts.zarr", mode="r")
    np.testing.assert_array_equal(group["partition"][:], found.partition)
    np.testing.assert_array_equal(np.load("centres.npy"), found.centres)
    assert done["n_partitions"] == found.n_partitions
    assert done["largest"] == found.sizes.max() <= 150


def test_a_plan_needs_no_output(folder: Path, record: Record, run: Run) -> None:
    plan = record("partition", "X.npy", "--target-size", "100", "--dry-run")
    assert plan["n_partitions"] == 15
    assert plan["memory"] >= plan["memory_driver"] + plan["memory_task"]
    small = ("--dry-run", "--memory-limit", "100MB")
    refused = run("partition", "X.npy", "--target-size", "100", *small)
    assert "Error: Partitions take up to" in refused.stderr
    assert "Missing option '--output'" in run("partition", "X.npy").output
    assert "--checkpoint" in run("partition", "X.npy", "--output", "o.zarr", "--resume").output
    assert "--target-size" in run("partition", "--help").output
    result = run("partition", "X.npy", "--output", "o.zarr", "--centroids", "centres.txt")
    assert result.exit_code == 1
    assert ".npy, .faiss, .parquet" in result.output
    assert not (folder / "o.zarr").exists()


def test_processes_write_the_same_file(folder: Path, run: Run) -> None:
    for name, more in (("one", ()), ("two", ("--workers", "2"))):
        result = run(
            "partition", "X.npy", "--target-size", "100", "--max-size", "130",
            "--output", f"{name}.parquet", "--centroids", f"{name}.npy", *more,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
    for ending in ("parquet", "npy"):
        assert Path(f"one.{ending}").read_bytes() == Path(f"two.{ending}").read_bytes()


@pytest.mark.kills
@pytest.mark.parametrize(
    ("moment", "named"),
    [
        ("daskcluster.methods.partition.partitioning:Partitions.save", False),
        ("daskcluster.methods.partition.partitioning:Partitions.save_centres", True),
        ("daskcluster.jobs.run:Run.done", True),
    ],
)
def test_a_kill_after_the_last_pass_loses_no_centre(
    moment: str, named: bool, folder: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("partition", "X.npy", "--target-size", "100", "--output", "parts.zarr")
    command = (*command, "--centroids", "centres.npy", "--threads", "1")
    state = ("--name", "one") if named else ("--checkpoint", "state")
    kill_at(moment, *command, *state)
    expected = dc.partition(X, 100)
    monkeypatch.setattr("daskcluster.methods.partition.training.BalancedKMeans.fit", None)
    record(*command, *state, *(() if named else ("--resume", "--overwrite")))
    group = zarr.open_group("parts.zarr", mode="r")
    np.testing.assert_array_equal(group["partition"][:], expected.partition)
    np.testing.assert_array_equal(np.load("centres.npy"), expected.centres)
    left = [path.name for path in folder.rglob("*") if "penalties" in str(path)]
    assert not left


def test_from_bucket_to_bucket(
    folder: Path, s3: dict[str, Any], bucket: tuple[str, ...], record: Record
) -> None:
    record("convert", "X.npy", "s3://rows/partition/X.zarr", "--chunk-rows", "200", *bucket)
    record(
        "partition", "s3://rows/partition/X.zarr", "--target-size", "100", "--output",
        "s3://rows/partition/parts.zarr", "--centroids", "s3://rows/partition/centres.npy",
        "--checkpoint", "s3://rows/partition/state", *bucket,
    )  # fmt: skip
    found = dc.partition(X, 100)
    group = zarr.open_group("s3://rows/partition/parts.zarr", mode="r", storage_options=s3)
    np.testing.assert_array_equal(group["partition"][:], found.partition)
    filesystem = pytest.importorskip("s3fs").S3FileSystem(**s3)
    assert filesystem.find("rows/partition/state") == []
