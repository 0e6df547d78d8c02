"""The commands of deploy/README.md are run as they stand there; its parts that need a cluster are links."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.deploy.programs import free_port, programs
from tests.test_docs import LINK, Block, blocks_of, run_console

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "deploy" / "README.md"
PAGES = sorted((ROOT / "deploy").rglob("README.md"))


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    return programs(tmp_path / "bin")


@pytest.mark.slow
def test_the_commands_run(
    tmp_path: Path, shell: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "deploy").symlink_to(ROOT / "deploy")
    monkeypatch.chdir(work)
    port = str(free_port())
    try:
        for block in blocks_of(PAGE):
            text = block.text.replace("8786", port)
            run_console(Block(block.language, text, block.line), PAGE, shell)
    finally:
        for file in work.glob("*.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                continue  # as it should be
    assert (work / "labels.zarr" / "zarr.json").exists()
    assert "memory:" in (work / "size.yaml").read_text()
    for name in ("model", "again", "there"):
        assert (work / name / "zarr.json").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
