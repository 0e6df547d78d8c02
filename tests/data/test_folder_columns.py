"""Columns in the names of folders, and columns of which files have other types."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import daskcluster as dc
from daskcluster.data.info import describe
from daskcluster.errors import InvalidDataError, InvalidParameterError
from tests.data.test_contract import FRAMES

RNG = np.random.default_rng(5)
TABLE = pd.DataFrame(
    {
        "x": RNG.normal(size=60),
        "y": RNG.normal(size=60),
        "year": np.repeat([2023, 2024, 2025], 20),
        "share": np.tile(np.repeat([0.5, 1.0], 10), 3),
        "lang": np.repeat(["de", "en", "a b/c"], 20),
    }
)
KINDS = {"parquet": "x.parquet", "ipc": "x.arrow", "csv": "x.csv"}
ENDINGS = {"parquet": "Parquet", "ipc": "Arrow file", "csv": "csv"}


def write(folder: Path, table: pd.DataFrame, kind: str, by: list[str]) -> str:
    """Write a table in folders as pyarrow does, which escapes names and has one for nulls."""
    names = {name: pa.Schema.from_pandas(table).field(name) for name in by}
    ds.write_dataset(
        pa.Table.from_pandas(table, preserve_index=False),
        folder,
        format=kind,
        partitioning=ds.partitioning(pa.schema(list(names.values())), flavor="hive"),
        basename_template="part-{i}" + Path(KINDS[kind]).suffix,
    )
    return str(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_folders_are_like_columns_of_files(kind: str, tmp_path: Path) -> None:
    table = TABLE.drop(columns="lang")
    folder = write(tmp_path / "rows", table, kind, ["year", "share"])
    file = FRAMES[ENDINGS[kind]](tmp_path, table)
    for choice in (
        {},
        {"columns": ["year", "x"]},
        {"columns": "share"},
        {"drop": "x"},
        {"columns": ["x"], "weights": "share", "id_column": "year"},
    ):
        opened: Any = dc.open_dataset(folder, **choice)
        expected: Any = dc.open_dataset(file, **choice)
        for rows in (opened, pickle.loads(pickle.dumps(opened))):
            np.testing.assert_array_equal(rows.to_numpy(), expected.to_numpy())
            assert rows.dtype == expected.dtype
            assert rows.feature_names == expected.feature_names
            if "weights" in choice:
                np.testing.assert_array_equal(rows.weights, expected.weights)
                assert rows.ids(15, 45).to_pylist() == expected.ids(15, 45).to_pylist()
    model = dc.KMeans(3, random_state=0).fit(file)
    assert np.array_equal(np.asarray(model.predict(folder)), np.asarray(model.labels_))


@pytest.mark.parametrize("kind", KINDS)
def test_folders_of_nulls_and_texts(kind: str, tmp_path: Path) -> None:
    table = TABLE.assign(year=TABLE["year"].astype("Int64").mask(TABLE["year"] == 2024))
    folder = write(tmp_path / "rows", table, kind, ["lang", "year"])
    with pytest.raises(InvalidDataError, match=r"no real numbers: 'lang' \(string\).*drop"):
        dc.open_dataset(folder)
    opened: Any = dc.open_dataset(folder, columns=["x", "year"], id_column="lang")
    found = pd.DataFrame(opened.to_numpy(), columns=["x", "year"])
    found["lang"] = opened.ids(0, 60).to_pylist()
    expected = table[["x", "year", "lang"]].astype({"year": float})
    pd.testing.assert_frame_equal(
        found.sort_values("x", ignore_index=True),
        expected.sort_values("x", ignore_index=True),
        check_dtype=False,
    )
    assert dc.open_dataset(folder, drop="lang", missing="drop").n_rows == 40
    with pytest.raises(InvalidDataError, match="weights is null in row"):
        dc.open_dataset(folder, columns="x", weights="year")
    one = dc.open_dataset(f"{folder}/lang=en", columns=["x", "year"])
    assert np.isnan(one.to_numpy()[:, 1]).all()


def test_folders_above_count_if_their_columns_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "rows", TABLE, "parquet", ["lang", "year"])
    model = dc.KMeans(2, random_state=0).fit(dc.open_dataset(folder, drop="lang"))
    for source in (f"{folder}/lang=en/year=2024", f"{folder}/lang=en/year=2024/part-0.parquet"):
        assert len(np.asarray(model.predict(source))) == 20
        assert dc.open_dataset(source).feature_names == ("x", "y", "share")
    assert describe(dc.open_dataset(folder, drop="lang"))["columns"][-1] == "year (int64)"


def test_ids_in_folders_keep_their_zeros(tmp_path: Path) -> None:
    for name in ("01", "12"):
        (tmp_path / f"part={name}").mkdir()
        TABLE[["x"]].to_csv(tmp_path / f"part={name}" / "x.csv", index=False)
    assert dc.open_dataset(tmp_path).to_numpy()[[0, 60], 1].tolist() == [1, 12]
    ids: Any = dc.open_dataset(tmp_path, id_column="part")
    assert ids.ids(59, 61).to_pylist() == ["01", "12"]


def test_paths_that_contradict_are_refused(tmp_path: Path) -> None:
    def part(name: str, **columns: Any) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": [1.0, 2.0], **columns}), tmp_path / name)

    part("a/year=2024/x.parquet", year=[2024, 2024])
    part("a/year=2025/x.parquet", year=[2025, 2024])
    assert dc.open_dataset(tmp_path / "a", columns="x").n_rows == 4
    with pytest.raises(InvalidDataError, match=r"Row 1 of .*2024 in column 'year', where.*2025"):
        dc.open_dataset(tmp_path / "a")
    part("a/year=2025/x.parquet", year=[2025, 2025])
    assert dc.open_dataset(tmp_path / "a").to_numpy()[:, 1].tolist() == [2024, 2024, 2025, 2025]
    part("b/year=2024/x.parquet")
    part("b/x.parquet")
    assert dc.open_dataset(tmp_path / "b", drop="year").n_rows == 4
    with pytest.raises(InvalidDataError, match=r"b/x.parquet' lacks column 'year'"):
        dc.open_dataset(tmp_path / "b")
    part("x=5/x.parquet")
    assert dc.open_dataset(tmp_path / "x=5", columns="x").to_numpy().tolist() == [[1], [2]]
    part("c/year=2024/year=2025/x.parquet")
    with pytest.raises(InvalidDataError, match="has year= twice"):
        dc.open_dataset(tmp_path / "c")
    part("d/_part=7/x.parquet")
    part("d/_temporary/x.parquet")
    assert dc.open_dataset(tmp_path / "d").to_numpy()[:, 1].tolist() == [7, 7]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_files_of_other_types_read_as_the_wider_type(kind: str, tmp_path: Path) -> None:
    def save(name: str, table: pa.Table) -> None:
        if kind == "parquet":
            pq.write_table(table, tmp_path / f"{name}.parquet")
        else:
            feather.write_feather(table, tmp_path / f"{name}.arrow")

    one = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([1, None], pa.int8())})
    two = pa.table({"a": [0.5, 1e9], "b": pa.array([300, 4], pa.int16())})
    save("1", one)
    save("2", two)
    dataset = dc.open_dataset(tmp_path)
    wide = [table.cast(pa.schema({"a": pa.float64(), "b": pa.int16()})) for table in (one, two)]
    expected = dc.open_dataset(pa.concat_tables(wide))
    assert dataset.dtype == expected.dtype
    np.testing.assert_array_equal(dataset.to_numpy(), expected.to_numpy())
    save("3", pa.table({"a": [1, 2], "b": ["p", "q"]}))
    with pytest.raises(InvalidDataError, match=r"3\.\w+' has string in column 'b', where"):
        dc.open_dataset(tmp_path)
    assert dc.open_dataset(tmp_path, columns="a").n_rows == 6
    with pytest.raises(InvalidDataError, match=r"3.* in column 'a', where"):
        dc.open_dataset(tmp_path, columns="b", id_column="a")
    with pytest.raises(InvalidParameterError, match="no column 'c'"):
        dc.open_dataset(tmp_path, columns="c")


def test_lists_of_other_types_read_as_the_wider_type(tmp_path: Path) -> None:
    kinds = [pa.list_(pa.int64()), pa.list_(pa.float32(), 2), pa.large_list(pa.float64())]
    for number, kind in enumerate(kinds):
        table = pa.table({"e": pa.array([[1, 2], [3, number]], kind)})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    dataset = dc.open_dataset(tmp_path)
    assert dataset.dtype == np.float64
    assert dataset.to_numpy().tolist() == [[1, 2], [3, 0], [1, 2], [3, 1], [1, 2], [3, 2]]


def test_folders_in_a_bucket(s3: dict[str, Any], tmp_path: Path) -> None:
    import s3fs

    folder = write(tmp_path / "rows", TABLE, "parquet", ["lang", "year"])
    s3fs.S3FileSystem(**s3).put(folder, "rows/hive", recursive=True)
    remote: Any = dc.open_dataset("s3://rows/hive", storage_options=s3, id_column="lang")
    local: Any = dc.open_dataset(folder, id_column="lang")
    np.testing.assert_array_equal(remote.to_numpy(), local.to_numpy())
    assert remote.ids(0, 60).equals(local.ids(0, 60))
