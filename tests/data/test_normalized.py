"""Fits by the cosine metric: rows of any source count as directions, and stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc

ROWS = np.random.default_rng(0).integers(-9, 9, (60, 3)).astype(np.float32)


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Any]:
    """Return the same rows in every container."""
    zarr.create_array(tmp_path / "rows", data=ROWS, chunks=(8, 3))
    np.save(tmp_path / "rows.npy", ROWS)
    return {
        "array": ROWS,
        "sparse": sparse.csr_array(ROWS),
        "zarr": str(tmp_path / "rows"),
        "mapped": str(tmp_path / "rows.npy"),
        "dask": da.from_array(ROWS, chunks=(20, 3)),
    }


def fit(rows: Any) -> dc.KMeans:
    return dc.KMeans(4, metric="cosine", init="random", n_init=1, random_state=0).fit(rows)


def test_rows_count_as_directions_and_stay_as_they_are(sources: dict[str, Any]) -> None:
    lengths = np.sqrt((ROWS.astype(float) ** 2).sum(axis=1, keepdims=True))
    expected = fit(ROWS / np.maximum(lengths, 1e-9))
    for name, source in sources.items():
        dataset: Any = dc.open_dataset(source)
        found = fit(dataset)
        assert np.array_equal(np.asarray(found.labels_), expected.labels_), name
        assert np.allclose(found.cluster_centers_, expected.cluster_centers_, atol=1e-6), name
        assert np.array_equal(dataset.to_numpy(), ROWS), name
        weighted = fit(dc.open_dataset(source, weights=np.full(60, 2.0)))
        assert weighted.inertia_ == pytest.approx(2 * found.inertia_), name


def test_features_are_scaled_before_rows_are(sources: dict[str, Any]) -> None:
    for name, source in sources.items():
        scaled: Any = dc.open_dataset(source, scale="standard")
        expected = fit(scaled.to_numpy())
        assert np.array_equal(np.asarray(fit(scaled).labels_), expected.labels_), name
