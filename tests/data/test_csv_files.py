"""Text files as rows: many of them, with ids and weights, compressed, in a bucket."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.data import csv_files
from daskcluster.errors import InvalidDataError, InvalidParameterError

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ROWS = np.random.default_rng(4).normal(size=(900, 3))
IDS = [f"doc {i}" for i in range(900)]
WEIGHTS = np.arange(900) % 7 + 1.0


def write(path: Path, low: int = 0, high: int = 900, mark: str = ",") -> Path:
    lines = [mark.join(("name", "x", "y", "z", "w"))]
    for i in range(low, high):
        lines.append(
            mark.join((f'"{IDS[i]}"', *map(repr, ROWS[i].tolist()), repr(float(WEIGHTS[i]))))
        )
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 5000)


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz"])
def test_files_are_one_dataset(ending: str, tmp_path: Path) -> None:
    mark = "\t" if ending == "tsv" else ","
    for i in range(3):
        write(tmp_path / f"part-{i}.{ending}", 300 * i, 300 * i + 300, mark)
    given: Any = {"id_column": "name", "weights": "w"}
    dataset: Any = dc.open_dataset(f"{tmp_path}/*.{ending}", **given)
    for found in (dataset, pickle.loads(pickle.dumps(dataset)), dc.open_dataset(tmp_path, **given)):
        assert np.array_equal(found.to_numpy(), ROWS)
        assert np.array_equal(np.asarray(found.weights), WEIGHTS)
    assert dataset.ids(290, 310).to_pylist() == IDS[290:310]
    assert dataset.feature_names == ("x", "y", "z")
    assert len(dataset.chunk_sizes) > (3 if ending == "csv.gz" else 6) - 1
    wanted = np.array([899, 0, 300])
    assert np.array_equal(dataset.take(wanted), ROWS[wanted])
    model = dc.KMeans(3, init=ROWS[:3]).fit(dataset)
    expected = dc.KMeans(3, init=ROWS[:3]).fit(ROWS, sample_weight=WEIGHTS)
    assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)
    model.predict(dataset, output=f"{tmp_path}/labels.csv")
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert lines[:2] == ['"name","label"', f'"doc 0",{expected.labels_[0]}']


def test_one_file_and_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv")
    assert np.array_equal(dc.open_dataset(path, columns=["z", "x"]).to_numpy(), ROWS[:, [2, 0]])
    with pytest.raises(InvalidDataError, match=r"no real numbers: 'name' \(string\)"):
        dc.open_dataset(path)
    with pytest.raises(InvalidParameterError, match=r"There is no column 'q' in .*x.csv"):
        dc.open_dataset(path, columns="q")
    plain = tmp_path / "plain.csv"
    np.savetxt(plain, ROWS, delimiter=",")
    found: Any = dc.open_dataset(plain)
    assert np.array_equal(found.to_numpy(), ROWS)
    assert found.feature_names is None


def test_nulls(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv")
    lines = path.read_text().splitlines()
    lines[500] = '"doc 499",1.0,,2.0,1.0'
    path.write_text("\n".join(lines))
    given: Any = {"columns": ["x", "y", "z"], "id_column": "name"}
    with pytest.raises(InvalidDataError, match=r"Column 'y' is null in row 499 of .*x.csv"):
        dc.open_dataset(path, **given).to_numpy()
    left: Any = dc.open_dataset(path, nulls="drop", **given)
    assert np.array_equal(left.to_numpy(), np.delete(ROWS, 499, axis=0))
    assert left.ids(498, 500).to_pylist() == ["doc 498", "doc 500"]


def test_what_is_wrong(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", 0, 300)
    (tmp_path / "b.csv").write_text("name,x,z,y,w\nq,1,2,3,4\n")
    with pytest.raises(InvalidDataError, match=r"b.csv' has the columns name, x, z, y, w, where"):
        dc.open_dataset(tmp_path, id_column="name")
    (tmp_path / "b.csv").write_text("name,x,y,z,w\n" + "q,1,2,3,4\n" * 2000 + "q,1,?!,3,4\n")
    with pytest.raises(InvalidDataError, match=r"of .*b.csv' cannot be read .*'\?!'"):
        dc.open_dataset(tmp_path, id_column="name", drop="w").to_numpy()
    (tmp_path / "b.csv").write_text("")
    with pytest.raises(InvalidDataError, match=r"b.csv' is empty"):
        dc.open_dataset(tmp_path, id_column="name")
    (tmp_path / "b.csv").write_text("1 2 3\n4 5 6\n")
    with pytest.raises(InvalidDataError, match=r"separated by blanks; convert it with"):
        dc.open_dataset(tmp_path / "b.csv")


def test_a_bucket(s3: dict[str, Any], tmp_path: Path) -> None:
    import s3fs

    for i in range(3):
        write(tmp_path / f"part-{i}.csv", 300 * i, 300 * i + 300)
    s3fs.S3FileSystem(**s3).put(str(tmp_path), "rows/texts", recursive=True)
    stored = dc.open_dataset("s3://rows/texts/*.csv", columns=["x", "y", "z"], storage_options=s3)
    assert np.array_equal(stored.to_numpy(), ROWS)
