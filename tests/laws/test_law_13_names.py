"""Law 13: features are matched by their names, whatever holds the rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

import daskcluster as dc
from daskcluster import jobs, open_dataset
from daskcluster.errors import InvalidDataError

RNG = np.random.default_rng(0)
# Two groups that only y tells apart: rows with swapped features get other labels.
X = RNG.normal(size=(180, 2)).astype(np.float32)
X[90:, 1] += 9
FRAME = pd.DataFrame(X, columns=["x", "y"])
FRAMES = {
    "same": FRAME,
    "swapped": FRAME[["y", "x"]],
    "more": FRAME.assign(name="n", z=1.0)[["name", "y", "z", "x"]],
    "renamed": FRAME.rename(columns={"y": "w"}),
}
MESSAGE = (
    "The feature names should match those that were passed during fit.\n"
    "Feature names unseen at fit time:\n- w\n"
    "Feature names seen at fit time, yet now missing:\n- y\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rows")
    for name, frame in FRAMES.items():
        frame.to_parquet(place / f"{name}.parquet")
        frame.to_csv(place / f"{name}.csv", index=False)
    return place


def opened(given: Any, name: str) -> Any:
    return dc.open_dataset(given, drop="name" if name == "more" else None)


FORMS: dict[str, Callable[[Path, str], Any]] = {
    "pandas": lambda place, name: FRAMES[name],
    "parquet": lambda place, name: str(place / f"{name}.parquet"),
    "csv": lambda place, name: str(place / f"{name}.csv"),
    "arrow": lambda place, name: pa.Table.from_pandas(FRAMES[name]),
    "polars": lambda place, name: pl.from_pandas(FRAMES[name]),
    "lazy polars": lambda place, name: pl.from_pandas(FRAMES[name]).lazy(),
    "dask": lambda place, name: dd.from_pandas(FRAMES[name], npartitions=3),
    "opened parquet": lambda place, name: opened(str(place / f"{name}.parquet"), name),
    "opened csv": lambda place, name: opened(str(place / f"{name}.csv"), name),
    "opened pandas": lambda place, name: opened(FRAMES[name], name),
    "opened dask": lambda place, name: opened(dd.from_pandas(FRAMES[name], npartitions=3), name),
}
ESTIMATORS = (
    dc.KMeans(2, random_state=0),
    dc.KMeans(2, random_state=0, metric="cosine"),
    dc.MiniBatchKMeans(2, random_state=0),
    dc.HierarchicalKMeans(4, random_state=0),
    dc.VariationalGaussianMixture(2, random_state=0),
    dc.KernelKMeans(2, random_state=0),
    dc.StreamingKMeans(2, random_state=0),
    dc.CoresetKMeans(2, random_state=0),
)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: type(each).__name__)
def test_features_are_selected_by_name(folder: Path, estimator: Any) -> None:
    model = estimator.fit(str(folder / "same.parquet"))
    assert model.feature_names_in_.tolist() == ["x", "y"]
    labels, score = model.predict(FRAME), model.score(FRAME)
    for form, given in FORMS.items():
        for name in ("same", "swapped", "more"):
            rows = given(folder, name)
            found = np.asarray(model.predict(rows))
            assert np.array_equal(found, labels), (form, name)
            assert np.isclose(model.score(rows), score, rtol=1e-6), (form, name)
            if hasattr(model, "transform"):
                expected = np.asarray(model.transform(FRAME))
                distances = np.asarray(model.transform(rows))
                np.testing.assert_allclose(distances, expected, rtol=1e-5, err_msg=f"{form} {name}")
        with pytest.raises(ValueError, match="feature names") as info:
            model.predict(given(folder, "renamed"))
        assert str(info.value).startswith(MESSAGE), form


def test_every_form_gives_its_names(folder: Path) -> None:
    for form, given in FORMS.items():
        model = dc.KMeans(2, random_state=0).fit(given(folder, "swapped"))
        assert model.feature_names_in_.tolist() == ["y", "x"], form
        assert model.to_model().feature_names == ("y", "x"), form


def test_scales_and_means_are_those_of_the_names(folder: Path) -> None:
    rows = dc.open_dataset(str(folder / "same.csv"), scale="standard")
    model = dc.KMeans(2, random_state=0).fit(rows)
    for name in ("swapped", "more"):
        found = model.predict(opened(FRAMES[name], name))
        assert np.array_equal(found, model.predict(rows)), name
    holes = FRAME.copy()
    holes.loc[3, "y"] = np.nan
    filled = [
        dc.open_dataset(holes[list(order)].to_numpy(), missing="mean") for order in ("xy", "yx")
    ]
    filled[1].feature_names = ("y", "x")
    plain = dc.KMeans(2, random_state=0).fit(str(folder / "same.csv"))
    assert np.array_equal(plain.predict(filled[1]), plain.predict(filled[0]))


def test_jobs_and_streams_compare_names(folder: Path, tmp_path: Path) -> None:
    model = dc.KMeans(2, random_state=0).fit(str(folder / "same.parquet"))
    model.save(str(tmp_path / "model"))
    output = str(tmp_path / "labels.npy")
    for name in ("swapped", "more"):
        for ending in ("parquet", "csv"):
            source = str(folder / f"{name}.{ending}")
            jobs.predict(str(tmp_path / "model"), source, output=output, overwrite=True)
            assert np.array_equal(np.load(output), model.predict(FRAME)), (name, ending)
            assert np.isclose(jobs.score(str(tmp_path / "model"), source).inertia, model.inertia_)
    with pytest.raises(InvalidDataError, match="yet now missing:\n- y"):
        jobs.predict(
            str(tmp_path / "model"), str(folder / "renamed.csv"), output=output, overwrite=True
        )
    arrivals = tmp_path / "in"
    os.makedirs(arrivals)
    for number, name in enumerate(("same", "swapped", "renamed")):
        FRAMES[name].to_parquet(arrivals / f"{number}.parquet")
    settings: dict[str, Any] = {
        "n_clusters": 2,
        "state": str(tmp_path / "state"),
        "random_state": 0,
    }
    cycle = jobs.stream(str(arrivals), **settings)
    assert cycle.rows_seen == 360
    assert [finding.name for finding in cycle.findings] == ["2.parquet"]
    FRAMES["swapped"].to_parquet(arrivals / "3.parquet")  # known to the next run, too
    cycle = jobs.stream(str(arrivals), **settings)
    assert cycle.rows_seen == 540
    found = dc.load_model(cycle.model)
    assert found.feature_names_in_.tolist() == ["x", "y"]
    assert np.abs(found.cluster_centers_[:, 0]).max() < 1
    np.testing.assert_allclose(np.sort(found.cluster_centers_[:, 1]), [0, 9], atol=0.5)


def test_centres_of_a_model_are_compared_by_name(folder: Path, tmp_path: Path) -> None:
    model = dc.KMeans(2, random_state=0).fit(FRAME)
    model.save(str(tmp_path / "model"))
    swapped, renamed = FRAMES["swapped"], FRAMES["renamed"]
    for init in (model, str(tmp_path / "model")):
        again = dc.KMeans(2, init=init, max_iter=0).fit(swapped)
        assert np.isclose(again.inertia_, model.inertia_)
        with pytest.raises(InvalidDataError, match="now missing:\n- y"):
            dc.KMeans(2, init=init).fit(renamed)
    for rows in (swapped, str(folder / "swapped.csv")):
        assert np.isclose(dc.quantization_error(rows, model), model.inertia_)


def test_a_name_of_two_features_is_none(folder: Path) -> None:
    model = dc.KMeans(2, random_state=0).fit(FRAME)
    rows = dc.open_dataset(X[:, [1, 0, 1]])
    rows.feature_names = ("y", "x", "y")
    with pytest.raises(InvalidDataError, match="2 features of the rows are called 'y'"):
        model.predict(rows)


def test_batches_and_coresets_compare_names(folder: Path) -> None:
    model = dc.MiniBatchKMeans(2, random_state=0)
    for rows in (FRAME, FRAMES["swapped"], str(folder / "swapped.csv")):
        model.partial_fit(rows)
    assert np.abs(model.cluster_centers_[:, 0]).max() < 1
    with pytest.raises(InvalidDataError, match="now missing"):
        model.partial_fit(str(folder / "renamed.parquet"))
    stream = dc.StreamingKMeans(2, random_state=0).partial_fit(FRAME)
    other = dc.StreamingKMeans(2, random_state=0).partial_fit(FRAMES["swapped"])
    with pytest.raises(InvalidDataError, match="same order"):
        stream.merge(other)
    parts = [
        dc.lightweight_coreset(str(folder / f"{name}.csv"), 60, random_state=0)
        for name in ("same", "swapped")
    ]
    merged = dc.merge_coresets(*parts).to_numpy()
    assert np.abs(merged[:, 0]).max() < 4.5
    partitions = dc.partition(str(folder / "same.csv"), 4).to_model()
    found = partitions.predict(open_dataset(str(folder / "swapped.csv")))
    assert np.array_equal(found, partitions.predict(open_dataset(str(folder / "same.csv"))))


def test_bands_are_selected_by_name(tmp_path: Path) -> None:
    image = xr.DataArray(
        X.reshape(18, 10, 2), dims=("row", "column", "band"), coords={"band": ["x", "y"]}
    )
    model = dc.KMeans(2, random_state=0).fit(image)
    assert model.feature_names_in_.tolist() == ["x", "y"]
    labels = model.predict(image).values
    swapped = image.isel(band=[1, 0])
    variables = image.drop_vars("band").to_dataset("band").rename({0: "x", 1: "y"})
    variables = variables.assign(q=variables.y)[["y", "q", "x"]]
    for given in (swapped, swapped.chunk(row=5), variables):
        assert np.array_equal(model.predict(given).values, labels)
    variables.to_zarr(tmp_path / "g.zarr", consolidated=False)
    grid = dc.open_grid(str(tmp_path / "g.zarr"), array=["y", "x"])
    assert np.array_equal(model.predict(grid.dataset).reshape(18, 10), labels)
    model.predict(swapped, output=str(tmp_path / "map.zarr"))
    found = xr.open_zarr(tmp_path / "map.zarr", consolidated=False)["label"]
    assert np.array_equal(found.values, labels)
    for given in (variables.rename(x="k"), swapped.assign_coords(band=["y", "k"])):
        with pytest.raises(InvalidDataError, match="now missing:\n- x"):
            model.predict(given)
    # Numbers of bands are names, and so are the labels of another axis, such as times.
    bands = dc.KMeans(2, random_state=0).fit(image.assign_coords(band=[7, 8]))
    assert bands.feature_names_in_.tolist() == ["7", "8"]
    with pytest.raises(InvalidDataError, match="now missing:\n- 7"):
        bands.predict(image.assign_coords(band=[9, 10]))
    days = image.rename(band="day")
    fitted, later = (
        dc.open_grid(days.assign_coords(day=numbers), features="day").dataset
        for numbers in ([7, 8], [9, 10])
    )
    series = dc.KMeans(2, random_state=0).fit(fitted)
    assert series.feature_names_in_.tolist() == ["7", "8"]
    with pytest.raises(InvalidDataError, match="now missing:\n- 7"):
        series.predict(later)
    unlabelled = dc.open_grid(days.drop_vars("day"), features="day").dataset
    assert np.array_equal(series.predict(unlabelled).reshape(labels.shape), labels)


def test_rows_without_names_are_compared_by_number(folder: Path) -> None:
    model = dc.KMeans(2, random_state=0).fit(str(folder / "same.parquet"))
    labels = model.predict(FRAME)
    assert np.array_equal(model.predict(dc.open_dataset(X)), labels)
    nameless = dc.KMeans(2, random_state=0).fit(X)
    swapped = nameless.predict(dc.open_dataset(FRAMES["swapped"]))
    assert np.array_equal(swapped, nameless.predict(X[:, ::-1]))
    with pytest.raises(InvalidDataError, match="X has 3 features, but KMeans is expecting 2"):
        model.predict(dc.open_dataset(np.column_stack([X, X[:, 0]])))
