"""Files become Zarr: the same numbers, good chunks, whole or absent."""

from __future__ import annotations

import gzip
import os
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset
from daskcluster.data.convert import convert
from daskcluster.data.writer import RowsWriter
from daskcluster.errors import (
    DatasetNotFoundError,
    InvalidDataError,
    InvalidParameterError,
    OutputExistsError,
)
from daskcluster.events import PassEnded, PassProgress, PassStarted
from daskcluster.storage.staging import Staging
from tests.estimators.interruption import Killed

WEIGHTS = np.linspace(0, 1, 5003)


def text(rows: np.ndarray, mark: str, header: str | None = None) -> str:
    lines = [mark.join(repr(float(value)) for value in row) for row in rows]
    return "\n".join(([header] if header else []) + lines) + "\n"


def written(name: str, rows: np.ndarray, tmp: Any) -> str:
    path = tmp / name
    if name.endswith(".npy"):
        np.save(path, rows)
    elif name.endswith(".npz"):
        np.savez_compressed(path, X=rows, y=np.arange(len(rows)), w=WEIGHTS)
    elif name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        import pandas as pd

        frame = pd.DataFrame(rows, columns=[f"f{i}" for i in range(rows.shape[1])])
        frame.assign(w=WEIGHTS).to_parquet(path, row_group_size=900)
    elif name.endswith(".gz"):
        with gzip.open(path, "wt") as file:
            file.write(text(rows, ","))
    else:
        mark = {".csv": ",", ".tsv": "\t", ".txt": " "}[path.suffix]
        header = mark.join("abcdefg") if "named" in name else None
        path.write_text(text(rows, mark, header))
    return str(path)


@pytest.mark.parametrize(
    "name", ["x.npy", "x.npz", "x.csv", "named.csv", "named.tsv", "x.txt", "x.csv.gz"]
)
def test_the_same_rows(name: str, rows: np.ndarray, tmp_path: Any) -> None:
    events: list[Any] = []
    record = convert(written(name, rows, tmp_path), tmp_path / "o.zarr", callbacks=[events.append])
    dataset = open_dataset(tmp_path / "o.zarr")
    assert np.array_equal(dataset.to_numpy(), rows)
    expected = "float32" if name.startswith("x.np") else "float64"
    assert str(dataset.dtype) == expected == record.dtype
    assert (record.n_rows, record.n_features, record.array) == (5003, 7, None)
    assert isinstance(events[0], PassStarted)
    assert isinstance(events[-1], PassEnded)
    assert sum(event.rows for event in events if isinstance(event, PassProgress)) == 5003
    assert os.listdir(tmp_path / "o.zarr" / "c") == ["0"]  # small data: one chunk
    array = zarr.open_array(tmp_path / "o.zarr", mode="r")
    assert array.metadata.zarr_format == 3
    codec = array.compressors[0].to_dict()["configuration"]
    assert (codec["cname"], codec["clevel"], codec["shuffle"]) == ("zstd", 3, "bitshuffle")


@pytest.mark.parametrize(
    ("name", "column"),
    [("x.npz", "w"), ("x.parquet", "w"), ("named.csv", "c"), ("x.csv", 2), ("x.csv", "2")],
)
def test_weights_go_next_to_the_rows(
    name: str, column: Any, rows: np.ndarray, tmp_path: Any
) -> None:
    record = convert(written(name, rows, tmp_path), tmp_path / "o.zarr", weights=column)
    dataset = open_dataset(tmp_path / "o.zarr", array=record.array, weights=record.weights)
    is_text = name.endswith("csv")
    assert np.array_equal(dataset.to_numpy(), np.delete(rows, 2, axis=1) if is_text else rows)
    assert np.array_equal(np.asarray(dataset.weights), rows[:, 2] if is_text else WEIGHTS)


def test_chunks_shards_and_dtype(rows: np.ndarray, tmp_path: Any) -> None:
    record = convert(rows, tmp_path / "o.zarr", chunk_rows=100, shard_rows=1000, dtype="float64")
    array = zarr.open_array(tmp_path / "o.zarr", mode="r")
    assert (array.chunks, array.shards, array.dtype) == ((100, 7), (1000, 7), np.float64)
    assert (record.chunk_rows, record.shard_rows) == (100, 1000)
    assert np.array_equal(array[:], rows)


def test_good_chunks_are_about_eight_megabytes(tmp_path: Any) -> None:
    convert(np.zeros((700_000, 4), np.float32), tmp_path / "o.zarr")
    array = zarr.open_array(tmp_path / "o.zarr", mode="r")
    assert array.chunks == (524_288, 4)
    assert array.nchunks_initialized == 2


