"""Law 14: no output ever replaces what it was made from, by whatever path it is named."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner

import daskcluster as dc
from daskcluster import jobs
from daskcluster.cli.main import main
from daskcluster.data.convert import convert
from daskcluster.errors import InvalidParameterError, OutputExistsError
from daskcluster.storage.location import locate

X = np.random.default_rng(0).random((60, 4), np.float32)
FRAME = pd.DataFrame(X, columns=list("abcd"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the same rows in every form, which is the current one."""
    monkeypatch.chdir(tmp_path)
    zarr.save_array("r.zarr", X)
    os.symlink("r.zarr", "link.zarr")
    group = zarr.open_group("g.zarr", mode="w")
    group["X"], group["w"] = X, np.ones(60)
    FRAME.to_parquet("d.parquet")
    FRAME.to_csv("d.csv", index=False)
    np.save("d.npy", X)
    os.makedirs("many")
    FRAME[:30].to_parquet("many/0.parquet")
    FRAME[30:].to_parquet("many/1.parquet")
    os.symlink("many", "also")
    cells = {name: (("y", "x"), FRAME[name].to_numpy().reshape(6, 10)) for name in "ab"}
    xr.Dataset(cells, {"y": np.arange(6.0)}).to_zarr("grid.zarr", consolidated=False)
    return tmp_path


