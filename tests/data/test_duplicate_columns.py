"""Columns of one name are refused by name wherever one of them would be read."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.data.convert import convert
from daskcluster.data.spec import RowsSpec, refuse_duplicates
from daskcluster.errors import InvalidDataError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")

NAMES = ("x", "y", "x", "z")
ROWS = np.random.default_rng(8).normal(size=(60, 4))
TABLE = pa.table(list(ROWS.T), names=NAMES)


def text(path: Path, mark: str = ",") -> Path:
    lines = [mark.join(NAMES), *(mark.join(map(repr, row)) for row in ROWS.tolist())]
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def parquet(path: Path) -> Path:
    pq.write_table(TABLE, path)
    return path


def dask_frame(folder: Path) -> Any:
    dd = pytest.importorskip("dask.dataframe", reason="dask's frames need pandas")
    frame = dd.from_pandas(pd.DataFrame(ROWS, columns=list("abcd")), npartitions=2)
    frame.columns = list(NAMES)
    return frame


def ipc(folder: Path) -> Any:
    with (
        pa.OSFile(str(folder / "x.arrow"), "wb") as file,
        pa.ipc.new_file(file, TABLE.schema) as out,
    ):
        out.write_table(TABLE)
    return pa.ipc.open_file(str(folder / "x.arrow")).read_all()


SOURCES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "csv": (lambda folder: text(folder / "t.csv"), "t.csv"),
    "csv.gz": (lambda folder: text(folder / "t.csv.gz"), "t.csv.gz"),
    "tsv": (lambda folder: text(folder / "t.tsv", "\t"), "t.tsv"),
    "parquet": (lambda folder: parquet(folder / "t.parquet"), "t.parquet"),
    "arrow": (lambda folder: TABLE, "the Table"),
    "batch": (lambda folder: TABLE.to_batches()[0], "the RecordBatch"),
    "ipc": (ipc, "the Table"),
    "pandas": (lambda folder: pd.DataFrame(ROWS, columns=NAMES), "the DataFrame"),
    "dask": (dask_frame, "the dask DataFrame"),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_columns_of_one_name_are_refused_if_one_is_read(kind: str, tmp_path: Path) -> None:
    make, what = SOURCES[kind]
    source = make(tmp_path)
    text = rf"{what}'? has 2 columns named 'x' \(numbers 0 and 2, from 0\).* rename them"
    for choice in (
        {},
        {"columns": ["y", "x"]},
        {"columns": "y", "id_column": "x"},
        {"columns": "y", "weights": "x"},
        {"drop": "z"},
    ):
        with pytest.raises(InvalidDataError, match=text):
            dc.open_dataset(source, **choice)
    with pytest.raises(InvalidDataError, match=text):
        dc.KMeans(2).fit(source if kind not in ("csv", "csv.gz", "tsv", "parquet") else str(source))
    for choice in ({"columns": ["y", "z"]}, {"drop": "x"}):
        rows: Any = dc.open_dataset(source, **choice)
        assert np.array_equal(rows.to_numpy(), ROWS[:, [1, 3]])
        assert rows.feature_names == ("y", "z")


def test_a_reader_of_batches_is_read_once() -> None:
    with pytest.raises(InvalidDataError, match=r"the RecordBatchReader has 2 columns named 'x'"):
        dc.open_dataset(TABLE.to_reader())


def test_one_of_several_files(tmp_path: Path) -> None:
    pq.write_table(TABLE.select([0, 1, 3]), tmp_path / "a.parquet")
    pq.write_table(TABLE, tmp_path / "b.parquet")
    with pytest.raises(InvalidDataError, match=r"b.parquet' has 2 columns named 'x'"):
        dc.open_dataset(tmp_path)
    rows: Any = dc.open_dataset(tmp_path, columns=["z", "y"])
    assert np.array_equal(rows.to_numpy(), np.vstack([ROWS[:, [3, 1]]] * 2))


def test_conversions(tmp_path: Path) -> None:
    for name in ("t.csv", "t.csv.gz", "t.tsv", "t.txt"):
        path = text(tmp_path / name, {"t.tsv": "\t", "t.txt": " "}.get(name, ","))
        for more in ({}, {"weights": "y"}, {"weights": "x"}):
            with pytest.raises(InvalidDataError, match=rf"{name}' has 2 columns named 'x'"):
                convert(path, tmp_path / "o.zarr", **more)
    assert not (tmp_path / "o.zarr").exists()
    convert(tmp_path / "t.csv", tmp_path / "o.zarr", columns=["y", "z"])
    assert np.array_equal(dc.open_dataset(tmp_path / "o.zarr").to_numpy(), ROWS[:, [1, 3]])  # type: ignore[attr-defined]


@pytest.mark.parametrize("header", ['"x", x', "x,,", " x,'x'"])
def test_quotes_blanks_and_empty_names(header: str, tmp_path: Path) -> None:
    width = len(header.split(","))
    (tmp_path / "t.csv").write_text(f"{header}\n" + ",".join("123"[:width]) + "\n")
    name = "''" if header == "x,," else "'x'"
    with pytest.raises(InvalidDataError, match=rf"has 2 columns named {name}"):
        dc.open_dataset(tmp_path / "t.csv")


def test_names_that_are_not_text() -> None:
    frame = pd.concat([pd.DataFrame(ROWS), pd.DataFrame(ROWS)], axis=1)
    with pytest.raises(
        InvalidDataError, match=r"has 2 columns named 0 \(numbers 0 and 4, from 0\)"
    ):
        dc.KMeans(2).fit(frame)
    with pytest.raises(InvalidDataError, match=r"has 3 columns named 'a' \(numbers 0 and 1 and 3"):
        refuse_duplicates("aaba", RowsSpec(), "the table")
