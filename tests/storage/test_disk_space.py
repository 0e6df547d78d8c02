"""Full disks are named, and outputs that cannot fit are foreseen."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import jobs
from daskcluster.data.convert import convert
from daskcluster.data.generate import generate
from daskcluster.errors import DiskSpaceError, InvalidParameterError
from daskcluster.storage import files
from daskcluster.storage.files import new_file
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging

FULL = OSError(errno.ENOSPC, "No space left on device")


def full(*_: Any) -> None:
    raise FULL


@pytest.fixture
def little_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all disks have 1,000 bytes free."""
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))


def test_a_full_disk_is_named_and_nothing_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(DiskSpaceError, match=r"No space left for .*rows\.zarr'.* free"),
        Staging.begin(str(tmp_path / "rows.zarr")),
    ):
        raise FULL
    with (
        pytest.raises(DiskSpaceError, match=r"No space left for .*labels\.csv'"),
        new_file(locate(str(tmp_path / "labels.csv"))),
    ):
        raise FULL
    model = dc.KMeans(1).fit([[1.0, 2.0]])
    with monkeypatch.context() as patch:
        patch.setattr("daskcluster.storage.files.os.replace", full)
        with pytest.raises(DiskSpaceError, match=r"No space left for .*model'"):
            model.save(str(tmp_path / "model"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["labels.npy", "labels.zarr"])
def test_a_limit_on_the_size_of_files_names_the_output(tmp_path: Path, name: str) -> None:
    resource = pytest.importorskip("resource", reason="no limits of processes here")
    model, rows = dc.KMeans(1).fit([[1.0, 2.0]]), np.ones((60_000, 2))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
    try:
        with pytest.raises(DiskSpaceError, match=rf"No space left for .*{name}'.*ulimit -f"):
            model.predict(rows, output=str(tmp_path / name))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []


def test_finished_rows_on_a_full_disk_are_kept_for_resuming(tmp_path: Path) -> None:
    with (
        pytest.raises(DiskSpaceError) as raised,
        Staging.begin(str(tmp_path / "rows.zarr"), mark="abc", resume=True),
    ):
        raise FULL
    assert "resume=True continues" in raised.value.__notes__[0]


def test_files_that_cannot_fit_are_refused_before_any_work(
    tmp_path: Path, little_space: None
) -> None:
    rows = np.zeros((4000, 2), np.float32)
    rows[:9] = 1
    model = dc.KMeans(2, random_state=0).fit(rows)
    output = str(tmp_path / "labels.npy")
    with pytest.raises(DiskSpaceError, match=r"takes 15\.6 KiB, and its disk has 1000 B free"):
        model.predict(rows, output=output)
    np.save(tmp_path / "rows.npy", rows)
    fitted = str(tmp_path / "model")
    with pytest.raises(DiskSpaceError, match="another disk"):
        jobs.fit(str(tmp_path / "rows.npy"), n_clusters=2, model=fitted, labels=output)
    assert os.listdir(tmp_path) == ["rows.npy"]


def test_outputs_that_only_compression_lets_fit_are_warned_of(
    tmp_path: Path, little_space: None
) -> None:
    np.save(tmp_path / "rows.npy", np.ones((4000, 2), np.float32))
    with pytest.warns(RuntimeWarning, match="unless it can be compressed that far"):
        convert(str(tmp_path / "rows.npy"), str(tmp_path / "rows.zarr"))
    with pytest.warns(RuntimeWarning, match="unless it can be compressed that far"):
        generate(str(tmp_path / "more.zarr"), n_rows=4000, n_features=2, n_clusters=2)


@pytest.mark.parametrize("name", ["rows.parquet", "model.pkl", "rows.CSV", "rows.npy/"])
def test_folders_of_zarr_do_not_promise_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidParameterError, match=r"written as Zarr, a folder; .*\.zarr'"):
        dc.KMeans(1).fit([[1.0, 2.0]]).save(str(tmp_path / name))
    assert os.listdir(tmp_path) == []
