"""What people see of a fit: times, tables, progress."""

from __future__ import annotations

import io
import os
import pty
import re
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from textwrap import dedent
from typing import Any, TextIO

import numpy as np
import pytest

from daskcluster import KMeans, ProgressBar
from daskcluster.cli.console import Console
from daskcluster.events import (
    Event,
    FitEnded,
    FitFailed,
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
from daskcluster.reports.progress import ProgressLines
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


@pytest.fixture
def terminal() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """Yield a terminal of 24 lines of 100 columns, and a function that ends it and returns what it got."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    file = os.fdopen(theirs, "w")

    def written() -> str:
        file.close()
        text = b""
        with suppress(OSError):  # on Linux, the end of what a terminal got
            while part := os.read(ours, 65536):
                text += part
        return text.decode()

    yield file, written
    os.close(ours)


def screen(text: str, columns: int = 100) -> list[str]:
    """Return the lines of a terminal that got `text`, without those that are empty at its end."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[A|[\s\S]", text):
        if part == "\x1b[A":
            row -= 1
        elif part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + 1 :]
            column += 1
            assert column <= columns, lines[row]
    shown = [line.rstrip() for line in lines]
    while shown and not shown[-1]:
        shown.pop()
    return shown


def test_a_terminal_keeps_stages_and_removes_bars(
    terminal: tuple[TextIO, Callable[[], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "_DELAY_SECONDS", 0.0)
    file, written = terminal
    display = ProgressBar(file)
    for event in [WorkersPrepare(), *fit_events()]:
        display(event)
    text = written()
    assert screen(text) == [
        "lloyd: 1,000 rows of 3 features into 4 clusters, engine local",
        "seeding by k-means||: 6 passes, 3 s",
        "an oddity",
        "ended (tolerance): inertia 39.5",
    ]
    assert "workers load their kernels" in text
    assert re.search(r"k-means\|\|:  40%\|.*\| 400/1\.00k rows \[00:00<", text)
    assert re.search(r"iteration 2/10 \|.*\| \[00:00, at most 00:0\d left, inertia 40, shift", text)


def test_short_passes_one_after_the_other_share_a_bar(
    terminal: tuple[TextIO, Callable[[], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(lines_module.time, "monotonic", lambda: now[0])
    file, written = terminal
    display = ProgressBar(file)
    display(fit_events()[0])
    for _ in range(3):
        now[0] += 0.15
        display(PassStarted("k-means++", 100))
        display(PassProgress(40))
        now[0] += 0.2
        display(PassProgress(60))
        display(PassEnded("k-means++", 0.2, 0))
    display(SeedingEnded("k-means++", passes=3, seconds=1.0))
    display.close()
    text = written()
    assert re.findall(r"pass (\d): +\d+%\|.*?\| (\S+) rows", text)[:2] == [
        ("2", "40.0/100"),
        ("3", "0.00/100"),
    ]
    assert len(screen(text)) == 2


def test_a_fit_that_fails_leaves_no_bar(terminal: tuple[TextIO, Callable[[], str]]) -> None:
    file, written = terminal
    display = ProgressBar(file)
    for event in [*fit_events()[:-2], FitFailed("no space left")]:
        display(event)
    text = written()
    assert "iteration 0/10 |" in text
    assert len(screen(text)) == 2


def test_a_notebook_without_widgets_shows_text_and_no_warning() -> None:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    code = """
        import sys; sys.modules["ipywidgets"] = None
        from daskcluster import ProgressBar, events
        show = ProgressBar(sys.stdout)
        show(events.FitStarted("lloyd", 100, 1, 2, max_iter=10, engine="local"))
        show(events.IterationEnded(1, inertia=50.0, shift=2.0, seconds=0.1))
        show(events.FitEnded(events.StopReason.CALLBACK, 50.0, 1, 1, 0, 0.1))
    """
    streams = {"stdout": "", "stderr": ""}

    def heard(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            streams[message["content"]["name"]] += message["content"]["text"]

    try:
        reply = client.execute_interactive(dedent(code), timeout=60, output_hook=heard)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert reply["content"]["status"] == "ok"
    assert streams["stderr"] == ""
    assert "iteration 1/10 |" in streams["stdout"]
    assert streams["stdout"].endswith("ended (callback): inertia 50\n")


def test_a_log_gets_lines_and_a_quiet_fit_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    rows = np.array([[0.0], [1.0], [10.0], [11.0]])
    for verbose in (0, 1):
        KMeans(2, init=rows[[0, 2]], verbose=verbose).fit(rows)
        out, err = capfd.readouterr()
        assert err == ""
        kinds = [line.split()[0] for line in out.splitlines()]
        expected = (
            ["auto:", "seeding", *["iteration"] * (len(kinds) - 3), "ended"] if verbose else []
        )
        assert kinds == expected
        assert "\r" not in out


def test_a_terminal_shows_that_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", out)
    with Console().watching():
        announce(3)
        announce(4)
    announce(5)  # nobody watches any more
    assert "compiling kernels, once for this machine: 4" in out.getvalue()
    assert "machine: 5" not in out.getvalue()


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
