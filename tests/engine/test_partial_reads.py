"""A pass reads the storage chunks that hold a wanted row and no others, and gives what a full one gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client
from numpy.testing import assert_array_equal

from daskcluster import open_dataset
from daskcluster.chunk import Chunk
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.engine import Placement
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.memory import BASELINE_BYTES
from daskcluster.events import PassProgress
from tests.engine import reductions as r

ROW = 64 * 4
Spans = list[tuple[int, int]]
NONE: Spans = []
SOME: Spans = [(10, 11), (8_700, 9_050), (52_000, 56_000), (99_999, 100_000)]
ALL: Spans = [(0, 100_000)]


def _plain(rows: np.ndarray, folder: Path) -> str:
    array = zarr.create_array(
        str(folder / "plain.zarr"), shape=rows.shape, chunks=(1000, 64), dtype="f4"
    )
    array[:] = rows
    return str(folder / "plain.zarr")


def _sharded(rows: np.ndarray, folder: Path) -> str:
    array = zarr.create_array(
        str(folder / "sharded.zarr"),
        shape=rows.shape,
        chunks=(500, 64),
        shards=(20_000, 64),
        dtype="f4",
    )
    array[:] = rows
    return str(folder / "sharded.zarr")


def _mapped(rows: np.ndarray, folder: Path) -> str:
    np.save(folder / "rows.npy", rows)
    return str(folder / "rows.npy")


@pytest.fixture(scope="module")
def sources(
    integers: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, int]]:
    """Return by name: a URL, and the rows that are read together."""
    folder = tmp_path_factory.mktemp("partial")
    return {
        "plain": (_plain(integers, folder), 1000),
        "sharded": (_sharded(integers, folder), 500),
        "mapped": (_mapped(integers, folder), (1 << 18) // ROW),
    }


@pytest.fixture(autouse=True)
def homes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no busy machine report_worker like an uneven cluster: state that moves is made anew."""
    monkeypatch.setattr("daskcluster.engine.assignment.LEAST_MEASURED_SECONDS", 1e9)


@pytest.fixture(params=["local", "dask"])
def place(request: pytest.FixtureRequest) -> Callable[..., Placement]:
    """Return a way to place data of which no row stays in memory."""
    if request.param == "local":
        engine = LocalEngine(2, memory_limit=2 * BASELINE_BYTES)
        return engine.place
    client: Client = request.getfixturevalue("client")

    def on_workers(dataset: Any, **kwargs: Any) -> Placement:
        placed = DaskEngine(client).place(dataset, **kwargs)
        placed._cache._rows.bytes_per_row = 0
        return placed

    return on_workers


def truth(rows: np.ndarray, calls: list[Spans], weights: np.ndarray | None = None) -> int:
    return int(r.row_values(Chunk(rows, 0, weights), len(calls) - 1, {"wanted": calls}).sum())


def covered(placed: Placement, step: int, spans: Spans) -> int:
    """Return the rows of the parts of `step` rows, counted from each unit's start, that `spans` meet."""
    touched = {
        (start, (row - start) // step)
        for first, last in spans
        for start, stop in placed.work_items
        for row in range(max(first, start), min(last, stop))
    }
    stops = dict(placed.work_items)
    return sum(min(step, stops[start] - start - part * step) for start, part in touched)


@pytest.mark.parametrize("name", ["plain", "sharded", "mapped"])
def test_chunks_are_read_if_they_have_a_wanted_row(
    place: Callable[..., Placement],
    sources: dict[str, tuple[str, int]],
    integers: np.ndarray,
    name: str,
) -> None:
    url, step = sources[name]
    events: list[Any] = []
    calls: list[Spans] = []
    with place(open_dataset(url), callbacks=[events.append]) as placed:
        for spans in (ALL, SOME, NONE, ALL, SOME):
            events.clear()
            before = placed.traffic.bytes_read
            calls.append(spans)
            n_rows, total, seen = placed.map_state(r.CACHED, {"wanted": calls})
            wanted = covered(placed, step, spans)
            assert (n_rows, total) == (100_000, truth(integers, calls))
            assert seen == wanted
            assert placed.traffic.bytes_read - before == ROW * wanted
            done = [event.rows for event in events if isinstance(event, PassProgress)]
            assert sum(done) == 100_000
    assert covered(placed, step, SOME) < 10_000


def test_weights_are_read_with_their_rows(
    place: Callable[..., Placement],
    sources: dict[str, tuple[str, int]],
    integers: np.ndarray,
    tmp_path: Path,
) -> None:
    weights = (np.arange(100_000) % 5).astype(np.float64)
    kept = zarr.create_array(str(tmp_path / "w.zarr"), shape=(100_000,), chunks=(900,), dtype="f8")
    kept[:] = weights
    with place(open_dataset(sources["plain"][0], weights=str(tmp_path / "w.zarr"))) as placed:
        placed.map_state(r.CACHED, {"wanted": [ALL]})
        before = placed.traffic.bytes_read
        got = placed.map_state(r.CACHED, {"wanted": [ALL, SOME]})
        assert got[1] == truth(integers, [ALL, SOME], weights)
        assert placed.traffic.bytes_read - before == (ROW + 8) * covered(placed, 1000, SOME)


def test_rows_in_memory_are_not_filtered(
    client: Client, integers: np.ndarray, sources: dict[str, tuple[str, int]]
) -> None:
    never = replace(r.CACHED, filter_rows=_refuse)
    for engine in (LocalEngine(2), DaskEngine(client)):
        # An array; and partitions that stay in memory between passes.
        for source in (integers, sources["plain"][0]):
            with engine.place(open_dataset(source)) as placed:
                placed.map_state(never, {"wanted": [ALL]})
                before = placed.traffic.bytes_read
                got = placed.map_state(never, {"wanted": [ALL, SOME]})
                assert_array_equal(got, (100_000, truth(integers, [ALL, SOME]), 100_000))
                assert placed.traffic.bytes_read == before


def _refuse(prepared: Any, total: Any, state: Any) -> np.ndarray:
    raise AssertionError("filtered")


def test_a_unit_that_is_to_stay_in_memory_is_read_whole(
    sources: dict[str, tuple[str, int]], integers: np.ndarray
) -> None:
    with LocalEngine(1).place(open_dataset(sources["plain"][0])) as placed:
        placed.map_state(r.CACHED, {"wanted": [ALL]})
        for kept in placed._slots[:3]:
            kept.drop_rows()
        before = placed.traffic.bytes_read
        got = placed.map_state(r.CACHED, {"wanted": [ALL, NONE]})
        assert_array_equal(got, (100_000, truth(integers, [ALL]), 100_000))
        assert placed.traffic.bytes_read - before == ROW * 3 * 4000
        assert all(kept.rows() is not None for kept in placed._slots)


def test_a_pass_that_fails_half_way_leaves_no_valid_state_of_its_units(
    place: Callable[..., Placement],
    sources: dict[str, tuple[str, int]],
    integers: np.ndarray,
    tmp_path: Path,
) -> None:
    rows = 53_500
    with place(open_dataset(sources["plain"][0])) as placed:
        placed.map_state(r.CACHED, {"wanted": [ALL]})
        with pytest.raises(ValueError, match="fatal row"):
            placed.map_state(r.CACHED, {"wanted": [ALL, SOME], "fatal": rows})
        params = {"wanted": [ALL, SOME, NONE], "folder": str(tmp_path)}
        got = placed.map_state(r.CACHED, params)
        assert got[1] == truth(integers, [ALL, SOME])
        item = next(span for span in placed.work_items if span[0] <= rows < span[1])
        rebuilt = {int(path.name.partition("-")[0]) for path in tmp_path.iterdir()}
        assert item[0] in rebuilt


def test_a_mask_that_does_not_fit_is_refused(
    sources: dict[str, tuple[str, int]], place: Callable[..., Placement]
) -> None:
    with place(open_dataset(sources["plain"][0])) as placed:
        bad = replace(r.CACHED, filter_rows=_short_mask)
        placed.map_state(bad, {"wanted": [ALL]})
        with pytest.raises(ValueError, match=r"shape=\(3,\), dtype=bool .* one bool for every row"):
            placed.map_state(bad, {"wanted": [ALL, SOME]})


def _short_mask(prepared: Any, total: Any, state: Any) -> np.ndarray:
    return np.zeros(3, bool)
