"""Row weights: from anywhere, next to the rows, checked once."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset
from daskcluster.errors import DataNotReachableError, DatasetNotFoundError, InvalidParameterError
from daskcluster.typing import Visibility

ROWS = np.arange(6000, dtype=np.float32).reshape(3000, 2)
WEIGHTS = np.random.default_rng(1).integers(0, 5, 3000).astype(np.float64)


def stored(path: Any, values: np.ndarray, **options: Any) -> str:
    zarr.create_array(str(path), data=values, **options)
    return str(path)


def group(tmp_path: Any) -> str:
    node = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    node.create_array("X", data=ROWS, chunks=(500, 2))
    node.create_array("w", data=WEIGHTS.astype(np.int16), chunks=(700,))
    return str(tmp_path / "g.zarr")


@pytest.mark.parametrize(
    ("rows", "weights"),
    [
        ("numpy", "array"), ("zarr", "list"), ("npy", "series"), ("dask", "dask"), ("zarr", "array"),
        ("numpy", "zarr url"), ("zarr", "npy"), ("dask", "zarr.Array"), ("npy", "zarr url"),
    ],
)  # fmt: skip
def test_weights_travel_with_the_rows(rows: str, weights: str, tmp_path: Any) -> None:
    dask_array = pytest.importorskip("dask.array")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    np.save(tmp_path / "x.npy", ROWS)
    np.save(tmp_path / "w.npy", WEIGHTS)
    sources = {
        "numpy": ROWS,
        "zarr": stored(tmp_path / "x.zarr", ROWS, chunks=(500, 2)),
        "npy": str(tmp_path / "x.npy"),
        "dask": dask_array.from_array(ROWS, chunks=500),
    }
    given = {
        "array": WEIGHTS,
        "list": WEIGHTS.tolist(),
        "series": pandas.Series(WEIGHTS),
        "dask": dask_array.from_array(WEIGHTS, chunks=100),
        "zarr url": stored(tmp_path / "w.zarr", WEIGHTS, chunks=(700,)),
        "npy": str(tmp_path / "w.npy"),
        "zarr.Array": zarr.open_array(tmp_path / "w.zarr", mode="r"),
    }
    dataset = open_dataset(sources[rows], weights=given[weights])
    assert np.array_equal(np.asarray(dataset.weights), WEIGHTS)
    assert len(dataset.weights) == 3000
    for view in (dataset, pickle.loads(pickle.dumps(dataset.recipe())).open()):
        for chunk in [*view.chunks([(0, 1201), (1201, 3000)]), view.load((7, 800))]:
            assert chunk.weights is not None
            assert chunk.weights.dtype == np.float64
            assert np.array_equal(chunk.weights, WEIGHTS[chunk.start : chunk.stop])
            assert np.array_equal(chunk.rows, ROWS[chunk.start : chunk.stop])


def test_weights_of_the_same_group_and_by_url(tmp_path: Any) -> None:
    path = group(tmp_path)
    for name in ("w", f"{path}/w"):
        dataset: Any = open_dataset(path, array="X", weights=name)
        assert dataset.visibility == Visibility.HOST
        assert np.array_equal(dataset.weights[10:20], WEIGHTS[10:20])
        assert dataset.weights.max() == WEIGHTS.max()
        assert dataset.weights.sum() == WEIGHTS.sum()
        assert "weighted" in repr(dataset)


def test_stored_weights_are_counted_as_bytes_read(tmp_path: Any) -> None:
    dataset = open_dataset(group(tmp_path), array="X", weights="w")
    read: list[int] = []
    list(dataset.chunks([(0, 3000)], on_read=read.append))
    assert sum(read) == 3000 * (8 + 2)


def test_few_weights_travel_and_many_stay(tmp_path: Any) -> None:
    path = stored(tmp_path / "x.zarr", np.ones((200_000, 1), np.float32), chunks=(50_000, 1))
    many: Any = open_dataset(path, weights=np.ones(200_000))
    assert many.visibility == Visibility.PROCESS
    sent = pickle.dumps(many.recipe())
    assert len(sent) < 2000
    code = pickle.loads(sent)
    assert np.array_equal(code.open().load((0, 5)).weights, np.ones(5))
    few = open_dataset(stored(tmp_path / "f.zarr", ROWS), weights=WEIGHTS)
    assert few.visibility == Visibility.HOST
    scratch = many.to_scratch(str(tmp_path / "scratch"))
    assert scratch.visibility == Visibility.HOST
    assert not (tmp_path / "scratch" / "rows.zarr").exists()
    assert np.array_equal(np.asarray(scratch.weights), np.ones(200_000))


def test_many_weights_elsewhere_are_explained() -> None:
    dataset = open_dataset(np.ones((200_000, 1)), weights=np.ones(200_000))
    sent = pickle.dumps(dataset.recipe())
    del dataset
    with pytest.raises(
        DataNotReachableError, match=r"belongs to another process and cannot be read"
    ):
        pickle.loads(sent).open()


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (np.ones(2999), r"sample_weight.shape == \(2999,\), expected \(3000,\)!"),
        (np.ones((3000, 1)), r"Sample weights must be 1D array or scalar, got 2D array"),
        (np.where(np.arange(3000) == 77, np.nan, 1), r"contains NaN: weight nan of row 77"),
        (np.where(np.arange(3000) == 5, np.inf, 1), r"contains infinity .*: weight inf of row 5"),
        (
            np.where(np.arange(3000) == 9, -2, 1),
            r"Negative values in data passed to `sample_weight`.*row 9",
        ),
        (np.zeros(3000), r"at least one non-zero number: all 3000 are zero"),
        (np.full(3000, 1e-291), r"too small: the largest is 1e-291, expected at least 1e-200"),
        (np.full(3000, 1.7e308), r"too large: the largest is 1.7e\+308, expected at most 1e\+200"),
        (np.array(["a"] * 3000), r"they must be real numbers"),
    ],
)
@pytest.mark.parametrize("where", ["memory", "zarr"])
def test_bad_weights(weights: np.ndarray, text: str, where: str, tmp_path: Any) -> None:
    if where == "zarr" and weights.dtype.kind == "U":
        pytest.skip("strings are no weights in either; one case is enough")
    given = weights if where == "memory" else stored(tmp_path / "w.zarr", weights)
    with pytest.raises(InvalidParameterError, match=text):
        open_dataset(ROWS, weights=given)


def test_weights_given_twice() -> None:
    dataset = open_dataset(ROWS, weights=WEIGHTS)
    with pytest.raises(InvalidParameterError, match=r"weights already and weights= was given too"):
        open_dataset(dataset, weights=WEIGHTS)


def test_a_file_of_weights(tmp_path: Any, s3: dict[str, Any]) -> None:
    import fsspec

    np.save(tmp_path / "w.npy", WEIGHTS)
    fsspec.filesystem("s3", **s3).put(str(tmp_path / "w.npy"), "rows/w.npy")
    for url, options in ((str(tmp_path / "w.npy"), None), ("s3://rows/w.npy", s3)):
        found = open_dataset(ROWS, weights=url, storage_options=options)
        assert np.array_equal(np.asarray(found.weights), WEIGHTS)
    with pytest.raises(DatasetNotFoundError, match=r"no file at '.*none.npy'"):
        open_dataset(ROWS, weights=tmp_path / "none.npy")


def test_a_number_is_the_weight_of_every_row() -> None:
    assert np.array_equal(open_dataset(ROWS, weights=2).weights, np.full(3000, 2.0))


def test_weights_of_wider_types_are_converted() -> None:
    from fractions import Fraction

    expected = np.arange(3000) / 7
    for weights in (
        expected.astype(object),
        np.array([Fraction(i, 7) for i in range(3000)]),
        expected.astype(np.longdouble),
    ):
        assert np.allclose(open_dataset(ROWS, weights=weights).weights, expected, rtol=1e-15)
    with pytest.raises(InvalidParameterError, match=r"weights.astype\('float64'\)"):
        open_dataset(ROWS, weights=np.array([1.0, "two"] * 1500, object))


def test_packed_weights_are_refused(tmp_path: Any) -> None:
    path = str(tmp_path / "w.zarr")
    zarr.create_array(path, data=np.arange(1, 9), attributes={"scale_factor": 0.5})
    with pytest.raises(InvalidParameterError, match="scale_factor, and weights are not decoded"):
        open_dataset(np.ones((8, 2)), weights=path)
