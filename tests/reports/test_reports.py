"""What people see of a fit: times, tables, progress."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest

from daskcluster.cli.console import Console
from daskcluster.events import (
    Event,
    FitEnded,
    FitsMade,
    FitStarted,
    IterationEnded,
    Notice,
    PassEnded,
    PassProgress,
    PassStarted,
    Remaining,
    SeedingEnded,
    StopReason,
    WorkersPrepare,
)
from daskcluster.kernels.compiling import announce
from daskcluster.reports import progress as lines_module
from daskcluster.reports.contents import Clusters, Report, Table
from daskcluster.reports.pages import format_seconds, rows_of_model, rows_of_record
from daskcluster.reports.progress import ProgressLines, TerminalProgress
from tests.reports.models import make_model


def fit_events(max_iter: int = 10) -> list[Event]:
    return [
        FitStarted("lloyd", 1000, 3, 4, max_iter=max_iter, engine="local"),
        PassStarted("k-means||", 1000),
        PassProgress(400),
        PassProgress(600),
        PassEnded("k-means||", 0.5, 12000),
        SeedingEnded("k-means||", passes=6, seconds=3.0),
        PassStarted("assign", 1000),
        PassProgress(1000),
        PassEnded("assign", 0.1, 0),
        IterationEnded(1, inertia=50.0, shift=2.0, seconds=0.1),
        IterationEnded(2, inertia=40.0, shift=0.5, seconds=0.3, n_empty=1),
        Notice("an oddity"),
        FitEnded(StopReason.TOLERANCE, 39.5, 2, 9, 12000, 5.0),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "0.0123 s"), (59.4, "59.4 s"), (59.6, "1 min 00 s"), (3599.7, "1 h 00 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_the_remaining_time_is_an_upper_bound() -> None:
    remaining = Remaining()
    assert remaining.at_most is None
    for event in fit_events():
        remaining(event)
    assert remaining.at_most == pytest.approx(0.2 * (8 + 1))
    remaining(FitStarted("lloyd", 1, 1, 1, max_iter=3, engine="local"))
    assert remaining.at_most is None


def test_lines_of_a_fit() -> None:
    written: list[str] = []
    lines = ProgressLines(written.append)
    for event in fit_events():
        lines(event)
    assert written == [
        "lloyd: 1,000 rows of 3 features into 4 clusters, engine local",
        "seeding by k-means||: 6 passes, 3 s",
        "iteration 1/10, at most 1 s left: inertia 50, shift 2, 0.1 s, 10,000 rows/s",
        "iteration 2/10, at most 1.8 s left: inertia 40, shift 0.5, 0.3 s, 3,330 rows/s, 1 empty",
        "an oddity",
        "ended (tolerance): inertia 39.5",
    ]


def test_lines_of_long_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(lines_module.time, "monotonic", lambda: now[0])
    written: list[str] = []
    lines = ProgressLines(written.append)
    lines(PassStarted("labels", 1000))
    for seconds in (4.0, 8.0, 9.0, 20.0):
        now[0] = seconds
        lines(PassProgress(100))
    lines(PassProgress(10_000))  # a source of unknown length
    lines(PassEnded("labels", 30.0, 0))
    assert written == [
        "labels: 20% of the rows, 32 s left",
        "labels: 40% of the rows, 30 s left",
        "labels: done in 30 s",
    ]


def test_lines_of_many_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(lines_module.time, "monotonic", lambda: now[0])
    written: list[str] = []
    lines = ProgressLines(written.append)
    for seconds in range(12):
        now[0] = float(seconds)
        lines(FitsMade(seconds, 20))
    assert written == ["5 of 20 fits", "10 of 20 fits"]


def test_a_terminal_keeps_stages_and_replaces_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    size = os.terminal_size((60, 24))
    monkeypatch.setattr(lines_module.shutil, "get_terminal_size", lambda: size)
    out = io.StringIO()
    display = TerminalProgress(out)
    for event in [*fit_events(), WorkersPrepare()]:
        display(event)
    *kept, last = out.getvalue().split("\n")
    shown = [line.split("\r\x1b[K")[1:] for line in kept]
    assert [parts[-1] for parts in shown] == [
        "lloyd: 1,000 rows of 3 features into 4 clusters, engine local",
        "seeding by k-means||: 6 passes, 3 s",
        "an oddity",
        "ended (tolerance): inertia 39.5",
    ]
    assert "iteration 2/10, at most 1.8 s left: inertia 40, shift 0.5, " in shown[2]
    assert last.startswith("\r\x1b[Kworkers load their kernels")


def test_a_terminal_shows_that_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", out)
    with Console().watching():
        announce(3)
    announce(4)  # nobody watches any more
    assert "compiling kernels, once for this machine: 3" in out.getvalue()
    assert "machine: 4" not in out.getvalue()


def test_tables_of_records_and_models() -> None:
    record = {"n_rows": 12345, "inertia": 0.5, "seconds": 75.0, "labels": None, "before": [{}]}
    assert rows_of_record(record) == [
        ("rows", "12,345"),
        ("inertia", "0.5"),
        ("seconds", "1 min 15 s"),
    ]
    rows = dict(rows_of_model(make_model(4)))
    assert rows["mean squared distance"] == f"{4 / 6:.10g}"
    assert rows["stop reason"] == "the centres moved less than tol allows"


def test_clusters_come_largest_first_and_empty_ones_have_no_mean() -> None:
    for weights, expected in (([1.0, 0.0, 1.0], "0 2 1"), ([0.0, 0.0, 0.0], "0 1 2")):
        data = Clusters(np.array([3, 0, 3]), np.array(weights), np.array([5.0, 0.0, 1.0]))
        sections = Report(make_model(3), "m", data=data).sections()
        (parts,) = (one.parts for one in sections if one.title == data.title)
        *_, table = parts
        assert isinstance(table, Table)
        assert " ".join(row[0] for row in table.rows) == expected
        assert table.rows[-1][3:] == ("0.00%", "0")
