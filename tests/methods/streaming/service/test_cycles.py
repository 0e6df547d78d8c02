"""Streams in one cycle and in many, on threads and on workers, of good and of odd objects."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tests.benchmarks.bench_stream_drift import FOLLOWERS, follow
from tests.methods.streaming.service.feeds import bits, open_loop, portion, put

N = 8


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("of-learners") / "feed"
    for number in range(N):
        put(folder, number)
    return folder


@pytest.mark.parametrize("options", [{}, {"half_life": 2000, "metric": "cosine"}, {"window": 4000}])
def test_one_cycle_per_object_equals_one_cycle_for_all(
    feed: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    whole = open_loop(feed, tmp_path / "whole", labels=str(tmp_path / "ours"), **options)
    cycle = whole.cycle()
    assert (cycle.rows_seen, cycle.model_version, cycle.new_objects) == (N * 700, N * 700, N)
    parts, labels = tmp_path / "parts", str(tmp_path / "theirs")
    for number in range(N):
        shutil.copytree(feed / f"part-{number:04d}.zarr", parts / f"part-{number:04d}.zarr")
        loop = open_loop(parts, tmp_path / "apart", labels=labels, **options)
        cycle = loop.cycle()
        assert (cycle.rows_seen, cycle.model_version) == ((number + 1) * 700,) * 2
    assert bits(loop) == bits(whole)
    again = open_loop(feed, tmp_path / "whole", **options)
    assert bits(again) == bits(whole)
    cycle = again.cycle()
    assert (cycle.new_rows, cycle.new_objects, cycle.rows_seen) == (0, 0, N * 700)
    for number in range(2, N):  # the first leaf is in the two before
        one, two = (
            zarr.open_array(str(tmp_path / name / f"part-{number:04d}.zarr"), mode="r")[:]
            for name in ("ours", "theirs")
        )
        assert np.array_equal(one, two)


def test_workers_give_the_same_state(feed: Path, tmp_path: Path, client: Any) -> None:
    loops = [
        open_loop(feed, tmp_path / name, engine=engine)
        for name, engine in (("here", None), ("there", client))
    ]
    for loop in loops:
        loop.cycle()
    assert bits(loops[0]) == bits(loops[1])


def test_odd_objects_are_reported(tmp_path: Path) -> None:
    feed, good = tmp_path / "feed", [portion(number) for number in range(6)]
    for number in (0, 1, 3, 4):
        put(feed, number, good[number])
    chunk = feed / "part-0001.zarr" / "c" / "1" / "0"
    shutil.move(chunk, tmp_path / "chunk")
    (feed / "part-0004.zarr" / "c" / "0" / "0").write_bytes(b"no chunk")
    loop = open_loop(feed, tmp_path / "state")
    assert message(loop.cycle()) == {"part-0001.zarr": "unsettled", "part-0004.zarr": "corrupt"}
    shutil.move(tmp_path / "chunk", chunk)
    put(feed, 2, good[2])
    shutil.copytree(feed / "part-0000.zarr", feed / "part-0000.zarr-again")
    cycle = loop.cycle()
    late = dict.fromkeys(("part-0001.zarr", "part-0002.zarr"), "late")
    assert message(cycle) == {**late, "part-0000.zarr-again": "duplicate"}
    before = bits(loop)
    shutil.rmtree(feed / "part-0003.zarr")
    put(feed, 3, good[3][:90])
    zarr.open_array(str(feed / "part-0000.zarr"))[:5] = 7.0
    found = message(loop.cycle())
    assert (found["part-0003.zarr"], found["part-0000.zarr"]) == ("shrunk", "changed")
    assert bits(loop) == before
    plain = tmp_path / "plain"
    for place, number in enumerate((0, 3, 1, 2)):
        put(plain, place, good[number])
    whole = open_loop(plain, tmp_path / "whole")
    assert whole.cycle().rows_seen == cycle.rows_seen == 4 * 700
    assert bits(whole)["arrays"] == before["arrays"]
    assert bits(whole)["model"] == before["model"]


def message(cycle: Any) -> dict[str, str]:
    return {finding.name: str(finding.oddity) for finding in cycle.findings}


@pytest.mark.parametrize("name", FOLLOWERS)
def test_moving_clusters_are_followed(tmp_path: Path, name: str) -> None:
    found = follow(tmp_path, 120, FOLLOWERS[name], stop=14)
    # The error of rows that have just come, over that about their true middles.
    if "nothing forgotten" in name:
        assert found["excess"][-1] > 2.0
    else:
        assert found["excess"][-1] < 1.0
