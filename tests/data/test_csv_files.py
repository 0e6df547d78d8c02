"""Text files as rows: many of them, with ids and weights, compressed, in a bucket."""

from __future__ import annotations

import gzip
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import daskcluster as dc
from daskcluster.cli.main import main
from daskcluster.data import text_files
from daskcluster.data.convert import convert
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
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 5000)


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


NAN = pytest.approx(np.nan, nan_ok=True)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a,b\n1,N/A\n<NA>,n/a\n,NaN\nnull,4\n", [[1, NAN], [NAN, NAN], [NAN, NAN], [NAN, 4]]),
        ("a,b\n1, NA\n2, 3\n1.#IND,-nan\n", [[1, NAN], [2, 3], [NAN, NAN]]),
        ("a,b\n1,\n2,\n", [[1, NAN], [2, NAN]]),
        ("a,b\nTrue,1\n2,FALSE\n", [[1, 1], [2, 0]]),
        ("a|b\n1|2\n3|4\n", [[1, 2], [3, 4]]),
        ("w (mm, max);h\n1;2\n3;4\n", [[1, 2], [3, 4]]),
        ("a\n1\n2\n", [[1], [2]]),
        ("'a','b'\n'1',\"2\"\n3,4\n", [[1, 2], [3, 4]]),
        ("# made by, a tool\n\n# 2026\na,b\n1,2\n\n3,4\n\n\n", [[1, 2], [3, 4]]),
        ("\ufeffa,b\r\n1,2\r\n3,4\r\n", [[1, 2], [3, 4]]),
        ("\ufeff1,2\r\n3,4", [[1, 2], [3, 4]]),
        ("0,1\n0.5,1.5\n2,3\n", [[0.5, 1.5], [2, 3]]),
        (",2023,2024\n0,1.5,2.5\n", [[1.5, 2.5]]),
        ("0,1\n2,3\n", [[0, 1], [2, 3]]),
        ("0,1\n0.5,1\n", [[0, 1], [0.5, 1]]),
        ("1,3\n0.5,1.5\n", [[1, 3], [0.5, 1.5]]),
        (
            "a,é\n1,2\n".encode("latin-1"),
            r"x.csv' is no readable UTF-8 text file .*; write it again",
        ),
        (
            "a,b\n1,2\n3,-\n",
            r"Column 'b' of .*x.csv' has '-' in row 1 \(from 0\), which is no number",
        ),
        ("a,b\n1,True\n3,yes\n", r"Column 'b' of .* has 'yes' in row 1"),
        ("a;b\n1;1,5\n2;3\n", r"Column 'b' of .* has '1,5' in row 0 .*Write decimals with a point"),
        ("1;1,5\n2;2,5\n", r"Column 'f1' of .* has '1,5' in row 0 .*Write decimals with a point"),
        ('a,b\n1,"1,234"\n', r"Column 'b' of .* has '1,234' in row 0 .*thousands without commas"),
        ("a,b\n1,1_0\n2,3\n", r"Column 'b' of .* has '1_0' in row 0"),
        (
            "a,b\n1,2\n# note\n3,4\n",
            r"Row 1 \(from 0\) of .* has 1 fields, where the first line has 2",
        ),
        ("a,b\n1,2\n3,4,5\n", r"Row 1 \(from 0\) of .* has 3 fields"),
        ("a,b\n", r"x.csv' has a header and no rows"),
        ("a,b", r"x.csv' has a header and no rows"),
        ("\n\n", r"x.csv' is empty"),
    ],
)
def test_both_readers_of_text_agree(content: Any, expected: Any, tmp_path: Path) -> None:
    path, stored = tmp_path / "x.csv", tmp_path / "x.zarr"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for read in (dc.open_dataset, lambda path: (convert(path, stored), dc.open_dataset(stored))[1]):
        if isinstance(expected, str):
            with pytest.raises(InvalidDataError, match=expected):
                read(path)
        else:
            rows: Any = read(path)
            assert rows.to_numpy().tolist() == expected


def test_rows_and_weights_that_are_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv")
    lines = path.read_text().splitlines()
    lines[500] = '"doc 499",1.0,,2.0,1.0'
    path.write_text("\n".join(lines))
    given: Any = {"columns": ["x", "y", "z"], "id_column": "name"}
    assert np.isnan(dc.open_dataset(path, **given).to_numpy()).nonzero() == ([499], [1])
    left: Any = dc.open_dataset(path, missing="drop", **given)
    assert np.array_equal(left.to_numpy(), np.delete(ROWS, 499, axis=0))
    assert left.ids(498, 500).to_pylist() == ["doc 498", "doc 500"]
    with pytest.raises(
        InvalidDataError, match=r"'y' of the weights is null in row 499 of .*x.csv'"
    ):
        dc.open_dataset(path, columns="x", weights="y")


