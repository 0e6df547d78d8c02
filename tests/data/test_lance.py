"""Lance datasets as rows: columns, ids, versions, deleted rows, a cluster."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, InvalidParameterError
from daskcluster.storage import process_local

lance = pytest.importorskip("lance", reason="pylance is not installed")
pa = pytest.importorskip("pyarrow")

ROWS = np.random.default_rng(4).normal(size=(900, 5)).astype(np.float32)
IDS = [f"doc-{i}" for i in range(900)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 5)
    table = pa.table({"id": IDS, "emb": lists, "w": np.arange(900) % 5 + 1.0, "x": ROWS[:, 0]})
    lance.write_dataset(table, str(tmp_path / "rows.lance"), max_rows_per_file=250)
    return str(tmp_path / "rows.lance")


def test_rows_ids_and_weights(url: str, tmp_path: Path) -> None:
    for source in (url, lance.dataset(url)):
        dataset: Any = dc.open_dataset(source, columns="emb", id_column="id", weights="w")
        assert len(dataset.chunk_sizes) == 4
        for found in (dataset, pickle.loads(pickle.dumps(dataset))):
            assert np.array_equal(found.to_numpy(), ROWS)
            assert np.array_equal(np.asarray(found.weights), np.arange(900) % 5 + 1.0)
        assert dataset.ids(249, 252).to_pylist() == IDS[249:252]
        wanted = np.array([899, 0, 250])
        assert np.array_equal(dataset.take(wanted), ROWS[wanted])
    columns: Any = dc.open_dataset(url, columns=["w", "x"])
    assert columns.feature_names == ("w", "x")
    pq = pytest.importorskip("pyarrow.parquet")
    model = dc.KMeans(3, init=ROWS[:3]).fit(dc.open_dataset(url, columns="emb", id_column="id"))
    assert np.array_equal(model.labels_, dc.KMeans(3, init=ROWS[:3]).fit(ROWS).labels_)
    model.labels_.save(str(tmp_path / "labels.parquet"))
    assert pq.read_table(tmp_path / "labels.parquet").column("id").to_pylist() == IDS


def test_a_version_does_not_change(url: str) -> None:
    dataset: Any = dc.open_dataset(url, columns="emb")
    lance.dataset(url).delete("id = 'doc-7'")
    assert np.array_equal(pickle.loads(pickle.dumps(dataset)).to_numpy(), ROWS)
    assert np.array_equal(
        dc.open_dataset(url, columns="emb").to_numpy(), np.delete(ROWS, 7, axis=0)
    )


def test_a_dataset_that_was_written_anew_is_refused(url: str) -> None:
    import shutil

    dataset: Any = pickle.dumps(dc.open_dataset(url, columns="emb"))
    shutil.rmtree(url)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(ROWS[:100].ravel()), 5)
    lance.write_dataset(pa.table({"emb": lists}), url)  # version 1 again
    vars(process_local)["_opened"].clear()
    with pytest.raises(InvalidDataError, match=r"was replaced since the dataset was opened"):
        pickle.loads(dataset).to_numpy()


def test_a_cluster_of_processes(url: str, client: Any) -> None:
    dataset = dc.open_dataset(url, columns="emb")
    fitted = dc.KMeans(3, init=ROWS[:3], engine=client).fit(dataset)
    assert np.array_equal(fitted.labels_, dc.KMeans(3, init=ROWS[:3]).fit(ROWS).labels_)


def test_missing_datasets_and_columns_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"There is no Lance dataset at .*none.lance"):
        dc.open_dataset(str(tmp_path / "none.lance"))
    with pytest.raises(InvalidParameterError, match=r"There is no column 'q' in .*rows.lance"):
        dc.open_dataset(url, columns="q")


def test_nulls_are_nan(tmp_path: Path) -> None:
    table = pa.table({"x": [1, None, 3], "y": [1, 2, 3], "emb": [None, [1.0, 2.0], [3.0, 4.0]]})
    lance.write_dataset(table, str(tmp_path / "rows.lance"))
    for columns, expected in (
        ("x", [[1], [np.nan], [3]]),
        ("emb", [[np.nan, np.nan], [1, 2], [3, 4]]),
    ):
        rows: Any = dc.open_dataset(str(tmp_path / "rows.lance"), columns=columns)
        assert np.array_equal(rows.to_numpy(), expected, equal_nan=True)
    assert dc.open_dataset(str(tmp_path / "rows.lance"), columns="y").dtype == np.int64
