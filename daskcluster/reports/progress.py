"""Progress: lines in logs and pipes, one line on a terminal, and the remaining time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TextIO

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
from daskcluster.reports.pages import format_rate, format_seconds

_LONG_SECONDS = 5.0


class ProgressLines:
    """Writes a line at the end of each stage, and every few seconds during a long pass.

    Parameters
    ----------
    write : callable (text) -> None
    every : float
        Seconds between two lines during a pass.
    """

    def __init__(self, write: Callable[[str], None], every: float = _LONG_SECONDS) -> None:
        self._write, self._every = write, every
        self._remaining, self._pass = Remaining(), PassShare()
        self._max_iter = self._n_rows = 0
        self._began = self._spoke = time.monotonic()

    def __call__(self, event: Event) -> None:
        self._remaining(event)
        self._pass(event)
        text = self._text(event)
        if text:
            self._spoke = time.monotonic()
            self.tell(event, text)

    def tell(self, event: Event, text: str) -> None:
        """Write the line of an event."""
        self._write(text)

    def _text(self, event: Event) -> str:
        now = time.monotonic()
        is_silent = now - self._spoke >= self._every
        if isinstance(event, FitStarted):
            self._max_iter, self._n_rows = event.max_iter, event.n_rows
            return (
                f"{event.algorithm}: {event.n_rows:,} rows of {event.n_features} features into "
                f"{event.n_clusters} clusters, engine {event.engine}"
            )
        if isinstance(event, IterationEnded):
            return self._iteration(event)
        if isinstance(event, FitEnded):
            return f"ended ({event.stop_reason}): inertia {event.inertia:.8g}"
        if isinstance(event, SeedingEnded):
            took = format_seconds(event.seconds)
            return f"seeding by {event.method}: {event.passes} passes, {took}"
        if isinstance(event, StartEnded):
            return f"start {event.number + 1} of {event.n_init}: inertia {event.inertia:.8g}"
        if isinstance(event, FitsMade):
            return f"{event.done} of {event.total} fits" if is_silent else ""
        if isinstance(event, CycleEnded | DriftFound):
            return describe_stream(event)
        if isinstance(event, PassStarted):
            self._began = now
        elif isinstance(event, PassProgress) and is_silent and (share := self._pass.done):
            left = (now - self._began) * (1 - share) / share
            return f"{self._pass.name}: {share:.0%} of the rows, {format_seconds(left)} left"
        elif isinstance(event, PassEnded) and event.seconds >= _LONG_SECONDS:
            return f"{event.name}: done in {format_seconds(event.seconds)}"
        return event.text if isinstance(event, Notice) else ""

    def _iteration(self, event: IterationEnded) -> str:
        left, text = self._remaining.at_most, f"iteration {event.iteration}/{self._max_iter}"
        if left is not None:
            text += f", at most {format_seconds(left)} left"
        text += f": inertia {event.inertia:.8g}, "
        if isinstance(event, EMStepEnded):
            text += f"free energy {event.free_energy:.8g}, "
        else:
            text += f"shift {event.shift:.3g}, "
        text += format_seconds(event.seconds)
        rows, share = rows_passed(event, self._n_rows), share_looked_at(event, self._n_rows)
        if rows and event.seconds > 0:
            text += f", {format_rate(rows / event.seconds)}"
        if share is not None:
            text += f", {share:.1%} of the rows visited"
        return f"{text}, {event.n_empty} empty" if event.n_empty else text


class TerminalProgress(ProgressLines):
    """Shows what is running in the last line of a terminal, and what is over in lines above it.

    Parameters
    ----------
    file : text file
        The terminal.
    """

    def __init__(self, file: TextIO) -> None:
        super().__init__(self.show, every=0.2)
        self._file = file

    def __call__(self, event: Event) -> None:
        if isinstance(event, WorkersPrepare):
            self.show("workers load their kernels, or compile them in a first run")
        super().__call__(event)

    def tell(self, event: Event, text: str) -> None:
        """Show the line of an event, which stays if it is that of a whole stage."""
        if isinstance(event, IterationEnded | PassProgress | FitsMade):
            self.show(text)
        else:
            self.show("")
            self._file.write(f"{text}\n")

    def show(self, text: str) -> None:
        """Replace the last line; an empty text removes it."""
        width = shutil.get_terminal_size().columns
        self._file.write(f"\r\x1b[K{text if len(text) < width else text[: width - 1]}")
        self._file.flush()


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
