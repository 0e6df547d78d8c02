"""The report on near-duplicates: against groups counted one by one, in every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import InvalidParameterError, OutputExistsError
from daskcluster.methods.duplicates import near_duplicates as duplicates
from daskcluster.methods.duplicates.near_duplicates import DuplicatesReport
from daskcluster.reports.pages import Table
from tests.methods.duplicates.oracle import planted


def tables(report: DuplicatesReport) -> dict[str, Table]:
    return {
        section.title: part
        for section in report.sections()
        for part in section.parts
        if isinstance(part, Table)
    }


@pytest.mark.parametrize(
    ("metric", "threshold", "keep"),
    [("cosine", 0.97, "first"), ("euclidean", 0.9, "farthest")],
)
def test_groups_are_those_of_the_search(metric: str, threshold: float, keep: str) -> None:
    X = planted(400, 12, 1, copies=9)
    found = dc.near_duplicates(X, threshold, metric=metric, keep=keep)
    report = found.report("rows")
    sign = -1.0 if metric == "cosine" else 1.0
    expected = []
    for group in np.unique(found.group).tolist():
        rows = np.flatnonzero(found.group == group)
        removed = rows[~found.kept[rows]]
        if len(rows) > 1:
            removed = removed[np.argsort(sign * found.similarity[removed], kind="stable")]
            expected.append((sign * found.similarity[removed[0]], group, rows, removed))
    expected.sort(key=lambda one: (one[0], one[1]))
    figures = report.as_dict()
    assert figures["n_groups"] == len(expected) == found.n_groups > 5
    for one, (_, _, rows, removed) in zip(figures["groups"], expected, strict=True):
        assert one["rows"] == len(rows)
        assert one["kept"] == str(rows[found.kept[rows]][0])
        assert one["near_duplicates"] == [str(row) for row in removed[: duplicates.MOST_ROWS]]
        assert one["nearest"] == found.similarity[removed[0]]
        assert one["farthest"] == found.similarity[removed[-1]]
    border = tables(report)["Borderline: removed rows farthest from the kept ones"].rows
    removed = np.flatnonzero(~found.kept)
    farthest = removed[np.argsort(-sign * found.similarity[removed], kind="stable")][:20]
    assert [row[0] for row in border] == [str(row) for row in farthest]
    assert all(
        found.group[int(row)] == found.group[int(kept)] and found.kept[int(kept)]
        for row, kept, _ in border
    )
    assert sum(one["rows"] for one in figures["sizes"]) == sum(len(each[2]) for each in expected)
    assert sum(one["groups"] for one in figures["sizes"]) == found.n_groups


def test_sizes_before_and_after() -> None:
    sizes = [1, 1, 2, 2, 3, 4, 5, 8, 9, 16, 17]
    group = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    kept = group == np.arange(len(group))
    report = DuplicatesReport("rows", group, kept, np.ones(len(group)))
    found = [row[:4] for row in tables(report)["Sizes of groups"].rows]
    assert found == [
        ("1", "2", "2", "2"),
        ("2", "2", "4", "2"),
        ("3", "1", "3", "1"),
        ("4", "1", "4", "1"),
        ("5 to 8", "2", "13", "2"),
        ("9 to 16", "2", "25", "2"),
        ("17 to 32", "1", "17", "1"),
    ]
    summary = dict(tables(report)["Before and after"].rows)
    assert summary["rows before"] == "68"
    assert summary["rows after"].startswith("11 ")
    assert summary["removed"].startswith("57 ")


def test_many_groups_and_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MOST_GROUPS", 3)
    group = np.repeat(np.arange(0, 100, 10), 10)
    kept = np.arange(100) % 10 == 0
    table = tables(DuplicatesReport("rows", group, kept, np.ones(100)))[
        "Groups, nearest pairs first"
    ]
    assert len(table.rows) == 3
    assert table.rows[0][-1] == "1, 2, 3, 4, 5, 6 and 3 more"
    assert "7 more groups are not listed" in table.note


def test_no_groups() -> None:
    report = DuplicatesReport("rows", np.arange(5), np.ones(5, bool), np.ones(5))
    assert [section.title for section in report.sections()] == ["Before and after"]
    assert report.as_dict()["groups"] == []
    assert "100.00%" in report._repr_html_()


def test_it_is_written_in_every_format(tmp_path: Path) -> None:
    X = planted(300, 8, 2)
    report = dc.near_duplicates(X, 0.97).report("near <rows>")
    for kind in ("html", "md", "json"):
        path = str(tmp_path / f"found.{kind}")
        report.save(path)
        with pytest.raises(OutputExistsError):
            report.save(path)
        report.save(path, overwrite=True)
    page = (tmp_path / "found.html").read_text()
    assert "near &lt;rows&gt;" in page
    assert "<script" not in page
    figures: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
    assert figures == report.as_dict()
    with pytest.raises(InvalidParameterError, match="should end in"):
        report.save(str(tmp_path / "found.doc"))


def test_it_is_drawn() -> None:
    pytest.importorskip("matplotlib")
    report = dc.near_duplicates(planted(300, 8, 2), 0.97).report()
    assert "histogram of the similarity" in report._repr_html_()
