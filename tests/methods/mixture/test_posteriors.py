"""Posteriors of mixtures, streamed to Zarr: the same on any engine, and never half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import jobs
from daskcluster.errors import DaskClusterError, InvalidParameterError, OutputExistsError


@pytest.fixture
def fitted():
    rng = np.random.default_rng(0)
    X = (rng.uniform(-5, 5, (6, 3))[rng.integers(0, 6, 3000)] + rng.normal(size=(3000, 3))).astype(
        np.float32
    )
    model = dc.VariationalGaussianMixture(
        6, truncation=3, n_neighbors=3, random_state=0, max_iter=5
    ).fit(X)
    return model, X


def stored(folder, X, rows=700):
    path = str(folder / "rows.zarr")
    array = zarr.create_array(path, shape=X.shape, chunks=(rows, X.shape[1]), dtype=X.dtype)
    array[:] = X
    return path


def read(url):
    group = zarr.open_group(url, mode="r")
    return group["components"][:], group["probabilities"][:], dict(group.attrs)


def check(url, model, X):
    components, probabilities, sgd_state = read(url)
    expected = model.predict_proba(X)
    assert (components.dtype, probabilities.dtype) == (np.int32, np.float32)
    assert sgd_state == {"daskcluster": "posteriors", "n_components": 6}
    assert (np.diff(probabilities, axis=1) <= 0).all()
    rows = np.arange(len(X))[:, None]
    assert np.array_equal(probabilities, expected.toarray()[rows, components].astype(np.float32))


def test_two_workers_write_the_same(fitted, tmp_path, client):
    model, X = fitted
    url = str(tmp_path / "posteriors.zarr")
    model.engine = client
    model.predict_proba(stored(tmp_path, X), output=url)
    model.engine = None
    check(url, model, X)
    assert zarr.open_array(url, path="components").chunks == (700, 3)


def test_existing_output_is_only_replaced_with_overwrite(fitted, tmp_path):
    model, X = fitted
    url = str(tmp_path / "posteriors.zarr")
    assert model.predict_proba(X, output=url) == url
    with pytest.raises(OutputExistsError):
        model.predict_proba(X[:100], output=url)
    check(url, model, X)
    model.predict_proba(X[:100], output=url, overwrite=True)
    assert len(read(url)[0]) == 100


def test_a_failed_call_leaves_no_output(fitted, tmp_path):
    model, X = fitted
    bad = X.copy()
    bad[2500, 1] = np.nan
    with pytest.raises(DaskClusterError):
        model.predict_proba(stored(tmp_path, bad), output=str(tmp_path / "posteriors.zarr"))
    assert not (tmp_path / "posteriors.zarr").exists()


def test_a_job_writes_them_next_to_the_labels(fitted, tmp_path):
    model, X = fitted
    source, saved = stored(tmp_path, X), str(tmp_path / "model.zarr")
    urls = {name: str(tmp_path / f"{name}.zarr") for name in ("output", "posteriors")}
    model.save(saved)
    record = jobs.predict(saved, source, **urls)
    check(urls["posteriors"], model, X)
    assert np.array_equal(zarr.open_array(urls["output"])[:], model.predict(X))
    assert record.passes == 2
    assert record.posteriors == urls["posteriors"]


def test_k_means_models_have_no_posteriors(fitted, tmp_path):
    _, X = fitted
    source, saved = stored(tmp_path, X), str(tmp_path / "model.zarr")
    dc.KMeans(3, max_iter=1, tol=0, random_state=0).fit(X).save(saved)
    urls = {name: str(tmp_path / f"{name}.zarr") for name in ("output", "posteriors")}
    with pytest.raises(InvalidParameterError, match="has no posteriors"):
        jobs.predict(saved, source, **urls)
    assert not any(Path(url).exists() for url in urls.values())
