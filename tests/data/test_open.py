"""Every container gives the same rows, by every way of reading."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset
from daskcluster.typing import Dataset, Visibility


def zarr_of(rows: np.ndarray, store: Any, **options: Any) -> Any:
    options.setdefault("chunks", (600, rows.shape[1]))
    array = zarr.create_array(store, shape=rows.shape, dtype=rows.dtype, **options)
    array[:] = rows
    return array


def path_of(rows: np.ndarray, tmp: Any, **options: Any) -> str:
    zarr_of(rows, str(tmp / "x.zarr"), **options)
    return str(tmp / "x.zarr")


def npy(rows: np.ndarray, tmp: Any) -> str:
    np.save(tmp / "x.npy", rows)
    return str(tmp / "x.npy")


def memory_url(rows: np.ndarray, tmp: Any) -> str:
    url = f"memory://{tmp.name}/x.zarr"
    zarr_of(rows, url)
    return url


def dask_of(rows: np.ndarray, chunks: Any, mask: Callable[[Any], Any] | None = None) -> Any:
    import dask.array as da

    array = da.from_array(rows, chunks=chunks)
    return array if mask is None else array[mask(array)]


def with_empty_blocks(rows: np.ndarray) -> Any:
    import dask.array as da

    empty = da.zeros((0, rows.shape[1]), dtype=rows.dtype)
    parts = [da.from_array(part, chunks=1000) for part in np.array_split(rows, 3)]
    return da.concatenate([empty, parts[0], empty, parts[1], parts[2], empty])


def dask_frame(rows: np.ndarray) -> Any:
    import dask.dataframe as dd
    import pandas as pd

    return dd.from_pandas(pd.DataFrame(rows), npartitions=3)


def frame(rows: np.ndarray) -> Any:
    import pandas as pd

    return pd.DataFrame(rows)


def sliced_memmap(rows: np.ndarray, tmp: Any) -> np.ndarray:
    np.save(tmp / "padded.npy", np.concatenate([rows[:2] * 0, rows]))
    return np.load(tmp / "padded.npy", mmap_mode="r")[2:]


SOURCES: dict[str, tuple[Callable[[np.ndarray, Any], Any], Visibility]] = {
    "numpy": (lambda X, tmp: X, Visibility.PROCESS),
    "fortran": (lambda X, tmp: np.asfortranarray(X), Visibility.PROCESS),
    "list": (lambda X, tmp: X.tolist(), Visibility.PROCESS),
    "pandas": (lambda X, tmp: frame(X), Visibility.PROCESS),
    "npy": (npy, Visibility.HOST),
    "npy fortran": (lambda X, tmp: npy(np.asfortranarray(X), tmp), Visibility.HOST),
    "memmap": (lambda X, tmp: np.load(npy(X, tmp), mmap_mode="r"), Visibility.HOST),
    "sliced memmap": (sliced_memmap, Visibility.PROCESS),
    "zarr v3": (path_of, Visibility.HOST),
    "zarr v2": (lambda X, tmp: path_of(X, tmp, zarr_format=2), Visibility.HOST),
    "file url": (lambda X, tmp: f"file://{path_of(X, tmp)}", Visibility.HOST),
    "pathlib": (lambda X, tmp: (path_of(X, tmp), tmp / "x.zarr")[1], Visibility.HOST),
    "sharded": (lambda X, tmp: path_of(X, tmp, chunks=(100, 7), shards=(1000, 7)), Visibility.HOST),
    "columns": (lambda X, tmp: path_of(X, tmp, chunks=(500, 3)), Visibility.HOST),
    "columns v2": (lambda X, tmp: path_of(X, tmp, chunks=(500, 2), zarr_format=2), Visibility.HOST),
    "row chunks": (lambda X, tmp: path_of(X, tmp, chunks=(6000, 7)), Visibility.HOST),
    "zarr.Array": (lambda X, tmp: zarr_of(X, str(tmp / "a.zarr")), Visibility.HOST),
    "zarr.Array in a dict": (lambda X, tmp: zarr_of(X, {}), Visibility.PROCESS),
    "memory url": (memory_url, Visibility.PROCESS),
    "dask": (lambda X, tmp: dask_of(X, (700, 3)), Visibility.PROCESS),
    "dask unknown": (
        lambda X, tmp: dask_of(X, (700, 7), lambda A: A[:, 0] > 0),
        Visibility.PROCESS,
    ),
    "dask unknown columns": (
        lambda X, tmp: dask_of(X, (700, 3), lambda A: A[:, 0] > 0),
        Visibility.PROCESS,
    ),
    "dask empty blocks": (lambda X, tmp: with_empty_blocks(X), Visibility.PROCESS),
    "dask frame": (lambda X, tmp: dask_frame(X), Visibility.PROCESS),
}


@pytest.fixture(params=list(SOURCES))
def opened(request: Any, rows: np.ndarray, tmp_path: Any) -> tuple[Dataset, Visibility]:
    make, visibility = SOURCES[request.param]
    return open_dataset(make(rows, tmp_path)), visibility


def test_rows_are_the_same_by_every_way_of_reading(
    opened: tuple[Dataset, Visibility], rows: np.ndarray
) -> None:
    dataset, visibility = opened
    assert (dataset.n_rows, dataset.n_features) == rows.shape
    assert dataset.visibility == visibility
    assert np.array_equal(dataset.to_numpy(), rows)
    spans = [(0, 1), (17, 3001), (3001, 3002), (4000, 5003)]
    chunks = list(dataset.chunks(iter(spans)))
    assert all(chunk.n_rows for chunk in chunks)
    for chunk in chunks:
        assert np.array_equal(chunk.rows, rows[chunk.start : chunk.stop])
    assert sum(chunk.n_rows for chunk in chunks) == sum(stop - start for start, stop in spans)
    wanted = np.array([5002, 0, 17, 17, 2500])
    assert np.array_equal(dataset.take(wanted), rows[wanted])
    loaded = dataset.load((1000, 2000))
    assert loaded.start == 1000
    assert loaded.rows.base is None
    assert np.array_equal(loaded.rows, rows[1000:2000])


def test_partitions_are_whole_chunks_that_cover_all_rows(
    opened: tuple[Dataset, Visibility],
) -> None:
    dataset, _ = opened
    parts = dataset.partitions
    assert parts[0][0] == 0
    assert parts[-1][1] == dataset.n_rows == sum(dataset.chunk_sizes)
    assert all(a[1] == b[0] for a, b in pairwise(parts))
    edges = set(np.cumsum(dataset.chunk_sizes)) | {0}
    assert all(start in edges and stop in edges for start, stop in parts)
    assert 0 not in dataset.chunk_sizes


def test_recipe_travels_and_opens_again(
    opened: tuple[Dataset, Visibility], rows: np.ndarray
) -> None:
    dataset, _ = opened
    sent = pickle.dumps(dataset.recipe())
    assert len(sent) < 2000
    again = pickle.loads(sent).open()
    assert np.array_equal(again.take(np.arange(10)), rows[:10])


def test_bytes_are_counted_for_stores_and_not_for_memory(
    opened: tuple[Dataset, Visibility], rows: np.ndarray
) -> None:
    dataset, _ = opened
    read: list[int] = []
    for _ in dataset.chunks(dataset.partitions, on_read=read.append):
        pass
    expected = 0 if dataset.in_memory else rows.shape[0] * rows.shape[1] * dataset.dtype.itemsize
    assert sum(read) == expected


def test_dataset_is_returned_as_it_is(rows: np.ndarray) -> None:
    dataset = open_dataset(rows)
    assert open_dataset(dataset) is dataset


def test_array_rows_are_views(rows: np.ndarray) -> None:
    for array in (rows, np.asfortranarray(rows)):
        for chunk in open_dataset(array).chunks([(0, 5003), (5, 10)]):
            assert np.shares_memory(chunk.rows, array)


@pytest.mark.parametrize(
    "dtype",
    "float16 float32 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool >f4".split(),
)
def test_dtypes_stay_as_stored(dtype: str, tmp_path: Any) -> None:
    array = (np.arange(60).reshape(20, 3) % 2).astype(dtype)
    options = {"zarr_format": 2} if dtype.startswith(">") else {}
    for source in (array, path_of(array, tmp_path, **options)):
        dataset = open_dataset(source)
        assert dataset.dtype == array.dtype
        assert np.array_equal(dataset.to_numpy(), array)


def test_group_member_is_named(rows: np.ndarray, tmp_path: Any) -> None:
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    group.create_array("deep/X", data=rows, chunks=(1000, 7))
    dataset = open_dataset(str(tmp_path / "g.zarr"), array="deep/X")
    assert np.array_equal(dataset.to_numpy(), rows)
    assert np.array_equal(open_dataset(group["deep/X"]).recipe().open().to_numpy(), rows)


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((6, 5, 4, 3), (2, 5, 4, 3)), ((6, 5, 4, 3), (1, 2, 3, 2)), ((7, 9, 2), (3, 4, 1))],
)
def test_flatten_makes_rows_of_all_axes_but_the_last(
    shape: tuple[int, ...], chunks: tuple[int, ...], tmp_path: Any
) -> None:
    import dask.array as da

    raster = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    expected = raster.reshape(-1, shape[-1])
    np.save(tmp_path / "raster.npy", raster)
    sources = [
        path_of(raster, tmp_path, chunks=chunks),
        raster,
        str(tmp_path / "raster.npy"),
        da.from_array(raster, chunks=chunks),
    ]
    for source in sources:
        dataset = open_dataset(source, flatten=True)
        assert np.array_equal(dataset.to_numpy(), expected)
        middle = [chunk.rows for chunk in dataset.chunks([(5, len(expected) - 3)])]
        assert np.array_equal(np.concatenate(middle), expected[5:-3])


def test_large_storage_chunk_is_read_once_and_handed_over_in_blocks(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(40_000, dtype=np.float64).reshape(-1, 4)
    monkeypatch.setattr("daskcluster.data.dataset.MOST_BYTES", 64_000)
    monkeypatch.setattr("daskcluster.data.dataset.READ_BYTES", 8_000)
    dataset = open_dataset(path_of(rows, tmp_path, chunks=(6000, 4)))
    read: list[int] = []
    sizes = [chunk.n_rows for chunk in dataset.chunks([(0, 10_000)], on_read=read.append)]
    assert max(sizes) == 250
    assert sum(sizes) == 10_000
    assert read == [320_000]  # both chunks, in one read of about 8 MB


def test_mixed_frame_becomes_float64_and_missing_values_nan() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan], "c": pd.array([1, None], dtype="Int64")})
    dataset = open_dataset(table)
    assert dataset.dtype == np.float64
    assert np.array_equal(dataset.to_numpy(), [[1, 0.5, 1], [2, np.nan, np.nan]], equal_nan=True)
    exact = pd.DataFrame({"a": np.array([1, 2], np.uint8), "b": np.array([1, 2], np.float32)})
    assert open_dataset(exact).dtype == np.float32


def test_a_file_written_anew_is_another_dataset(tmp_path: Any) -> None:
    first = open_dataset(npy(np.zeros((10, 2)), tmp_path))
    assert first.to_numpy().sum() == 0
    (tmp_path / "x.npy").unlink()
    assert open_dataset(npy(np.ones((10, 2)), tmp_path)).to_numpy().sum() == 20


def test_an_array_replaced_since_is_refused_on_the_worker(tmp_path: Any, rows: np.ndarray) -> None:
    path = path_of(rows, tmp_path)
    sent = pickle.dumps(open_dataset(path).recipe())
    zarr_of(rows[:100], path, overwrite=True, chunks=(50, 7))
    with pytest.raises(ValueError, match=r"was replaced since the dataset was opened"):
        pickle.loads(sent).open()


@pytest.mark.parametrize("name", ["numpy", "memory url", "zarr.Array in a dict", "dask"])
def test_scratch_makes_process_data_readable_for_all(
    name: str, rows: np.ndarray, tmp_path: Any
) -> None:
    weights = np.linspace(0, 1, len(rows))
    dataset: Any = open_dataset(SOURCES[name][0](rows, tmp_path), weights=weights)
    scratch = dataset.to_scratch(str(tmp_path / "scratch"))
    assert scratch.visibility == Visibility.HOST
    assert np.array_equal(scratch.to_numpy(), rows)
    assert np.array_equal(np.asarray(scratch.weights), weights)


def test_stored_rows_need_no_scratch_copy(rows: np.ndarray, tmp_path: Any) -> None:
    dataset: Any = open_dataset(path_of(rows, tmp_path))
    assert dataset.to_scratch(str(tmp_path / "scratch")) is dataset
    assert not (tmp_path / "scratch").exists()
