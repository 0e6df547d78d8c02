"""Fits on a page of a Dask scheduler: which run and have run on its cluster, and how they stand.

From a client, `show_fits`; on a scheduler of one's own, ``dask scheduler --preload daskcluster.dashboard``.

A scheduler plugin receives the messages of fits (`daskcluster.engine.fit_log`). It serves a page on the
server of Dask's own dashboard, at ``/fits``: on the same address and port, behind the same certificates,
open to anyone who can see the dashboard. It needs no bokeh.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from distributed import SchedulerPlugin
from tornado.web import RequestHandler

from daskcluster.engine.compat import add_pages
from daskcluster.engine.fit_log import TOPIC
from daskcluster.reports.pages import format_rate, format_seconds, render

if TYPE_CHECKING:
    from distributed import Client, Scheduler

MOST_FITS = 100
SILENT_SECONDS = 30.0
"""After so long without news, the page says since when there were none."""
_WIDTH, _HEIGHT = 150, 36
"""Pixels of a curve."""
_NAME = "daskcluster-fits"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
}


class LatestFits:
    """The last messages of the fits that a scheduler heard of last."""

    def __init__(self) -> None:
        self._messages: dict[str, tuple[float, Mapping[str, Any]]] = {}

    def add(self, stamp: float, message: Any) -> None:
        """Take a message that was posted at `stamp`, by the scheduler's clock."""
        # Any client of the scheduler can send messages: what makes no line of the page is ignored.
        with suppress(ArithmeticError, LookupError, OSError, TypeError, ValueError):
            line_of(stamp, message, stamp)
            self._messages.pop(message["fit"], None)
            self._messages[message["fit"]] = stamp, message
        while len(self._messages) > MOST_FITS:
            del self._messages[next(iter(self._messages))]

    def table(self, now: float) -> str:
        """Return a table with one line for each fit, the one that began last first."""
        latest = sorted(self._messages.values(), key=_began, reverse=True)
        return render("fits.html", fits=[line_of(*each, now) for each in latest])


def _began(posted: tuple[float, Mapping[str, Any]]) -> float:
    stamp, message = posted
    return float(stamp - message["seconds"])


def line_of(stamp: float, message: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the values of a line of the page, for a message that was posted at `stamp`."""
    state, share, value = message["state"], message["share"], message["objective"]
    kind, phase, runs = state, message.get("reason", ""), state == "running"
    if runs:
        phase = message["phase"] if share is None else f"{message['phase']} {share:.0%}"
    elif state != "failed":
        kind = "ended"
    elif phase == "JobCancelledError":
        kind, state, phase = "ended", "cancelled", ""
    if runs and now - stamp > SILENT_SECONDS:
        kind, state, phase = "silent", f"no news for {format_seconds(now - stamp)}", ""
    rate, looked_at = message.get("rows_per_second"), message.get("looked_at")
    left = message["left"] if runs else None
    return {
        "title": message["title"],
        "algorithm": message["algorithm"],
        "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(stamp - message["seconds"])),
        "shape": f"{message['n_rows']:,} x {message['n_features']:,}",
        "n_clusters": f"{message['n_clusters']:,}",
        "kind": kind,
        "state": state,
        "phase": phase,
        "done": f"{message['iteration']:,}",
        "most": f"{message['max_iter']:,}",
        "share": message["iteration"] / max(1, message["max_iter"]),
        "objective": "" if value is None else f"{value:,.8g}",
        "curve": _line(message["curve"]),
        "speed": format_rate(rate) if rate else "",
        "skipped": "" if looked_at is None else f"{1.0 - looked_at:.1%}",
        "seconds": format_seconds(message["seconds"] + (now - stamp if runs else 0.0)),
        "left": "" if left is None else f"≤ {format_seconds(left)}",
    }


def _line(points: Sequence[Sequence[float]]) -> str:
    """Return the points of a curve in a picture; empty for fewer than two."""
    if len(points) < 2:
        return ""
    # By iteration: the first one of a process may take as long as all others, to compile kernels.
    (first, *_), (last, *_), values = points[0], points[-1], [y for _, y in points]
    low, across = min(values), (_WIDTH - 4) / ((last - first) or 1.0)
    up = (_HEIGHT - 4) / ((max(values) - low) or 1.0)
    return " ".join(
        f"{2 + (x - first) * across:.1f},{_HEIGHT - 2 - (y - low) * up:.1f}" for x, y in points
    )


def show_fits(client: Client) -> str:
    """Add the page of fits to the dashboard of a client's scheduler, and return its URL.

    It lists the last hundred fits that ran on the cluster and those that run: objective, rows a second,
    the share of rows that bounds skipped, how long the rest takes at most. Jobs are listed under their
    names. Fits tell of themselves whether or not there is a page: it also shows those that ran before, as
    far as the scheduler's event log remembers them.

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
    """Keeps the latest fits, and serves their page."""

    name = _NAME
    idempotent = True

    def __init__(self) -> None:
        self.fits = LatestFits()

    async def start(self, scheduler: Scheduler) -> None:
        for stamp, message in scheduler.get_events(TOPIC) or ():
            self.fits.add(stamp, message)
        pages = [
            (r"/(?:.+/)?fits", _FitsHandler, {"fits": self.fits}),
            (r"/(?:.+/)?fits\.js", _ScriptHandler),
        ]
        add_pages(scheduler, pages)

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == TOPIC:
            self.fits.add(time.time(), msg)


class _FitsHandler(RequestHandler):
    def initialize(self, fits: LatestFits) -> None:
        self.fits = fits

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def get(self) -> None:
        table = self.fits.table(time.time())
        if self.get_query_argument("part", "") == "1":
            self.finish(table)
        else:
            # Dask's own pages need bokeh, which is not among our dependencies.
            has_dask_pages = find_spec("bokeh") is not None
            self.finish(render("dashboard.html", part=table, has_dask_pages=has_dask_pages))


class _ScriptHandler(RequestHandler):
    def get(self) -> None:
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.finish(files("daskcluster").joinpath("templates/fits.js").read_bytes())
