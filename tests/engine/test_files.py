"""Files of rows on a cluster: workers read them themselves, and write labels that become a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import daskcluster as dc
from tests.data.test_missing import COMPLETE, GAPPY
from tests.data.test_parquet import IDS, ROWS, write_parts

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


def test_parquet_and_labels_with_ids(client: Client, tmp_path: Path) -> None:
    source = dc.open_dataset(
        write_parts(tmp_path / "emb", ROWS, w=np.arange(1000.0) + 1), id_column="id", weights="w"
    )
    here = dc.KMeans(6, random_state=0).fit(source)
    there = dc.KMeans(6, random_state=0, engine=client).fit(source)
    assert np.array_equal(there.cluster_centers_, here.cluster_centers_)
    there.predict(source, output=f"{tmp_path}/l.parquet", return_distance=True)
    table = pq.read_table(tmp_path / "l.parquet")
    assert table.column("id").to_pylist() == IDS
    assert np.array_equal(table.column("label"), np.asarray(here.labels_))


def test_rows_without_missing_values(client: Client, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", GAPPY)
    for missing in ("drop", "mean"):
        here = dc.open_dataset(tmp_path / "x.npy", missing=missing)
        there = dc.open_dataset(tmp_path / "x.npy", missing=missing, engine=client)
        assert np.array_equal(here.to_numpy(), there.to_numpy())  # type: ignore[attr-defined]
        models = [
            dc.KMeans(4, random_state=0, engine=engine).fit(rows)
            for rows, engine in ((here, None), (there, client))
        ]
        assert np.array_equal(models[0].cluster_centers_, models[1].cluster_centers_)
        assert models[1].n_rows_ == (COMPLETE.sum() if missing == "drop" else len(GAPPY))
