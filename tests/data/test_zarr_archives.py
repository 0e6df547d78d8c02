"""Zarr stores in one zip archive are read in place, by their path or URL."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from zarr.storage import ZipStore

import daskcluster as dc
from daskcluster import jobs
from daskcluster.cli.main import main
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, InvalidParameterError

ROWS = np.random.default_rng(0).normal(size=(300, 3))


@pytest.fixture
def archive(tmp_path: Path) -> str:
    path = str(tmp_path / "x.zarr.zip")
    with ZipStore(path, mode="w") as store:
        group = zarr.open_group(store, mode="w")
        group.create_array("e", data=ROWS, chunks=(90, 3))
        group.create_array("w", data=np.arange(300.0), chunks=(90,))
    return path


def test_every_door_reads_an_archive(archive: str, tmp_path: Path) -> None:
    dataset = dc.open_dataset(archive, array="e", weights="w")
    assert np.array_equal(dataset.to_numpy(), ROWS)
    assert np.array_equal(pickle.loads(pickle.dumps(dataset)).to_numpy(), ROWS)
    assert np.array_equal(dataset.weights.read(0, 300), np.arange(300.0))  # type: ignore[union-attr]
    assert dc.open_grid(archive, array="e").shape == (300,)
    model, labels = str(tmp_path / "model"), str(tmp_path / "labels.npy")
    jobs.fit(archive, array="e", n_clusters=3, random_state=0, model=model, labels=labels)
    expected = dc.KMeans(3, random_state=0).fit(dc.open_dataset(archive, array="e"))
    assert np.array_equal(np.load(labels), np.asarray(expected.labels_))
    shown = CliRunner().invoke(main, ["info", archive, "--array", "e"])
    assert shown.exit_code == 0, shown.output
    with pytest.raises(InvalidDataError, match=r"array=. Arrays there: e \(300 x 3 float64\), w"):
        dc.open_dataset(archive)
    with pytest.raises(InvalidParameterError, match="would replace"):
        dc.load_model(model).predict(dc.open_dataset(archive, array="e"), output=archive)
    with pytest.raises(DatasetNotFoundError, match="does not exist on this host"):
        dc.open_dataset(tmp_path / "other.zarr.zip")


def test_an_archive_in_a_bucket(archive: str, s3: dict[str, Any]) -> None:
    import s3fs

    s3fs.S3FileSystem(**s3).put(archive, "rows/x.zarr.zip")
    dataset = dc.open_dataset("s3://rows/x.zarr.zip", array="e", storage_options=s3)
    assert np.array_equal(dataset.to_numpy(), ROWS)
    assert dc.KMeans(2, random_state=0).fit(dataset).n_rows_ == 300
    assert s3["secret"].encode() not in pickle.dumps(dataset)