def test_dataset_to_dataset(rows: np.ndarray, tmp_path: Any) -> None:
    import dask.array as da

    array = da.from_array(rows, chunks=(700, 3))
    convert(array[array[:, 0] > 0], tmp_path / "a.zarr")
    convert(str(tmp_path / "a.zarr"), tmp_path / "b.zarr", chunk_rows=64, weights=WEIGHTS)
    assert np.array_equal(open_dataset(tmp_path / "b.zarr", array="X").to_numpy(), rows)


def test_missing_values_become_nan(tmp_path: Any) -> None:
    (tmp_path / "x.csv").write_text('a,b\n1,\n"2",NA\n\n3,nan\n')
    convert(tmp_path / "x.csv", tmp_path / "o.zarr")
    rows = open_dataset(tmp_path / "o.zarr").to_numpy()
    assert np.array_equal(rows, [[1, np.nan], [2, np.nan], [3, np.nan]], equal_nan=True)


@pytest.mark.parametrize("mark", [",", " "])
def test_booleans_become_zero_and_one(mark: str, tmp_path: Any) -> None:
    content = "a,b\n1,True\n2,FALSE\n3.5,true\n4,?\n".replace(",", mark)
    (tmp_path / "x.txt").write_text(content)
    convert(tmp_path / "x.txt", tmp_path / "o.zarr")
    rows = open_dataset(tmp_path / "o.zarr").to_numpy()
    assert np.array_equal(rows, [[1, 1], [2, 0], [3.5, 1], [4, np.nan]], equal_nan=True)
    (tmp_path / "x.txt").write_text("True,False\nFalse,False\n".replace(",", mark))
    convert(tmp_path / "x.txt", tmp_path / "o.zarr", overwrite=True)
    assert open_dataset(tmp_path / "o.zarr").to_numpy().tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", r"0 sample\(s\) .* is empty"),
        ("a,b\n", r"0 sample\(s\) .* has a header and no rows"),
        ("1,2\n3,x\n", r"Column 'f1' of .* has 'x' in row 1 \(from 0\), which is no number"),
        ("1,2\n3\n", r"Row 1 \(from 0\) of .* has 1 fields, where the first line has 2"),
        ("a,b\n1,2\n3,4,5\n", r"Row 1 \(from 0\) of .* has 3 fields, where the first line has 2"),
    ],
)
def test_bad_text_leaves_nothing(content: str, match: str, tmp_path: Any) -> None:
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(InvalidDataError, match=match):
        convert(tmp_path / "x.csv", tmp_path / "o.zarr")
    assert os.listdir(tmp_path) == ["x.csv"]


def test_bad_requests(rows: np.ndarray, tmp_path: Any) -> None:
    npz, csv = written("x.npz", rows, tmp_path), written("named.csv", rows, tmp_path)
    (tmp_path / "n.csv").write_text("1,2\n3,-4\n")
    (tmp_path / "b.npz").write_bytes(b"no zip")
    before = sorted(os.listdir(tmp_path))
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (
            tmp_path / "none.csv",
            {},
            DatasetNotFoundError,
            r"There is no file or folder at '.*none.csv'",
        ),
        (
            npz,
            {"array": "Z"},
            InvalidDataError,
            r"no array 'Z' .*there: X \(5003, 7\), y \(5003,\)",
        ),
        (npz, {"array": "y"}, InvalidDataError, r"Expected 2D array, got 1D array"),
        (csv, {"array": "X"}, InvalidParameterError, r"named.csv' is a text file; leave array="),
        (tmp_path / "n.csv", {"weights": 1}, InvalidParameterError, r"Negative values .* of row 1"),
        (tmp_path / "b.npz", {}, InvalidDataError, r"is no readable .npz file"),
        (csv, {"weights": "z"}, InvalidParameterError, r"no column 'z' .*columns: a, b, c"),
        (
            csv,
            {"dtype": "int8"},
            InvalidParameterError,
            r"dtype=int8 cannot hold rows of dtype=float64",
        ),
        (csv, {"dtype": "nonsense"}, InvalidParameterError, r"is no numpy dtype"),
        (
            rows,
            {"chunk_rows": 10, "shard_rows": 25},
            InvalidParameterError,
            r"should be a multiple of",
        ),
        (
            rows * 1e5,
            {"dtype": "float16"},
            InvalidDataError,
            r"in rows 0 to \d+, is too large for",
        ),
        (rows, {"weights": WEIGHTS * 0}, InvalidParameterError, r"at least one non-zero number"),
    ]
    for source, options, kind, match in cases:
        with pytest.raises(kind, match=match):
            convert(source, tmp_path / "o.zarr", **options)
        assert sorted(os.listdir(tmp_path)) == before, options


