"""Progress: bars on a terminal, plain lines in logs and pipes, and the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from daskcluster.events import (
    CycleEnded,
    DriftFound,
    EMStepEnded,
    Event,
    FitEnded,
    FitsMade,
    FitStarted,
    IterationEnded,
    Notice,
    PassEnded,
    PassProgress,
    PassShare,
    PassStarted,
    Remaining,
    SeedingEnded,
    StartEnded,
    WorkersPrepare,
    rows_passed,
    share_looked_at,
)
from daskcluster.reports.pages import format_rate, format_seconds, short_rate

_EVERY_SECONDS = 5.0


class ProgressLines:
    """Writes a line at the end of each stage, and every few seconds during a long pass.

    Parameters
    ----------
    write : callable (text) -> None
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._remaining, self._pass = Remaining(), PassShare()
        self._max_iter = self._n_rows = 0
        self._began = self._spoke = time.monotonic()

    def __call__(self, event: Event) -> None:
        self._remaining(event)
        self._pass(event)
        text = self._text(event)
        if text:
            self._spoke = time.monotonic()
            self._write(text)

    def _text(self, event: Event) -> str:
        now = time.monotonic()
        is_silent = now - self._spoke >= _EVERY_SECONDS
        if isinstance(event, FitStarted):
            self._max_iter, self._n_rows = event.max_iter, event.n_rows
            return (
                f"{event.algorithm}: {event.n_rows:,} rows of {event.n_features} features into "
                f"{event.n_clusters} clusters, engine {event.engine}"
            )
        if isinstance(event, IterationEnded):
            left = self._remaining.at_most
            return describe_iteration(event, self._max_iter, left, self._n_rows)
        if isinstance(event, FitEnded):
            return f"ended ({event.stop_reason}): inertia {event.inertia:.8g}"
        if isinstance(event, FitsMade):
            return describe(event) if is_silent else ""
        if isinstance(event, CycleEnded | DriftFound):
            return describe_stream(event)
        if isinstance(event, PassStarted):
            self._began = now
        elif isinstance(event, PassProgress) and is_silent and (share := self._pass.done):
            left = (now - self._began) * (1 - share) / share
            return f"{self._pass.name}: {share:.0%} of the rows, {format_seconds(left)} left"
        elif isinstance(event, PassEnded) and event.seconds >= _EVERY_SECONDS:
            return f"{event.name}: done in {format_seconds(event.seconds)}"
        return describe(event)


def describe(event: Event) -> str:
    """Return one line about a stage that every display tells of; empty for other events."""
    if isinstance(event, SeedingEnded):
        return f"seeding by {event.method}: {event.passes} passes, {format_seconds(event.seconds)}"
    if isinstance(event, StartEnded):
        return f"start {event.number + 1} of {event.n_init}: inertia {event.inertia:.8g}"
    if isinstance(event, FitsMade):
        return f"{event.done} of {event.total} fits"
    return event.text if isinstance(event, Notice) else ""


def describe_stream(event: CycleEnded | DriftFound) -> str:
    """Return one line about new rows of a stream, or their drift; empty if there are no new rows.

    Examples
    --------
    >>> describe_stream(CycleEnded(3000, 1000, 2, 3000, 0.5))
    '1,000 new rows of 2 objects in 0.5 s; 3,000 rows so far, model version 3000'
    """
    if isinstance(event, DriftFound):
        times = event.error / event.baseline if event.baseline else float("inf")
        return f"drift: the error of new rows is {times:.3g} times its baseline"
    if not event.new_objects:
        return ""
    version = (
        "no model yet" if event.model_version is None else f"model version {event.model_version}"
    )
    objects = f"{event.new_objects:,} object{'s' * (event.new_objects > 1)}"
    new = f"{event.new_rows:,} new rows of {objects}"
    return f"{new} in {format_seconds(event.seconds)}; {event.n_rows:,} rows so far, {version}"


def describe_speed(event: IterationEnded, n_rows: int) -> str:
    """Return the rows per second and the share of rows visited, each after a comma."""
    rows, share, text = rows_passed(event, n_rows), share_looked_at(event, n_rows), ""
    if rows and event.seconds > 0:
        text += f", {format_rate(rows / event.seconds)}"
    if share is not None:
        text += f", {share:.1%} of the rows visited"
    return text


