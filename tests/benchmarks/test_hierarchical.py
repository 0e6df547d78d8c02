"""The benchmark of very many clusters, on few rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import hierarchical
from tests.benchmarks.harness import Options


@pytest.mark.slow
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchical, "QUICK", (5_000, 8, 200))
    (table,) = hierarchical.run(Options(quick=True, scratch=tmp_path))
    assert [row[0] for row in table.rows] == list(hierarchical.RUNS.values())
    memory, stored = table.rows[0], table.rows[1]
    assert memory[6] == stored[6]  # the same bits
    assert not list(tmp_path.iterdir())
