"""``daskcluster stream`` and ``stream-status``."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import Result

import daskcluster as dc
from tests.cli.conftest import start
from tests.data.conftest import s3  # noqa: F401  (a fixture)
from tests.jobs.conftest import soon
from tests.methods.streaming.service.feeds import bits, open_loop, put

Run = Callable[..., Result]
STREAM = ("stream", "feed", "--state", "state", "--n-clusters", "4", "--coreset-size", "120")


def last(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def test_once_after_each_arrival(here: Path, run: Run) -> None:
    for number in range(3):
        put(here / "feed", number)
        found = last(run(*STREAM, "--once", "--labels", "labels"))
        assert found["rows_seen"] == found["model_version"] == 700 * (number + 1)
        assert found["new_rows"] == 700
    assert last(run(*STREAM, "--labels", "labels"))["new_rows"] == 0
    assert dc.load_model(found["model"]).rows_seen_ == 2100
    labels = zarr.open_array("labels/part-0001.zarr", mode="r")
    assert (labels.shape, labels.dtype) == ((700,), np.int32)
    refused = run(*STREAM, "--half-life", "5000")
    assert refused.exit_code == 1
    assert "parameters.half_life was None and is '5000'" in refused.stderr


def test_the_number_of_clusters_is_needed(here: Path, run: Run) -> None:
    put(here / "feed", 0)
    lacking = run("stream", "feed", "--state", "state")
    assert lacking.exit_code == 1
    assert "The 'n_clusters' parameter of" in lacking.stderr


def test_findings_are_printed_on_stderr(here: Path, run: Run) -> None:
    put(here / "feed", 0)
    put(here / "feed", 1)
    (here / "feed" / "part-0001.zarr" / "c" / "0" / "0").unlink()
    result = run(*STREAM)
    assert last(result)["findings"][0]["what"] == "unsettled"
    assert "unsettled: 'part-0001.zarr' waits: half-written: 1 of 3 chunks" in result.stderr
    for flags in (("--once", "--every", "3s"), ("--stall-after", "1m")):
        assert run(*STREAM, *flags).exit_code == 2
    assert "is not a time" in run(*STREAM, "--every", "often").stderr
    wrong = run("stream", "feed", "--state", "other", "--n-clusters", "4", "--half-life", "soon")
    assert wrong.exit_code == 1
    assert "half_life='soon' should be a number of rows" in wrong.stderr


def test_nothing_to_read_is_said_once(here: Path, run: Run) -> None:
    (here / "feed").mkdir()
    empty = run(*STREAM, "--once")
    assert last(empty)["objects"] == 0
    assert empty.stderr.count("Nothing to read at 'feed' yet; check the folder") == 1
    put(here / "feed", 0)
    assert "Nothing to read" not in run(*STREAM, "--once").stderr


def test_status(here: Path, run: Run) -> None:
    missing = run("stream-status", "state")
    assert missing.exit_code == 1
    assert "no state of a stream" in missing.stderr
    put(here / "feed", 0)
    run(*STREAM)
    shown = run("stream-status", "state").stdout
    assert "rows seen" in shown
    assert "part-0000.zarr: 700 rows" in shown
    found = last(run("stream-status", "state", "--json"))
    assert (found["rows_seen"], found["objects"], found["rejected"]) == (700, 1, 0)


def test_status_is_refreshed(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put(here / "feed", 0)
    run(*STREAM)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("daskcluster.cli.job_commands.time.sleep", sleep)
    for flags, text in (((), "rows seen  "), (("--json",), '"rows_seen"')):
        waited.clear()
        shown = run("stream-status", "state", "--watch", "5s", *flags)
        assert (shown.stdout.count(text), waited) == (3, [5.0] * 3)


@pytest.mark.kills
def test_a_loop_as_a_process(here: Path) -> None:
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    put(here / "feed", 0)
    served = ("--metrics-port", "0", "--stall-after", "2s")
    process = start(*STREAM, "--every", "0.2s", "--settle", "0", *served, cwd=here)
    assert process.stdout is not None
    assert process.stderr is not None
    url = process.stderr.readline().split()[-1]
    assert json.loads(process.stdout.readline())["rows_seen"] == 700
    put(here / "feed", 1)
    while json.loads(process.stdout.readline())["rows_seen"] < 1400:
        pass
    json.loads(process.stdout.readline())
    metrics = urllib.request.urlopen(url, timeout=10).read().decode()
    assert "daskcluster_stream_rows_seen 1400.0" in metrics
    assert 'daskcluster_stream_odd_objects{what="late"} 0.0' in metrics
    soon(lambda: health(url) == 200)
    pipe = here / "feed" / "part-0002.zarr" / "zarr.json"
    pipe.parent.mkdir()
    os.mkfifo(pipe)  # who reads it waits
    soon(lambda: health(url) == 503)
    with pipe.open("w") as end:
        pipe.unlink()  # for the next look
        end.write("{}")
    soon(lambda: health(url) == 200)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    options = {"random_state": 0}
    assert bits(open_loop("feed", "state", **options))["version"] == 1400


def health(metrics: str) -> int:
    try:
        with urllib.request.urlopen(metrics.replace("/metrics", "/health"), timeout=20) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        return error.code