def describe_iteration(
    event: IterationEnded, max_iter: int, at_most: float | None, n_rows: int = 0
) -> str:
    """Return one line about an iteration."""
    figures = f"inertia {event.inertia:.8g}, shift {event.shift:.3g}"
    if isinstance(event, EMStepEnded):
        figures = f"free energy {event.free_energy:.8g}, inertia {event.inertia:.8g}"
    text = f"iteration {event.iteration}/{max_iter}: {figures}, {format_seconds(event.seconds)}"
    text += describe_speed(event, n_rows)
    if event.n_empty:
        text += f", {event.n_empty} empty"
    return text if at_most is None else f"{text}, at most {format_seconds(at_most)} left"


_WIDE, _BAR, _NARROW_BAR = 110, 40, 5


class _Left(ProgressColumn):
    """Remaining time of a pass, or the bound for the fit from its task."""

    def render(self, task: Task) -> Text:
        bound = task.fields.get("at_most")
        left = task.time_remaining if bound is None else bound
        if left is None or task.finished:
            return Text("")
        return Text(f"{'' if bound is None else '≤ '}{format_seconds(left)} left", "cyan")


class ProgressDisplay:
    """A callback that draws progress bars while it is open as a context manager.

    Each bar is one line. On a terminal narrower than 110 columns, it leaves out the time that has passed
    and the share of rows visited, and fits into 80.

    Parameters
    ----------
    console : rich.console.Console, optional
        Default: stderr.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._is_narrow = self._console.width < _WIDE
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(_NARROW_BAR if self._is_narrow else _BAR),
            TaskProgressColumn(),
            *(() if self._is_narrow else (TimeElapsedColumn(),)),
            _Left(),
            console=self._console,
            transient=True,
        )
        self._remaining = Remaining()
        self._n_rows = 0
        self._fit = self._progress.add_task("fit", visible=False)
        self._pass = self._progress.add_task("pass", visible=False)
        self._waiting = self._progress.add_task("", total=None, visible=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def compiling(self, number: int) -> None:
        """Show until the next event that a kernel is being compiled; `number` counts them."""
        self._wait(f"compiling kernels, once for this machine: {number}")

    def __call__(self, event: Event) -> None:
        self._remaining(event)
        update, shown = self._progress.update, dict[str, Any]()
        update(self._waiting, visible=False)
        if isinstance(event, PassStarted):
            # Use a new task each time: one of known length cannot become one of unknown length.
            self._progress.remove_task(self._pass)
            self._pass = self._progress.add_task(event.name, total=event.n_rows or None)
        elif isinstance(event, PassProgress):
            self._progress.advance(self._pass, event.rows)
        elif isinstance(event, PassEnded):
            update(self._pass, visible=False)
        elif isinstance(event, FitStarted):
            self._n_rows, total = event.n_rows, max(1, event.max_iter)
            shown = {"description": "seeding", "visible": True, "at_most": None}
            self._progress.reset(self._fit, total=total, **shown)
        elif isinstance(event, IterationEnded):
            shown = {"description": self._iteration(event), "at_most": self._remaining.at_most}
            update(self._fit, completed=event.iteration, **shown)
        elif isinstance(event, FitEnded):
            update(self._fit, visible=False)
            self._say(f"{event.n_iter} iterations, {event.stop_reason}")
        elif isinstance(event, FitsMade):
            done, total = event.done, event.total
            shown = {"description": describe(event), "visible": done < total, "at_most": None}
            update(self._fit, completed=done, total=total, **shown)
        elif isinstance(event, WorkersPrepare):
            self._wait("workers load their kernels, or compile them in a first run")
        elif text := describe(event):
            self._say(text)
            if isinstance(event, SeedingEnded):
                update(self._fit, completed=0, description="iterations")

    def _iteration(self, event: IterationEnded) -> str:
        text = f"iteration {event.iteration}, inertia "
        if not self._is_narrow:
            return f"{text}{event.inertia:.6g}{describe_speed(event, self._n_rows)}"
        text += f"{event.inertia:.5g}"
        rows = rows_passed(event, self._n_rows)
        return f"{text}, {short_rate(rows / event.seconds)}" if rows and event.seconds > 0 else text

    def _wait(self, text: str) -> None:
        self._progress.update(self._waiting, description=text, visible=True)

    def _say(self, text: str) -> None:
        self._progress.print(text, markup=False, highlight=False)


@contextmanager
def live_table(
    title: str, console: Console | None = None
) -> Iterator[Callable[[Sequence[tuple[str, str]]], None]]:
    """Yield a function that replaces the shown names and values."""
    with Live(console=console, auto_refresh=False) as live:

        def show(rows: Sequence[tuple[str, str]]) -> None:
            table = Table(title=title, show_header=False)
            for name, value in rows:
                table.add_row(name, value)
            live.update(table, refresh=True)

        yield show
