"""Streams and sweeps as jobs with a name, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import jobs
from daskcluster.errors import (
    InvalidParameterError,
    JobCancelledError,
    LeaseError,
    OutputExistsError,
)
from daskcluster.events import Event, FitsMade
from daskcluster.jobs.registry import JobRegistry
from daskcluster.jobs.run import JobMonitor
from daskcluster.methods.streaming.service import Cycle
from daskcluster.storage.lease import Lease, folder_of
from tests.methods.streaming.service.feeds import OPTIONS, bits, open_loop, put


class PowerCutError(Exception):
    pass


class Asked(JobRegistry):
    """A board on which somebody asks a job to stop, sooner or later."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.reports: list[dict[str, Any]] = []
        self.asked = 0
        self.stop_at = stop_at

    def is_cancelled(self, name: str) -> bool:
        self.asked += 1
        return self.stop_at is not None and self.asked >= self.stop_at

    def report(self, name: str, line: str, **facts: Any) -> None:
        self.reports.append({"line": line, **facts})


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    for number in range(2):
        put(tmp_path / "feed", number)
    return tmp_path / "feed"


def follow(feed: Path, **changes: Any) -> Cycle:
    state = str(feed.parent / "state")
    return jobs.stream(str(feed), **{"state": state, "name": "a", **OPTIONS, **changes})


def last_lease(folder: Path) -> dict[str, Any]:
    file = max(path for path in (folder / "jobs").glob("*.json") if path.name.count(".") == 1)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_a_stream_looks_again_under_its_name(feed: Path) -> None:
    assert follow(feed).rows_seen == 1400
    put(feed, 2)
    assert follow(feed).new_rows == 700
    assert follow(feed).new_rows == 0
    # What was done is not continued with: these were three first attempts.
    assert last_lease(feed.parent / "state.partial")["attempt"] == 1
    assert bits(open_loop(feed, feed.parent / "state")) == bits(whole(feed))


def whole(feed: Path) -> Any:
    loop = open_loop(feed, feed.parent / "whole")
    loop.cycle()
    return loop


def test_a_stream_that_was_cut_off_continues(feed: Path) -> None:
    def cut(cycle: Cycle) -> None:
        raise PowerCutError

    with pytest.raises(PowerCutError):
        follow(feed, every=0.0, heard=cut)
    put(feed, 2)
    heard: list[int] = []

    def stop(cycle: Cycle) -> None:
        heard.append(cycle.new_rows)
        if len(heard) == 3:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        follow(feed, every=0.0, heard=stop)
    assert heard == [700, 0, 0]
    assert last_lease(feed.parent / "state.partial")["attempt"] == 2


def test_one_job_at_a_time_has_a_state(feed: Path) -> None:
    folder = folder_of(str(feed.parent / "state"))

    def overtake(cycle: Cycle) -> None:
        with pytest.raises(LeaseError, match="is being written by the job 'a'"):
            follow(feed, name="b")
        Lease(folder, "a", last_lease(feed.parent / "state.partial")["arguments"]).take()

    with pytest.raises(LeaseError, match="restarted by another process"):
        follow(feed, every=0.0, heard=overtake)
    # Who took over has not ended: nobody else may come, it may.
    with pytest.raises(LeaseError, match="by the job 'a'"):
        follow(feed, name="b")
    assert follow(feed).new_rows == 0
    assert follow(feed, name="b").rows_seen == 1400


def test_a_stream_without_a_name_keeps_nothing(feed: Path) -> None:
    assert follow(feed, name=None).rows_seen == 1400
    assert sorted(path.name for path in feed.parent.iterdir()) == ["feed", "state"]
    with pytest.raises(InvalidParameterError, match=r"every=-1\.0 should be >= 0"):
        follow(feed, every=-1.0)


def test_cycles_with_new_rows_are_reported_to_the_scheduler(feed: Path) -> None:
    registry = Asked()
    watch = JobMonitor("a", registry, None)
    for _ in range(3):
        follow(feed, name=None, callbacks=(watch,))
    said = [each for each in registry.reports if "new rows" in each["line"]]
    assert len(said) == 1
    assert said[0]["rows_seen"] == 1400
    assert "1,400 new rows of 2 objects" in said[0]["line"]
    # Cycles that find nothing do not push what was said out of the log.
    assert registry.reports[-1] == said[0]


def test_a_job_that_waits_can_be_cancelled() -> None:
    watch = JobMonitor("a", Asked(stop_at=2), None)
    watch.listen(0.0)
    with pytest.raises(JobCancelledError, match="'a' was cancelled"):
        watch.rest(250.0)
    JobMonitor("a", Asked(), None).rest(0.0)


# -- sweeps ----------------------------------------------------------------------------------------------


def blobs() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (
        20 * rng.normal(size=(4, 3))[rng.integers(0, 4, 3000)] + rng.normal(size=(3000, 3))
    ).astype(np.float32)


SWEEP: dict[str, Any] = {
    "ks": [2, 3, 4, 5, 6],
    "n_seeds": 1,
    "coreset_size": 500,
    "random_state": 0,
}


def test_a_sweep_can_be_cancelled_between_its_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskcluster.jobs.run.CANCEL_SECONDS", 0.0)
    monkeypatch.setattr("daskcluster.jobs.run._REPORT_SECONDS", 0.0)
    rows = np.random.default_rng(0).normal(size=(3_000, 2))
    registry, heard = Asked(), list[Event]()
    watch = JobMonitor("a", registry, None)

    def hear(event: Event) -> None:
        heard.append(event)
        if event == FitsMade(2, 6):
            registry.stop_at = 0
        watch(event)

    with pytest.raises(JobCancelledError, match="'a' was cancelled"):
        dc.select_k(rows, 2, 4, n_seeds=2, coreset_size=500, random_state=0, callbacks=[hear])
    assert heard[-1] == FitsMade(2, 6)
    message = [each for each in registry.reports if each.get("phase") == "fits"]
    assert [each["share"] for each in message] == [1 / 6, 2 / 6]


def test_a_sweep_is_a_job(tmp_path: Path) -> None:
    rows, output = tmp_path / "rows.npy", str(tmp_path / "out" / "table.json")
    np.save(rows, blobs())
    record = jobs.sweep(str(rows), output=output, name="a", **SWEEP)
    found = dc.select_k(blobs(), **SWEEP)
    assert (record.best_k, record.candidates) == (found.best_k, found.table())
    assert json.loads(Path(output).read_text()) == record.as_dict()
    # Done: the record is returned, for the same arguments alone.
    assert jobs.sweep(str(rows), output=output, name="a", **SWEEP) == record
    with pytest.raises(InvalidParameterError, match=r"ks was .* and is \[2, 3\]"):
        jobs.sweep(str(rows), output=output, name="a", **{**SWEEP, "ks": [2, 3]})
    with pytest.raises(OutputExistsError, match="exists already; pass overwrite=True"):
        jobs.sweep(str(rows), output=output, **SWEEP)
    again = jobs.sweep(str(rows), output=output, overwrite=True, **{**SWEEP, "ks": [2, 3]})
    assert json.loads(Path(output).read_text())["best_k"] == again.best_k
    with pytest.raises(InvalidParameterError, match=r"should end in one of \.json"):
        jobs.sweep(str(rows), output=str(tmp_path / "table.txt"), **SWEEP)
