"""Per-row state: how much there may be, what gives way to it, how long it lasts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from daskcluster import open_dataset
from daskcluster.data.writer import ArraySink
from daskcluster.engine.cache import cached_bytes
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.memory import BASELINE_BYTES, ONE_PASS, READ_AHEAD_BYTES, Footprint
from tests.engine import reductions as r

MIB = 1024**2


@pytest.fixture(autouse=True)
def homes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no busy machine report_worker like an uneven cluster: state that moves is made anew."""
    monkeypatch.setattr("daskcluster.engine.assignment.LEAST_MEASURED_SECONDS", 1e9)


@pytest.fixture(params=["local", "dask"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "local":
        return LocalEngine(2)
    return DaskEngine(request.getfixturevalue("client"))


def rebuilt(folder: Path, calls: int) -> int:
    return len(list(folder.glob(f"{calls}-*")))


def test_state_outlasts_passes_of_other_verbs(
    engine: Engine, dataset: Any, integers: np.ndarray, tmp_path: Path
) -> None:
    labels = np.empty(len(integers), np.int32)
    with engine.place(dataset, footprint=Footprint(row_bytes=8)) as placed:
        for calls in range(3):
            params = {"calls": calls, "folder": str(tmp_path)}
            total = placed.map_state(r.NOTED, params)
            assert total[1] == (calls + 1) * int(integers.sum())
            assert placed.reduce(r.SUM, {"factor": 1})[1] == int(integers.sum())
            placed.map_rows(r.row_sums, ArraySink(labels), 1)
            placed.take(np.array([7]))
            placed.state_of(r.NOTED, params, 50_000, r.state_at)
    assert rebuilt(tmp_path, 0) == 25
    assert rebuilt(tmp_path, 1) == rebuilt(tmp_path, 2) == 0


def test_freed_memory_goes_back_to_the_system_before_state_is_made_and_after_it_is_dropped(
    dataset: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[bool] = []
    monkeypatch.setattr("daskcluster.engine.local.give_back_memory", lambda: given.append(True))
    # Only where rows that are read may need it.
    for rows, times in ((dataset.to_numpy(), 0), (dataset, 1)):
        given.clear()
        with LocalEngine(2).place(open_dataset(rows)) as placed:
            for calls in range(3):
                placed.map_state(r.NOTED, {"calls": calls, "folder": str(tmp_path)})
            assert len(given) == times
            placed.drop_state("noted")
            assert len(given) == 2 * times


def test_dropped_state_starts_anew(
    engine: Engine, dataset: Any, integers: np.ndarray, tmp_path: Path
) -> None:
    def call(calls: int) -> int:
        params = {"calls": calls, "folder": str(tmp_path)}
        return int(placed.map_state(r.NOTED, params)[1]) // int(integers.sum())

    with engine.place(dataset) as placed:
        placed.drop_state("noted")  # of which there is none yet
        assert [call(calls) for calls in range(3)] == [1, 2, 3]
        placed.drop_state("noted")
        # What was there would make this 4; and again in the call whose stamp the old state carries.
        assert [call(calls) for calls in (0, 1, 2, 3, 4)] == [1, 2, 3, 4, 5]
    assert rebuilt(tmp_path, 0) == 50


def test_one_reduction_has_state_at_a_time(
    engine: Engine, dataset: Any, integers: np.ndarray
) -> None:
    with engine.place(dataset) as placed:
        for calls in range(2):
            wanted = [[(0, len(integers))]] * (calls + 1)
            for reduction, params in ((r.STATE, {"calls": calls}), (r.CACHED, {"wanted": wanted})):
                total = placed.map_state(reduction, params)
                assert total[1] == (calls + 1) * int(integers.sum())


# -- room --------------------------------------------------------------------------------------------


def test_room_on_threads_is_half_the_limit_less_the_baseline(
    stored: Path, integers: np.ndarray
) -> None:
    footprint = Footprint(thread_bytes=MIB, row_bytes=4)
    engine = LocalEngine(2, memory_limit=2 * (BASELINE_BYTES + 100 * MIB))
    for rows in (open_dataset(str(stored)), open_dataset(integers)):
        with engine.place(rows, footprint=footprint) as placed:
            assert placed.state_room() == 100 * MIB
    # A large working set leaves less than half.
    partition, thread = 4_000 * 256, 200 * MIB
    working = 2 * (thread + 2 * partition + READ_AHEAD_BYTES)
    with engine.place(open_dataset(str(stored)), footprint=Footprint(thread)) as placed:
        assert placed.state_room() == BASELINE_BYTES + 200 * MIB - working
    tight = LocalEngine(2, memory_limit=2 * BASELINE_BYTES)
    with tight.place(open_dataset(str(stored))) as placed:
        assert placed.state_room() == 0


def test_room_on_workers_counts_the_rows_of_other_placements_only(
    client: Client, dataset: Any
) -> None:
    engine = DaskEngine(client)
    size = dataset.n_rows * 256
    with engine.place(dataset) as first:
        room = first.state_room()
        limits = [worker_info.limit for worker_info in first._registry.refresh().values()]
        assert 0 < room < sum(limits) / 2
        first.map_state(r.STATE, {"calls": 0})
        assert sum(cached_bytes(client, first._registry.refresh()).values()) >= size
        # Rows, and the state that is there, are the placement's own.
        assert first.state_room() == room
        with engine.place(dataset) as second:
            second._baselines = first._baselines
            assert room - second.state_room() >= size + 8 * dataset.n_rows
            assert room - second.state_room() < size + 9 * dataset.n_rows


def test_one_pass_keeps_no_rows(engine: Engine, stored: Path, integers: np.ndarray) -> None:
    dataset = open_dataset(str(stored))
    assert engine.plan(dataset).resident == integers.nbytes
    assert engine.plan(dataset, ONE_PASS).resident == 0
    for footprint, n_read in ((None, 1), (ONE_PASS, 2)):
        with engine.place(dataset, footprint=footprint) as placed:
            for _ in range(2):
                assert placed.reduce(r.SUM, {"factor": 1})[1] == int(integers.sum())
            assert placed.traffic.bytes_read == n_read * integers.nbytes


def test_resident_rows_give_way_to_state_that_was_not_announced(
    stored: Path, integers: np.ndarray
) -> None:
    # All rows fit, but for what the state of 100,000 rows takes: 200 bytes each is 20 of 25 partitions.
    limit = 2 * (BASELINE_BYTES + integers.nbytes)
    wide = replace(r.STATE, row_bytes=200)
    with LocalEngine(2, memory_limit=limit).place(open_dataset(str(stored))) as placed:

        def read(reduction: Any, calls: int) -> int:
            before = placed.traffic.bytes_read
            total = placed.map_state(reduction, {"calls": calls})
            assert total[1] == (calls + 1) * int(integers.sum())
            return placed.traffic.bytes_read - before

        assert read(wide, 0) == integers.nbytes
        kept = [place.rows() is not None for place in placed._slots]
        assert kept == [True] * 5 + [False] * 20
        assert read(wide, 1) == integers.nbytes * 20 // 25
        placed.drop_state(wide.name)
        # The room is the rows' again.
        placed.reduce(r.SUM, {"factor": 1})
        assert all(place.rows() is not None for place in placed._slots)


def test_rows_on_workers_have_the_room_of_dropped_state(client: Client, dataset: Any) -> None:
    size = dataset.n_rows * 256
    with DaskEngine(client).place(dataset) as placed:
        workers = placed._registry.refresh()
        # Room for the rows alone.
        placed._room = lambda workers: dict.fromkeys(workers, size * 6 // 10)
        wide = replace(r.STATE, row_bytes=200)
        placed.map_state(wide, {"calls": 0})
        assert sum(map(len, (placed._cache._rows.keys(), placed._cache._state.keys()))) < 50
        placed.drop_state(wide.name)
        assert not placed._cache._state.keys()
        placed.reduce(r.SUM, {"factor": 1})
        assert len(placed._cache._rows.keys()) == 25
        assert sum(cached_bytes(client, workers).values()) >= size
