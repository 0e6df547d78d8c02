"""The benchmarks of coresets and of the whole way from a store to labels, on few rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.comparisons import coreset, pipeline
from tests.benchmarks.harness.settings import Settings
from tests.reference import coreset as reference


def test_stages_follow_the_lines() -> None:
    lines = [(1.0, "vc-gmm: 10 rows"), (4.0, "coreset of 5"), (6.0, "seeding by x"), (9.0, "ended")]
    found = pipeline.stages_of(lines, 20.0)
    assert list(found.values()) == [1.0, 3.0, 2.0, 3.0, 11.0]


def test_numpy_draws_what_we_draw() -> None:
    X = np.random.default_rng(0).lognormal(size=(500, 3))
    rows, weights = coreset.numpy_coreset(X, 4000, 1)
    q = reference.probabilities(X, X.mean(axis=0))
    assert rows.shape == (4000, 3)
    assert set(np.round(weights * 4000, 6)) <= set(np.round(1 / q, 6))
    assert weights.sum() == pytest.approx(500, rel=0.1)


@pytest.mark.slow
def test_the_pipeline_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = pipeline.Task(300_000, n_clusters=50, coreset_size=5000)
    monkeypatch.setattr(pipeline, "QUICK", task)
    settings = Settings(quick=True, scratch=tmp_path)
    (cell,) = pipeline.cells(settings)
    stages, results = pipeline.show({cell.name: cell.measure()}, settings)
    assert [row[0] for row in stages.rows] == [*pipeline.STAGES.values(), "all"]
    assert sum(row[1] for row in stages.rows[:-1]) == pytest.approx(stages.rows[-1][1])
    assert ["passes over the rows", 3, 3] in results.rows
