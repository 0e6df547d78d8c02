"""Progress on a terminal: one bar for the running pass, one for the iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

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
    Event,
    FitEnded,
    FitsMade,
    FitStarted,
    IterationEnded,
    Notice,
    PassEnded,
    PassProgress,
    PassStarted,
    SeedingEnded,
    StartEnded,
    WorkersPrepare,
)
from daskcluster.reports.eta import Remaining
from daskcluster.reports.lines import describe_fits, describe_speed, describe_start
from daskcluster.reports.tables import format_seconds


class _Left(ProgressColumn):
    """Time to the end of a pass, or the bound for a whole fit that its task carries."""

    def render(self, task: Task) -> Text:
        bound = task.fields.get("at_most")
        left = task.time_remaining if bound is None else bound
        if left is None or task.finished:
            return Text("")
        return Text(f"{'' if bound is None else '≤ '}{format_seconds(left)} left", "cyan")


class ProgressDisplay:
    """A callback that draws progress bars while it is open as a context manager.

    Parameters
    ----------
    console : rich.console.Console, optional
        Default: stderr.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
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
        """Show that a kernel is compiled, the number-th of this process, until the next event."""
        self._wait(f"compiling kernels, once for this machine: {number}")

    def __call__(self, event: Event) -> None:
        self._remaining(event)
        self._progress.update(self._waiting, visible=False)
        if isinstance(event, PassStarted):
            self._begin_pass(event)
        elif isinstance(event, PassProgress):
            self._progress.advance(self._pass, event.rows)
        elif isinstance(event, PassEnded):
            self._progress.update(self._pass, visible=False)
        else:
            self._on_fit(event)

    def _begin_pass(self, event: PassStarted) -> None:
        # A new task each time: only so can a pass of unknown length follow one of a known length.
        self._progress.remove_task(self._pass)
        self._pass = self._progress.add_task(event.name, total=event.n_rows or None)

    def _on_fit(self, event: Event) -> None:
        if isinstance(event, FitStarted):
            self._n_rows = event.n_rows
            self._progress.reset(
                self._fit,
                total=max(1, event.max_iter),
                description="seeding",
                visible=True,
                at_most=None,
            )
        elif isinstance(event, SeedingEnded):
            seconds = format_seconds(event.seconds)
            self._say(f"seeding by {event.method}: {event.passes} passes, {seconds}")
            self._progress.update(self._fit, completed=0, description="iterations")
        elif isinstance(event, IterationEnded):
            self._progress.update(
                self._fit,
                completed=event.iteration,
                description=f"iteration {event.iteration}, inertia {event.inertia:.6g}"
                f"{describe_speed(event, self._n_rows)}",
                at_most=self._remaining.at_most,
            )
        elif isinstance(event, FitEnded):
            self._progress.update(self._fit, visible=False)
            self._say(f"{event.n_iter} iterations, {event.stop_reason}")
        elif isinstance(event, StartEnded):
            self._say(describe_start(event))
        elif isinstance(event, FitsMade):
            self._progress.update(
                self._fit,
                total=event.total,
                completed=event.done,
                description=describe_fits(event),
                visible=event.done < event.total,
                at_most=None,
            )
        elif isinstance(event, WorkersPrepare):
            self._wait("workers load their kernels; those of a first run compile them")
        elif isinstance(event, Notice):
            self._say(event.text)

    def _wait(self, text: str) -> None:
        self._progress.update(self._waiting, description=text, visible=True)

    def _say(self, text: str) -> None:
        self._progress.print(text, markup=False, highlight=False)


@contextmanager
def live_table(
    title: str, console: Console | None = None
) -> Iterator[Callable[[Sequence[tuple[str, str]]], None]]:
    """Yield a function that shows names and values in place of those before."""
    with Live(console=console, auto_refresh=False) as live:

        def show(rows: Sequence[tuple[str, str]]) -> None:
            table = Table(title=title, show_header=False)
            for name, value in rows:
                table.add_row(name, value)
            live.update(table, refresh=True)

        yield show
