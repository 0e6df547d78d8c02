"""Rows of bfloat16, widened block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import daskcluster as dc

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

ROWS = np.random.default_rng(3).normal(size=(3000, 8)).astype(ml_dtypes.bfloat16)
ROWS[:1500] += ml_dtypes.bfloat16(6)
WIDE = ROWS.astype(np.float32)


def test_rows_stay_as_they_are_and_are_clustered_as_float32() -> None:
    dataset: Any = dc.open_dataset(ROWS)
    assert np.shares_memory(dataset.held, ROWS)
    for X in (ROWS, dataset):
        fitted, expected = (dc.KMeans(4, random_state=0).fit(each) for each in (X, WIDE))
        assert np.array_equal(fitted.cluster_centers_, expected.cluster_centers_)
        assert np.array_equal(np.asarray(fitted.labels_), expected.labels_)
        assert np.array_equal(np.asarray(fitted.predict(X)), expected.predict(WIDE))
    scaled = dc.KMeans(4, random_state=0).fit(dc.open_dataset(ROWS, scale="standard"))
    assert np.array_equal(scaled.predict(WIDE), np.asarray(scaled.labels_))


def test_missing_values() -> None:
    gappy = ROWS.copy()
    gappy[::30, 2] = ml_dtypes.bfloat16(np.nan)
    assert dc.open_dataset(gappy, missing="drop").n_rows == 2900
    filled = dc.open_dataset(gappy, missing="mean")
    assert filled.dtype == ml_dtypes.bfloat16
    assert np.isfinite(filled.to_numpy().astype(np.float32)).all()


def test_a_cluster_of_processes(client: Any) -> None:
    expected = dc.KMeans(4, random_state=0, init="k-means||").fit(WIDE)
    fitted = dc.KMeans(4, random_state=0, init="k-means||", engine=client).fit(ROWS)
    assert np.array_equal(np.asarray(fitted.labels_), expected.labels_)
    assert np.array_equal(fitted.cluster_centers_, expected.cluster_centers_)
