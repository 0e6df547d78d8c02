"""The command as a process of its own: exit codes, signals, clusters, import time."""

from __future__ import annotations

import glob
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskcluster.models.fitted import load_document
from tests.cli.conftest import COMMAND, start


def finish(*arguments: str, timeout: float = 120) -> tuple[int, str, str]:
    process = start(*arguments)
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def test_exit_codes_and_streams(here: Path) -> None:
    fit = ("fit", "rows.npy", "--n-clusters", "4", "--model", "m.zarr")
    code, out, err = finish(*fit, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["model"] == "m.zarr"
    code, out, err = finish(*fit)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert len(err.splitlines()) == 1
    code, out, err = finish("fit", "rows.npy")
    assert (code, out) == (2, "")
    assert "Usage:" in err


def test_the_package_can_be_run() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "daskcluster", "fit"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("Usage: python -m daskcluster fit")


def test_two_processes_find_the_same_bits(here: Path, record: Any) -> None:
    fit = ("fit", "rows.zarr", "--n-clusters", "4", "--random-state", "3")
    record("convert", "rows.npy", "rows.zarr", "--chunk-rows", "100")
    record(*fit, "--model", "threads.zarr", "--threads", "1")
    record(*fit, "--model", "cluster.zarr", "--labels", "labels.zarr", "--workers", "2")
    threads, cluster = load_document("threads.zarr"), load_document("cluster.zarr")
    assert threads.centres.tobytes() == cluster.centres.tobytes()
    assert threads.inertia == cluster.inertia


def test_a_scheduler_by_address(here: Path, record: Any, client: Any) -> None:
    address = client.scheduler_info()["address"]
    record("convert", "rows.npy", "rows.zarr", "--chunk-rows", "100")
    fit = ("fit", "rows.zarr", "--n-clusters", "4", "--scheduler", address)
    assert record(*fit, "--dry-run")["threads"] == 2
    assert record(*fit, "--model", "m.zarr")["inertia"] == load_document("m.zarr").inertia
    assert len(client.scheduler_info()["workers"]) == 2  # the cluster is left as it was found


@pytest.mark.kills
@pytest.mark.parametrize(
    ("number", "code", "workers"),
    [
        pytest.param(signal.SIGINT, 130, (), id="INT-threads"),
        pytest.param(signal.SIGTERM, 143, (), id="TERM-threads", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, ("--workers", "2"), id="INT-cluster"),
        pytest.param(
            signal.SIGTERM, 143, ("--workers", "2"), id="TERM-cluster", marks=pytest.mark.slow
        ),
    ],
)
def test_a_fit_that_is_stopped_leaves_nothing(
    here: Path, number: signal.Signals, code: int, workers: tuple[str, ...]
) -> None:
    # Uniform rows and many clusters: it would go on for minutes.
    np.save("noise.npy", np.random.default_rng(0).random((400_000, 8), np.float32))
    process = start(
        "fit", "noise.npy", "--n-clusters", "300", "--tol", "0", "--max-iter", "100000", "--init",
        "random", "--model", "m.zarr", "--labels", "l.zarr", "--progress", *workers,
        start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:  # wait until it works
        if line.startswith("iteration 2/"):
            break
    # As a terminal does: to all processes of the group. A container's stop reaches the first only.
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    assert "Traceback" not in err
    assert ("Interrupted" in err) == (number == signal.SIGINT)
    assert sorted(os.listdir(here)) == ["noise.npy", "rows.npy"]


def test_a_conversion_that_is_stopped_leaves_nothing(here: Path) -> None:
    with open("long.csv", "w") as file:
        file.write("a,b,c,d\n" + "0.25,1.5,2.125,3\n" * 3_000_000)
    process = start("convert", "long.csv", "long.zarr")
    while not any(name.startswith("long.zarr") for name in os.listdir(here)):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert sorted(os.listdir(here)) == ["long.csv", "rows.npy"]


@pytest.mark.slow
def test_the_demo_on_a_cluster(here: Path) -> None:
    code, out, err = finish("demo", "--rows", "50000", "--json", timeout=300)
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert record["n_rows"] == 50_000
    assert Path(record["report"]).exists()


def newest(folder: str) -> int:
    """Return the highest number of a commit, of the fit or of a part of it."""
    found = glob.glob(f"{folder}/**/{'[0-9]' * 8}-*", recursive=True)
    return max((int(os.path.basename(path)[:8]) for path in found), default=0)


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        ("auto", ("--tol", "0")),
        pytest.param("mini-batch", ("--max-no-improvement", "none"), marks=pytest.mark.slow),
        pytest.param("sgd", ("--max-iter", "30"), marks=pytest.mark.slow),
        pytest.param("nested", ("--tol", "0", "--batch-size", "500"), marks=pytest.mark.slow),
        pytest.param("vrkm++", ("--tol", "0", "--max-iter", "40"), marks=pytest.mark.slow),
        pytest.param("backward-euler", ("--n-init", "3"), marks=pytest.mark.slow),
        pytest.param("var-gmm", ("--tol", "0", "--max-iter", "30"), marks=pytest.mark.slow),
        pytest.param("vc-gmm", ("--tol", "0", "--max-iter", "60"), marks=pytest.mark.slow),
        pytest.param("coreset", ("--tol", "0"), marks=pytest.mark.slow),
    ],
)
def test_a_killed_fit_resumes_to_the_same_bits(
    here: Path, record: Any, algorithm: str, more: tuple[str, ...]
) -> None:
    rows = np.random.default_rng(0).random((40_000, 12), dtype=np.float32)
    np.save("noise.npy", rows)
    fit = ("fit", "noise.npy", "--n-clusters", "40", "--random-state", "0")
    fit = (*fit, "--algorithm", algorithm, *more)
    kept = (*fit, "--checkpoint", "kept", "--checkpoint-every", "1", "--resume")
    record(*fit, "--model", "whole.zarr")
    process = start(*kept, "--model", "m.zarr")
    wait_until(lambda: newest("kept") >= 3, process)
    process.kill()
    process.communicate()
    assert not Path("m.zarr").exists()
    resumed = record(*kept, "--model", "m.zarr")
    whole, model = load_document("whole.zarr"), load_document("m.zarr")
    assert resumed["n_iter"] == whole.n_iter > 3
    assert model.centres.tobytes() == whole.centres.tobytes()
    assert model.facts() == whole.facts()
    code, _, err = finish(*fit, "--resume", "--model", "other.zarr")
    assert (code, "--resume needs --checkpoint" in err) == (2, True)


def wait_until(is_so: Any, process: Any) -> None:
    deadline = time.monotonic() + 200
    try:
        while not is_so():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.002)
    except BaseException:
        process.kill()
        raise


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-", "| true", "2>&1 | true"])
def test_closed_streams_and_pipes_end_no_command(here: Path, closed: str) -> None:
    fit = shlex.join([*COMMAND, "fit", "rows.npy", "--n-clusters", "4", "--random-state", "0"])
    more = "--progress --model m.zarr --labels l.npy --json"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{fit} {more} {closed}"], check=False, timeout=120
    )
    assert ran.returncode == 0
    assert load_document("m.zarr").n_clusters == 4
    assert np.load("l.npy").shape == (2000,)
    failing = ["bash", "-o", "pipefail", "-c", f"{shlex.join([*COMMAND, 'info', 'none'])} {closed}"]
    assert subprocess.run(failing, check=False, timeout=60).returncode == 1


def test_watching_ends_with_its_reader(here: Path, record: Any) -> None:
    record("stream", "rows.npy", "--state", "state", "--n-clusters", "4", "--once")
    watch = shlex.join([*COMMAND, "stream-status", "state", "--watch", "0.1s"])
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{watch} | head -n 1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout
