"""Passes in segments: the same bits, one pass, and another call continues where one has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.chunkwise.data_statistics import DATA_STATISTICS, DataStatisticsParams
from daskcluster.engine import engine as engine_module
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.engine import Segment, Segments
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import PassEnded, PassProgress, PassStarted
from tests.laws.data import lognormal

N = 80_000


@pytest.fixture
def rows(tmp_path: Path) -> str:
    # A partition has 1 MB, or 1,024 rows, at least.
    X = lognormal(N, 64)
    zarr.create_array(str(tmp_path / "rows.zarr"), data=X, chunks=(1024, 64))
    return str(tmp_path / "rows.zarr")


@pytest.fixture(autouse=True)
def _one_leg_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MIN_SECONDS", 0.0)


def measured(
    engine: Any, source: Any, segments: Segments | None, heard: list[Any] | None = None
) -> Any:
    callbacks = () if heard is None else (heard.append,)
    with engine.place(open_dataset(source), callbacks=callbacks) as placement:
        rows = ScaledPlacement(placement)
        params = DataStatisticsParams(rows.origin, rows.scale)
        if segments is None:
            return placement.reduce(DATA_STATISTICS, params), placement.traffic
        return placement.reduce_in_segments(DATA_STATISTICS, params, segments), placement.traffic


def same(one: Any, other: Any) -> None:
    assert one.sums.tobytes() == other.sums.tobytes()
    assert (one.spread, one.n_rows) == (other.spread, other.n_rows)
    assert np.array_equal(one.max_abs, other.max_abs)


def test_legs_add_up_to_the_pass(rows: str) -> None:
    heard: list[Any] = []
    kept: list[Segment] = []
    engine = dc.LocalEngine(1)
    whole, _ = measured(engine, rows, None)
    found, traffic = measured(engine, rows, Segments(kept.append), heard)
    same(found, whole)
    n = kept[0].n_segments
    assert n > 1
    assert [segment.done for segment in kept] == list(range(1, n))
    assert traffic.passes == 1
    assert [type(e) for e in heard if not isinstance(e, PassProgress)] == [PassStarted, PassEnded]
    assert sum(e.rows for e in heard if isinstance(e, PassProgress)) == N


@pytest.mark.parametrize("at", [0, 1])
def test_another_engine_resumes_from_any_leg(rows: str, client: Any, at: int) -> None:
    engines = dc.LocalEngine(1), DaskEngine(client)
    whole, traffic = measured(engines[0], rows, None)
    kept: list[Segment] = []

    def keep(segment: Segment) -> None:
        kept.append(segment)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(engines[at], rows, Segments(keep))
    heard: list[Any] = []
    found, less = measured(engines[1 - at], rows, Segments(kept.append, kept[0]), heard)
    same(found, whole)
    assert less.bytes_read < traffic.bytes_read
    assert sum(e.rows for e in heard if isinstance(e, PassProgress)) == N


def test_rows_in_memory_are_one_leg() -> None:
    kept: list[Segment] = []
    measured(dc.LocalEngine(2), lognormal(5000), Segments(kept.append))
    assert not kept


def test_only_the_same_pass_continues() -> None:
    started = Segment(2, 4, 16, 3, "total")
    segments = Segments(lambda segment: None, started)
    assert segments.begin(16, 1) == Segment(1, 4, 16)
    assert segments.begin(16, 2) == started
    assert Segments(lambda segment: None, started).begin(17, 1).done == 0
