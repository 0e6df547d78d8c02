"""Arrow IPC files and streams: batches, shards, ids, weights, buckets, and files that changed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import InvalidDataError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
orc = pytest.importorskip("pyarrow.orc", reason="pyarrow has no ORC here")

ROWS = np.random.default_rng(4).normal(size=(900, 5)).astype(np.float32)
IDS = [f"doc-{i}" for i in range(900)]


def table(first: int = 0, last: int = 900) -> Any:
    values = pa.FixedSizeListArray.from_arrays(pa.array(ROWS[first:last].ravel()), 5)
    weights = np.arange(first, last) % 5 + 1.0
    return pa.table({"id": IDS[first:last], "emb": values, "w": weights, "n": ROWS[first:last, 0]})


def write(path: Any, rows: Any, *, stream: bool = False, **options: Any) -> None:
    opens = pa.ipc.new_stream if stream else pa.ipc.new_file
    with opens(path, rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(rows, max_chunksize=128)


def check(source: Any, **options: Any) -> None:
    dataset: Any = dc.open_dataset(source, columns="emb", id_column="id", weights="w", **options)
    for found in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert np.array_equal(found.to_numpy(), ROWS)
        assert np.array_equal(np.asarray(found.weights), np.arange(900) % 5 + 1.0)
        assert found.ids(199, 202).to_pylist() == IDS[199:202]
    assert np.array_equal(dataset.take(np.array([899, 0, 250])), ROWS[[899, 0, 250]])


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("stream", [False, True])
def test_shards(stream: bool, compression: str | None, tmp_path: Path) -> None:
    for number, (first, last) in enumerate(((0, 200), (200, 900))):
        write(
            tmp_path / f"part-{number}.arrow",
            table(first, last),
            stream=stream,
            compression=compression,
        )
    check(tmp_path)


@pytest.mark.parametrize("stream", [False, True])
def test_a_bucket(stream: bool, s3: dict[str, Any]) -> None:
    import fsspec

    name = f"rows/arrow-{stream}.arrow"
    with fsspec.filesystem("s3", **s3).open(name, "wb") as file:
        write(file, table(), stream=stream)
    check(f"s3://{name}", storage_options=s3)


def test_two_columns_of_one_name_that_are_not_read(tmp_path: Path) -> None:
    rows = table()
    twice = pa.Table.from_arrays([rows["n"], rows["n"], rows["emb"]], names=["n", "n", "emb"])
    write(tmp_path / "a.arrow", twice)
    assert np.array_equal(dc.open_dataset(tmp_path / "a.arrow", columns="emb").to_numpy(), ROWS)
    with pytest.raises(InvalidDataError, match="2 columns named 'n'"):
        dc.open_dataset(tmp_path / "a.arrow", drop="emb")


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", table())
    dataset = dc.open_dataset(tmp_path / "a.arrow", columns="emb")
    write(tmp_path / "a.arrow", table(0, 300))
    with pytest.raises(InvalidDataError, match=r"was replaced|cannot be read"):
        dataset.to_numpy()
    write(tmp_path / "b.arrow", table().drop_columns("emb"))
    with pytest.raises(InvalidDataError, match=r"b.arrow' lacks column 'emb', where"):
        dc.open_dataset(tmp_path, columns="emb")
    (tmp_path / "b.arrow").write_bytes(b"no Arrow")
    with pytest.raises(InvalidDataError, match=r"b.arrow' is no readable Arrow file"):
        dc.open_dataset(tmp_path / "b.arrow")


def test_what_stands_behind_a_stream_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", table(), stream=True)
    content = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(content + content)
    with pytest.raises(InvalidDataError, match=r"has \d+ bytes behind the end of its stream"):
        dc.open_dataset(tmp_path / "a.arrow", columns="emb")


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_files_one_behind_the_other_are_refused(compression: str | None, tmp_path: Path) -> None:
    rows = table().append_column("kind", pa.array(["x", "y", "z"] * 300).dictionary_encode())
    write(tmp_path / "a.arrow", rows, compression=compression)
    assert dc.open_dataset(tmp_path / "a.arrow", columns="emb").n_rows == 900
    content = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(content + content)
    with pytest.raises(InvalidDataError, match=r"has \d+ bytes that its footer does not know"):
        dc.open_dataset(tmp_path / "a.arrow", columns="emb")


def test_a_stream_that_is_cut_between_two_reads(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", table(), stream=True)
    dataset = dc.open_dataset(tmp_path / "a.arrow", columns="emb")
    dataset.read((0, 200))
    write(tmp_path / "a.arrow", table(0, 100), stream=True)
    with pytest.raises(InvalidDataError, match=r"replaced|cannot be read"):
        dataset.read((200, 900))


def test_stripes_of_orc_are_chunks(tmp_path: Path) -> None:
    rows = pa.table({"id": [f"doc-{i}" for i in range(60_000)], "x": np.arange(60_000.0)})
    rows = rows.append_column("y", pa.array([None, *range(1, 60_000)], pa.int32()))
    orc.write_table(rows, tmp_path / "a.orc", stripe_size=1 << 16, batch_size=1000)
    orc.write_table(rows.slice(0, 10), tmp_path / "b.orc")
    dataset: Any = dc.open_dataset(tmp_path, id_column="id")
    assert len(dataset.chunk_sizes) > 2
    expected = np.stack([np.arange(60_000.0), np.r_[np.nan, 1:60_000]], axis=1)
    np.testing.assert_array_equal(dataset.to_numpy(), np.vstack([expected, expected[:10]]))
    np.testing.assert_array_equal(dataset.take(np.array([59_999, 3])), expected[[59_999, 3]])
    assert dataset.ids(59_999, 60_001).to_pylist() == ["doc-59999", "doc-0"]
    orc.write_table(rows.slice(0, 9), tmp_path / "b.orc")
    with pytest.raises(InvalidDataError, match=r"b.orc' was replaced"):
        dataset.to_numpy()
    (tmp_path / "b.orc").write_bytes(b"ORC")
    with pytest.raises(InvalidDataError, match=r"b.orc' is no readable ORC file"):
        dc.open_dataset(tmp_path)
