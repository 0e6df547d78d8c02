"""Lazy results of dask frames whose columns may lack values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import daskcluster as dc

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")

COLUMNS = {
    "real": {"a": "Float64", "b": "Float64"},
    "single": {"a": "Float32", "b": "Float32"},
    "whole": {"a": "Int64", "b": "Int64"},
    "mixed": {"a": "Float64", "b": "float32"},
}


def frames(kind: str) -> tuple[Any, np.ndarray]:
    rows = np.random.default_rng(0).integers(-9, 9, (60, 2)) + [[0, 0], [40, 40], [0, 90]] * 20
    frame = pd.DataFrame(rows, columns=["a", "b"]).astype(COLUMNS[kind])
    return dd.from_pandas(frame, npartitions=3), rows.astype(float)


@pytest.mark.parametrize("kind", COLUMNS)
def test_frames_of_nullable_columns_are_labelled(kind: str) -> None:
    frame, rows = frames(kind)
    model = dc.KMeans(3, init=rows[:3], random_state=0).fit(frame)
    assert np.array_equal(np.asarray(model.predict(frame)), model.predict(rows))
    assert np.allclose(np.asarray(model.transform(frame)), model.transform(rows))


def test_frames_of_nullable_columns_are_labelled_by_a_mixture() -> None:
    frame, rows = frames("real")
    model = dc.VariationalGaussianMixture(3, random_state=0).fit(frame)
    assert np.array_equal(np.asarray(model.predict(frame)), model.predict(rows))


@pytest.mark.parametrize("scale", [None, "standard"])
def test_labels_of_a_frame_become_its_column(scale: str | None, tmp_path: Any) -> None:
    frame, rows = frames("real")
    frame = frame.assign(name=frame["a"].astype(str)).repartition(npartitions=4)
    model = dc.KMeans(3, random_state=0).fit(
        dc.open_dataset(frame, columns=["a", "b"], scale=scale)
    )
    labels = model.predict(frame[["a", "b"]])
    assert isinstance(labels, dd.Series)
    whole = frame.assign(
        label=labels, far=model.predict(frame[["a", "b"]], return_distance=True)[1]
    )
    whole.to_parquet(str(tmp_path / "labelled"))
    back = dd.read_parquet(str(tmp_path / "labelled")).compute()
    assert np.array_equal(back["label"], model.predict(rows))
    assert np.array_equal(back["name"], frame["name"].compute())
    assert model.transform(frame[["a", "b"]]).compute().shape == (60, 3)
    mixture = dc.VariationalGaussianMixture(3, random_state=0).fit(frame[["a", "b"]])
    densities = mixture.score_samples(frame[["a", "b"]])
    assert isinstance(densities, dd.Series)
    assert np.array_equal(densities.compute(), mixture.score_samples(rows))


@pytest.mark.parametrize(
    "estimator",
    [
        dc.KMeans(3, random_state=0),
        dc.KMeans(3, random_state=0, metric="cosine"),
        dc.MiniBatchKMeans(3, random_state=0),
        dc.CoresetKMeans(3, coreset_size=30, random_state=0),
        dc.VariationalGaussianMixture(3, random_state=0),
        dc.KernelKMeans(3, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_labels_have_the_type_of_the_rows(estimator: Any) -> None:
    frame, rows = frames("real")
    frame = frame.map_partitions(lambda part: part.set_index(part.index * 7))
    labels = estimator.fit(frame).labels_
    assert isinstance(labels, dd.Series)
    assert labels.dtype == np.int32
    assert labels.npartitions == frame.npartitions
    assert np.array_equal(labels.compute().index, np.arange(60) * 7)
    assert np.array_equal(labels.compute(), estimator.predict(rows))
    array = da.from_array(rows, chunks=(25, 2))
    found = estimator.fit_predict(array)
    assert isinstance(found, da.Array)
    assert (found.chunks, found.dtype) == (((25, 25, 10),), np.int32)
    assert np.array_equal(found.compute(), estimator.predict(rows))


def test_labels_of_a_fit_on_a_cluster_are_written_as_a_column(client: Any, tmp_path: Any) -> None:
    frame, rows = frames("single")
    with client.as_current():
        frame = frame.assign(name=frame["a"].astype(str)).persist()
        model = dc.KMeans(3, random_state=0).fit(frame[["a", "b"]])
        frame.assign(label=model.labels_).to_parquet(str(tmp_path / "labelled"))
        back = dd.read_parquet(str(tmp_path / "labelled")).compute()
    assert np.array_equal(back["label"], model.predict(rows))
    assert np.array_equal(back["a"], rows[:, 0])


@pytest.mark.parametrize("kind", ["pandas", "dask", "arrow"])
def test_errors_name_the_column_that_is_not_finite(kind: str) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    rows[41, 1] = np.nan
    frame: Any = pd.DataFrame(rows, columns=["age", "income", "height"])
    if kind == "dask":
        frame = dd.from_pandas(frame, npartitions=2)
    elif kind == "arrow":
        columns = {name: frame[name].to_numpy() for name in frame}
        frame = pytest.importorskip("pyarrow").table(columns)
    with pytest.raises(ValueError, match=r"contains NaN: first in row 41, column 'income'"):
        dc.KMeans(2).fit(frame)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int16"])
@pytest.mark.parametrize("fitted", ["float64", "float32"])
def test_distances_have_one_dtype_for_all_kinds_of_rows(
    dtype: str, fitted: str, tmp_path: Path
) -> None:
    """The wider one of rows and centres, few rows or many, lazy or not, and in stores."""
    rows = (np.random.default_rng(0).normal(size=(3000, 3)) * 9).astype(dtype)
    model = dc.KMeans(2, random_state=0).fit(rows[:100].astype(fitted))
    expected = model.transform(rows[:5]).dtype
    assert expected == np.result_type(np.float64 if dtype == "int64" else np.float32, dtype, fitted)
    lazy = da.from_array(rows, chunks=1000)
    for found in (model.transform(rows), model.transform(lazy), model.transform(lazy).compute()):
        assert found.dtype == expected
    url = str(tmp_path / "nearest.zarr")
    model.predict(rows, return_distance=True, output=url)
    for given in (rows, lazy):
        assert model.predict(given, return_distance=True)[1].dtype == expected
    assert zarr.open_group(url, mode="r")["distance"].dtype == expected
    assert np.array_equal(np.asarray(model.transform(lazy)), model.transform(rows))
