"""The way from a bucket to labels, as its page shows it, on servers that are not ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.conftest import Server
from tests.test_docs import FENCE, ROOT, Block, run_forked

PAGE = ROOT / "docs" / "how-to" / "from-a-bucket.md"


def test_the_way_from_a_bucket_to_labels(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    endpoint = server.options.get("client_kwargs", {}).get("endpoint_url")
    if endpoint is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    text = PAGE.read_text(encoding="utf-8").split("## Upload rows\n")[1].split("## Read less\n")[0]
    blocks = FENCE.findall(text.replace("s3://bucket", f"{server.url}/page"))
    assert [language for _, _, language, _ in blocks] == ["python", "console", "console", "python"]
    for _, _, language, code in blocks:
        if language == "python":  # a process of its own: clients of object stores are kept in one
            path = {**os.environ, "PYTHONPATH": str(ROOT)}
            subprocess.run([sys.executable, "-c", code], env=path, check=True)
        else:
            run_forked(Block(language, code, 0), PAGE, tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 10_000
