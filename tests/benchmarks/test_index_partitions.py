"""The benchmark of index partitions, on few rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.index_partitions_run import nearest_rows, recalls_at


def test_recall_is_that_of_searches() -> None:
    rng = np.random.default_rng(0)
    rows, queries = rng.normal(size=(2, 600, 5)).astype(np.float32)
    queries, centres = queries[:40], rows[:12]
    truth = nearest_rows(rows, queries)
    gaps = np.square(rows[:, None].astype(float) - centres).sum(axis=2)
    ranked = np.argsort(gaps, axis=1, kind="stable").astype(np.int32)
    partitions = ranked[:, 0]
    sizes = np.bincount(partitions, minlength=12)
    order = np.argsort(np.square(queries[:, None] - centres).sum(axis=2), axis=1, kind="stable")
    for probes in (1, 3):
        scan = sizes[order[:, :probes]].sum(axis=1).mean() / 600
        (found,) = recalls_at([scan], centres, partitions, queries, truth)
        for query, recall in enumerate(found):
            looked = np.isin(partitions, order[query, :probes])
            exact = np.square(rows - queries[query]).sum(axis=1).argsort(kind="stable")[:10]
            assert recall == pytest.approx(looked[exact].mean())
