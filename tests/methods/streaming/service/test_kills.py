"""A loop that is stopped anywhere and restarted ends in the same state as an uninterrupted one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster.methods.streaming import service, sources
from daskcluster.storage import checkpoint
from tests.methods.streaming.service.feeds import bits, open_loop, portion, put
from tests.methods.streaming.service.killing import begin_together, good_rows, start

N = 6


class Killed(BaseException):
    """Simulates the end of a process: handlers of `Exception` do not catch it."""


def counted(monkeypatch: pytest.MonkeyPatch, die_at: int) -> list[int]:
    """Let the process die at the `die_at`-th write or fold; return how many there were."""
    count = [0]

    def fatal(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            count[0] += 1
            if count[0] == die_at:
                raise Killed
            found = function(*arguments, **options)
            count[0] += 1
            if count[0] == die_at:
                raise Killed
            return found

        return call

    for module, name in [
        (sources, "write_file"),
        (checkpoint, "write_file"),
        (service, "write_file"),
        (service, "save_model"),
        (service.StreamLoop, "_enter"),
        (service, "write_labels"),
    ]:
        monkeypatch.setattr(module, name, fatal(getattr(module, name)))
    return count


def run(feed: Path, folder: Path) -> None:
    labels = str(folder / "labels")
    open_loop(feed, folder / "state", labels=labels).cycle()


def outcome(feed: Path, folder: Path) -> tuple[Any, ...]:
    loop = open_loop(feed, folder / "state", labels=str(folder / "labels"))
    written = [
        zarr.open_array(str(folder / "labels" / path.name), mode="r")[:].tobytes()
        for path in sorted(feed.iterdir())
    ]
    return bits(loop), written


def test_stopped_at_any_point(tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    with pytest.MonkeyPatch.context() as patch:
        count = counted(patch, 0)
        for number in range(N):
            put(feed, number)
            if number % 2:
                run(feed, tmp_path / "whole")
    points, want = count[0], outcome(feed, tmp_path / "whole")
    chosen = sorted(random.Random(0).sample(range(1, points + 1), 12))
    for die_at in chosen:
        with pytest.MonkeyPatch.context() as patch:
            counted(patch, die_at)
            with suppress(Killed):
                run(feed, tmp_path / str(die_at))
        run(feed, tmp_path / str(die_at))
        assert outcome(feed, tmp_path / str(die_at)) == want, die_at


def killed_while_it_runs(tmp_path: Path, n_kills: int, n_objects: int) -> None:
    """Kill processes that run the loop, one after the other, while another process writes objects."""
    feed = tmp_path / "feed"
    feed.mkdir()
    killer = start("kill", feed, tmp_path / "state", n_kills, "{}")
    writer = start("write", feed, n_objects, n_kills / n_objects / 2, "null")
    begin_together(killer, writer)
    assert writer.wait(timeout=250) == killer.wait(timeout=250) == 0
    assert json.loads(killer.stdout.read())["ended"] == 0
    loop, whole = open_loop(feed, tmp_path / "state"), open_loop(feed, tmp_path / "whole")
    before = loop.state.rows_seen
    loop.cycle()
    whole.cycle()
    assert before <= loop.state.rows_seen == good_rows(n_objects)
    assert bits(loop) == bits(whole)


def test_killed_by_a_signal(tmp_path: Path) -> None:
    killed_while_it_runs(tmp_path, 10, 40)


@pytest.mark.slow
def test_killed_fifty_times(tmp_path: Path) -> None:
    killed_while_it_runs(tmp_path, 50, 150)


@pytest.mark.slow
def test_many_small_objects_take_no_extra_memory(tmp_path: Path) -> None:
    import psutil

    feed, sizes = tmp_path / "feed", []
    loop = open_loop(feed, tmp_path / "state", half_life=20_000)
    process = psutil.Process()
    for number in range(400):
        put(feed, number, np.tile(portion(number, 500), (4, 1)))
        loop.cycle()
        sizes.append(process.memory_info().rss)
    assert max(sizes[200:]) < 1.1 * max(sizes[100:200])
