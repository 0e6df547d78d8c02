"""The benchmark of bounds out of core on small data: what it checks, what it writes, what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import bench_bounds_ooc, ooc_rows
from tests.benchmarks.comparisons import ooc_fit
from tests.tiles import BOUNDS_SPARE

SMALL = ooc_rows.Layout(20_000, 4, 10, chunk_rows=256, shard_rows=4096)


def test_arrival_is_source_after_source():
    labels = SMALL.mixture("arrival").labels(0, SMALL.n_rows)
    assert (np.diff(labels) >= 0).all()
    assert np.bincount(labels).tolist() == [2000] * 10
    shuffled = SMALL.mixture("random").labels(0, SMALL.n_rows)
    assert (np.diff(shuffled) < 0).mean() > 0.3


def test_rows_are_written_once(tmp_path: Path):
    import zarr

    first = ooc_rows.prepare(tmp_path, SMALL, ("arrival", "random"), 2)
    written = [path.stat().st_mtime_ns for path in first]
    assert ooc_rows.prepare(tmp_path, SMALL, ("arrival", "random"), 2) == first
    assert [path.stat().st_mtime_ns for path in first] == written
    assert sorted(tmp_path.iterdir()) == sorted(first)
    for path, order in zip(first, ("arrival", "random"), strict=True):
        array = zarr.open_array(path, mode="r")
        assert array.chunks == (256, 4)
        assert array.shards == (4096, 4)
        assert (array[:] == SMALL.mixture(order).rows(0, SMALL.n_rows)).all()


def test_a_full_disk_is_refused_first(tmp_path: Path, monkeypatch):
    free = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(OSError, match="--scratch"):
        ooc_rows.prepare(tmp_path, SMALL, ("random",), 1)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def measured(tmp_path: Path) -> dict[str, list[dict]]:
    (path,) = ooc_rows.prepare(tmp_path, SMALL, ("arrival",), 1)
    centres = SMALL.mixture("arrival").rows(0, SMALL.n_rows)[:: SMALL.n_rows // 5][:5].copy()
    return {
        name: [ooc_fit.measure(str(path), centres, name, 20, 1)] for name in ("lloyd", "hamerly")
    }


def test_bytes_are_those_of_unkept_rows(measured: dict[str, list[dict]]):
    bench_bounds_ooc.check("arrival", measured, SMALL)
    plain, bounded = measured["lloyd"][0], measured["hamerly"][0]
    assert plain["bytes_by_iteration"][1:] == [SMALL.n_bytes] * (plain["n_iter"] - 1)
    if BOUNDS_SPARE:
        assert bounded["bytes_by_iteration"][-1] < SMALL.n_bytes
        assert bounded["touched_by_iteration"][-1] < SMALL.n_rows
    cells = list(bench_bounds_ooc._rows("arrival", measured, SMALL))
    assert [row[1] for row in cells] == ["lloyd", "hamerly"]
    assert cells[0][5] is None
    assert float(cells[1][5]) < 1.0 or not BOUNDS_SPARE


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [("digest", "another", "agree to the bit"), ("bytes_read", 1, "stayed in memory")],
)
def test_figures_that_mislead_are_refused(measured, field: str, value, text: str):
    measured["lloyd"][0][field] = value
    with pytest.raises(RuntimeError, match=text):
        bench_bounds_ooc.check("arrival", measured, SMALL)
