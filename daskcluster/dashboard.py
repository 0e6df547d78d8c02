"""Fits on the pages of a Dask scheduler: which run and have run on its cluster, and how they stand.

From a client, `show_fits`; on a scheduler of one's own, ``dask scheduler --preload daskcluster.dashboard``.

A scheduler plugin receives the messages of fits (`daskcluster.engine.fit_log`). It serves their pages on
the server of Dask's own dashboard, at ``/fits``: on the same address and port, behind the same
certificates, open to anyone who can see the dashboard. They need no bokeh.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from types import NoneType
from typing import TYPE_CHECKING, Any

from distributed import SchedulerPlugin
from tornado.web import RequestHandler

from daskcluster.engine.compat import add_pages
from daskcluster.engine.fit_log import TOPIC
from daskcluster.events import FitStarted, IterationEnded
from daskcluster.host import format_bytes
from daskcluster.reports.pages import format_field, format_rate, format_seconds, render
from daskcluster.reports.progress import Remaining

_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys("fit name state estimator algorithm phase".split(), str),
    **dict.fromkeys("seeding objective stop_reason reason".split(), str),
    **dict.fromkeys("n_rows n_features n_clusters max_iter passes bytes_read".split(), int),
    **dict.fromkeys(("share", "inertia", "seconds"), (int, float)),
}
"""The known history of a fit. Any client of the scheduler can send messages."""
_OF_START = ("algorithm", "n_rows", "n_features", "n_clusters", "max_iter")
_NEEDED = ("fit", "state", *_OF_START)
_STEP: tuple[Any, ...] = (int, (int, float, NoneType), (int, float), int, (int, float, NoneType))
_KEY = re.compile("[0-9a-f]{32}")
MOST_FITS = 100
MOST_ITERATIONS = 1_000
"""Iterations that are kept of a fit; of more, every second one is left out."""


@dataclass(frozen=True)
class IterationPoint:
    """One iteration.

    Attributes
    ----------
    number : int
    value : float or None
        The objective; None if it is not finite.
    elapsed, seconds : float
        Seconds of all iterations until here, and of this one.
    speed, skipped : str
        Rows a second, and the share of the rows that bounds skipped; empty if unknown.
    """

    number: int
    value: float | None
    elapsed: float
    seconds: float
    speed: str
    skipped: str


class FitHistory:
    """One fit.

    Attributes
    ----------
    facts : dict
        What is known of it, see `FitLog`.
    began, updated : float
        Seconds since the epoch, by the scheduler's clock.
    steps : list of IterationPoint
    """

    def __init__(self, stamp: float) -> None:
        self.facts: dict[str, Any] = {}
        self.began = self.updated = stamp
        self.steps: list[IterationPoint] = []
        self._remaining = Remaining()
        self._elapsed = 0.0

    def add(self, stamp: float, message: Mapping[str, Any]) -> None:
        """Take a message that was posted at `stamp`."""
        if not self.facts:
            self._remaining(
                FitStarted(**{name: message[name] for name in _OF_START}, engine="dask")
            )
        for number, value, seconds, rows, looked_at in message["iterations"]:
            self._elapsed += seconds
            self._remaining(IterationEnded(number, inertia=0.0, shift=0.0, seconds=seconds))
            speed = format_rate(rows / seconds) if rows and seconds > 0 else ""
            skipped = "" if looked_at is None else f"{1.0 - looked_at:.1%}"
            self.steps.append(IterationPoint(number, value, self._elapsed, seconds, speed, skipped))
        if len(self.steps) > MOST_ITERATIONS:
            del self.steps[1:-1:2]
        self.facts |= {key: message[key] for key in _KINDS if key in message}
        self.updated = stamp

    @property
    def title(self) -> str:
        """The name of the job, or else of the estimator."""
        found = (self.facts.get(name) for name in ("name", "estimator", "algorithm"))
        return next(filter(None, found), "")

    @property
    def is_running(self) -> bool:
        return self.facts.get("state") == "running"

    @property
    def has_failed(self) -> bool:
        return self.facts.get("state") == "failed"

    @property
    def at_most(self) -> float | None:
        """Seconds that a running fit may still take at most; None before its first iteration."""
        return self._remaining.at_most if self.is_running else None


class FitHistories:
    """The last fits that a scheduler heard of."""

    def __init__(self) -> None:
        self._fits: dict[str, FitHistory] = {}

    def add(self, stamp: float, message: object) -> None:
        """Take a message; what is none of ours is left alone."""
        if not isinstance(message, dict) or not _is_news(message):
            return
        key = message["fit"]
        if key not in self._fits:
            self._fits[key] = FitHistory(stamp)
        self._fits[key].add(stamp, message)
        while len(self._fits) > MOST_FITS:
            del self._fits[next(iter(self._fits))]

    def newest_first(self) -> list[FitHistory]:
        """Return all histories, the fit that began last first."""
        return sorted(self._fits.values(), key=lambda fit: fit.began, reverse=True)

    def find(self, key: str) -> FitHistory | None:
        """Return the history of that fit, if it is known."""
        return self._fits.get(key)


def _is_news(message: Mapping[Any, Any]) -> bool:
    steps = message.get("iterations")
    return (
        all(message.get(name) is not None for name in _NEEDED)
        and _KEY.fullmatch(str(message["fit"])) is not None
        and all(
            message.get(name) is None or isinstance(message[name], kinds)
            for name, kinds in _KINDS.items()
        )
        and isinstance(steps, list | tuple)
        and all(
            isinstance(step, list | tuple)
            and len(step) == len(_STEP)
            and all(isinstance(value, kinds) for value, kinds in zip(step, _STEP, strict=True))
            for step in steps
        )
    )


SILENT_SECONDS = 30.0
"""After so long without news, a page says since when there were none."""
_MOST_LISTED = 200
_SMALL, _LARGE = (150, 36), (960, 260)
"""Pixels of a curve in the list, and on the page of a fit."""
_MARGINS = 100, 22
"""Pixels to the left of the large curve and below it, for the axes."""


def script() -> str:
    """Return the script that renews a page."""
    return files("daskcluster").joinpath("templates/fits.js").read_text(encoding="utf-8")


def whole_page(title: str, part: str, *, root: str) -> str:
    """Return a page around `part`, which its script renews every second.

    Parameters
    ----------
    title : str
    part : Markup
        The HTML of what changes; a plain str is text.
    root : str
        The way from the page to the folder of the dashboard's pages, such as ``"../"``.
    """
    # Dask's own pages need bokeh, which is not among our dependencies.
    has_dask_pages = find_spec("bokeh") is not None
    values = {"title": title, "part": part, "root": root, "has_dask_pages": has_dask_pages}
    return render("dashboard.html", **values)


def list_of_fits(fits: Sequence[FitHistory], now: float) -> str:
    """Return a table with one line for each fit."""
    return render("fits.html", fits=[_line(fit, now) for fit in fits])


def page_of_fit(fit: FitHistory, now: float) -> str:
    """Return the figures of one fit, its curve and its last iterations."""
    facts, state = fit.facts, _state(fit, now)
    if not (fit.is_running or fit.has_failed):
        state = format_field("stop_reason", facts.get("stop_reason", "ended"))
    figures = [
        ("estimator", facts.get("estimator", "")),
        ("algorithm", facts["algorithm"]),
        ("rows", f"{facts['n_rows']:,}"),
        ("features", f"{facts['n_features']:,}"),
        ("clusters", f"{facts['n_clusters']:,}"),
        ("began", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(fit.began))),
        ("state", state),
        ("seeding", facts.get("seeding", "")),
        ("inertia", _number(facts.get("inertia"))),
        ("passes", _number(facts.get("passes"))),
        ("read", format_bytes(facts.get("bytes_read") or 0)),
        ("time", format_seconds(_seconds(fit, now))),
        ("left", _left(fit)),
    ]
    return render(
        "fit.html",
        known=[(name, str(value)) for name, value in figures if value],
        picture=large_curve(fit.steps),
        objective=facts.get("objective", "inertia"),
        steps=[
            (
                str(step.number),
                _number(step.value),
                format_seconds(step.seconds),
                step.speed,
                step.skipped,
            )
            for step in reversed(fit.steps[-_MOST_LISTED:])
        ],
    )


def small_curve(steps: Sequence[IterationPoint]) -> dict[str, Any]:
    """Return the objective by iteration as a small picture; nothing before the second one."""
    return _picture(_points(steps), *_SMALL, kind="small")


def large_curve(steps: Sequence[IterationPoint]) -> dict[str, Any]:
    """Return the same as a large picture with axes that says where the objective began and is."""
    points = _points(steps)
    if len(points) < 2:
        return {}
    text = (
        f"from {points[0][1]:,.8g} to {points[-1][1]:,.8g}, "
        f"{format_seconds(steps[-1].elapsed)} of iterations"
    )
    values = [value for _, value in points]
    width, height = _LARGE
    left, bottom = _MARGINS
    foot = height - 4
    texts = [
        (width - 8, 16, "end", text),
        (left - 6, 14, "end", f"{max(values):,.6g}"),
        (left - 6, height - bottom, "end", f"{min(values):,.6g}"),
        (left, foot, "start", f"{points[0][0]:,}"),
        ((left + width) // 2, foot, "middle", "iteration"),
        (width - 2, foot, "end", f"{points[-1][0]:,}"),
    ]
    return _picture(points, *_LARGE, *_MARGINS, texts=texts, kind="large")


def _points(steps: Sequence[IterationPoint]) -> list[tuple[int, float]]:
    # By iteration: the first one of a process may take as long as all others, to compile kernels.
    return [(step.number, step.value) for step in steps if step.value is not None]


def _picture(
    points: Sequence[tuple[int, float]],
    width: int,
    height: int,
    left: int = 0,
    bottom: int = 0,
    *,
    texts: Sequence[tuple[int, int, str, str]] = (),
    kind: str,
) -> dict[str, Any]:
    if len(points) < 2:
        return {}
    first, last = points[0][0], points[-1][0]
    low, high = min(y for _, y in points), max(y for _, y in points)
    across = (width - left - 4) / ((last - first) or 1.0)
    up = (height - bottom - 4) / ((high - low) or 1.0)
    line = " ".join(
        f"{left + 2 + (x - first) * across:.1f},{2 + (high - y) * up:.1f}" for x, y in points
    )
    box = {"width": width, "height": height, "left": left, "base": height - bottom}
    return {"line": line, "texts": texts, "kind": kind, **box}


def _line(fit: FitHistory, now: float) -> dict[str, Any]:
    facts = fit.facts
    last = fit.steps[-1] if fit.steps else None
    state, _, phase = _state(fit, now).partition(": ")
    kind = "silent" if fit.is_running else "ended"
    return {
        "key": facts.get("fit", ""),
        "title": fit.title,
        "algorithm": facts.get("algorithm", ""),
        "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(fit.began)),
        "shape": f"{facts['n_rows']:,} x {facts['n_features']:,}",
        "n_clusters": f"{facts['n_clusters']:,}",
        "kind": state if state in ("running", "failed") else kind,
        "state": state,
        "phase": phase,
        "done": 0 if last is None else last.number,
        "most": facts["max_iter"],
        "objective": _number(facts.get("inertia") if last is None else last.value),
        "curve": small_curve(fit.steps),
        "speed": "" if last is None else last.speed,
        "skipped": "" if last is None else last.skipped,
        "seconds": format_seconds(_seconds(fit, now)),
        "left": _left(fit),
    }


def _state(fit: FitHistory, now: float) -> str:
    if fit.has_failed:
        return f"failed: {fit.facts.get('reason') or 'unknown reason'}"
    if not fit.is_running:
        return str(fit.facts.get("stop_reason", "ended")).replace("_", " ")
    silent = now - fit.updated
    if silent > SILENT_SECONDS:
        return f"no news for {format_seconds(silent)}"
    phase, share = fit.facts.get("phase"), fit.facts.get("share")
    if not phase:
        return "running"
    return f"running: {phase}" if share is None else f"running: {phase} {share:.0%}"


def _seconds(fit: FitHistory, now: float) -> float:
    if fit.facts.get("seconds") is not None:
        return float(fit.facts["seconds"])
    return max(0.0, (now if fit.is_running else fit.updated) - fit.began)


def _left(fit: FitHistory) -> str:
    return "" if fit.at_most is None else f"≤ {format_seconds(fit.at_most)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.8g}"


if TYPE_CHECKING:
    from distributed import Client, Scheduler

_NAME = "daskcluster-fits"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
}


def show_fits(client: Client) -> str:
    """Add the page of fits to the dashboard of a client's scheduler, and return its URL.

    It lists the last hundred fits that ran on the cluster and those that run: objective, rows a second,
    the share of rows that bounds skipped, how long the rest takes at most; each has a page with its
    iterations. Jobs are listed under their names. Fits tell of themselves whether or not there is a page:
    it also shows those that ran before, as far as the scheduler's event log remembers them.

    Parameters
    ----------
    client : distributed.Client
        Client of a scheduler that can import daskcluster.

    Notes
    -----
    Cost: a fit on a cluster sends two messages a second to the scheduler, about 2 kB each.

    Examples
    --------
    >>> from daskcluster.dashboard import show_fits
    >>> show_fits(client)  # doctest: +SKIP
    'http://127.0.0.1:8787/fits'
    """
    client.register_plugin(FitsPage(), name=_NAME)
    return str(client.dashboard_link).removesuffix("status") + "fits"


def dask_setup(scheduler: Scheduler) -> None:
    """Add the page to a scheduler that is started with ``--preload daskcluster.dashboard``."""
    if _NAME not in scheduler.plugins:
        scheduler.add_plugin(FitsPage(), name=_NAME)  # which is started after all preloads


class FitsPage(SchedulerPlugin):
    """Keeps the histories of fits, and serves their pages."""

    name = _NAME
    idempotent = True

    def __init__(self) -> None:
        self.fits = FitHistories()

    async def start(self, scheduler: Scheduler) -> None:
        for stamp, message in scheduler.get_events(TOPIC) or ():
            self.fits.add(stamp, message)
        pages = [
            (r"/(?:.+/)?fits(?:/([0-9a-f]{32}))?", _FitsHandler, {"fits": self.fits}),
            (r"/(?:.+/)?fits\.js", _ScriptHandler),
        ]
        add_pages(scheduler, pages)

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == TOPIC:
            self.fits.add(time.time(), msg)


class _FitsHandler(RequestHandler):
    def initialize(self, fits: FitHistories) -> None:
        self.fits = fits

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def get(self, key: str | None) -> None:
        now, fit = time.time(), None if key is None else self.fits.find(key)
        if key is not None and fit is None:
            self.send_error(404)
            return
        title, root = ("Fits", "") if fit is None else (fit.title, "../")
        shown = (
            list_of_fits(self.fits.newest_first(), now) if fit is None else page_of_fit(fit, now)
        )
        is_part = self.get_query_argument("part", "") == "1"
        self.finish(shown if is_part else whole_page(title, shown, root=root))


class _ScriptHandler(RequestHandler):
    def get(self) -> None:
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.finish(script())
