"""Saved partitions: new rows get the partition that the call gave to the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster import jobs
from daskcluster.errors import InvalidDataError, ModelFormatError

RNG = np.random.default_rng(0)
CHANCES = 1.0 / np.arange(1, 31)
X = RNG.normal(size=(30, 10))[RNG.choice(30, 3000, p=CHANCES / CHANCES.sum())]
X = (X + 0.4 * RNG.normal(size=(3000, 10))).astype(np.float32)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_saved_partitions_predict_the_partition(metric: str, tmp_path: Path) -> None:
    found = dc.partition(X, 100, max_size=150, metric=metric)
    model = found.to_model()
    # Plain nearest centres would give other ones.
    assert (
        replace(model, penalties=np.zeros(found.n_partitions)).predict(X) != found.partition
    ).any()
    np.testing.assert_array_equal(model.predict(X, engine=dc.LocalEngine(2)), found.partition)
    url = str(tmp_path / "model")
    model.save(url)
    again = dc.load_model(url)
    np.testing.assert_array_equal(again.predict(X.astype(np.float64)[:100]), found.partition[:100])
    np.testing.assert_array_equal(again.sizes, found.sizes)
    np.testing.assert_array_equal(again.centres, found.centres)
    jobs.predict(url, X, output=str(tmp_path / "labels"))
    labels = zarr.open_array(str(tmp_path / "labels"), mode="r")[:]
    np.testing.assert_array_equal(labels, found.partition)
    jobs.predict(url, X, output=str(tmp_path / "nearest"), n_nearest=1)
    rows = X / np.sqrt(np.square(X).sum(axis=1, keepdims=True)) if metric == "cosine" else X
    gaps = np.square(rows[:, None].astype(float) - found.centres).sum(axis=2)
    nearest = zarr.open_array(str(tmp_path / "nearest"), mode="r")[:, 0]
    np.testing.assert_allclose(gaps[np.arange(3000), nearest], gaps.min(axis=1), rtol=1e-5)


def test_rows_are_sampled_evenly_from_saved_partitions() -> None:
    model = dc.partition(X, 300).to_model()
    sample = dc.balanced_sample(model, X, size=2 * model.n_clusters, how="nearest", random_state=0)
    np.testing.assert_array_equal(np.bincount(sample.clusters), 2)
    np.testing.assert_array_equal(sample.clusters, model.predict(X)[sample.rows])


def test_errors() -> None:
    model = dc.partition(X, 300).to_model()
    with pytest.raises(InvalidDataError, match="X has 9 features"):
        model.predict(X[:, 1:])
    with pytest.raises(InvalidDataError, match="dense"):
        model.predict(sparse.csr_array(X))
    with pytest.raises(ModelFormatError, match="assigning centres"):
        replace(model, assigning=model.assigning[1:])
    with pytest.raises(ModelFormatError, match="penalties"):
        replace(model, penalties=-1.0 - model.penalties)
