"""A data set, and two ways to call the command: in this process, and as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from daskcluster.cli.main import main

COMMAND = [sys.executable, "-c", "from daskcluster.cli.main import main; main()"]


@pytest.fixture
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((6, 4)) * 8
    labels = rng.integers(0, 6, 2000)
    return (centres[labels] + rng.standard_normal((2000, 4))).astype(np.float32)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: np.ndarray) -> Path:
    """Return an own folder, with ``rows.npy`` in it, that the test runs in."""
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", rows)
    return tmp_path


@pytest.fixture
def run() -> Callable[..., Result]:
    """Return a function that calls the command in this process."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    return call


@pytest.fixture
def record(run: Callable[..., Result]) -> Callable[..., dict[str, Any]]:
    """Return a function that calls the command with ``--json`` and reads its last line."""

    def call(*arguments: str) -> dict[str, Any]:
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
        return found

    return call


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start the command as a process of its own."""
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