def test_ids_that_are_integers_in_all_files_stay_integers(tmp_path: Path) -> None:
    for last, integer in (("2", 2), ("", None), ("007", "007"), ("x", "x")):
        (tmp_path / "0.csv").write_text("id,x\n" + "".join(f"{i},1\n" for i in range(900)))
        (tmp_path / "1.csv").write_text(f"id,x\n-1,2\n{last},3\n")
        rows: Any = dc.open_dataset(tmp_path, id_column="id")
        first = ["899", "-1"] if isinstance(integer, str) else [899, -1]
        assert rows.ids(899, 902).to_pylist() == [*first, integer]


def test_line_breaks_within_quotes(tmp_path: Path) -> None:
    texts = [f'a {i}\n,""\n' * (i % 7) for i in range(900)]
    lines = "".join(
        f'{x},"{text}",{i}\n' for i, (x, text) in enumerate(zip(ROWS[:, 0], texts, strict=True))
    )
    (tmp_path / "x.csv").write_text(f"x,text,i\n{lines}" + "\n" * 6000)
    rows: Any = dc.open_dataset(tmp_path / "x.csv", columns=["x", "i"], id_column="text")
    assert np.array_equal(rows.to_numpy(), np.column_stack([ROWS[:, 0], np.arange(900)]))
    assert rows.ids(890, 900).to_pylist() == [
        text.replace('""', '"') or None for text in texts[890:]
    ]
    assert len(rows.chunk_sizes) > 5
    (tmp_path / "x.csv").write_text('x,text\n1,5" long\n2,a\n3,"b"\n')
    assert dc.open_dataset(tmp_path / "x.csv", drop="text").n_rows == 3
    (tmp_path / "x.csv").write_text('x,text\n1,a\n2,"b\n3,c\n')
    with pytest.raises(InvalidDataError, match=r"A quote in .*x.csv', in row 1 .* is not closed"):
        dc.open_dataset(tmp_path / "x.csv", drop="text")


def test_invalid_files_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", 0, 300)
    (tmp_path / "b.csv").write_text("name,x,z,y,w\nq,1,2,3,4\n")
    with pytest.raises(InvalidDataError, match=r"b.csv' has the columns name, x, z, y, w \(sep"):
        dc.open_dataset(tmp_path, id_column="name")
    (tmp_path / "b.csv").write_text("name,x,y,z,w\n" + "q,1,2,3,4\n" * 2000 + "q,1,?!,3,4\n")
    with pytest.raises(InvalidDataError, match=r"'y' of .*b.csv' has '\?!' in row 2000"):
        dc.open_dataset(tmp_path, id_column="name", drop="w").to_numpy()
    (tmp_path / "b.csv").write_text("name;x;y;z;w\nq;1;2;3;4\n")
    with pytest.raises(
        InvalidDataError, match=r"w \(separated by ';'\), where .*\(separated by ','\)"
    ):
        dc.open_dataset(tmp_path, id_column="name")
    (tmp_path / "b.csv.gz").write_text("name,x,y,z,w\nq,1,2,3,4\n")
    with pytest.raises(InvalidDataError, match=r"b.csv.gz' is no readable UTF-8 text file"):
        dc.open_dataset(tmp_path / "b.csv.gz")
    (tmp_path / "b.csv.gz").unlink()
    (tmp_path / "b.csv").write_text("")
    with pytest.raises(InvalidDataError, match=r"b.csv' is empty"):
        dc.open_dataset(tmp_path, id_column="name")
    (tmp_path / "b.csv").write_text("1 2 3\n4 5 6\n")
    assert dc.open_dataset(tmp_path / "b.csv").to_numpy().tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_bucket(s3: dict[str, Any], tmp_path: Path) -> None:
    import s3fs

    for i in range(3):
        write(tmp_path / f"part-{i}.csv", 300 * i, 300 * i + 300)
    s3fs.S3FileSystem(**s3).put(str(tmp_path), "rows/texts", recursive=True)
    stored = dc.open_dataset("s3://rows/texts/*.csv", columns=["x", "y", "z"], storage_options=s3)
    assert np.array_equal(stored.to_numpy(), ROWS)


