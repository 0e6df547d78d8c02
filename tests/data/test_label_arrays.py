from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster.data.label_arrays import open_labels
from daskcluster.errors import InvalidDataError

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series([3, 3, 5], index=[7, 8, 9]),
        pd.Series([3, 3, 5], dtype="Int64"),
        pd.Index([3, 3, 5]),
        [3, 3, 5],
    ],
)
def test_labels_of_pandas_are_read_by_position(labels: Any) -> None:
    found = open_labels(labels)
    assert found.n_rows == 3
    assert found.read(1, 3).tolist() == [3, 5]


@pytest.mark.parametrize("kind", ["known", "unknown", "series", "zarr", "handle"])
def test_labels_that_are_not_in_memory(kind: str, tmp_path: Path) -> None:
    values = np.arange(40, dtype=np.int32) % 3
    array = da.from_array(values, chunks=12)
    given: Any = array
    if kind == "unknown":
        given, values = array[array != 1], values[values != 1]
    elif kind == "series":
        given = dd.from_pandas(pd.Series(values, index=values), npartitions=3, sort=False)
    elif kind == "zarr":
        given = zarr.array(values, chunks=7)
    elif kind == "handle":
        rows = np.array([[0.0], [5], [9]])[values]
        zarr.save_array(str(tmp_path / "x"), rows)
        given = dc.KMeans(3, init=np.array([[0.0], [5], [9]])).fit(str(tmp_path / "x")).labels_
    found = open_labels(given)
    assert found.n_rows == len(values)
    assert np.array_equal(found.read(0, 20), values[:20])
    assert np.array_equal(found.read(5, len(values)), values[5:])


def test_categories_are_labels() -> None:
    assert open_labels(pd.Series(["b", "a"], dtype="category")).read(0, 2).tolist() == ["b", "a"]


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0.0, np.nan, 1.0]),
        np.array(["a", None, "b"], object),
        np.array([1, float("nan"), 2], object),
        np.array(["a", pd.NA, "b"], object),
        pd.Series([0.0, np.nan, 1.0]),
        pd.Series([0, None, 1], dtype="Int64"),
        pd.Series(["a", None, "b"]),
    ],
)
def test_missing_labels_are_refused(labels: Any) -> None:
    with pytest.raises(InvalidDataError, match=r"^labels_true contains NaN, .* every row needs"):
        open_labels(labels, "labels_true").read(0, 3)


def test_labels_that_have_no_order_are_refused() -> None:
    labels = np.array(["a", 1, "b"], object)
    with pytest.raises(InvalidDataError, match=r"of the types int, str, which cannot be compared"):
        open_labels(labels).read(0, 3)
