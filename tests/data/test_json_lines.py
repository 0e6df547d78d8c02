"""Files of JSON lines: blocks, shards, ids, lists, and values that are refused by their place."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.data import text_files
from daskcluster.errors import InvalidDataError

ROWS = np.random.default_rng(3).normal(size=(700, 3))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 5000)
    monkeypatch.setattr(text_files, "_SAMPLE_BYTES", 5000)


def lines(rows: np.ndarray, first: int = 0) -> list[dict[str, Any]]:
    """Return objects with a text that holds quotes, brackets and a line break."""
    return [
        {"id": f"doc-{first + i}", "text": 'a "b" {c}\n,', "emb": row.tolist(), "w": 1 + i % 3}
        for i, row in enumerate(rows)
    ]


def write(path: Path, objects: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(map(json.dumps, objects)) + "\n")
    return str(path)


def test_shards_with_lists_ids_and_weights(tmp_path: Path) -> None:
    for number, first in enumerate((0, 300)):
        write(tmp_path / f"part-{number}.jsonl", lines(ROWS[first : [300, 700][number]], first))
    dataset: Any = dc.open_dataset(tmp_path, columns="emb", id_column="id", weights="w")
    assert len(dataset.chunk_sizes) > 8
    for found in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert np.array_equal(found.to_numpy(), ROWS)
        assert found.ids(299, 302).to_pylist() == ["doc-299", "doc-300", "doc-301"]
    assert np.asarray(dataset.weights)[:4].tolist() == [1, 2, 3, 1]
    fitted = dc.KMeans(3, init=ROWS[:3]).fit(dc.open_dataset(tmp_path, columns="emb"))
    assert np.array_equal(fitted.labels_, dc.KMeans(3, init=ROWS[:3]).fit(ROWS).labels_)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"a": "x"}, r"Column 'a' of .* has '\"x\"' in row 650 \(from 0\), which is no number"),
        ({"a": True}, r"Column 'a' of .* has 'true' in row 650"),
        (
            {"c": 1},
            r"Row 650 \(from 0\) of .* has a value of 'c', which the first rows do not have",
        ),
        ({"b": [1]}, r"Column 'b' of .* in row 650"),
    ],
)
def test_what_comes_late_and_does_not_fit_is_named(
    change: dict[str, Any], match: str, tmp_path: Path
) -> None:
    objects: list[dict[str, Any]] = [{"a": i % 9, "b": i / 7} for i in range(700)]
    objects[650] |= change
    with pytest.raises(InvalidDataError, match=match):
        dc.open_dataset(write(tmp_path / "x.jsonl", objects)).to_numpy()


def test_values_of_several_types_in_a_column_that_is_not_read(tmp_path: Path) -> None:
    objects = [{"a": i, "b": -i, "t": i if i < 600 else "x"} for i in range(700)]
    found = dc.open_dataset(write(tmp_path / "x.jsonl", objects), drop="t").to_numpy()
    assert np.array_equal(found, np.stack([np.arange(700.0), -np.arange(700.0)], axis=1))
    objects[690]["late"] = 1
    with pytest.raises(InvalidDataError, match=r"Row 690 .* has a value of 'late'"):
        dc.open_dataset(write(tmp_path / "x.jsonl", objects), drop="t")


@pytest.mark.parametrize("content", ['[{"a": 1}, {"a": 2}]', '{"a": 1,', "no json"])
def test_other_texts_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(InvalidDataError, match=r"holds no JSON lines .* write one object a line"):
        dc.open_dataset(tmp_path / "x.jsonl")


def test_a_file_without_a_field_that_others_have_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [{"a": 1.5, "b": 2}, {"a": 2.5, "b": 3}])
    write(tmp_path / "b.jsonl", [{"a": 1.5, "B": 2}])
    for choice in ({"columns": ["a", "b"]}, {"columns": ["a", "b"], "missing": "drop"}):
        with pytest.raises(InvalidDataError, match=r"No row of '.*b.jsonl' has a value of 'b'"):
            dc.open_dataset(tmp_path, **choice)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "choice", "match"),
    [
        (b'{"id": "a", "x": 1, "y": 2}\n{"id": 7, "x": 1, "y": 2}', "id", r"The id 7 in row 1 .*as texts"),
        (b'{"id": 1, "x": 1, "y": 2}\n{"id": 1.5, "x": 1, "y": 2}', "id", r"The id 1 in row 0"),
        (b'{"\xe9": 1, "y": 2}', None, r"is not text .*write it in UTF-8"),
        (b'{"x": [1, "a"]}\n{"x": [1, 2]}', None, r"columns that are no real numbers: 'x' \(string\)"),
        (b'{"a":1,"b":2}{"a":"x","b":4}\n{"a":5,"b":6}', None, r"x\.jsonl"),
        (b'{"x": 1, "y": 2, "w": [1]}', "w", r"Column 'w' \(list.*cannot be the weights of rows"),
    ],
)  # fmt: skip
def test_faults_are_named(content: bytes, choice: Any, match: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(content + b"\n")
    options = {"id": {"id_column": "id"}, "w": {"weights": "w"}}.get(choice, {})
    with pytest.raises(InvalidDataError, match=match):
        dc.open_dataset(tmp_path / "x.jsonl", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("x.jsonl", b"\n\n", r"0 sample\(s\).*x\.jsonl' has no rows"),
        ("x.jsonl.gz", b"no gzip", r"x\.jsonl\.gz' cannot be read \(BadGzipFile.*write it again"),
    ],
)
def test_files_without_lines(name: str, content: bytes, match: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidDataError, match=match):
        dc.open_dataset(tmp_path / name)


def test_lists_of_several_types_in_a_field_that_is_not_read(tmp_path: Path) -> None:
    objects = [{"a": 1, "b": 2, "v": [1, "x"]}, {"a": 3, "b": 4, "v": None}]
    found = dc.open_dataset(write(tmp_path / "x.jsonl", objects), columns=["a", "b"]).to_numpy()
    assert found.tolist() == [[1, 2], [3, 4]]


def test_lines_longer_than_the_sample(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 2000))
    objects = [{"emb": row.tolist()} for row in rows]
    assert np.array_equal(dc.open_dataset(write(tmp_path / "x.jsonl", objects)).to_numpy(), rows)
