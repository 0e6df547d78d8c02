"""Progress: bars of tqdm in terminals and notebooks, lines in logs and pipes."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, TextIO

from daskcluster.events import (
    CycleEnded,
    DriftFound,
    EMStepEnded,
    Event,
    FitEnded,
    FitFailed,
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
_DELAY_SECONDS, _AGAIN_SECONDS = 0.5, 0.1
"""How long nothing was shown before a pass gets a bar, and how long before that is of the next pass."""
_PASS = "{l_bar}{bar}| {n_fmt}/{total_fmt} rows [{elapsed}<{remaining}, {rate_fmt}]"
_FITS = "{n_fmt} of {total_fmt} fits |{bar}| [{elapsed}<{remaining}]"
_ITERATIONS = "iteration {n_fmt}/{total_fmt} |{bar}| [{elapsed}, at most {remaining} left{postfix}]"


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
        return f"{text}: {self._details(event)}"

    def _details(self, event: IterationEnded) -> str:
        text = f"inertia {event.inertia:.8g}, "
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


class ProgressBar(ProgressLines):
    """Shows progress: bars with the remaining time in terminals and notebooks, lines elsewhere.

    Give it to any `callbacks=`, of estimators and of functions such as `shuffle`. ``verbose=1`` of an
    estimator does the same for its fits, and so does a command on a terminal. A bar shows the iterations of
    a fit, and another passes that take longer than half a second. What is over stays as a line: seeding,
    starts, notices, the end. A log or a pipe gets a line for each iteration, and every five seconds in a
    pass.

    Parameters
    ----------
    file : text file, optional
        Where to write. By default to standard error as it is when the first event arrives.

    Notes
    -----
    Bars are those of `tqdm.auto`: widgets where ipywidgets is installed, otherwise text. The variables of
    tqdm apply, such as ``TQDM_DISABLE=1``. The time left of a fit is an upper bound, since it may converge
    before ``max_iter``.

    Examples
    --------
    >>> import sys
    >>> from daskcluster import KMeans, ProgressBar
    >>> rows = [[0.0], [1.0], [10.0], [11.0]]
    >>> show = ProgressBar(sys.stdout)  # which is no terminal here
    >>> model = KMeans(2, random_state=0, init=[[0.0], [10.0]], callbacks=[show]).fit(rows)
    auto: 4 rows of 1 features into 2 clusters, engine local
    ...
    ended (converged): inertia 1
    """

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(self._keep)
        self._file = file
        self._rows = self._number = 0
        self._shown = time.monotonic()
        self._fits = self._is_of_earlier = False
        self._steps: Any = None
        self._rows_bar: Any = None
        self._note: Any = None

    def __call__(self, event: Event) -> None:
        if not self._draws():
            super().__call__(event)
        elif isinstance(event, WorkersPrepare):
            self.note("workers load their kernels, or compile them in a first run")
        elif isinstance(event, PassStarted):
            self._number = self._number + 1 if event.name == self._pass.name else 1
            self._pass(event)
            self._rows, self._is_of_earlier = 0, self._rows_bar is not None
        elif isinstance(event, PassProgress):
            self._advance(event)
        elif isinstance(event, IterationEnded):
            self._step(event.iteration, self._max_iter, _ITERATIONS, self._details(event))
        elif isinstance(event, FitsMade):
            self._step(event.done, event.total, _FITS)
        else:
            self._stage(event)

    def note(self, text: str) -> None:
        """Show a text until there is something else to show; nothing where there are no bars."""
        if self._draws():
            if self._note is None:
                self._note = self._bar(bar_format="{desc}")
            self._note.set_description_str(text)

    def close(self) -> None:
        """Remove what is shown of a fit or a pass that has not ended."""
        self._end("_note", "_rows_bar", "_steps")

    def _stage(self, event: Event) -> None:
        within_a_fit = self._steps is not None
        if isinstance(event, PassEnded):
            self._end("_note", *(() if self._fits else ("_rows_bar",)))
        elif isinstance(event, FitStarted | StartEnded | FitEnded | FitFailed):
            self.close()
            self._fits = isinstance(event, FitStarted | StartEnded)
        if not (isinstance(event, PassEnded) and within_a_fit):
            super().__call__(event)
        if isinstance(event, SeedingEnded):
            self._step(
                0, self._max_iter, _ITERATIONS
            )  # the time of seeding is not that of iterations

    def _step(self, done: int, total: int, bar_format: str, details: str = "") -> None:
        self._end("_note", "_rows_bar")
        if self._steps is None:
            self._steps = self._bar(total=total, initial=done, bar_format=bar_format)
        self._shown, self._number = time.monotonic(), 0
        self._steps.set_postfix_str(details, refresh=False)
        self._steps.update(done - self._steps.n)

    def _advance(self, event: PassProgress) -> None:
        self._rows += event.rows
        silent = time.monotonic() - self._shown
        name = self._pass.name if self._number < 2 else f"{self._pass.name}, pass {self._number}"
        if self._rows_bar is None and silent >= _DELAY_SECONDS:
            self._end("_note")
            if self._steps is not None:
                self._steps.clear()
            self._rows_bar = self._bar(
                total=self._pass.total or None, initial=self._rows, desc=name,
                unit_scale=True, unit=" rows", bar_format=_PASS if self._pass.total else None,
            )  # fmt: skip
        elif self._rows_bar is not None and not self._is_of_earlier:
            self._rows_bar.update(event.rows)
        elif self._rows_bar is not None and silent >= _AGAIN_SECONDS:
            self._is_of_earlier, self._shown = False, time.monotonic()
            self._rows_bar.set_description(name, refresh=False)
            self._rows_bar.initial, self._rows_bar.total = 0, self._pass.total or None
            self._rows_bar.reset()
            self._rows_bar.update(self._rows)

    def _bar(self, **settings: Any) -> Any:
        # Below each other on a terminal. The text of a notebook has one line that can be replaced.
        position = 0 if _in_kernel() else None
        self._shown = time.monotonic()
        return _bars()(
            file=self._stream(), leave=False, dynamic_ncols=True, position=position, **settings
        )

    def _end(self, *names: str) -> None:
        for name in names:
            bar = getattr(self, name)
            setattr(self, name, None)
            if bar is not None:
                bar.close()

    def _keep(self, text: str) -> None:
        self._shown = time.monotonic()
        if self._draws():
            self._end("_note")
            _bars().write(text, file=self._stream())
        else:
            print(text, file=self._stream(), flush=True)

    def _stream(self) -> TextIO:
        return self._file or sys.stderr

    def _draws(self) -> bool:
        return self._stream().isatty() or _in_kernel()


def _in_kernel() -> bool:
    """Return whether this process is the kernel of a notebook, by the test of tqdm."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in shell.config


def _bars() -> Any:
    """Return the class of tqdm for this process, which is imported when there is a bar to draw."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets bars are text, of which tqdm warns
        from tqdm.auto import tqdm

    return tqdm


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
