"""Labels of stored rows that the last pass of a fit leaves behind."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
import zarr
from sklearn.base import clone

import daskcluster as dc
from daskcluster import jobs
from daskcluster.engine.local import LocalEngine
from daskcluster.events import PassEnded

ESTIMATORS = (
    dc.KMeans(4, random_state=0, n_init=3),
    dc.KMeans(4, random_state=0, algorithm="elkan"),
    dc.MiniBatchKMeans(4, random_state=0, batch_size=100),
    dc.NestedMiniBatchKMeans(4, random_state=0),
    dc.VarianceReducedKMeans(4, random_state=0),
    dc.HierarchicalKMeans(9, random_state=0),
    dc.KMeans(4, random_state=0, metric="cosine"),
)


@pytest.fixture
def stored(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4, (3000, 1)) * 3 + rng.normal(size=(3000, 5))
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=rows.astype(np.float32), chunks=(400, 5))
    return url


def passes(heard: list[Any]) -> list[str]:
    return [event.name for event in heard if isinstance(event, PassEnded)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_labels_are_known_after_the_fit(
    stored: str, estimator: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = clone(estimator).set_params(engine="local").fit(stored)
    assert model.labels_.is_computed
    assert (np.asarray(model.labels_) == model.predict(stored)).all()
    assert (model.labels_.to_dask().compute() == model.predict(stored)).all()
    monkeypatch.setattr(LocalEngine, "place", None)  # no rows are read any more
    model.labels_.save(str(tmp_path / "labels.zarr"))
    assert (zarr.open_array(str(tmp_path / "labels.zarr"))[:] == model.labels_).all()


@pytest.mark.parametrize("name", ["labels.zarr", "labels.npy", "labels.csv"])
def test_a_job_writes_them_without_a_pass(
    stored: str, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    options: dict[str, Any] = {
        "n_clusters": 4,
        "algorithm": "lloyd",
        "random_state": 0,
        "engine": "local",
    }
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    kept, again = str(tmp_path / name), str(tmp_path / f"again-{name}")
    jobs.fit(stored, model=first, labels=kept, callbacks=[heard.append], **options)
    assert "labels" not in passes(heard)
    monkeypatch.setattr("daskcluster.methods.kmeans.fit.LABELS_SHARE", 0)
    jobs.fit(stored, model=second, labels=again, callbacks=[heard.append], **options)
    assert passes(heard)[-1] == "labels"
    if name.endswith(".zarr"):
        assert (zarr.open_array(kept)[:] == zarr.open_array(again)[:]).all()
    else:
        assert Path(kept).read_bytes() == Path(again).read_bytes()


ALL = (
    *ESTIMATORS,
    dc.CoresetKMeans(4, random_state=0, coreset_size=200),
    dc.StreamingKMeans(4, random_state=0),
    dc.KernelKMeans(4, random_state=0),
    dc.VariationalGaussianMixture(4, random_state=0),
)


@pytest.mark.parametrize("estimator", ALL, ids=lambda one: type(one).__name__)
def test_labels_of_rows_in_memory_are_an_array(stored: str, estimator: Any) -> None:
    rows = zarr.open_array(stored)[:]
    frame = pd.DataFrame(rows, columns=list("abcde"))
    for opened in (rows, frame, dc.open_dataset(rows), dc.open_dataset(frame, drop="a")):
        model = clone(estimator).fit(opened)
        assert type(model.labels_) is np.ndarray
        assert (model.labels_ == model.predict(opened)).all()
    found = clone(estimator).fit_predict(stored)
    assert type(found) is np.ndarray


@pytest.mark.parametrize("estimator", ALL, ids=lambda one: type(one).__name__)
def test_pickles_have_the_labels_of_rows_that_others_can_read(
    stored: str, estimator: Any, tmp_path: Path
) -> None:
    rows = zarr.open_array(stored)[:]
    gappy = rows.copy()
    gappy[::70, 1] = np.nan
    holes = str(tmp_path / "holes.zarr")
    zarr.create_array(holes, data=gappy, chunks=(400, 5))
    for opened in (stored, dc.open_dataset(holes, missing="drop")):
        model = clone(estimator).fit(opened)
        fresh = pickle.loads(pickle.dumps(model))  # before they are computed
        assert np.array_equal(fresh.labels_, model.labels_)
        assert np.array_equal(pickle.loads(pickle.dumps(fresh)).predict(opened), fresh.labels_)
    assert np.array_equal(np.asarray(fresh.labels_) == -1, np.isnan(gappy[:, 1]))
    here = f"memory://kept-labels/{type(estimator).__name__}"
    zarr.create_array(here, data=rows, chunks=(400, 5), overwrite=True)
    model = clone(estimator).fit(here)
    if not getattr(model.labels_, "is_computed", True):
        with pytest.raises(AttributeError, match=r"no labels_: .* no other process can read"):
            _ = pickle.loads(pickle.dumps(model)).labels_
    labels = np.asarray(model.labels_)
    if not isinstance(model, dc.StreamingKMeans):
        assert np.array_equal(pickle.loads(pickle.dumps(model)).labels_, labels)


def test_labels_of_stored_rows_are_used_like_an_array(stored: str) -> None:
    rows = zarr.open_array(stored)[:]
    frame = pd.DataFrame(rows, columns=list("abcde"))
    model = dc.KMeans(4, random_state=0).fit(stored)
    labels, expected = model.labels_, model.predict(stored)
    assert (labels.ndim, labels.size, labels.shape, len(labels)) == (1, 3000, (3000,), 3000)
    assert np.array_equal(rows[labels == 1], rows[expected == 1])
    assert np.array_equal(rows[labels != 1], rows[expected != 1])
    assert labels[7] == expected[7]
    assert np.array_equal(labels[5:9], expected[5:9])
    assert list(labels) == expected.tolist() == labels.tolist()
    assert np.array_equal(labels + 1, expected + 1)
    assert labels.max() == 3
    for column in (
        frame.assign(k=labels)["k"],
        pd.DataFrame({"k": labels})["k"],
        pd.Series(labels),
        xr.DataArray(labels),
    ):
        assert column.dtype == np.int32
        assert np.array_equal(np.asarray(column), expected)
    frame["k"] = labels
    frame.loc[:, "again"] = labels
    assert np.array_equal(frame[["k", "again"]], np.column_stack([expected, expected]))
    assert pd.crosstab(labels, expected).to_numpy().trace() == 3000
    with pytest.raises(TypeError):  # which knows no such arrays
        pl.DataFrame({"a": rows[:, 0]}).with_columns(k=labels)
    with pytest.raises(TypeError, match="in place"):
        labels += 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(labels)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(labels)
    with pytest.raises(AttributeError, match="no attribute 'cat'"):
        _ = labels.cat
