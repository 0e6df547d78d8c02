"""Tables of DuckDB and Hugging Face: opened by the Arrow C stream, or as Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import InvalidDataError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ROWS = np.random.default_rng(4).normal(size=(900, 3))
ROWS[:400] += 9
IDS = [f"doc-{i}" for i in range(900)]


def check(table: Any, **choice: Any) -> None:
    dataset: Any = dc.open_dataset(table, id_column="id", **choice)
    assert np.array_equal(dataset.to_numpy(), ROWS)
    assert dataset.ids(3, 5).to_pylist() == IDS[3:5]


def test_duckdb_relations() -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    columns = {name: ROWS[:, i] for i, name in enumerate("xyz")}
    relation = duckdb.connect().from_arrow(pa.table({"id": IDS, **columns, "emb": list(ROWS)}))
    check(relation.select("id, x, y, z"))
    check(relation, columns="emb")
    model = dc.KMeans(2, random_state=0).fit(relation.select("x, y, z"))
    assert np.array_equal(model.labels_, model.predict(ROWS))
    assert isinstance(model.labels_, np.ndarray)


def test_hugging_face_datasets() -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = datasets.Dataset.from_dict({"id": IDS, "emb": ROWS.tolist()})
    check(rows, columns="emb")
    check(rows.with_format("numpy"))
    some: Any = dc.open_dataset(rows.select([5, 3]), id_column="id")
    assert some.ids(0, 2).to_pylist() == [IDS[5], IDS[3]]
    with pytest.raises(
        InvalidDataError, match=r"has the splits train; give one of them, e.g. data"
    ):
        dc.open_dataset(datasets.DatasetDict(train=rows))
