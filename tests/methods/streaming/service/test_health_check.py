"""The health check: long folds are healthy, silent loops are not."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from daskcluster.events import CycleEnded, Event, PassEnded, PassProgress, PassStarted
from daskcluster.methods.streaming import tree as cutting
from daskcluster.methods.streaming.service import HealthCheck
from tests.methods.streaming.service.feeds import open_loop, portion, put


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_is_served_over_http() -> None:
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    from daskcluster.methods.streaming.service import StreamMetrics

    clock = Clock()
    health_check = HealthCheck(600, rest=60, clock=clock)
    metrics = StreamMetrics(health_check)
    try:
        place = f"http://127.0.0.1:{metrics.port}"
        clock.now = 660.0
        assert answer(f"{place}/health") == (200, "ok")
        clock.now = 661.0
        complaint = "no sign of work for 661 s; 660 s are allowed"
        assert answer(f"{place}/health") == (503, complaint)
        assert "daskcluster_stream_rows_seen" in answer(f"{place}/metrics")[1]
        health_check(Event())
        assert answer(f"{place}/health") == (200, "ok")
    finally:
        metrics.close()


@pytest.mark.parametrize("objects", [1, 5])
def test_every_piece_of_a_fold_is_a_sign_of_work(
    tmp_path: Path, objects: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "PIECE_BYTES", 20_000)  # a leaf or two
    rows = 7_000 // objects
    for number in range(objects):
        put(tmp_path, number, portion(number, rows))
    clock, heard, silences = Clock(), list[Event](), list[float]()
    health_check = HealthCheck(10, clock=clock)

    def hear(event: Event) -> None:
        clock.now += 5.0  # what a piece takes
        silences.append(0.0 if health_check.complaint() is None else clock.now)
        health_check(event)
        heard.append(event)

    open_loop(tmp_path, tmp_path / "state", callbacks=[hear]).cycle()
    assert not any(silences)
    assert isinstance(heard[-1], CycleEnded)
    progress = [event.rows for event in heard if isinstance(event, PassProgress)]
    assert len(progress) > 2
    assert sum(progress) == 7_000
    kinds = [type(event) for event in heard if isinstance(event, PassStarted | PassEnded)]
    # The first object of all is folded by itself: labels need its centres.
    assert kinds == [PassStarted, PassEnded] * min(2, objects)
