"""The benchmark of near-duplicates, on few rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import near_duplicates
from tests.benchmarks.harness.settings import Settings


@pytest.mark.slow
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "QUICK", (6_000, 64))
    (table,) = near_duplicates.run(Settings(quick=True, scratch=tmp_path))
    assert [row[0] for row in table.rows] == list(near_duplicates.RUNS.values())
    search = table.rows[0]
    assert search[4] == "100.00%"
    assert search[6:8] == ["0", "0"]
    assert not list(tmp_path.iterdir())
