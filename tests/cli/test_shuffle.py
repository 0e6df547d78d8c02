"""``daskcluster shuffle``: what it writes, says and refuses."""

from __future__ import annotations

import os
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


def test_the_command_equals_the_function(here: Path, record: Record, rows: np.ndarray) -> None:
    done = record(
        "shuffle", "rows.npy", "o.zarr", "--random-state", "7", "--with-index", "i.zarr",
        "--chunk-rows", "100", "--shard-rows", "400",
    )  # fmt: skip
    index = zarr.open_array("i.zarr", mode="r")[:]
    array = zarr.open_array("o.zarr", mode="r")
    np.testing.assert_array_equal(array[:], rows[index])
    assert (array.chunks, array.shards) == ((100, 4), (400, 4))
    assert (done["n_rows"], done["random_state"], done["passes"]) == (2000, 7, 1)
    assert done["index"] == str(here / "i.zarr")
    dc.shuffle(rows, "again.zarr", random_state=7)
    np.testing.assert_array_equal(zarr.open_array("again.zarr", mode="r")[:], array[:])


def test_weighted_rows_are_listed_by_info(
    here: Path, run: Run, record: Record, rows: np.ndarray
) -> None:
    weights = np.arange(2000.0)
    np.save("w.npy", weights)
    result = run("shuffle", "rows.npy", "o.zarr", "--weights", "w.npy", "--random-state", "7")
    assert result.exit_code == 0, result.output
    lines = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert lines["weights"].strip() == "weights"
    assert lines["random state"].strip() == "7"
    listed = record("info", "o.zarr")
    assert listed == {
        "kind": "group",
        "arrays": {"X": "2000 x 4 float32", "weights": "2000 float64"},
    }
    assert "2000 x 4 float32" in run("info", "o.zarr").stdout
    facts = record("info", "o.zarr", "--array", "X", "--weights", "weights")
    assert (facts["shuffled"], facts["weighted"]) == ("random_state=7", True)
    assert record("info", "rows.npy").get("shuffled") is None
    fitted = record(
        "fit", "o.zarr", "--array", "X", "--weights", "weights", "--n-clusters", "6", "--model", "m"
    )
    assert fitted["n_rows"] == 2000


def test_a_dry_run_prints_the_cost_and_writes_nothing(
    here: Path, run: Run, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskcluster.data.shuffle_passes._SORT_BYTES", 10**6)  # too much for memory
    arguments = ("shuffle", "rows.npy", "o.zarr", "--memory-limit", "400MB", "--scratch", ".")
    plan = record(*arguments, "--dry-run")
    assert os.listdir(here) == ["rows.npy"]
    assert (plan["dry_run"], plan["passes"], plan["scratch"]) == (True, 2, str(here))
    assert plan["bytes_read"] == plan["bytes_written"] == 2000 * 16
    assert plan["bytes_scratch"] == 2000 * (16 + 8)
    assert 0 < plan["memory"] <= plan["memory_limit"] == 400_000_000
    expected = run(*arguments, "--dry-run").stdout
    assert "through" in expected
    assert f"free in {here}" in expected
    done = record(*arguments)
    for name in ("passes", "n_buckets", "bytes_read", "bytes_written", "bytes_scratch"):
        assert done[name] == plan[name]
    refused = run(*arguments, "--dry-run")
    assert refused.exit_code == 1
    assert "exists already; pass --overwrite" in refused.stderr
    assert run(*arguments, "--overwrite").exit_code == 0


def test_failures_leave_nothing(here: Path, run: Run) -> None:
    for arguments, code, message in (
        (("rows.npy",), 2, "Missing argument 'OUTPUT'"),
        (("rows.npy", "o.zarr", "--random-state", "-1"), 2, "-1 is not in the range x>=0"),
        (("rows.npy", "o.zarr", "--memory-limit", "lots"), 2, "is not a size"),
        (("rows.npy", "o.zarr", "--memory-limit", "1MB"), 1, "raise the limit"),
        (("rows.npy", "o.zarr", "--scratch", "absent"), 1, "does not exist"),
        (("rows.npy", "o.zarr", "--with-index", "o.zarr"), 1, "different URLs"),
        (("rows.npy", "o.zarr", "--chunk-rows", "3", "--shard-rows", "4"), 1, "a multiple"),
        (("absent", "o.zarr"), 1, "absent"),
        (("rows.npy", "other.npy", "--overwrite"), 1, "written as Zarr, a folder"),
        (("rows.npy", "rows.npy", "--overwrite"), 1, "would replace the source"),
    ):
        result = run("shuffle", *arguments)
        assert result.exit_code == code, result.output
        assert message in " ".join(result.stderr.split())
        assert result.stdout == ""
        assert os.listdir(here) == ["rows.npy"]


def test_other_folders_are_not_replaced(here: Path, run: Run) -> None:
    (here / "folder").mkdir()
    (here / "folder" / "notes").write_text("mine")
    result = run("shuffle", "rows.npy", "folder", "--overwrite")
    assert result.exit_code == 1
    assert "is not of a kind that" in " ".join(result.stderr.split())
    assert (here / "folder" / "notes").read_text() == "mine"
