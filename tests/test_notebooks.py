"""Notebooks are kept without outputs, run alone, and know a short form of themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stripped(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    cells = document["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    ids = [cell["id"] for cell in cells]
    assert len(set(ids)) == len(ids)
    assert cells[0]["cell_type"] == "markdown"
    assert "".join(cells[0]["source"]).startswith("# ")
    assert set(document["metadata"]) <= {"kernelspec", "language_info"}


def test_all_are_listed() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS if f"({path.name})" not in listed] == []
    assert len(NOTEBOOKS) >= 9


@pytest.mark.parametrize("path", NOTEBOOKS[1:], ids=lambda path: path.name)
def test_a_notebook_has_a_short_form(path: Path) -> None:
    assert "DASKCLUSTER_NOTEBOOKS" in path.read_text(encoding="utf-8")
