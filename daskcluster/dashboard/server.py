"""The scheduler plugin that receives the messages of fits and serves their pages.

The pages stand on the server of Dask's own dashboard, at ``/fits``: on the same address and port, behind
the same certificates, open to anyone who can see the dashboard. They need no bokeh.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from distributed import SchedulerPlugin
from tornado.web import RequestHandler

from daskcluster.dashboard.histories import FitHistories
from daskcluster.dashboard.pages import list_of_fits, page_of_fit, script, whole_page
from daskcluster.engine.compat import add_pages
from daskcluster.engine.fit_log import TOPIC

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
        Of a scheduler that can import daskcluster.

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
        found = {"fits": self.fits}
        pages = [
            (r"/(?:.+/)?fits", _ListHandler, found),
            (r"/(?:.+/)?fits/([0-9a-f]{32})", _FitHandler, found),
            (r"/(?:.+/)?fits\.js", _ScriptHandler),
        ]
        add_pages(scheduler, pages)

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == TOPIC:
            self.fits.add(time.time(), msg)


class _Handler(RequestHandler):
    def initialize(self, fits: FitHistories) -> None:
        self.fits = fits

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def answer(self, title: str, part: str, *, root: str) -> None:
        is_part = self.get_query_argument("part", "") == "1"
        self.finish(part if is_part else whole_page(title, part, root=root))


class _ListHandler(_Handler):
    def get(self) -> None:
        part = list_of_fits(self.fits.newest_first(), time.time())
        self.answer("Fits", part, root="")


class _FitHandler(_Handler):
    def get(self, key: str) -> None:
        fit = self.fits.find(key)
        if fit is None:
            self.send_error(404)
            return
        title = fit.title
        self.answer(title, page_of_fit(fit, time.time()), root="../")


class _ScriptHandler(RequestHandler):
    def get(self) -> None:
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.finish(script())