def test_several_matrices_need_a_name(tmp_path: Any) -> None:
    np.savez(
        tmp_path / "x.npz", a=np.ones((3, 2)), b=np.asfortranarray(np.arange(12.0).reshape(4, 3))
    )
    with pytest.raises(InvalidDataError, match=r"holds 2 matrices; say which with array="):
        convert(tmp_path / "x.npz", tmp_path / "o.zarr")
    convert(tmp_path / "x.npz", tmp_path / "o.zarr", array="b")
    assert np.array_equal(
        open_dataset(tmp_path / "o.zarr").to_numpy(), np.arange(12.0).reshape(4, 3)
    )


def test_existing_output(rows: np.ndarray, tmp_path: Any) -> None:
    convert(rows, tmp_path / "o.zarr", weights=WEIGHTS)
    with pytest.raises(OutputExistsError, match=r"exists already; pass overwrite=True"):
        convert(rows, tmp_path / "o.zarr")
    convert(rows[:10], tmp_path / "o.zarr", overwrite=True)
    assert open_dataset(tmp_path / "o.zarr").n_rows == 10
    with pytest.raises(InvalidParameterError, match=r"would replace the source"):
        convert(str(tmp_path / "o.zarr"), tmp_path / "o.zarr", overwrite=True)


def test_memory_stays_bounded(tmp_path: Any) -> None:
    """Converting 16 times the rows takes no more memory than four chunks do."""
    import subprocess
    import sys

    code = (
        "import re, sys, numpy as np\n"
        "from daskcluster.data.convert import convert\n"
        "convert(np.lib.format.open_memmap(sys.argv[1], mode='r'), sys.argv[2], chunk_rows=8192)\n"
        # Not ru_maxrss, which a child takes over from the process that starts it.
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    peaks = []
    for n_rows in (100_000, 1_600_000):
        path = str(tmp_path / f"{n_rows}.npy")
        np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n_rows, 32))[:] = 1
        out = [sys.executable, "-c", code, path, str(tmp_path / f"{n_rows}.zarr")]
        peaks.append(int(subprocess.run(out, capture_output=True, check=True).stdout))
    assert peaks[1] - peaks[0] < 50_000, peaks  # kB; the file grew by 192 MB


@pytest.mark.parametrize("name", ["x.csv", "x.npz", "x.npy"])
def test_a_killed_conversion_continues_after_its_last_whole_chunk(
    name: str, rows: np.ndarray, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, weights = written(name, rows, tmp_path), None if name == "x.csv" else WEIGHTS
    if name == "x.npz":
        weights = "w"
    options: dict[str, Any] = {"weights": weights, "chunk_rows": 100, "resume": True}
    whole = RowsWriter.append

    def dies(self: RowsWriter, values: Any, *others: Any) -> None:
        # Piece by piece, so that the process dies in the middle of the rows.
        for first in range(0, len(values), 130):
            if self.n_rows > 2000:
                raise Killed
            here = slice(first, first + 130)
            whole(self, values[here], *(each[here] for each in others))

    with monkeypatch.context() as within:
        within.setattr(RowsWriter, "append", dies)
        with pytest.raises(Killed):
            convert(source, tmp_path / "o.zarr", **options)
    assert not (tmp_path / "o.zarr").exists()
    read: list[Any] = []
    convert(source, tmp_path / "o.zarr", callbacks=[read.append], **options)
    counts = [event.rows for event in read if isinstance(event, PassProgress)]
    assert sum(counts) == len(rows)
    assert counts[0] >= 1500
    assert counts[0] % 100 == 0
    parts = {} if weights is None else {"array": "X", "weights": "weights"}
    found = open_dataset(tmp_path / "o.zarr", **parts)
    assert np.array_equal(found.to_numpy(), rows)
    if found.weights is not None:
        assert np.array_equal(np.asarray(found.weights[:]), WEIGHTS)
    assert not list(tmp_path.glob("o.zarr.partial*"))


def test_a_conversion_of_other_rows_begins_anew(rows: np.ndarray, tmp_path: Any) -> None:
    source = written("x.npy", rows, tmp_path)
    with Staging.begin(tmp_path / "o.zarr", mark="0123456789abcdef", resume=True):
        pass
    convert(source, tmp_path / "o.zarr", resume=True, chunk_rows=100)
    assert np.array_equal(open_dataset(tmp_path / "o.zarr").to_numpy(), rows)


def test_rows_with_nan_are_counted(tmp_path):
    rows = np.arange(12.0).reshape(6, 2)
    rows[[1, 4], 0] = np.nan
    with pytest.warns(UserWarning, match=r"2 of 6 rows have NaN, which a fit refuses"):
        convert(rows, str(tmp_path / "out"))
