"""Progress as plain lines, for logs and pipes."""

from __future__ import annotations

import time
from collections.abc import Callable

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
    PassStarted,
    SeedingEnded,
    StartEnded,
    rows_passed,
    share_looked_at,
)
from daskcluster.reports.eta import Remaining
from daskcluster.reports.tables import format_rate, format_seconds

_EVERY_SECONDS = 5.0


class ProgressLines:
    """Writes a line when something ends, and every few seconds in a long pass.

    Parameters
    ----------
    write : callable (text) -> None
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._remaining = Remaining()
        self._max_iter = self._n_rows = 0
        self._pass = PassStarted("", 0)
        self._rows = 0
        self._began = self._spoke = time.monotonic()

    def __call__(self, event: Event) -> None:
        self._remaining(event)
        text = self._text(event)
        if text:
            self._spoke = time.monotonic()
            self._write(text)

    def _text(self, event: Event) -> str:
        if isinstance(event, FitStarted):
            self._max_iter, self._n_rows = event.max_iter, event.n_rows
            return (
                f"{event.algorithm}: {event.n_rows:,} rows of {event.n_features} features into "
                f"{event.n_clusters} clusters, engine {event.engine}"
            )
        if isinstance(event, SeedingEnded):
            return (
                f"seeding by {event.method}: {event.passes} passes, {format_seconds(event.seconds)}"
            )
        if isinstance(event, IterationEnded):
            left = self._remaining.at_most
            return describe_iteration(event, self._max_iter, left, self._n_rows)
        if isinstance(event, FitEnded):
            return f"ended ({event.stop_reason}): inertia {event.inertia:.8g}"
        if isinstance(event, StartEnded):
            return describe_start(event)
        if isinstance(event, FitsMade):
            return describe_fits(event) if self._is_silent() else ""
        if isinstance(event, CycleEnded | DriftFound):
            return describe_stream(event)
        if isinstance(event, Notice):
            return event.text
        return self._pass_text(event)

    def _pass_text(self, event: Event) -> str:
        if isinstance(event, PassStarted):
            self._pass, self._rows, self._began = event, 0, time.monotonic()
        elif isinstance(event, PassProgress):
            self._rows += event.rows
            if self._is_silent() and 0 < self._rows <= self._pass.n_rows:
                share = self._rows / self._pass.n_rows
                left = (time.monotonic() - self._began) * (1 - share) / share
                return f"{self._pass.name}: {share:.0%} of the rows, {format_seconds(left)} left"
        elif isinstance(event, PassEnded) and event.seconds >= _EVERY_SECONDS:
            return f"{event.name}: done in {format_seconds(event.seconds)}"
        return ""

    def _is_silent(self) -> bool:
        return time.monotonic() - self._spoke >= _EVERY_SECONDS


def describe_stream(event: CycleEnded | DriftFound) -> str:
    """Return one line about new rows of a stream, or their drift; nothing if no rows are new.

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


def describe_start(event: StartEnded) -> str:
    """Return one line about a start."""
    return f"start {event.number + 1} of {event.n_init}: inertia {event.inertia:.8g}"


def describe_fits(event: FitsMade) -> str:
    """Return one line about fits that compare numbers of clusters."""
    return f"{event.done} of {event.total} fits"


def describe_speed(event: IterationEnded, n_rows: int) -> str:
    """Return how many rows a second, and which share of them was looked at; each after a comma."""
    rows, share, text = rows_passed(event, n_rows), share_looked_at(event, n_rows), ""
    if rows and event.seconds > 0:
        text += f", {format_rate(rows / event.seconds)}"
    if share is not None:
        text += f", {share:.1%} of the rows looked at"
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
