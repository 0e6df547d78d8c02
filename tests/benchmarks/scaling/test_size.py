"""The commands ``size`` and ``calibrate``: rows that need not exist, on clusters that need not either."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from click.testing import Result

Record = Callable[..., dict[str, Any]]
Run = Callable[..., Result]
LARGE = (
    "size",
    "1_000_000_000x128",
    "--n-clusters",
    "1000",
    "--algorithm",
    "lloyd",
    "--max-iter",
    "20",
)


def test_a_fit_of_rows_that_do_not_exist_is_projected(here: Path, record: Record, run: Run) -> None:
    found = record(*LARGE, "--workers", "10,1000", "--store-bandwidth", "20GB")
    assert (found["n_rows"], found["bytes_decoded"]) == (10**9, 512 * 10**9)
    few, many = found["projections"]
    assert (few["workers"], many["workers"]) == (10, 1000)
    assert few["later_pass"]["bottleneck"] == "kernel"
    assert few["seconds_at_most"] > many["seconds_at_most"] > 0
    message = run(*LARGE, "--workers", "10,1000").stdout
    assert "1,000 workers" in message
    assert "(kernel)" in message
    assert [file.name for file in here.iterdir()] == ["rows.npy"]


def test_rows_of_a_source(here: Path, record: Record) -> None:
    zarr.save_array("rows.zarr", np.load("rows.npy"))
    found = record("size", "rows.zarr", "--n-clusters", "6", "--workers", "2")
    assert (found["n_rows"], found["n_features"]) == (2000, 4)


def test_bad_usage(here: Path, run: Run) -> None:
    for arguments, code, message in (
        (("size", "10x2", "--n-clusters", "20"), 1, "n_samples=10 should be >="),
        (("size", "10x2"), 2, "Missing option '--n-clusters'"),
        ((*LARGE, "--workers", "few"), 2, "is not a list of numbers such as 10,100,1000"),
        ((*LARGE, "--rates", "rows.npy"), 1, "should be a file of `calibrate`"),
        (("calibrate", "--output", "rows.npy"), 2, "rows.npy exists; pass --overwrite"),
    ):
        result = run(*arguments)
        assert result.exit_code == code, result.output
        assert message in " ".join(result.output.split())
