"""The benchmark of streams on few rows: tables, plots, and that what is finished is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks import bench_stream, stream_growth
from tests.benchmarks.harness.parts import Figure, Table
from tests.benchmarks.harness.settings import Settings


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_stream, "QUALITY_ROWS", 4_000)
    monkeypatch.setattr(bench_stream, "THROUGHPUT_ROWS", (20_000, 20_000))
    monkeypatch.setattr(bench_stream, "OBJECTS", (3, 3))
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)

    def grown(settings: Settings, files: object, half_life: int | None) -> stream_growth.Growth:
        return stream_growth.Growth([100, 200], [2.0, 1.0], [0.0, 3.0], [10, 20])

    monkeypatch.setattr(stream_growth, "_grown", grown)


@pytest.mark.usefixtures("few")
def test_finished_parts_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    settings = Settings(
        quick=True, scratch=tmp_path / "scratch", images=tmp_path / "images", repeats=1, keep=True
    )
    found = bench_stream.run(settings)
    tables = [each for each in found if isinstance(each, Table)]
    assert [len(table.rows) for table in tables] == [2, 1, 2, 3]
    assert all(len(row) == len(table.header) for table in tables for row in table.rows)
    (figure,) = (each for each in found if isinstance(each, Figure))
    assert "rows so far" in (tmp_path / figure.path).read_text()

    def refused(*arguments: object) -> None:
        raise AssertionError("this part was finished before")

    for part in ("_raced", "_ratios", "_looped"):
        monkeypatch.setattr(bench_stream, part, refused)
    again = bench_stream.run(replace(settings, keep=False))
    assert [each.markdown() for each in again] == [each.markdown() for each in found]
    assert not list((tmp_path / "scratch").iterdir())
