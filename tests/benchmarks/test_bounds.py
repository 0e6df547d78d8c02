"""The benchmark of bounds out of core on small data: what it checks, what it writes, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import bench_bounds_ooc, ooc_rows
from tests.benchmarks.comparisons import ooc_fit
from tests.tiles import BOUNDS_SPARE

SMALL = ooc_rows.Layout(20_000, 4, 10, chunk_rows=256, shard_rows=4096)


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
    for field, value, text in (
        ("digest", "another", "agree to the bit"),
        ("bytes_read", 1, "stayed in memory"),
    ):
        wrong = {**measured, "lloyd": [{**plain, field: value}]}
        with pytest.raises(RuntimeError, match=text):
            bench_bounds_ooc.check("arrival", wrong, SMALL)
