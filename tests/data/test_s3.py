"""Reading from and writing to an S3 server on loopback."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset
from daskcluster.data.convert import convert
from daskcluster.errors import DatasetNotFoundError
from daskcluster.typing import Visibility
from tests.data.conftest import KEY_ID, SECRET


@pytest.fixture(scope="module")
def stored(s3: dict[str, Any], rows: np.ndarray) -> str:
    for url, shards in (("s3://rows/plain.zarr", None), ("s3://rows/sharded.zarr", 2000)):
        convert(rows, url, chunk_rows=500, shard_rows=shards, storage_options=s3)
    return "s3://rows/plain.zarr"


@pytest.mark.parametrize("name", ["plain", "sharded"])
def test_rows_come_back(name: str, stored: str, s3: dict[str, Any], rows: np.ndarray) -> None:
    dataset = open_dataset(f"s3://rows/{name}.zarr", storage_options=s3)
    assert dataset.visibility == Visibility.EVERYONE
    assert np.array_equal(dataset.to_numpy(), rows)
    wanted = np.array([4999, 3, 2500])
    assert np.array_equal(dataset.take(wanted), rows[wanted])


def test_no_credential_travels(stored: str, s3: dict[str, Any], rows: np.ndarray) -> None:
    array = zarr.open_array(stored, mode="r", storage_options=s3)
    assert SECRET.encode() in pickle.dumps(array), (
        "the store's own pickle carries it; ours must not"
    )
    for source in (stored, array):
        options = s3 if isinstance(source, str) else None
        dataset: Any = open_dataset(source, weights=np.ones(len(rows)), storage_options=options)
        for thing in (dataset, dataset.recipe()):
            shown = repr(thing) + str(thing)
            sent = pickle.dumps(thing)
            for planted in (SECRET, KEY_ID):
                assert planted not in shown
                assert planted.encode() not in sent


def run_elsewhere(recipe: Any, **environment: str) -> subprocess.CompletedProcess[bytes]:
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).open().take([1]).sum())"
    return subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(recipe),
        capture_output=True,
        env={**os.environ, **environment},
    )


def test_a_worker_uses_credentials_of_its_own(stored: str, s3: dict[str, Any]) -> None:
    recipe = open_dataset(stored, storage_options=s3).recipe()
    without = run_elsewhere(recipe)
    assert without.returncode == 1
    text = without.stderr.decode()
    assert "The storage options key, secret are secrets and are not sent to workers" in text
    assert "AWS_ACCESS_KEY_ID" in text
    own = run_elsewhere(recipe, AWS_ACCESS_KEY_ID="of the worker", AWS_SECRET_ACCESS_KEY="its own")
    assert own.returncode == 0, own.stderr.decode()


def test_missing_things_are_named(stored: str, s3: dict[str, Any]) -> None:
    for url in ("s3://rows/none.zarr", "s3://no-such-bucket/x.zarr"):
        with pytest.raises(DatasetNotFoundError, match=f"no Zarr array at '{url}'"):
            open_dataset(url, storage_options=s3)


def test_markers_of_folders_are_no_files(s3: dict[str, Any], rows: np.ndarray) -> None:
    """Consoles and Hadoop write empty objects for folders."""
    import s3fs

    fs, content = s3fs.S3FileSystem(**s3), io.BytesIO()
    np.save(content, rows)
    names = ("f/", "f/sub/", "f/sub_$folder$", "f_$folder$")
    for name, body in [(name, b"") for name in names] + [("f/0.npy", content.getvalue())]:
        fs.call_s3("put_object", Bucket="rows", Key=f"marked/{name}", Body=body)
    for url in ("marked/f", "marked/f/", "marked/f/*", "marked/f/**", "marked/*/*.npy"):
        opened: Any = open_dataset(f"s3://rows/{url}", storage_options=s3)
        assert np.array_equal(opened.to_numpy(), rows)


def test_two_slashes_are_a_folder_without_a_name(s3: dict[str, Any], rows: np.ndarray) -> None:
    """The client lists ``in/`` for ``bucket//in/``, where objects of other names would be."""
    import s3fs

    content = io.BytesIO()
    np.save(content, rows)
    store = s3fs.S3FileSystem(**s3)
    for key in ("in/t.npy", "deep//in/t.npy"):
        store.call_s3("put_object", Bucket="rows", Key=key, Body=content.getvalue())
    for url in ("s3://rows//in/", "s3://rows//in/t.npy", "s3://rows//in/*.npy"):
        with pytest.raises(
            DatasetNotFoundError, match=r"s3://rows//in.* Two slashes .*; write one"
        ):
            open_dataset(url, storage_options=s3)
    found = open_dataset("s3://rows/deep//in/", storage_options=s3)
    assert np.array_equal(found.to_numpy(), rows)
