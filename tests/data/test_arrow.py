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


def values_of(given: Any, **choice: Any) -> tuple[str, Any]:
    dataset: Any = dc.open_dataset(given, **choice)
    return dataset.dtype.name, dataset.to_numpy().tolist()


def test_nulls_are_nan() -> None:
    nan = pytest.approx(np.nan, nan_ok=True)
    for kind, dtype in {
        pa.int8(): "float32",
        pa.uint16(): "float32",
        pa.bool_(): "float32",
        pa.int32(): "float64",
        pa.uint64(): "float64",
        pa.float16(): "float16",
        pa.float32(): "float32",
        pa.decimal128(5, 2): "float64",
    }.items():
        column = pa.array([1.0, 0.0], pa.float64()).cast(pa.uint8()).cast(kind, safe=False)
        whole = pa.chunked_array([column, column])
        gappy = pa.chunked_array([column, pa.nulls(1, kind)])
        expected = "float64" if pa.types.is_decimal(kind) else kind.to_pandas_dtype()
        assert values_of(pa.table({"x": whole}))[0] == np.dtype(expected).name
        assert values_of(pa.table({"x": gappy})) == (dtype, [[1], [0], [nan]])
    lists = pa.array([None, [1, 2], [None, 4]], pa.list_(pa.int8()))
    for kind in (lists.type, pa.large_list(pa.int8()), pa.list_(pa.int8(), 2)):
        found = values_of(pa.table({"emb": lists.cast(kind)}))
        assert found == ("float32", [[nan, nan], [1, 2], [nan, 4]])
    nothing = pa.table({"x": [1, 2], "y": pa.nulls(2)})
    assert values_of(nothing) == ("float64", [[1, nan], [2, nan]])
    ids: Any = dc.open_dataset(
        pa.table({"id": ["a", None, "c"], "emb": lists}), id_column="id", missing="drop"
    )
    assert (ids.to_numpy().tolist(), ids.ids(0, 1).to_pylist()) == ([[1, 2]], [None])
    with pytest.raises(InvalidDataError, match=r"'w' of the weights is null in row 1 of the Table"):
        dc.open_dataset(pa.table({"x": [1, 2], "w": [1.0, None]}), weights="w")
    with pytest.raises(InvalidDataError, match=r"first list in column 'emb' of the Table is empty"):
        dc.open_dataset(pa.table({"emb": lists.slice(0, 1)}))


def test_missing_values_of_data_frames() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    nan = pytest.approx(np.nan, nan_ok=True)
    expected = [[1, nan], [nan, 0], [3, 1]]
    x, y = [1, None, 3], [None, False, True]
    plain = pd.DataFrame({"x": pd.Series(x, dtype=object), "y": pd.Series(y, dtype=object)})
    nullable = pd.DataFrame({"x": pd.array(x, dtype="Int16"), "y": pd.array(y, dtype="boolean")})
    for frame in (plain, nullable, nullable.convert_dtypes(dtype_backend="pyarrow")):
        assert values_of(frame)[1] == expected
        named = frame.assign(id=list("abc"), mixed=[1, "a", object()])
        assert values_of(named, columns=["x", "y"])[1] == expected
        assert values_of(named, drop=["id", "mixed"])[1] == expected
        assert values_of(named[["id", "x", "y"]], id_column="id")[1] == expected
    lists = pd.DataFrame({"emb": [None, [1, 2], [3, 4]]})
    for frame in (lists, lists.astype(pd.ArrowDtype(pa.list_(pa.int64())))):
        assert values_of(frame)[1] == [[nan, nan], [1, 2], [3, 4]]
        with pytest.raises(InvalidDataError, match=r"NaN: first in row 0"):
            dc.KMeans(2).fit(frame)
    pl = pytest.importorskip("polars", reason="polars is not installed")
    assert values_of(pl.DataFrame({"x": x, "y": y}))[1] == expected