BOOLEANS = "n,up,left,w\n" + "".join(
    f"{i},{('True', 'false', 'TRUE', 'False')[i % 4]},{('true', 'FALSE')[i % 2]},{i + 1}\n"
    for i in range(900)
)
EXPECTED = np.array([[i, 1 - i % 2, 1 - i % 2] for i in range(900)], float)


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz"])
def test_booleans_are_zero_and_one(ending: str, tmp_path: Path) -> None:
    content = BOOLEANS.replace(",", "\t") if ending == "tsv" else BOOLEANS
    raw = gzip.compress(content.encode()) if ending == "csv.gz" else content.encode()
    (tmp_path / f"x.{ending}").write_bytes(raw)
    rows: Any = dc.open_dataset(tmp_path / f"x.{ending}", drop="w")
    assert np.array_equal(rows.to_numpy(), EXPECTED)
    assert np.array_equal(pickle.loads(pickle.dumps(rows)).to_numpy(), EXPECTED)
    weighted: Any = dc.open_dataset(tmp_path / f"x.{ending}", columns="n", weights="up")
    assert np.array_equal(np.asarray(weighted.weights), EXPECTED[:, 1])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("True,False\nFalse,True\n", [[1, 0], [0, 1]]),
        ("TRUE;false\n", [[1, 0]]),
        ('"True","False"\nTrue,\n', [[1, 0], [1, NAN]]),
        ("True,2\nFalse,3\n", [[1, 2], [0, 3]]),
        ("true,pred\n1,0\n", [[1, 0]]),
        ("true,pred\nTrue,False\n", [[1, 0]]),
        ("true,false\n0.5,2\n", [[0.5, 2]]),
        ("d1,True\nd2,False\n", "no real numbers: 'f0'"),
    ],
)
def test_a_first_line_of_booleans_holds_values(content: str, expected: Any, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(content)
    if isinstance(expected, str):
        with pytest.raises(InvalidDataError, match=expected):
            dc.open_dataset(tmp_path / "x.csv").to_numpy()  # type: ignore[attr-defined]
        return
    rows: Any = dc.open_dataset(tmp_path / "x.csv")
    assert rows.to_numpy().tolist() == expected
    convert(tmp_path / "x.csv", tmp_path / "x.zarr")
    stored: Any = dc.open_dataset(tmp_path / "x.zarr")
    assert stored.to_numpy().tolist() == expected


def test_booleans_and_numbers_in_one_column(tmp_path: Path) -> None:
    many = "a,b\n" + "1.0000000000,True\n" * 60_000  # more than the lines that tell the types
    for name, content, expected in (
        ("bits", many + "2,1\n3,0\n", [[1, 1], [2, 1], [3, 0]]),
        ("part", many + "2,0.5\n", [[1, 1], [1, 1], [2, 0.5]]),
        ("late", many.replace("True", "7000") + "2,True\n", [[1, 7000], [1, 7000], [2, 1]]),
    ):
        (tmp_path / f"{name}.csv").write_text(content)
        convert(tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr")
        for ending in ("csv", "zarr"):
            rows: Any = dc.open_dataset(tmp_path / f"{name}.{ending}")
            assert rows.to_numpy()[-3:].tolist() == expected
    (tmp_path / "x.csv").write_text(many + "2,x\n")
    rows = dc.open_dataset(tmp_path / "x.csv")
    with pytest.raises(InvalidDataError, match=r"Column 'b' of .*x.csv' has 'x' in row 60000"):
        rows.to_numpy()


def test_booleans_of_several_files(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("a,b\n1,True\n2,False\n")
    (tmp_path / "1.csv").write_text("a,b\n3,0\n4,1\n")
    rows: Any = dc.open_dataset(tmp_path)
    assert rows.to_numpy().tolist() == [[1, 1], [2, 0], [3, 0], [4, 1]]


@pytest.mark.parametrize("index", [range(900), IDS], ids=["numbers", "names"])
def test_the_index_of_a_frame_is_the_id(index: Any, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame, path = pd.DataFrame(ROWS, index, ["x", "y", "z"]), tmp_path / "x.csv"
    frame.to_csv(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in (
            dict[str, Any](),
            {"id_column": ""},
            {"drop": "z"},
            {"columns": ["x", "y"]},
        ):
            dataset: Any = dc.open_dataset(path, **options)
            names = ("x", "y") if {"drop", "columns"} & set(options) else ("x", "y", "z")
            assert dataset.feature_names == names
            assert dataset.ids(898, 900).to_pylist() == [index[898], index[899]]
            assert np.array_equal(dataset.to_numpy()[:, 0], ROWS[:, 0])
        assert dc.open_dataset(path, id_column="z").feature_names == ("x", "y")  # type: ignore[attr-defined]
        for flags in ([], ["--id-column", ""]):
            output = [
                str(tmp_path / "labels.csv"),
                "--model",
                str(tmp_path / "model"),
                "--overwrite",
            ]
            command = ["fit", str(path), "--n-clusters", "2", "--labels", *output, *flags]
            assert CliRunner().invoke(main, command, catch_exceptions=False).exit_code == 0
            labels = pd.read_csv(tmp_path / "labels.csv")
            assert labels["row"].tolist() == list(index)
    named: Any = dc.open_dataset(path, columns=["", "x"]) if index is not IDS else None
    assert named is None or named.feature_names == ("", "x")


def test_the_advice_for_ids_is_a_command(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user id,x\n1,2\n2,3\n3,5\n")
    with pytest.warns(UserWarning, match=r"id_column='user id' \(--id-column 'user id'\)"):
        dc.open_dataset(tmp_path / "x.csv")
