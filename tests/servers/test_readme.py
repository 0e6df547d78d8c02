"""What README.md says of the way from a bucket to labels, on servers that are not ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.servers.conftest import Server
from tests.test_docs import ROOT, Block, run_forked

PAGE = ROOT / "README.md"
OF_ONE_KIND = ("python3 -m venv", "export AWS_")
"""What the machine or the server has done already."""


def section() -> tuple[str, str]:
    """Return the commands and the Python of the section."""
    text = PAGE.read_text(encoding="utf-8")
    part = text.split("## From a bucket to labels\n")[1].split("\n## ")[0]
    return tuple(part.split(f"```{name}\n")[1].split("```")[0] for name in ("console", "python"))


def test_the_way_from_a_bucket_to_labels(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"{server.url}/readme"
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((6_000, 8)) + 9 * rng.integers(0, 4, (6_000, 1))
    np.save("rows.npy", rows.astype(np.float32))
    endpoint = server.options.get("client_kwargs", {}).get("endpoint_url")
    if endpoint is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    commands, program = (text.replace("s3://bucket", url) for text in section())
    lines = [line for line in commands.splitlines() if not line[2:].startswith(OF_ONE_KIND)]
    assert len(lines) == 4
    run_forked(Block("console", "\n".join(lines), 0), PAGE, tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    exec(compile(program, str(PAGE), "exec"), {})
