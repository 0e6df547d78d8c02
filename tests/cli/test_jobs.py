"""Jobs from the command line: leaving one with a cluster, seeing it, reading it, stopping it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from distributed import Client

from daskcluster.models.fitted import load_document
from tests.methods.streaming.service.feeds import put

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
    assert found["inertia"] == found["record"]["inertia"] == load_document("m").inertia
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


def test_the_environment_names_the_scheduler_unless_flags_say_otherwise(
    here: Path, record: Read, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", client.scheduler.address)
    record("fit", "rows.npy", *FIT, "--model", "m", "--detach", "--name", "cli-named")
    assert record("jobs", "status", "cli-named", "--wait")["state"] == "done"
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:9")
    direct = record("fit", "rows.npy", *FIT, "--model", "here", "--threads", "1")
    assert direct["inertia"] == load_document("m").inertia


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


def test_a_detached_fit_takes_its_scale_and_all_its_paths_along(
    here: Path, record: Read, scheduler: tuple[str, str]
) -> None:
    np.save("weights.npy", np.linspace(0.5, 1.5, 2000))
    record("fit", "rows.npy", *FIT, "--model", "first")
    for more in (("--scale", "standard"), ("--init", "./first")):
        fit, name = ("fit", "rows.npy", *FIT, *more, "--weights", "weights.npy"), f"cli{more[0]}"
        direct = record(*fit, "--model", f"direct{name}")
        kept = ("--model", f"m{name}", "--checkpoint", "kept", "--detach", "--name", name)
        assert record(*fit, *kept, *scheduler)["checkpoint"] == str(here / "kept")
        found = record("jobs", "status", name, "--wait", *scheduler)
        assert found["state"] == "done", found
        assert found["record"]["inertia"] == direct["inertia"]
    assert (here / "kept").is_dir()


def test_a_stream_is_left_with_the_cluster(
    here: Path, record: Read, run: Run, scheduler: tuple[str, str]
) -> None:
    stream = ("stream", "feed", "--state", "state", "--n-clusters", "4", "--coreset-size", "120")
    left = (*stream, "--detach", "--name", "cli-stream", *scheduler)
    for number in range(2):  # the same name looks again
        put(here / "feed", number)
        assert record(*left)["state"] == str(here / "state")
        found = record("jobs", "status", "cli-stream", "--wait", *scheduler)
        assert (found["state"], found["rows_seen"]) == ("done", 700 * (number + 1))
        assert found["record"]["new_rows"] == 700
    assert "1,400 rows" in run("jobs", "list", *scheduler).stdout
    logs = run("jobs", "logs", "cli-stream", *scheduler).stdout
    assert "700 new rows of 1 object in" in logs
    refused = run(*left, "--every", "1s", "--metrics-port", "0")
    assert refused.exit_code == 2
    assert "runs the loop on the cluster" in " ".join(refused.stderr.split())
    # A loop that continues is cancelled while it waits.
    record(*stream, "--every", "1h", "--settle", "0", "--detach", "--name", "cli-loop", *scheduler)
    assert record("jobs", "cancel", "cli-loop", "--wait", *scheduler)["state"] == "cancelled"


def test_sweeps_and_scores_are_left_with_the_cluster(
    here: Path, record: Read, run: Run, scheduler: tuple[str, str]
) -> None:
    sweep = (
        "sweep", "rows.npy", "--k", "4:8", "--seeds", "1", "--coreset-size", "500", "--random-state", "0",
    )  # fmt: skip
    left = ("--detach", "--name", "cli-sweep", *scheduler)
    record(*sweep, "--output", "table.json", *left)
    found = record("jobs", "status", "cli-sweep", "--wait", *scheduler)
    direct = record(*sweep)
    assert found["record"]["candidates"] == direct["candidates"]
    assert json.loads(Path("table.json").read_text())["best_k"] == direct["best_k"]
    assert (
        f"best      k={direct['best_k']} by knee"
        in run("jobs", "status", left[2], *scheduler).stdout
    )

    record("fit", "rows.npy", *FIT, "--model", "m")
    score = ("score", "m", "rows.npy", "--metrics", "davies-bouldin")
    record(*score, "--detach", "--name", "cli-score", *scheduler)
    found = record("jobs", "status", "cli-score", "--wait", *scheduler)
    assert found["record"]["metrics"] == record(*score)["metrics"]
    assert "davies bouldin" in run("jobs", "status", "cli-score", *scheduler).stdout


def test_a_name_stands_for_its_arguments(
    here: Path, run: Run, record: Read, scheduler: tuple[str, str]
) -> None:
    left = ("--model", "m", "--detach", "--name", "cli-once", *scheduler)
    record("fit", "rows.npy", *FIT, *left)
    done = record("jobs", "status", "cli-once", "--wait", *scheduler)
    assert done["state"] == "done"
    # The same command without --detach is refused as well.
    for options in (left, (*left[:2], *left[3:])):
        refused = run("fit", "rows.npy", *FIT, "--max-iter", "3", *options)
        assert refused.exit_code == 1
        assert "max_iter was the default and is 3" in " ".join(refused.stderr.split())
    assert record("jobs", "status", "cli-once", *scheduler) == done
    assert record("fit", "./rows.npy", *FIT, *left)["job"] == "cli-once"


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
