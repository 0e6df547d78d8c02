"""Remedies for missing libraries name extras that there are."""

from __future__ import annotations

import re
import tomllib

from tests.test_project import MODULES, ROOT


def test_every_remedy_asks_for_the_command() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = set()
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        asked |= set(re.findall(r"install_command\(['\"](\w+)", text))
        if path.name != "extras.py":
            assert not re.search(r"['\"] ?pip install \"daskcluster\[", text), path
    assert asked
    assert asked <= set(known)
