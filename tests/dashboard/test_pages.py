"""What a scheduler hears of fits, and what its page says of them."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import dashboard
from daskcluster.dashboard import SILENT_SECONDS, FitsPage, LatestFits, dask_setup
from daskcluster.engine import fit_log as news_module
from daskcluster.engine.fit_log import MOST_POINTS, TOPIC, FitLog
from daskcluster.events import (
    FitEnded,
    FitStarted,
    IterationEnded,
    PassProgress,
    PassStarted,
    SeedingEnded,
    StopReason,
    publish,
)


class Listener:
    """Stands in for a client."""

    def __init__(self) -> None:
        self.status = "running"
        self.messages: list[dict[str, Any]] = []
        self.error: Exception | None = None

    def log_event(self, topic: str, message: Any) -> None:
        if self.error is not None:
            raise self.error
        assert topic == TOPIC
        self.messages.append(json.loads(json.dumps(message)))  # plain values only


def begin(name: str = "", max_iter: int = 10) -> tuple[Listener, FitLog]:
    client = Listener()
    news = FitLog(client, name)
    news(FitStarted("hamerly", 1000, 3, 4, max_iter, "dask"))
    return client, news


def iteration(number: int, inertia: float, seconds: float = 2.0) -> IterationEnded:
    return IterationEnded(number, inertia, shift=1.0, seconds=seconds, n_touched=250)


def page_of(*clients: Listener, now: float = 100.0) -> str:
    """Return the table after all messages, which were posted at 100 s."""
    fits = LatestFits()
    for client in clients:
        for message in client.messages:
            fits.add(100.0, message)
    return str(fits.table(now))  # without the methods of markup, which escape what is looked for


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news_module, "_EVERY_SECONDS", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_a_fit_as_it_runs_and_ends() -> None:
    client, news = begin("monday", max_iter=4)
    publish([news], SeedingEnded("k-means||", 6, 1.0))
    publish([news], PassStarted("assign", 1000))
    publish([news], PassProgress(500))
    running = page_of(client)
    assert "running</span><small>assign 50%</small>" in running
    assert "≤" not in running
    for number, inertia in ((1, 50.0), (2, 40.0)):
        news(iteration(number, inertia))
    line = page_of(client, now=110.0)
    for text in ("monday", "hamerly", "1,000 x 3", "40", "500 rows/s", "75.0%", "≤ 6 s", "10 s"):
        assert f"{text}</" in line, text
    assert '2 / 4<progress value="0.5">' in line
    assert '<polyline points="2.0,2.0 148.0,34.0"' in line
    assert "no news for" in page_of(client, now=100.0 + SILENT_SECONDS + 1)
    news(FitEnded(StopReason.TOLERANCE, 39.5, 2, 9, 2048, 5.5))
    ended = page_of(client, now=1e9)
    assert "tolerance</span>" in ended
    assert "39.5</td>" in ended
    assert "≤" not in ended


def test_a_fit_that_fails_says_why() -> None:
    rows = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    client = Listener()
    model = dc.KMeans(3, random_state=0, engine="local", callbacks=[FitLog(client)])
    rows[7, 1] = np.nan
    with pytest.raises(dc.errors.InvalidDataError):
        model.fit(rows)
    page = page_of(client, now=1e9)
    assert 'class="badge failed">failed' in page
    assert "InvalidDataError" in page


def test_few_messages_tell_of_many_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(news_module.time, "monotonic", lambda: now[0])
    client, news = begin()
    for number in range(1, 500):
        now[0] += 0.01
        news(iteration(number, 1.0 / number, seconds=0.01))
    news(FitEnded(StopReason.CONVERGED, 0.1, 499, 500, 0, 5.0))
    assert 10 <= len(client.messages) <= 13
    curve = client.messages[-1]["curve"]
    assert len(curve) <= MOST_POINTS
    assert (curve[0][0], curve[-1][0]) == (1, 499)


def test_a_lost_scheduler_does_not_stop_the_fit() -> None:
    client, news = begin()
    client.error = OSError("gone")
    news(FitEnded(StopReason.CONVERGED, 0.1, 1, 1, 0, 5.0))
    client.error, client.status = None, "connecting"
    news(FitEnded(StopReason.CONVERGED, 0.1, 1, 1, 0, 5.0))
    assert len(client.messages) == 1


def test_fits_of_all_kinds_send_plain_values() -> None:
    rows = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    for estimator in (
        dc.KMeans(3, max_iter=3),
        dc.MiniBatchKMeans(3, max_iter=2),
        dc.VariationalGaussianMixture(3, max_iter=3),
    ):
        client = Listener()
        estimator.set_params(random_state=0, engine="local", callbacks=[FitLog(client)])
        estimator.fit(rows)
        assert client.messages[-1]["curve"]
        page = page_of(client, now=200.0)
        assert "400 x 3</td>" in page
        assert 'class="badge ended"' in page


def test_only_the_last_fits_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "MOST_FITS", 3)
    page = page_of(*(begin(f"job-{number}")[0] for number in range(5)))
    assert [f"job-{number}" in page for number in range(5)] == [False, False, True, True, True]


def test_invalid_messages_are_ignored() -> None:
    client, _ = begin()
    (good,) = client.messages
    fits = LatestFits()
    wrong = [
        None, "text", {}, {**good, "fit": []}, {**good, "n_rows": "<b>"}, {**good, "curve": 7},
        {**good, "curve": [[1, 2], [2, "<b>"]]}, {**good, "share": "x"}, {**good, "max_iter": None},
        {**good, "seconds": 1e300},
    ]  # fmt: skip
    for message in wrong:
        fits.add(0.0, message)
    assert "No fit has run" in fits.table(1.0)
    fits.add(0.0, {**good, "title": "<script>", "algorithm": "<u>", "phase": "<i>"})
    page = fits.table(1.0)
    assert "&lt;script&gt;" in page
    assert not any(tag in page for tag in ("<script", "<u>", "<i>"))


@pytest.mark.parametrize(("inertias", "points"), [((np.inf, 5.0), 0), ((5.0, 5.0, 5.0), 3)])
def test_curves_need_two_points(inertias: tuple[float, ...], points: int) -> None:
    client, news = begin()
    for number, inertia in enumerate(inertias):
        news(iteration(number + 1, inertia))
    news(FitEnded(StopReason.CONVERGED, 5.0, len(inertias), 3, 0, 5.0))
    found = page_of(client).partition('<polyline points="')[2].partition('"')[0]
    assert found.count(",") == points


def test_a_preload_adds_the_page_once_and_remembers() -> None:
    client, _ = begin("before")
    added: list[Any] = []
    plugins: dict[str, Any] = {}
    scheduler = SimpleNamespace(
        plugins=plugins,
        get_events=lambda topic: [(5.0, message) for message in client.messages],
        http_application=SimpleNamespace(add_handlers=lambda host, rules: added.extend(rules)),
        add_plugin=lambda plugin, name: plugins.update({name: plugin}),
    )
    dask_setup(scheduler)
    dask_setup(scheduler)
    (page,) = plugins.values()
    assert isinstance(page, FitsPage)
    asyncio.run(page.start(scheduler))  # as the scheduler does then
    assert len(added) == 2
    assert "before" in page.fits.table(10.0)
    page.log_event("another topic", begin("elsewhere")[0].messages[0])
    page.log_event(TOPIC, begin("after")[0].messages[0])
    table = page.fits.table(10.0)
    assert [name in table for name in ("before", "elsewhere", "after")] == [True, False, True]
