"""The benchmark of very many clusters, on few rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import hierarchical
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.hierarchical_fit import FitFigures


def test_an_interrupted_one_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchical, "QUICK", (60, 2, 5))
    made: list[str] = []

    def measure(name: str, path: Path, k: int, threads: int) -> FitFigures:
        if name == "unrefined" and len(made) == 2:
            raise KeyboardInterrupt
        made.append(name)
        names = ("empty", "smallest", "median", "mean", "largest", "variation", "gini")
        figures: dict[str, Any] = dict.fromkeys(names, 1)
        return FitFigures(4.0, 6.0, 1.0, [1.0, 1.0], 1.0, 10**9, 120.0, 5, 60, figures)

    monkeypatch.setattr(hierarchical, "_measure", measure)
    settings = Settings(quick=True, scratch=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        hierarchical.run(settings)
    made.append("interrupted")
    times, balance = hierarchical.run(settings)
    assert made == ["memory", "zarr", "interrupted", "unrefined", "random", "afk-mc2"]
    assert times.rows[0][1:] == [4.0, 3.0, 1.0, "1 + 1", 1.0, 1.0, 5, 2.0]
    assert len(balance.rows) == 5
    assert not list(tmp_path.iterdir())
    hierarchical.run(replace(settings, keep=True, sets=("memory",)))
    assert list(tmp_path.iterdir())
