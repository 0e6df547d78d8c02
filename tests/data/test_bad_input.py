"""Bad input is refused with what, the value, the rule and the remedy."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import zarr
from sklearn.exceptions import ConvergenceWarning

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.data.label_files import open_labels
from daskcluster.data.sources import READ_IN_PLACE
from daskcluster.errors import (
    DaskClusterError,
    DatasetNotFoundError,
    InvalidDataError,
    InvalidParameterError,
    WrongTypeError,
)


@pytest.fixture
def store(tmp_path: Any) -> str:
    path = str(tmp_path / "x.zarr")
    zarr.create_array(path, data=np.ones((20, 3)), chunks=(5, 3))
    return path


def grouped(tmp_path: Any) -> str:
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    group.create_array("X", data=np.ones((20, 3)))
    group.create_array("y", data=np.ones(20))
    return str(tmp_path / "g.zarr")


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.ones(3), "Expected 2D array, got 1D array instead"),
        (np.float64(1), "Expected 2D array, got scalar array instead"),
        (
            np.ones((2, 3, 4)),
            r"Found array with dim 3.*array.reshape\(2, 12\).*flatten=True.*--features",
        ),
        (
            np.ones((0, 3)),
            r"Found array with 0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1",
        ),
        (
            np.ones((3, 0)),
            r"Found array with 0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1",
        ),
        (np.ones((3, 2), complex), "Complex data not supported"),
        (np.array([["a", "b"]]), "dtype='numeric' is not compatible with arrays of bytes/strings"),
        (np.array([[1, "a"]], object), "objects that are no numbers .*astype"),
        (
            np.array([["2020-01-01"]], "M8[D]"),
            r"dtype=datetime64\[D\] cannot.*Convert your data",
        ),
        (np.ones((2, 2), np.longdouble), "cannot be clustered"),
        (np.zeros((2, 2), "f4,f4"), "fields of records"),
        ([[1, 2], [3]], "cannot be made into one array.*same number"),
    ],
)
def test_shape_and_dtype(array: Any, text: str) -> None:
    with pytest.raises(InvalidDataError, match=f"(?s){text}") as caught:
        open_dataset(array)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (0, 3)])
def test_shape_in_every_container(shape: tuple[int, ...], tmp_path: Any) -> None:
    import dask.array as da

    array = np.ones(shape)
    path = str(tmp_path / "x.zarr")
    zarr.create_array(path, shape=shape, dtype="f8")
    np.save(tmp_path / "x.npy", array)
    for source in (path, str(tmp_path / "x.npy"), da.from_array(array), zarr.open_array(path)):
        with pytest.raises(InvalidDataError, match=r"(Expected 2D|Found) array"):
            open_dataset(source)


@pytest.mark.parametrize("source", [None, {"a": 1}, object(), len])
def test_objects_without_rows_are_refused(source: Any) -> None:
    with pytest.raises(WrongTypeError, match=r"no table of numbers") as caught:
        open_dataset(source)
    assert isinstance(caught.value, TypeError)


def test_missing_store(tmp_path: Any) -> None:
    with pytest.raises(
        DatasetNotFoundError, match=r"no dataset at '.*none.zarr': the path does not exist"
    ):
        open_dataset(tmp_path / "none.zarr")
    with pytest.raises(FileNotFoundError, match=r"memory:// is not shared|nothing is stored there"):
        open_dataset("memory://nobody/none.zarr")
    with pytest.raises(
        DatasetNotFoundError, match=r"no file or folder at '.*none.npy': the path does not exist"
    ):
        open_dataset(tmp_path / "none.npy")


def test_empty_folder_and_plain_file(tmp_path: Any) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"has neither zarr.json nor .zarray"):
        open_dataset(tmp_path)
    for name in ("rows.dat", "rows.csv.lz4", "rows.txt"):
        (tmp_path / name).write_text("1 2")
        with pytest.raises(DatasetNotFoundError, match=r"is a file that is not read") as error:
            open_dataset(tmp_path / name)
        assert READ_IN_PLACE in str(error.value)
        with pytest.raises(InvalidDataError, match=r"labels are read from a Zarr array or"):
            open_labels(tmp_path / name)
    (tmp_path / "rows.zarr.zip").write_text("1 2")
    for opens in (open_dataset, open_labels):
        with pytest.raises(InvalidDataError, match=r"rows.zarr.zip' .*BadZipFile"):
            opens(tmp_path / "rows.zarr.zip")
    np.save(tmp_path / "labels.npy", np.array([2, 0, 1]))
    assert open_labels(tmp_path / "labels.npy").read(1, 3).tolist() == [0, 1]


def test_arrays_of_groups_within_groups_are_named(tmp_path: Any) -> None:
    root = zarr.open_group(tmp_path / "deep.zarr", mode="w")
    for number in range(30):
        root.create_array(f"runs/{number:02}/X", data=np.ones((5, 2)))
    for more in ({}, {"array": "Y"}):
        with pytest.raises(
            DaskClusterError, match=r"runs/00/X \(5 x 2 float64\), .*runs/19/X.*, and 10 more\."
        ):
            open_dataset(tmp_path / "deep.zarr", **more)
    assert open_dataset(tmp_path / "deep.zarr", array="runs/07/X").n_rows == 5


@pytest.mark.parametrize("kind", ["memory", "npy", "npys", "zarr"])
def test_fields_of_structured_arrays_are_named(kind: str, tmp_path: Any) -> None:
    rows: Any = np.zeros(10, [("red", "f4"), ("nir", "i2")])
    source: Any = rows
    if kind == "zarr":
        source = zarr.create_array(tmp_path / "r.zarr", data=rows)
    elif kind != "memory":
        source = tmp_path / "rows.npy"
        np.save(source, rows)
        source = [source] if kind == "npys" else source
    with pytest.raises(InvalidDataError, match=r"'red'.* fields of records.* are features of"):
        open_dataset(source)


def test_group_without_and_with_a_wrong_name(tmp_path: Any) -> None:
    path = grouped(tmp_path)
    with pytest.raises(
        InvalidDataError, match=r"is a Zarr group.*array=. Arrays there: X \(20 x 3 float64\), y"
    ):
        open_dataset(path)
    with pytest.raises(
        DatasetNotFoundError,
        match=r"no array 'Z' in .*there: X \(20 x 3 float64\), y \(20 float64\)",
    ):
        open_dataset(path, array="Z")
    with pytest.raises(InvalidDataError, match=r"is a Zarr group.*array=. Arrays there: X"):
        open_dataset(zarr.open_group(path))


def test_name_where_there_is_no_group(store: str, tmp_path: Any) -> None:
    with pytest.raises(InvalidDataError, match=r"is itself an array; leave array= out"):
        open_dataset(store, array="X")
    with pytest.raises(InvalidParameterError, match=r"source is a ndarray; leave array= out"):
        open_dataset(np.ones((3, 2)), array="X")


@pytest.mark.parametrize("content", ["", '{"zarr_form', '{"zarr_format": 3, "node_type": "array"}'])
def test_half_written_metadata(store: str, content: str) -> None:
    with open(os.path.join(store, "zarr.json"), "w") as file:
        file.write(content)
    with pytest.raises(InvalidDataError, match=r"metadata at .* is damaged or half-written"):
        open_dataset(store)


def test_array_that_was_never_written(tmp_path: Any) -> None:
    zarr.create_array(str(tmp_path / "x.zarr"), shape=(20, 3), chunks=(5, 3), dtype="f4")
    with pytest.raises(
        InvalidDataError, match=r"none of its 4 chunks: it was created but not written"
    ):
        open_dataset(tmp_path / "x.zarr")


@pytest.mark.parametrize(("shards", "text"), [(None, "2 of 4 chunks"), ((10, 3), "1 of 2 shards")])
def test_array_with_missing_chunks_warns(tmp_path: Any, shards: Any, text: str) -> None:
    array = zarr.create_array(
        str(tmp_path / "x.zarr"), shape=(20, 3), chunks=(5, 3), shards=shards, dtype="f4"
    )
    array[:10] = 1
    with pytest.warns(
        UserWarning, match=f"lacks {text}, which read as its fill value 0.0"
    ) as message:
        open_dataset(tmp_path / "x.zarr")
    assert message[0].filename == __file__


def test_damaged_chunk_is_named(store: str) -> None:
    with open(os.path.join(store, "c", "1", "0"), "wb") as file:
        file.write(b"\x28\xb5\x2f\xfdgarbage")
    dataset = open_dataset(store)
    with pytest.raises(
        InvalidDataError, match=r"cannot be read .*damaged or half-written: write it again"
    ):
        dataset.to_numpy()


def test_damaged_npy(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.ones((1000, 3)))
    with open(tmp_path / "x.npy", "r+b") as file:
        file.truncate(500)
    with pytest.raises(InvalidDataError, match=r"has 500 bytes where its header promises"):
        open_dataset(tmp_path / "x.npy")
    np.save(tmp_path / "o.npy", np.array([[1, None]], object), allow_pickle=True)
    with pytest.raises(InvalidDataError, match=r"is no readable .npy file|dtype=object"):
        open_dataset(tmp_path / "o.npy")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(store: str) -> None:
    os.chmod(store, 0)
    try:
        with pytest.raises(DatasetNotFoundError, match=r"No permission"):
            open_dataset(store)
    finally:
        os.chmod(store, 0o700)


def test_text_named_like_an_id_is_refused_and_not_called_a_feature() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"customer_id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidDataError, match="no real numbers: 'customer_id'"):
            open_dataset(frame)


def test_frames_with_other_columns_than_numbers_name_them() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    dd = pytest.importorskip("dask.dataframe")
    for dtype, values in {
        "object": ["a", 1],
        "category": pd.Categorical(["a", "b"]),
        r"datetime64\[\w+\]": pd.to_datetime(["2020-01-01", "2021-01-01"]),
        r"timedelta64\[\w+\]": pd.to_timedelta([1, 2], "s"),
        "complex128": [1j, 2],
        r"period\[D\]": pd.period_range("2020-01-01", periods=2, freq="D"),
    }.items():
        frame = pd.DataFrame({"a": [1.0, 2], "other": values})
        with pytest.raises(
            InvalidDataError, match=rf"no real numbers: 'other' \({dtype}\). Choose"
        ):
            open_dataset(frame)
        with pytest.raises(InvalidDataError, match=r"'other'"):
            open_dataset(frame, columns=["a", "other"])
        if dtype != "object":
            with pytest.raises(InvalidDataError, match=rf"no real numbers: 'other' \({dtype}\)"):
                open_dataset(dd.from_pandas(frame, npartitions=1))
        assert open_dataset(frame, columns="a").to_numpy().tolist() == [[1], [2]]
    images = pd.DataFrame({"image": [np.ones((2, 2))] * 3})
    with pytest.raises(
        InvalidDataError, match=r"'image' \(object\) of the DataFrame cannot be read"
    ):
        open_dataset(images)
    with pytest.raises(InvalidDataError, match=r"a dask array of shape"):
        open_dataset(dd.from_pandas(frame, npartitions=1)["a"])


def test_dask_blocks_of_other_shapes_are_refused() -> None:
    import dask.array as da

    array = da.from_array(np.ones((10, 2)), chunks=5).map_blocks(
        lambda block: block[:3], dtype=float
    )
    with pytest.raises(InvalidDataError, match=r"Block 0 .* shape=\(3, 2\) where .* says \(5, 2\)"):
        open_dataset(array).to_numpy()


def test_unknown_scheme_and_empty_url() -> None:
    with pytest.raises(InvalidParameterError, match=r"scheme of 'nowhere://x' is not known"):
        open_dataset("nowhere://x")
    with pytest.raises(InvalidParameterError, match=r"The URL is empty"):
        open_dataset(" ")


def test_rows_outside(store: str) -> None:
    for source in (store, np.ones((20, 3))):
        dataset = open_dataset(source)
        for row in (-1, 20):
            with pytest.raises(InvalidParameterError, match=f"row {row} should be in 0 to 19"):
                dataset.take(np.array([3, row]))


def test_local_data_that_is_continued_the_worker(
    store: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pickle

    np.save(tmp_path / "x.npy", np.ones((10, 2)))
    sent = [
        pickle.dumps(open_dataset(source).recipe()) for source in (store, str(tmp_path / "x.npy"))
    ]
    shutil.rmtree(store)
    (tmp_path / "x.npy").unlink()
    monkeypatch.setattr(
        "daskcluster.storage.process_local._opened", OrderedDict()
    )  # as on a worker
    for recipe in sent:
        with pytest.raises(DatasetNotFoundError, match=r"bucket's URL"):
            pickle.loads(recipe).open().to_numpy()


def test_storage_options_without_a_url() -> None:
    with pytest.raises(InvalidParameterError, match=r"source is a ndarray; leave them out"):
        open_dataset(np.ones((3, 2)), storage_options={"anon": True})


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_that_float64_rounds(dtype: Any) -> None:
    rows = (np.arange(300) % 3 + 2**60).astype(dtype).reshape(-1, 1)
    what = r"Feature 0 has integers of magnitude 1\.153e\+18, and float64.*2\*\*53 from their neighbours"
    for estimator in (dc.KMeans(3), dc.MiniBatchKMeans(3), dc.VariationalGaussianMixture(2)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.set_params(random_state=0).fit(rows)
        texts = [str(each.message) for each in caught]
        assert any(re.search(what, text) for text in texts), texts
    for given in (rows, rows.astype(np.float64)):
        with pytest.warns(ConvergenceWarning, match=r"duplicate points in X\. Or float64 cannot"):
            dc.KMeans(3, random_state=0).fit(given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dc.KMeans(3, random_state=0).fit(rows - dtype(2**60)).inertia_ == 0
