"""Fits by the cosine metric have the same bits wherever the rows are: chunks take the metric along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster.engine import pass_run as transfer

N = 6000


def rows(name: str) -> Any:
    rng = np.random.default_rng(0)
    found = rng.lognormal(size=(N, 1)) * rng.normal(size=(N, 4)).round(1).astype(np.float32)
    found[7] = 0.0
    return sparse.csr_array(found) if name == "sparse" else found


def fits(source: Any, engine: Any) -> list[Any]:
    """Return fits that go different ways over the rows."""
    given: dict[str, Any] = {"metric": "cosine", "random_state": 0, "engine": engine}
    return [
        dc.KMeans(6, max_iter=6, init="k-means||", **given).fit(source),
        dc.KMeans(6, max_iter=6, algorithm="lloyd", **given).fit(source),
        dc.VarianceReducedKMeans(6, max_iter=2, n_partitions=3, **given).fit(source),
        dc.HierarchicalKMeans(20, **given).fit(source),
        dc.CoresetKMeans(6, coreset_size=500, **given).fit(source),
    ]


def same(one: list[Any], other: list[Any], source: Any) -> None:
    for ours, theirs in zip(one, other, strict=True):
        name = type(ours).__name__
        assert np.array_equal(ours.cluster_centers_, theirs.cluster_centers_), name
        assert ours.inertia_ == theirs.inertia_, name
        assert np.array_equal(np.asarray(ours.labels_), np.asarray(theirs.labels_)), name
        assert np.array_equal(ours.predict(source), np.asarray(theirs.labels_)), name
        assert ours.score(source) == theirs.score(source), name


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_rows_that_are_sent_and_rows_that_go_through_a_scratch_folder(
    client: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source = rows(name)
    expected = fits(source, "local")
    same(fits(source, client), expected, source)
    monkeypatch.setattr(transfer, "SEND_BYTES", 1000)
    same(fits(source, client), expected, source)


def test_stored_rows(client: Any, tmp_path: Path) -> None:
    found, where = rows("dense"), str(tmp_path / "rows")
    zarr.create_array(where, data=found, chunks=(2000, 4))
    local, remote = fits(where, "local"), fits(where, client)
    same(remote, local, where)
    # Labels in memory and lazy ones.
    assert np.array_equal(local[0].labels_.to_dask().compute(), local[0].predict(found))
