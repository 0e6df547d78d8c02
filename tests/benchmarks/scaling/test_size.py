"""The commands ``size`` and ``calibrate``: rows that need not exist, on clusters that need not either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import Result

from tests.benchmarks.scaling.model.rates import REFERENCE, KernelRate, save_rates

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


def test_rows_that_nobody_has(here: Path, record: Record, run: Run) -> None:
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


def test_rates_of_another_machine(here: Path, record: Record) -> None:
    slow = replace(REFERENCE, nearest=KernelRate(1e-9, 1e-9, 1e-9))
    save_rates(slow, "slow.json")
    own, other = (
        record(*LARGE, "--workers", "10", *more)["projections"][0]["seconds_at_most"]
        for more in ((), ("--rates", "slow.json"))
    )
    assert other > 10 * own


def test_what_does_not_fit(here: Path, run: Run) -> None:
    message = run(*LARGE, "--workers", "10", "--worker-memory", "300MB").stdout
    assert "does not fit: projected memory" in message


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("size", "10x2", "--n-clusters", "20"), 1, "n_samples=10 should be >="),
        (("size", "10x0", "--n-clusters", "2"), 1, "10x0"),
        (("size", "10x2"), 2, "Missing option '--n-clusters'"),
        ((*LARGE, "--workers", "few"), 2, "is not a list of numbers such as 10,100,1000"),
        ((*LARGE, "--touched", "2"), 2, "2.0 is not in the range"),
        (
            (*LARGE, "--rates", "rows.npy"),
            1,
            "should be a file of `calibrate`",
        ),
        ((*LARGE, "--rates", "absent.json"), 1, "absent.json"),
        (("calibrate", "--output", "rows.npy"), 2, "rows.npy exists; pass --overwrite"),
    ],
)
def test_bad_usage(
    here: Path, run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.output.split())
