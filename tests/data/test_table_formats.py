"""Delta, Iceberg and Lance: one version of a table, as its own library tells it."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import string
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import daskcluster as dc
from daskcluster.data import parquet, table_formats
from daskcluster.data.convert import convert
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, MissingExtraError
from daskcluster.storage import process_local

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

RNG = np.random.default_rng(8)
TABLE = pa.table(
    {
        "part": ["a b/c", "d"] * 30,
        "x": RNG.normal(size=60),
        "year": [2023] * 20 + [None] * 20 + [2025] * 20,
        "y": RNG.normal(size=60).astype(np.float32),
        "id": [f"doc-{i}" for i in range(60)],
    }
)


def check(source: Any, expected: Any, **options: Any) -> Any:
    """Compare the rows of a source with those of a table, in the order of their ids."""
    features = [name for name in expected.column_names if name not in ("id", "part")]
    for choice in ({"drop": "part"}, {"columns": features[::-1]}, {"columns": "year"}):
        opened: Any = dc.open_dataset(source, id_column="id", **choice, **options)
        for rows in (opened, pickle.loads(pickle.dumps(opened))):
            names = list(rows.feature_names)
            assert names == choice.get("columns", features) or names == ["year"]
            found = pd.DataFrame(rows.to_numpy(), columns=names)
            found["id"] = rows.ids(0, rows.n_rows).to_pylist()
            wanted = expected.select([*names, "id"]).to_pandas()
            pd.testing.assert_frame_equal(
                found.sort_values("id", ignore_index=True),
                wanted.sort_values("id", ignore_index=True),
                check_dtype=False,
            )
    return opened


# -- Delta -------------------------------------------------------------------------------------------


@pytest.fixture
def delta(tmp_path: Path) -> str:
    """Write a table in parts, of which some rows are removed, with a column that came later."""
    library = pytest.importorskip("deltalake", reason="deltalake is not installed")
    url = str(tmp_path / "rows")
    library.write_deltalake(url, TABLE, partition_by=["part", "year"])
    library.DeltaTable(url).delete("id = 'doc-7'")
    more = TABLE.slice(0, 5).append_column("z", pa.array([1.5] * 5))
    more = more.set_column(4, "id", pa.array([f"new-{i}" for i in range(5)]))
    library.write_deltalake(url, more, mode="append", schema_mode="merge")
    return url


def test_a_delta_table_is_the_files_of_its_version(delta: str, tmp_path: Path) -> None:
    import deltalake

    table = deltalake.DeltaTable(delta)
    expected = table.to_pyarrow_table()
    assert len(expected) == 64
    check(delta, expected)
    check(table, expected)
    check(deltalake.DeltaTable(delta, version=0), TABLE)
    with pytest.raises(
        InvalidDataError, match=r"/rows' has columns that are no real numbers: 'id'"
    ):
        dc.open_dataset(delta)
    convert(delta, tmp_path / "o.zarr", columns={"columns": ["x", "y"]})
    rows = dc.open_dataset(delta, columns=["x", "y"])
    assert np.array_equal(dc.open_dataset(tmp_path / "o.zarr").to_numpy(), rows.to_numpy())


def test_a_delta_table_in_a_bucket(delta: str, s3: dict[str, Any]) -> None:
    import deltalake
    import s3fs

    s3fs.S3FileSystem(**s3).put(delta, "rows/delta", recursive=True)
    expected = deltalake.DeltaTable(delta).to_pyarrow_table()
    check("s3://rows/delta", expected, storage_options=s3)


def test_parts_of_delta_tables_are_not_taken_for_folders_of_files(delta: str) -> None:
    part = next(path for path in Path(delta).iterdir() if path.name.startswith("part=d"))
    for source in (part, next(part.iterdir())):
        with pytest.raises(InvalidDataError, match=r"is a part of the table at '.*/rows'"):
            dc.open_dataset(source)
    with pytest.raises(InvalidDataError, match=r"/rows' is a Delta table, of which some"):
        dc.open_dataset(Path(delta).parent)


def test_delta_tables_that_cannot_be_read_are_refused(
    delta: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "deltalake", None)
        with pytest.raises(MissingExtraError, match=r"daskcluster\[delta\]"):
            dc.open_dataset(delta)
    gone = next(Path(delta).glob("part=d/*/*.parquet"))
    gone.unlink()
    with pytest.raises(DatasetNotFoundError, match=r"lacks \d+ of its files"):
        dc.open_dataset(delta)
    for log in Path(delta, "_delta_log").iterdir():
        log.write_text("{")
    with pytest.raises(DatasetNotFoundError, match=r"Delta reads its own metadata"):
        dc.open_dataset(delta)


def test_rows_that_a_delta_table_marks_as_deleted_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip("deltalake", reason="deltalake is not installed")
    pyroaring = pytest.importorskip("pyroaring", reason="pyroaring is not installed")
    url, rows, gone = str(tmp_path / "rows"), np.arange(5000.0), [0, 5, 999, 1000, 4999]
    library.write_deltalake(url, pa.table({"x": rows}))
    (file,) = Path(url).glob("*.parquet")
    pq.write_table(pa.table({"x": rows}), file, row_group_size=1000)
    # What Spark writes; deltalake reads it: a magic number and a bitmap, in base 85 of ZeroMQ.
    raw = struct.pack("<I", 1681511377) + pyroaring.BitMap64(gone).serialize()
    raw += bytes(-len(raw) % 4)
    other = "!#$%&()*+-;<=>?@^_`{|}~", ".-:+=^!/*?&<>()[]{}@%$#"
    ours, theirs = ("".join(letters) for letters in zip(*_letters(*other), strict=True))
    text = base64.b85encode(raw).decode().translate(str.maketrans(ours, theirs))
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(raw), "cardinality": 5}
    (log,) = Path(url, "_delta_log").glob("*.json")
    actions = list(map(json.loads, log.read_text().splitlines()))
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    for action in actions:
        if "add" in action:
            action["add"] |= {"deletionVector": vector, "size": file.stat().st_size}
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    log.write_text("\n".join(map(json.dumps, actions)))
    left = np.delete(rows, gone)[:, None]
    for large in (False, True):  # row groups as a whole, or streamed in parts
        if large:
            monkeypatch.setattr(parquet, "MOST_BYTES", 1000)
            monkeypatch.setattr(parquet, "READ_BYTES", 500)
            process_local._opened.clear()
        dataset = pickle.loads(pickle.dumps(dc.open_dataset(url)))
        assert np.array_equal(dataset.to_numpy(), left)
        some = np.array([0, 3, 4, 997, 998, 4994])
        assert np.array_equal(dataset.take(some), left[some])
    monkeypatch.setattr(table_formats, "_MOST_DELETED", 4)
    with pytest.raises(InvalidDataError, match=r"has 5 rows that are deleted but.*PURGE"):
        dc.open_dataset(url)


def _letters(ours: str, theirs: str) -> list[tuple[str, str]]:
    lower, upper = string.ascii_lowercase, string.ascii_uppercase
    digits = string.digits
    return list(zip(digits + upper + lower + ours, digits + lower + upper + theirs, strict=True))


# -- Iceberg -----------------------------------------------------------------------------------------


def catalog(warehouse: str, **properties: str) -> Any:
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    from pyiceberg.catalog.sql import SqlCatalog

    found = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=warehouse, **properties)
    found.create_namespace("n")
    return found


def evolved(found: Any) -> Any:
    """Return a table in parts, of which some rows are removed, with a column that came later."""
    from pyiceberg.types import DoubleType

    table = found.create_table("n.rows", TABLE.schema)
    with table.update_spec() as spec:
        spec.add_identity("part")
        spec.add_identity("year")
    table.append(TABLE)
    table.delete("id = 'doc-7'")
    with table.update_schema() as schema:
        schema.add_column("z", DoubleType())
    more = TABLE.slice(0, 5).append_column("z", pa.array([1.5] * 5))
    table.append(more.set_column(4, "id", pa.array([f"new-{i}" for i in range(5)])))
    return table


def test_an_iceberg_table_is_the_files_of_its_version(tmp_path: Path) -> None:
    table = evolved(catalog(f"file://{tmp_path}"))
    expected = table.scan().to_arrow()
    assert len(expected) == 64
    check(table, expected)
    check(table.metadata_location, expected)
    folder = tmp_path / "n" / "rows"
    with pytest.raises(InvalidDataError, match=r"no metadata/version-hint\.text, so its current"):
        dc.open_dataset(folder)
    name = Path(table.metadata_location).name
    (folder / "metadata" / "version-hint.text").write_text(name)
    check(folder, expected)
    with pytest.raises(InvalidDataError, match="is a part of the table at"):
        dc.open_dataset(next((folder / "data").iterdir()))


def test_columns_of_iceberg_tables_are_known_by_their_numbers(tmp_path: Path) -> None:
    table = evolved(catalog(f"file://{tmp_path}"))
    from pyiceberg.types import DoubleType

    with table.update_schema() as schema:
        schema.rename_column("x", "w")
        schema.delete_column("y")
    with table.update_schema() as schema:
        schema.add_column("y", DoubleType())
    with pytest.raises(InvalidDataError, match=r"Column 'w' is called 'x' in '.*parquet' of the"):
        dc.open_dataset(table, drop="part", id_column="id")
    rows = dc.open_dataset(table, columns=["year", "y", "z"])
    assert np.isnan(rows.to_numpy()[:, 1]).all(), "the new column y is not the one that was dropped"
    assert dc.open_dataset(table, columns=["year", "z"], id_column="id").n_rows == 64


def test_rows_that_an_iceberg_table_deletes_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = evolved(catalog(f"file://{tmp_path}"))
    from pyiceberg.table import DataScan

    tasks = list(table.scan().plan_files())
    path, size = tasks[0].file.file_path, tasks[0].file.record_count
    content = {"file_path": [path, "file:///other", path], "pos": [size - 1, 0, 0]}
    deletes = tmp_path / "n" / "rows" / "data" / "deletes.parquet"
    pq.write_table(pa.table(content), deletes)
    kind = SimpleNamespace(name="POSITION_DELETES")
    file = mock.Mock(
        file_path=f"file://{deletes}", file_format=tasks[0].file.file_format, content=kind
    )
    tasks[0].delete_files.add(file)  # pyiceberg itself writes no such files
    monkeypatch.setattr(DataScan, "plan_files", lambda self: tasks)
    stored = pq.read_table(path.removeprefix("file://"))["id"].to_pylist()
    dataset: Any = dc.open_dataset(table, columns="year", id_column="id")
    ids = dataset.ids(0, dataset.n_rows).to_pylist()
    assert len(ids) == 62
    assert not {stored[0], stored[-1]} & set(ids)
    kind.name = "EQUALITY_DELETES"
    with pytest.raises(InvalidDataError, match="deletes rows by their values; rewrite"):
        dc.open_dataset(table, columns="year")


def test_an_iceberg_table_in_a_bucket(s3: dict[str, Any]) -> None:
    endpoint = s3["client_kwargs"]["endpoint_url"]
    access = {"s3.access-key-id": s3["key"], "s3.secret-access-key": s3["secret"]}
    found = catalog(
        "s3://rows/ice", **{"s3.endpoint": endpoint, "s3.region": "us-east-1"}, **access
    )
    table = evolved(found)
    expected = table.scan().to_arrow()
    check(table, expected)
    rows = check(table.metadata_location, expected, storage_options=s3)
    assert b"planted" not in pickle.dumps(rows.recipe())


# -- Lance -------------------------------------------------------------------------------------------


@pytest.fixture
def lance(tmp_path: Path) -> str:
    library = pytest.importorskip("lance", reason="pylance is not installed")
    url = str(tmp_path / "rows.lance")
    library.write_dataset(TABLE, url, max_rows_per_file=25).delete("id = 'doc-7'")
    return url


def test_a_lance_dataset_is_read_at_random(lance: str) -> None:
    import lance as library

    left = TABLE.filter(pa.compute.not_equal(TABLE["id"], "doc-7"))
    check(lance, left)
    check(library.dataset(lance, version=1), TABLE)
    dataset: Any = dc.open_dataset(lance, columns=["x", "y"])
    assert list(dataset.chunk_sizes) == [24, 25, 10]
    rows = left.select(["x", "y"]).to_pandas().to_numpy()
    assert np.array_equal(dataset.take(np.array([58, 3, 24])), rows[[58, 3, 24]])


def test_a_lance_dataset_that_was_written_anew_is_refused(lance: str) -> None:
    import lance as library

    dataset = dc.open_dataset(lance, columns="x")
    sent = pickle.dumps(dataset.recipe())
    library.dataset(lance).delete("x > 0")
    assert dataset.to_numpy().shape == (59, 1), "a later version changes nothing"
    shutil.rmtree(lance)
    library.write_dataset(TABLE, lance).delete("id = 'doc-9'")
    process_local._opened.clear()
    with pytest.raises(InvalidDataError, match="was replaced since the dataset was opened"):
        pickle.loads(sent).open().to_numpy()
    with pytest.raises(DatasetNotFoundError, match="Lance"):
        dc.open_dataset(f"{lance}/none.lance")


def test_a_folder_of_hudi_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".hoodie").mkdir()
    with pytest.raises(InvalidDataError, match="is a Hudi table"):
        dc.open_dataset(tmp_path)
