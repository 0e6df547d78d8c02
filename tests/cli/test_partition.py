"""``daskcluster partition``: the function, on disk; a plan; what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import Result

import daskcluster as dc

Run = Callable[..., Result]
Record = Callable[..., dict[str, Any]]

X = np.random.default_rng(0).normal(size=(1500, 8)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an own folder, with ``X.npy`` in it, that the test runs in."""
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    return tmp_path


def test_it_is_the_function(folder: Path, record: Record) -> None:
    done = record(
        "partition", "X.npy", "--target-size", "100", "--max-size", "150", "--spill", "1",
        "--output", "parts.zarr", "--centroids", "centres.npy", "--checkpoint", "state",
    )  # fmt: skip
    found = dc.partition(X, 100, max_size=150, spill=1)
    group = zarr.open_group("parts.zarr", mode="r")
    np.testing.assert_array_equal(group["partition"][:], found.partition)
    np.testing.assert_array_equal(group["copy_1"][:], found.copies[:, 0])
    np.testing.assert_array_equal(np.load("centres.npy"), found.centres)
    assert done["n_partitions"] == found.n_partitions
    assert done["largest"] == found.sizes.max() <= 150


def test_a_plan_needs_no_output(folder: Path, record: Record, run: Run) -> None:
    plan = record("partition", "X.npy", "--target-size", "100", "--dry-run")
    assert plan["n_partitions"] == 15
    assert plan["memory"] >= plan["memory_driver"] + plan["memory_task"]
    assert "Missing option '--output'" in run("partition", "X.npy").output
    assert "--checkpoint" in run("partition", "X.npy", "--output", "o.zarr", "--resume").output
