"""Rows with NaN: left out or filled with means, in memory, in a store and on a cluster."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError

ROWS = np.random.default_rng(5).normal(5, 2, size=(3000, 4)).astype(np.float32)
HOLES = np.random.default_rng(6).random(ROWS.shape) < 0.05
HOLES[:700] = False
HOLES[1500:1600, 2] = True
GAPPY = np.where(HOLES, np.nan, ROWS).astype(np.float32)
COMPLETE = ~HOLES.any(axis=1)
WEIGHTS = np.arange(3000.0) + 1


@pytest.fixture
def url(tmp_path: Path) -> str:
    array = zarr.create_array(
        str(tmp_path / "x.zarr"), shape=GAPPY.shape, chunks=(100, 4), dtype="f4"
    )
    array[:] = GAPPY
    return str(tmp_path / "x.zarr")


@pytest.mark.parametrize("kind", ["memory", "zarr", "recipe"])
def test_rows_are_left_out_or_filled(kind: str, url: str) -> None:
    source: Any = GAPPY if kind == "memory" else url
    dropped: Any = dc.open_dataset(source, missing="drop", weights=WEIGHTS)
    means = np.nanmean(GAPPY.astype(np.float64), axis=0)
    filled: Any = dc.open_dataset(source, missing="mean", weights=WEIGHTS)
    if kind == "recipe":
        dropped, filled = (pickle.loads(pickle.dumps(each)) for each in (dropped, filled))
    assert np.array_equal(dropped.to_numpy(), ROWS[COMPLETE])
    assert np.array_equal(np.asarray(dropped.weights), WEIGHTS[COMPLETE])
    later: Any = dc.open_dataset(dc.open_dataset(source, missing="drop"), weights=WEIGHTS)
    assert np.array_equal(np.asarray(later.weights), WEIGHTS[COMPLETE])
    assert np.array_equal(dropped.ids(690, 710), np.flatnonzero(COMPLETE)[690:710])
    wanted = np.array([dropped.n_rows - 1, 0, 1450])
    assert np.array_equal(dropped.take(wanted), ROWS[COMPLETE][wanted])
    assert np.allclose(filled.to_numpy(), np.where(HOLES, means, ROWS), rtol=1e-6)
    assert np.array_equal(filled.to_numpy()[~HOLES], ROWS[~HOLES])
    assert np.array_equal(np.asarray(filled.weights), WEIGHTS)


def test_fits_are_those_of_the_rows_that_are_left(url: str) -> None:
    start = ROWS[:5]
    expected = dc.KMeans(5, init=start).fit(ROWS[COMPLETE])
    for source in (GAPPY, url):
        rows = dc.open_dataset(source, missing="drop")
        model = dc.KMeans(5, init=start).fit(rows)
        assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)
        assert np.array_equal(np.asarray(model.labels_)[COMPLETE], expected.labels_)
    scaled = dc.open_dataset(url, missing="mean", scale="standard")
    again = dc.open_dataset(GAPPY, missing="mean", scale="standard")
    assert np.array_equal(scaled.to_numpy(), again.to_numpy())
    with pytest.raises(InvalidDataError, match="NaN"):
        dc.KMeans(5, init=start).fit(url)


@pytest.mark.parametrize("kind", ["memory", "zarr", "parquet"])
def test_results_have_an_entry_for_every_row_of_the_source(
    kind: str, url: str, tmp_path: Path
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source: Any = {"memory": GAPPY, "zarr": url, "parquet": str(tmp_path / "x.parquet")}[kind]
    names = np.array([f"r{i}" for i in range(len(GAPPY))])
    table = pa.table({"id": names} | {f"f{j}": GAPPY[:, j] for j in range(4)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=250)
    ids: dict[str, Any] = {"id_column": "id"} if kind == "parquet" else {}
    rows = dc.open_dataset(source, missing="drop", **ids)
    whole = dc.KMeans(5, init=ROWS[:5]).fit(ROWS[COMPLETE])
    labels = np.full(len(GAPPY), -1, np.int32)
    labels[COMPLETE] = whole.labels_
    distances = np.full((len(GAPPY), 5), np.nan, np.float32)
    distances[COMPLETE] = whole.transform(ROWS[COMPLETE])
    model = dc.KMeans(5, init=ROWS[:5]).fit(rows)
    assert rows.n_rows == COMPLETE.sum() == model.n_rows_
    assert len(model.labels_) == len(GAPPY)
    assert np.array_equal(np.asarray(model.labels_), labels)
    assert np.array_equal(model.predict(rows), labels)
    assert np.array_equal(dc.KMeans(5, init=ROWS[:5]).fit_predict(rows), labels)
    assert np.array_equal(model.transform(rows), distances, equal_nan=True)
    found, nearest = model.predict(rows, return_distance=True)
    assert np.array_equal(found, labels)
    assert np.array_equal(np.isnan(nearest), ~COMPLETE)
    if kind != "memory":
        lazy = dc.KMeans(5, init=ROWS[:5]).fit(rows).labels_.to_dask()
        assert np.array_equal(lazy.compute(), labels)
        model.labels_.save(f"{tmp_path}/labels_.npy")
        assert np.array_equal(np.load(tmp_path / "labels_.npy"), labels)
    written = {ending: f"{tmp_path}/l{ending}" for ending in (".npy", ".zarr", ".parquet", ".csv")}
    for output in written.values():
        model.predict(rows, output=output)
    assert np.array_equal(np.load(written[".npy"]), labels)
    assert np.array_equal(zarr.open_array(written[".zarr"], mode="r")[:], labels)
    for read in (pq.read_table(written[".parquet"]), read_csv(written[".csv"])):
        assert np.array_equal(read.column("label"), labels)
        expected = names if kind == "parquet" else np.arange(len(GAPPY))
        assert np.array_equal(read.column(0), expected)
    model.predict(rows, output=f"{tmp_path}/d.parquet", n_nearest=2, return_distance=True)
    table = pq.read_table(tmp_path / "d.parquet")
    assert table.column("distance").to_pylist()[1500] != table.column("distance").to_pylist()[0]
    assert np.isnan(table.column("distance").to_pylist()[1500]).all()
    for measure in (dc.metrics.simplified_silhouette, dc.metrics.davies_bouldin):
        assert measure(rows, labels) == measure(ROWS[COMPLETE], whole.labels_)
    mixture = dc.VariationalGaussianMixture(3, random_state=0).fit(rows)
    shares = mixture.predict_proba(rows).toarray()
    assert np.array_equal(shares.sum(axis=1) > 0.5, COMPLETE)
    assert np.array_equal(np.isnan(mixture.score_samples(rows)), ~COMPLETE)
    assert np.array_equal(np.asarray(mixture.labels_) == -1, ~COMPLETE)


def read_csv(path: str) -> Any:
    from pyarrow import csv

    return csv.read_csv(path)


def test_columns_and_rows_without_any_value_are_refused(url: str) -> None:
    empty = GAPPY.copy()
    empty[:, 1] = np.nan
    with pytest.raises(InvalidDataError, match=r"None of the 3000 rows is complete"):
        dc.open_dataset(empty, missing="drop")
    with pytest.raises(InvalidDataError, match=r"Feature 1 has no value in any row"):
        dc.open_dataset(empty, missing="mean")
    with pytest.raises(
        InvalidParameterError, match=r"missing='zero' should be one of error, drop, mean"
    ):
        dc.open_dataset(url, missing="zero")
    with pytest.raises(WrongTypeError, match=r"cannot be applied to sparse rows"):
        dc.open_dataset(sparse.random(9, 4, 0.5, format="csr"), missing="drop")
    whole = np.arange(12).reshape(6, 2)
    assert np.array_equal(dc.open_dataset(whole, missing="mean").to_numpy(), whole)


@pytest.mark.parametrize(
    "estimator",
    [
        dc.KMeans(3, random_state=0),
        dc.MiniBatchKMeans(3, random_state=0),
        dc.VariationalGaussianMixture(3, random_state=0),
        dc.KernelKMeans(3, random_state=0),
    ],
)
def test_models_keep_the_means(estimator: Any, url: str, tmp_path: Path) -> None:
    fitted = estimator.fit(dc.open_dataset(url, missing="mean"))
    means = np.nanmean(GAPPY.astype(np.float64), axis=0)
    filled = np.where(HOLES, means, ROWS).astype(np.float32)
    expected = np.asarray(fitted.predict(filled))
    assert np.array_equal(np.asarray(fitted.predict(GAPPY)), expected)
    assert np.array_equal(np.asarray(fitted.predict(url)), expected)
    fitted.save(str(tmp_path / "model"))
    saved = dc.load_model(str(tmp_path / "model"))
    assert np.array_equal(np.asarray(saved.predict(GAPPY)), expected)
    assert np.array_equal(np.asarray(saved.predict(dc.open_dataset(url, missing="mean"))), expected)


def test_means_and_a_scale_go_to_scikit_learn_and_back(url: str) -> None:
    rows = dc.open_dataset(url, missing="mean", scale="standard")
    fitted = dc.KMeans(3, random_state=0).fit(rows)
    labels = np.asarray(fitted.predict(GAPPY))
    assert np.array_equal(labels, np.asarray(fitted.labels_))
    pipeline = fitted.to_sklearn()
    assert [name for name, _ in pipeline.steps] == ["simpleimputer", "standardscaler", "kmeans"]
    assert np.mean(pipeline.predict(GAPPY) == labels) > 0.999
    assert np.mean(np.asarray(dc.from_sklearn(pipeline).predict(GAPPY)) == labels) > 0.999
    assert "filled in" in repr(dc.open_dataset(url, missing="mean"))


def test_rows_that_are_written_anew_are_refused(url: str) -> None:
    recipe = dc.open_dataset(url, missing="drop").recipe()
    zarr.open_array(url, mode="r+")[800:900] = 1.0
    with pytest.raises(InvalidDataError, match="were written anew since the dataset was opened"):
        recipe.open().to_numpy()


@pytest.mark.parametrize("stored", [False, True])
def test_errors_name_rows_by_their_numbers_in_the_source(stored: bool, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    rows[[3, 7]], rows[11, 1] = np.nan, np.inf
    np.save(tmp_path / "rows.npy", rows)
    source = str(tmp_path / "rows.npy") if stored else rows
    dataset = dc.open_dataset(source, missing="drop")
    with pytest.raises(InvalidDataError, match="first in row 11"):
        dc.KMeans(2, random_state=0).fit(dataset)
