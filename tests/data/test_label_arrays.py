"""Labels in any container, as the metrics take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster.errors import InvalidDataError
from daskcluster.metrics import adjusted_rand_index

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")


def test_labels_of_any_container_are_compared_by_position(tmp_path: Path) -> None:
    values = np.arange(40, dtype=np.int32) % 3
    array, start = da.from_array(values, chunks=12), np.array([[0.0], [5], [9]])
    zarr.save_array(str(tmp_path / "x"), start[values])
    own_index = pd.Series(values, index=values)
    for name, given in {
        "list": values.tolist(),
        "series": own_index,
        "nullable": pd.Series(values, dtype="Int64"),
        "index": pd.Index(values),
        "categories": pd.Series(values.astype(str), dtype="category"),
        "dask": array,
        "dask series": dd.from_pandas(own_index, npartitions=3, sort=False),
        "zarr": zarr.array(values, chunks=7),
        "labels of a fit": dc.KMeans(3, init=start).fit(str(tmp_path / "x")).labels_,
    }.items():
        assert adjusted_rand_index(given, values) == 1.0, name
    assert adjusted_rand_index(array[array != 1], values[values != 1]) == 1.0


def test_missing_labels_are_refused() -> None:
    missing: list[Any] = [
        np.array([0.0, np.nan, 1.0]),
        np.array(["a", None, "b"], object),
        np.array([1, float("nan"), 2], object),
        np.array(["a", pd.NA, "b"], object),
        pd.Series([0.0, np.nan, 1.0]),
        pd.Series([0, None, 1], dtype="Int64"),
        pd.Series(["a", None, "b"]),
    ]
    for labels in missing:
        with pytest.raises(
            InvalidDataError, match=r"^labels_true contains NaN, .* every row needs"
        ):
            adjusted_rand_index(labels, [0, 0, 1])


def test_labels_that_have_no_order_are_refused() -> None:
    labels = np.array(["a", 1, "b"], object)
    with pytest.raises(InvalidDataError, match=r"of the types int, str, which cannot be compared"):
        adjusted_rand_index(labels, [0, 0, 1])
