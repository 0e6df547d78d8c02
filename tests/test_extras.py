"""Remedies for missing libraries name a command that works where the package was installed from."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from daskcluster import extras
from tests.test_project import MODULES, ROOT


class Installed:
    def __init__(self, record: Any) -> None:
        self.record = record

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.record if self.record is None else json.dumps(self.record)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (None, ["pip", "install", "daskcluster[s3]"]),
        ({"url": "file://{}", "dir_info": {"editable": True}}, ["pip", "install", "-e", "{}[s3]"]),
        ({"url": "file://{}", "dir_info": {}}, ["pip", "install", "{}[s3]"]),
        ({"url": "file://{}/a.whl", "archive_info": {}}, ["pip", "install", "{}/a.whl[s3]"]),
        ({"url": "file:///gone", "dir_info": {}}, ["pip", "install", "daskcluster[s3]"]),
        (
            {"url": "https://me:secret@host/a.whl", "archive_info": {}},
            ["pip", "install", "daskcluster[s3] @ https://host/a.whl"],
        ),
        (
            {"url": "https://me:secret@host/a.git", "vcs_info": {"vcs": "git", "commit_id": "ab1"}},
            ["pip", "install", "daskcluster[s3] @ git+https://host/a.git@ab1"],
        ),
        ([], ["pip", "install", "daskcluster[s3]"]),
    ],
)
def test_the_command_is_that_of_the_installation(
    record: Any, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a checkout"
    folder.mkdir()
    (folder / "a.whl").write_bytes(b"")
    if isinstance(record, dict):
        record = {**record, "url": record["url"].replace("{}", str(folder).replace(" ", "%20"))}
    monkeypatch.setattr(extras, "distribution", lambda name: Installed(record))
    command = extras.install_command("s3")
    assert shlex.split(command) == [part.replace("{}", str(folder)) for part in expected]
    assert "secret" not in command


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
