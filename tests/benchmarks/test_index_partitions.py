"""The benchmark of index partitions, on few rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import index_partitions
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.index_partitions_run import nearest_rows, recalls_at


def test_recall_is_that_of_searches() -> None:
    rng = np.random.default_rng(0)
    rows, queries = rng.normal(size=(2, 600, 5)).astype(np.float32)
    queries, centres = queries[:40], rows[:12]
    truth = nearest_rows(rows, queries)
    gaps = np.square(rows[:, None].astype(float) - centres).sum(axis=2)
    ranked = np.argsort(gaps, axis=1, kind="stable").astype(np.int32)
    partitions = ranked[:, :2].copy()
    partitions[::3, 1] = -1
    sizes = np.bincount(partitions[partitions >= 0], minlength=12)
    order = np.argsort(np.square(queries[:, None] - centres).sum(axis=2), axis=1, kind="stable")
    for probes in (1, 3):
        scan = sizes[order[:, :probes]].sum(axis=1).mean() / 600
        (found,) = recalls_at([scan], centres, partitions, queries, truth)
        for query, recall in enumerate(found):
            looked = np.isin(partitions, order[query, :probes]).any(axis=1)
            exact = np.square(rows - queries[query]).sum(axis=1).argsort(kind="stable")[:10]
            assert recall == pytest.approx(looked[exact].mean())


@pytest.mark.slow
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_partitions, "QUICK", (6_000, 16))
    sizes, recalls = index_partitions.run(Settings(quick=True, scratch=tmp_path))
    assert [row[0] for row in sizes.rows][:2] == ["`partition`", "`partition`, `spill=1`"]
    assert float(recalls.rows[0][-1]) > float(recalls.rows[0][1]) > 0
    assert not list(tmp_path.iterdir())
