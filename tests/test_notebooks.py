"""Notebooks are kept without outputs, run alone, and know a short form of themselves."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_notebooks_are_kept_without_outputs_and_have_titles() -> None:
    for path in NOTEBOOKS:
        document = json.loads(path.read_text(encoding="utf-8"))
        cells = document["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert all(not each["outputs"] and each["execution_count"] is None for each in code), path
        assert len({cell["id"] for cell in cells}) == len(cells), path
        assert cells[0]["cell_type"] == "markdown", path
        assert "".join(cells[0]["source"]).startswith("# "), path
        assert set(document["metadata"]) <= {"kernelspec", "language_info"}, path


def test_all_are_listed() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS if f"({path.name})" not in listed] == []
    assert len(NOTEBOOKS) >= 9


def test_notebooks_but_the_first_have_a_short_form() -> None:
    for path in NOTEBOOKS[1:]:
        assert "DASKCLUSTER_NOTEBOOKS" in path.read_text(encoding="utf-8"), path
