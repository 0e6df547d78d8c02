"""Every test belongs to a stage: the README's command, one of `.ci/run`, or one that is run on demand."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.conftest import HERE, MARKS, STAGES

ROOT = HERE.parent
ON_DEMAND = {"slow", "benchmark"}


def test_every_mark_has_a_stage_and_every_stage_its_files() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    declared = {line.partition(":")[0] for line in options["markers"]}
    assert declared == MARKS | ON_DEMAND
    left_out = set(re.findall(r"not (\w+)", options["addopts"]))
    assert left_out == ON_DEMAND  # the others are left out by tests/conftest.py
    script = (ROOT / ".ci" / "run").read_text()
    by_mark = set(re.findall(r"\w+", re.findall(r'marks="(.*?)"', script)[0])) - {"or"}
    for mark in MARKS:
        files = STAGES.get(mark, ())
        assert mark in by_mark or (files and all(f"tests/{file}" in script for file in files)), mark
        for file in files:
            assert Path(HERE, file).exists(), file
    pages = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"`{mark}`" in pages for mark in declared)
