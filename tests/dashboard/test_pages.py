"""What a scheduler hears of fits, and what its pages say of them."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import dashboard
from daskcluster.dashboard import (
    SILENT_SECONDS,
    FitHistories,
    FitHistory,
    FitsPage,
    dask_setup,
    large_curve,
    list_of_fits,
    page_of_fit,
    small_curve,
    whole_page,
)
from daskcluster.engine import fit_log as news_module
from daskcluster.engine.fit_log import TOPIC, FitLog
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


def history_of(client: Listener, stamps: float = 100.0) -> FitHistory:
    fits = FitHistories()
    for place, message in enumerate(client.messages):
        fits.add(stamps + place, message)
    (found,) = fits.newest_first()
    return found


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news_module, "_EVERY_SECONDS", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_a_fit_as_it_runs_and_ends() -> None:
    client, news = begin("monday", max_iter=4)
    publish([news], SeedingEnded("k-means||", 6, 1.0))
    publish([news], PassStarted("assign", 1000))
    publish([news], PassProgress(500))
    running = history_of(client)
    assert running.is_running
    assert running.at_most is None
    assert "running</span><small>assign 50%</small>" in list_of_fits([running], now=104.0)
    for number, inertia in ((1, 50.0), (2, 40.0)):
        news(iteration(number, inertia))
    running = history_of(client)
    line = list_of_fits([running], now=110.0)
    for text in ("monday", "hamerly", "1,000 x 3", "40", "500 rows/s", "75.0%", "≤ 6 s", "10 s"):
        assert f"{text}</" in line, text
    assert '2 / 4<progress max="4" value="2">' in line
    assert "no news for" in list_of_fits([running], now=running.updated + SILENT_SECONDS + 1)
    news(FitEnded(StopReason.TOLERANCE, 39.5, 2, 9, 2048, 5.5))
    ended = history_of(client)
    page = page_of_fit(ended, now=1e9)
    assert "tolerance</span>" in list_of_fits([ended], now=1e9)
    for text in (
        "hamerly",
        "the centres moved less than tol allows",
        "k-means||",
        "39.5",
        "2.0 KiB",
        "5.5 s",
    ):
        assert f"{text}</td>" in page, text
    assert page.count("<tr><td>") == 2
    assert "≤" not in page
    assert "from 50 to 40, 4 s of iterations" in page


def test_a_fit_that_fails_says_why() -> None:
    rows = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    client = Listener()
    model = dc.KMeans(3, random_state=0, engine="local", callbacks=[FitLog(client)])
    rows[7, 1] = np.nan
    with pytest.raises(dc.errors.InvalidDataError):
        model.fit(rows)
    failed = history_of(client)
    assert failed.has_failed
    assert not failed.is_running
    for part in (list_of_fits([failed], now=1e9), page_of_fit(failed, now=1e9)):
        assert "failed" in part
        assert "InvalidDataError" in part
    assert 'class="badge failed"' in list_of_fits([failed], now=1e9)


def test_few_messages_carry_many_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(news_module.time, "monotonic", lambda: now[0])
    client, news = begin()
    for number in range(1, 500):
        now[0] += 0.01
        news(iteration(number, 1.0 / number, seconds=0.01))
    news(FitEnded(StopReason.CONVERGED, 0.1, 499, 500, 0, 5.0))
    assert 10 <= len(client.messages) <= 13
    assert [step.number for step in history_of(client).steps] == list(range(1, 500))


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
        found = history_of(client)
        assert not found.is_running
        assert found.facts["n_rows"] == 400
        assert found.steps
        assert page_of_fit(found, now=200.0)


def test_only_the_last_fits_and_some_of_many_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "MOST_FITS", 3)
    monkeypatch.setattr(dashboard, "MOST_ITERATIONS", 10)
    fits, keys = FitHistories(), []
    for place in range(5):
        client, news = begin()
        for number in range(1, 40):
            news(iteration(number, 1.0))
        news(FitEnded(StopReason.CONVERGED, 0.1, 39, 40, 0, 5.0))
        keys.append(client.messages[0]["fit"])
        for message in client.messages:
            fits.add(float(place), message)
    assert [fit.facts["fit"] for fit in fits.newest_first()] == keys[:1:-1]
    assert fits.find(keys[0]) is None
    steps = fits.newest_first()[0].steps
    assert len(steps) < 39
    assert (steps[0].number, steps[-1].number) == (1, 39)
    assert steps[-1].elapsed == 78.0


def test_invalid_messages_are_ignored() -> None:
    client, _ = begin()
    (good,) = client.messages
    fits = FitHistories()
    wrong = [
        None, "text", {}, {**good, "fit": "../<script>"}, {**good, "n_rows": "<b>"},
        {**good, "iterations": [[1]]}, {**good, "iterations": [[1, "<b>", 1.0, 1, None]]},
        {**good, "iterations": 7}, {**good, "share": "x"}, {**good, "max_iter": None},
    ]  # fmt: skip
    for message in wrong:
        fits.add(0.0, message)
    assert fits.newest_first() == []
    fits.add(0.0, {**good, "name": "<script>", "algorithm": "<b>", "phase": "<i>"})
    (fit,) = fits.newest_first()
    for part in (list_of_fits([fit], 1.0), page_of_fit(fit, 1.0)):
        assert not set(part.split()) & {"<script>", "<b>", "<i>"}
        assert "<script" not in part
    assert "&lt;script&gt;" in whole_page("<script>", "", root="")
    assert "No fit has run" in list_of_fits([], 1.0)


def test_curves_need_two_points() -> None:
    for inertias, points in (((float("inf"), 5.0), 0), ((5.0, 5.0, 5.0), 3)):
        client, news = begin()
        for number, inertia in enumerate(inertias):
            news(iteration(number + 1, inertia))
        news(FitEnded(StopReason.CONVERGED, 5.0, len(inertias), 3, 0, 5.0))
        for curve in (small_curve, large_curve):
            assert curve(history_of(client).steps).get("line", "").count(",") == points
    page = page_of_fit(history_of(client), 1.0)
    assert '<polyline points="102.0,2.0 ' in page
    assert ">iteration</text>" in page


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
    assert [fit.facts["name"] for fit in page.fits.newest_first()] == ["before"]
    page.log_event("another topic", client.messages[0])
    page.log_event(TOPIC, begin("after")[0].messages[0])
    assert {fit.facts["name"] for fit in page.fits.newest_first()} == {"before", "after"}
