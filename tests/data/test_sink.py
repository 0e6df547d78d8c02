"""Outputs are whole or absent, from any number of processes."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset
from daskcluster.data.writer import ZarrSink
from daskcluster.errors import InvalidParameterError, OutputExistsError


def make(url: Any, **options: Any) -> ZarrSink:
    return ZarrSink.create(url, **{"n_rows": 10, "chunk_rows": 4, **options})


def fill(sink: ZarrSink) -> None:
    for start in range(0, 10, 4):
        sink.write(start, np.arange(start, min(start + 4, 10)))


@pytest.fixture(params=["local", "memory"])
def url(request: Any, tmp_path: Any) -> str:
    if request.param == "local":
        return str(tmp_path / "out" / "labels.zarr")
    return f"memory://{tmp_path.name}/labels.zarr"


def is_absent(url: str) -> bool:
    try:
        zarr.open(url, mode="r")
    except (FileNotFoundError, zarr.errors.NodeNotFoundError):
        return True
    return False


def test_labels_are_one_dimensional_int32_at_the_root(url: str) -> None:
    sink = make(url)
    assert is_absent(url)
    fill(sink)
    assert is_absent(url)
    sink.commit()
    array = zarr.open_array(url, mode="r")
    assert (array.shape, array.chunks, array.dtype) == ((10,), (4,), np.int32)
    assert array[:].tolist() == list(range(10))


def test_wide_results_and_zero_chunks(url: str) -> None:
    with make(url, width=3, dtype=np.float64).transaction() as sink:
        for start in range(0, 10, 4):
            sink.write(start, np.zeros((min(4, 10 - start), 3)))
    array = zarr.open_array(url, mode="r")
    assert array.shape == (10, 3)
    # A chunk of zeros is stored, so that a missing chunk can only mean a writer that died.
    assert array.nchunks_initialized == array.nchunks
    open_dataset(url)


def test_an_error_leaves_nothing(url: str, tmp_path: Any) -> None:
    sink = make(url)
    sink.write(0, np.arange(4))
    with pytest.raises(ZeroDivisionError), sink.transaction():
        raise ZeroDivisionError
    assert is_absent(url)
    if "://" not in url:
        assert os.listdir(tmp_path / "out") == []


def test_an_existing_output_is_refused_or_replaced(url: str) -> None:
    with make(url).transaction() as sink:
        fill(sink)
    with pytest.raises(OutputExistsError, match=r"exists already; pass overwrite=True") as caught:
        make(url)
    assert isinstance(caught.value, FileExistsError)
    with make(url, overwrite=True, n_rows=3).transaction() as sink:
        sink.write(0, np.array([5, 6, 7]))
    assert zarr.open_array(url, mode="r")[:].tolist() == [5, 6, 7]


def test_a_failed_overwrite_keeps_the_old_local_output(tmp_path: Any) -> None:
    path = str(tmp_path / "labels.zarr")
    with make(path).transaction() as sink:
        fill(sink)
    with pytest.raises(ZeroDivisionError), make(path, overwrite=True).transaction():
        raise ZeroDivisionError
    assert zarr.open_array(path, mode="r")[:].tolist() == list(range(10))
    assert os.listdir(tmp_path) == ["labels.zarr"]


@pytest.mark.parametrize("kind", ["folder", "file", "group"])
def test_only_arrays_are_overwritten(kind: str, tmp_path: Any) -> None:
    path = tmp_path / "mine"
    if kind == "folder":
        path.mkdir()
        (path / "notes.txt").write_text("mine")
    elif kind == "file":
        path.write_text("mine")
    else:
        zarr.open_group(str(path), mode="w").create_array("X", data=np.ones(3))
    with pytest.raises(OutputExistsError, match=r"of a kind that overwrite=True replaces"):
        make(path, overwrite=True)
    assert path.exists()


def test_an_empty_folder_is_no_obstacle(tmp_path: Any) -> None:
    with make(tmp_path).transaction() as sink:
        fill(sink)
    assert zarr.open_array(str(tmp_path), mode="r").shape == (10,)


def test_two_writers_of_one_local_output(tmp_path: Any) -> None:
    path = str(tmp_path / "labels.zarr")
    first, second = make(path), make(path)
    fill(first)
    fill(second)
    first.commit()
    with pytest.raises(OutputExistsError, match=r"appeared while it was being written"):
        second.commit()
    second.abort()
    assert os.listdir(tmp_path) == ["labels.zarr"]


@pytest.mark.parametrize(("start", "count"), [(1, 4), (0, 3), (8, 4), (4, 5)])
def test_writes_cover_whole_blocks(start: int, count: int, tmp_path: Any) -> None:
    sink = make(tmp_path / "x.zarr")
    with pytest.raises(InvalidParameterError, match=r"should cover whole blocks of 4 rows"):
        sink.write(start, np.zeros(count))
    sink.abort()


def test_many_threads_and_a_pickled_sink(tmp_path: Any) -> None:
    path = str(tmp_path / "x.zarr")
    sink = make(path, n_rows=1000, chunk_rows=10)
    copies = [pickle.loads(pickle.dumps(sink)) for _ in range(4)]

    def write(start: int) -> None:
        copies[start // 10 % 4].write(start, np.arange(start, start + 10))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(0, 1000, 10)))
    sink.commit()
    assert np.array_equal(zarr.open_array(path, mode="r")[:], np.arange(1000))
