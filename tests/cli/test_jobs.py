"""Jobs from the command line: leaving one with a cluster, seeing it, reading it, stopping it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from distributed import Client

from daskcluster.models.persist import load_document

FIT = ("--n-clusters", "4", "--random-state", "3", "--algorithm", "lloyd")
Run = Callable[..., Result]
Read = Callable[..., dict[str, Any]]


@pytest.fixture
def scheduler(client: Client) -> tuple[str, str]:
    return "--scheduler", client.scheduler.address


def test_a_fit_is_left_with_the_cluster(
    here: Path, run: Run, record: Read, scheduler: tuple[str, str]
) -> None:
    record("convert", "rows.npy", "rows.zarr", "--chunk-rows", "500")
    # Relative paths: the workers stand elsewhere.
    left = record(
        "fit", "rows.zarr", *FIT, "--model", "m", "--detach", "--name", "cli-left", *scheduler
    )
    assert (left["job"], left["model"]) == ("cli-left", str(here / "m"))
    found = record("jobs", "status", "cli-left", "--wait", *scheduler)
    assert (found["state"], found["record"]["n_clusters"]) == ("done", 4)
    assert found["record"]["inertia"] == load_document("m").inertia
    direct = record("fit", "rows.zarr", *FIT, "--model", "direct")
    assert direct["inertia"] == found["record"]["inertia"]

    shown = run("jobs", "status", "cli-left", *scheduler)
    assert "state" in shown.stdout
    assert "cli-left" in run("jobs", "list", *scheduler).stdout
    assert "ended (converged)" in run("jobs", "logs", "cli-left", "--follow", *scheduler).stdout
    assert record("jobs", "logs", "cli-left", *scheduler)["lines"]
    cancelled = run("jobs", "cancel", "cli-left", *scheduler)
    assert "was over already (done)" in cancelled.stdout
    again = record("fit", "rows.zarr", *FIT, "--model", "m", "--name", "cli-left", *scheduler)
    assert again["seconds"] == found["record"]["seconds"]


def test_a_job_is_stopped(here: Path, record: Read, run: Run, scheduler: tuple[str, str]) -> None:
    np.save("noise.npy", np.random.default_rng(0).random((200_000, 8), np.float32))
    record(
        "fit", "noise.npy", "--n-clusters", "100", "--init", "random", "--tol", "0", "--max-iter",
        "100000", "--model", "m", "--detach", "--name", "cli-long", *scheduler,
    )  # fmt: skip
    assert record("jobs", "cancel", "cli-long", "--wait", *scheduler)["state"] == "cancelled"
    waited = run("jobs", "status", "cli-long", "--wait", *scheduler)
    assert waited.exit_code == 1
    assert not (here / "m").exists()


def test_bad_usage(here: Path, run: Run, scheduler: tuple[str, str]) -> None:
    detached = run("fit", "rows.npy", *FIT, "--model", "m", "--detach")
    assert detached.exit_code == 2
    assert "give its address with --scheduler" in detached.stderr
    listed = run("jobs", "list")
    assert listed.exit_code == 2
    assert "--scheduler" in listed.stderr
    absent = run("jobs", "status", "absent", *scheduler)
    assert absent.exit_code == 1
    assert "knows no job 'absent'" in absent.stderr