def content(folder: Path) -> dict[str, str]:
    """Return a digest of every file in a folder, by its path."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def model() -> dc.KMeans:
    return dc.KMeans(3, random_state=0).fit(X)


def test_labels_never_replace_rows(place: Path, model: dc.KMeans) -> None:
    before = content(place)
    mapped = np.load("d.npy", mmap_mode="r")
    grouped = dc.open_dataset("g.zarr", array="X", weights="w")
    pairs: list[tuple[Any, str]] = [
        ("r.zarr", "r.zarr"),
        ("r.zarr", "./many/../r.zarr/"),
        ("r.zarr", f"file://{place}/r.zarr"),
        ("r.zarr", "link.zarr"),
        ("link.zarr", "r.zarr"),
        ("r.zarr", "r.zarr/c"),
        (zarr.open_array("r.zarr"), "r.zarr"),
        (da.from_zarr("r.zarr"), "link.zarr"),
        (da.from_array(zarr.open_array("r.zarr"), inline_array=True)[10:], "r.zarr"),
        ("d.parquet", "d.parquet"),
        ("d.csv", "d.csv"),
        ("d.npy", "d.npy"),
        (mapped, "d.npy"),
        (np.asarray(mapped)[:50], "d.npy"),
        ("many", "many/0.parquet"),
        ("many", "also/1.parquet"),
        ("many/*.parquet", "many/1.parquet"),
        (["many/1.parquet"], "many/1.parquet"),
        (grouped, "g.zarr"),
        (grouped, "g.zarr/X"),
        (grouped, "g.zarr/w"),
        (dc.open_dataset("r.zarr", missing="drop"), "r.zarr"),
    ]
    for source, output in pairs:
        with pytest.raises(InvalidParameterError, match="would replace"):
            model.predict(source, output=output, overwrite=True)
        with pytest.raises(InvalidParameterError, match="would replace"):
            model.predict(source, output=output, overwrite=True, return_distance=True)
    scaled = dc.KMeans(3, random_state=0).fit(dc.open_dataset("r.zarr", scale="standard"))
    with pytest.raises(InvalidParameterError, match="would replace"):
        scaled.labels_.save("link.zarr", overwrite=True)
    assert content(place) == before


def test_rows_that_are_read_later_are_found(place: Path, model: dc.KMeans) -> None:
    np.save("w.npy", np.ones(60))
    da.to_npy_stack("stack", da.from_array(X, chunks=(20, 4)))
    before = content(place)
    weights = np.load("w.npy", mmap_mode="r")
    masked = np.ma.masked_less(np.load("d.npy", mmap_mode="r"), 0.001, copy=False)
    pairs: list[tuple[Any, str]] = [
        (pl.scan_parquet("d.parquet"), "d.parquet"),
        (pl.scan_csv("d.csv"), "d.csv"),
        (dd.read_csv("d.csv"), "d.csv"),
        (dd.read_parquet("d.parquet"), "d.parquet"),
        (dd.read_parquet("d.parquet").values, "d.parquet"),
        (dd.from_map(pd.read_parquet, ["d.parquet"]), "d.parquet"),
        (da.from_delayed(dask.delayed(np.load)("d.npy"), (60, 4), np.float32), "d.npy"),
        (da.from_npy_stack("stack"), "stack/0.npy"),
        (dc.open_dataset(masked, missing="drop"), "d.npy"),
        (dc.open_dataset("r.zarr", weights=weights), "w.npy"),
    ]
    for rows, output in pairs:
        with pytest.raises(InvalidParameterError, match="would replace"):
            model.predict(rows, output=output, overwrite=True)
    weighted = dc.KMeans(3, random_state=0).fit("r.zarr", sample_weight=weights)
    with pytest.raises(InvalidParameterError, match="would replace"):
        weighted.labels_.save("w.npy", overwrite=True)
    assert content(place) == before


def test_outputs_lie_apart_and_in_no_model(place: Path, model: dc.KMeans) -> None:
    model.save("model")
    before = content(place)
    more: dict[str, Any] = {"n_clusters": 2, "overwrite": True}
    for write in (
        lambda: jobs.predict("model", "r.zarr", output="model/centres", overwrite=True),
        lambda: dc.load_model("model").predict("r.zarr", output="model/centres", overwrite=True),
        lambda: jobs.fit("r.zarr", model="both/model", labels="both", **more),
        lambda: jobs.fit("r.zarr", model="link.zarr", labels="r.zarr", **more),
        lambda: jobs.stream("many", n_clusters=2, state="state", labels="l", distances="./l"),
    ):
        with pytest.raises((InvalidParameterError, OutputExistsError)):
            write()
        assert content(place) == before


def test_labels_go_next_to_rows(place: Path, model: dc.KMeans) -> None:
    labels = model.predict(X)
    for source, output in [
        ("many/[01].parquet", "many/2.parquet"),
        ("r.zarr", "r.zarr-labels"),
        (dc.open_dataset("g.zarr", array="X"), "g.zarr/labels"),
    ]:
        for _ in range(2):
            model.predict(source, output=output, overwrite=True)
    np.testing.assert_array_equal(zarr.open_array("g.zarr/labels")[:], labels)
    np.testing.assert_array_equal(pd.read_parquet("many/2.parquet")["label"], labels)


def test_no_other_output_replaces_rows(place: Path, model: dc.KMeans) -> None:
    grid = dc.open_grid("grid.zarr", array=["a", "b"])
    cells = dc.KMeans(3, random_state=0).fit(grid.dataset)
    lazy = xr.open_zarr("grid.zarr", consolidated=False).to_array("variable")
    mixture = dc.VariationalGaussianMixture(2, random_state=0).fit("r.zarr")
    of_cells = dc.VariationalGaussianMixture(2, random_state=0).fit(grid.dataset)
    dc.LightweightCoreset(20, random_state=0).fit("r.zarr").save("coreset.zarr")
    again = dc.LightweightCoreset(9, random_state=0).fit("coreset.zarr")
    partitions = dc.partition("d.npy", 3)
    model.save("model")
    loaded = dc.load_model("model")
    before = content(place)
    writers: list[Callable[[], Any]] = [
        lambda: mixture.predict("r.zarr", output="r.zarr", overwrite=True),
        lambda: of_cells.predict_proba(grid.dataset, output="grid.zarr", overwrite=True),
        lambda: cells.predict(grid.dataset, output="grid.zarr", overwrite=True),
        lambda: cells.predict(grid.dataset, output="grid.zarr/a", overwrite=True),
        lambda: cells.predict(lazy, output="grid.zarr", overwrite=True),
        lambda: cells.predict(grid.dataset, output="grid.zarr/y", overwrite=True),
        lambda: dc.near_duplicates("d.parquet", 0.99).save("d.parquet", overwrite=True),
        lambda: dc.near_duplicates("g.zarr/X", 0.99).save("g.zarr", overwrite=True),
        lambda: partitions.save_centres("d.npy", overwrite=True),
        lambda: again.save("coreset.zarr", overwrite=True),
        lambda: dc.merge_coresets("coreset.zarr").save("coreset.zarr", overwrite=True),
        lambda: dc.shuffle("r.zarr", "link.zarr", overwrite=True),
        lambda: dc.shuffle("d.npy", "s.zarr", with_index="d.npy", overwrite=True),
        lambda: convert("g.zarr/X", "g.zarr", overwrite=True),
        lambda: convert("link.zarr", "r.zarr", overwrite=True),
    ]
    for number, write in enumerate(writers):
        with pytest.raises(InvalidParameterError):
            write()
        assert content(place) == before, number
    with pytest.raises(OutputExistsError):  # nor the model that the labels are from
        loaded.predict("r.zarr", return_distance=True, output="model", overwrite=True)
    assert content(place) == before


def test_no_job_replaces_rows(place: Path, model: dc.KMeans) -> None:
    model.save("model")
    before = content(place)
    more: dict[str, Any] = {"overwrite": True}
    writers: list[Callable[[], Any]] = [
        lambda: jobs.predict("model", "many", output="many/0.parquet", **more),
        lambda: jobs.predict("model", ["many/0.parquet"], output="also/0.parquet", **more),
        lambda: jobs.fit("many", n_clusters=2, model="m", labels="many/1.parquet", **more),
        lambda: jobs.fit("r.zarr", n_clusters=2, model="r.zarr", **more),
        lambda: jobs.fit("g.zarr", array="X", n_clusters=2, model="m", labels="g.zarr/X", **more),
        lambda: jobs.dedup("many", output="also/1.parquet", **more),
        lambda: jobs.build_coreset("g.zarr", array="X", size=9, output="g.zarr", **more),
        lambda: jobs.sample("model", "many", size=9, output="many/0.parquet", **more),
        lambda: jobs.sample("model", "many", size=9, output="i.npy", rows="also/0.parquet", **more),
        lambda: jobs.stream("many", n_clusters=2, state="state", labels="many"),
        lambda: jobs.stream("r.zarr", n_clusters=2, state="state", labels="link.zarr"),
    ]
    for number, write in enumerate(writers):
        with pytest.raises(InvalidParameterError, match="would replace"):
            write()
        assert content(place) == before, number


def test_no_command_replaces_rows(place: Path, model: dc.KMeans) -> None:
    model.save("model")
    before = content(place)
    for command in (
        "predict model many --output many/0.parquet --overwrite",
        "predict model also --output many/0.parquet --overwrite",
        "fit many --n-clusters 2 --model m --labels also/1.parquet --overwrite",
        "convert r.zarr link.zarr --overwrite",
        "shuffle link.zarr r.zarr --overwrite",
    ):
        found = CliRunner().invoke(main, command.split())
        assert found.exit_code == 1, command
        assert "would replace" in found.output, command
        assert content(place) == before, command


def test_one_place_has_many_names() -> None:
    for one, other in [
        ("s3://bucket/a", "s3a://bucket/a/"),
        ("gs://bucket/a", "gcs://bucket/a"),
        ("abfs://box/a", "abfss://box@account.dfs.core.windows.net/a"),
        ("memory://a", "memory:///a"),
        ("s3://bucket/a", "simplecache::s3://bucket/a"),
    ]:
        assert locate(one).holds(locate(other)), (one, other)
        assert locate(other).holds(locate(one)), (one, other)
    assert not locate("s3://bucket/a").holds(locate("s3://bucket/ab"))
    assert not locate("s3://bucket/a").holds(locate("gs://bucket/a"))
