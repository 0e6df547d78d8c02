"""Tables in memory: Arrow tables, what gives them, and data frames with list columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import InvalidDataError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ROWS = np.random.default_rng(1).normal(size=(60, 4))
NAMES = [f"n{i}" for i in range(60)]


def table() -> Any:
    values = pa.array(ROWS.ravel())
    return pa.table({"key": NAMES, "emb": pa.FixedSizeListArray.from_arrays(values, 4)})


@pytest.mark.parametrize("kind", ["table", "batches", "polars", "lazy", "pandas"])
def test_tables_of_every_library(kind: str) -> None:
    given: Any = table()
    if kind == "batches":
        given = given.to_reader()
    if kind in ("polars", "lazy"):
        pl = pytest.importorskip("polars", reason="polars is not installed")
        given = pl.from_arrow(given)
        given = given.lazy() if kind == "lazy" else given
    if kind == "pandas":
        pytest.importorskip("pandas", reason="pandas is not installed")
        given = given.to_pandas()
    dataset: Any = dc.open_dataset(given, id_column="key")
    assert np.array_equal(dataset.to_numpy(), ROWS)
    assert dataset.ids(5, 8).to_pylist() == NAMES[5:8]


def test_estimators_take_them() -> None:
    held = dc.KMeans(3, random_state=0).fit(ROWS)
    frame = table().to_pandas()
    for given in (table(), frame, frame[["emb"]]):
        model = dc.KMeans(3, random_state=0).fit(given)
        assert np.array_equal(model.cluster_centers_, held.cluster_centers_)
        assert np.array_equal(model.predict(given), held.predict(ROWS))


def test_a_column_of_weights() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "w": [1.0, 0.0, 2.0]})
    dataset = dc.open_dataset(frame, weights="w")
    assert dataset.n_features == 1
    assert np.array_equal(np.asarray(dataset.weights), [1, 0, 2])


def test_nulls() -> None:
    given = pa.table({"x": [1.0, None, 3.0], "y": [1, 2, 3]})
    with pytest.raises(InvalidDataError, match=r"'x' is null in row 1 of the Table"):
        dc.open_dataset(given, columns=["x", "y"])
    dataset = dc.open_dataset(given, columns=["x", "y"], nulls="drop")
    assert dataset.to_numpy().tolist() == [[1, 1], [3, 3]]
