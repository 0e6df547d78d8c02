"""A data set in a folder of its own, and ways to call ``python -m tests.benchmarks`` in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.benchmarks.__main__ import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an own folder, with ``rows.npy`` in it, that the test runs in."""
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.random.default_rng(0).random((2000, 4), dtype=np.float32))
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
