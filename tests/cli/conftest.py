"""A data set, and two ways to call the command: in this process, and as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from daskcluster.cli.main import main
from tests.data.conftest import KEY_ID, SECRET, s3  # noqa: F401  (a fixture)

_CALL = "from daskcluster.cli.main import main; main()"
COMMAND = [sys.executable, "-c", _CALL]
_DYING = """
import importlib, os, signal
owner = importlib.import_module({module!r})
*names, last = {name!r}.split(".")
for name in names:
    owner = getattr(owner, name)
setattr(owner, last, lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL))
"""


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


@pytest.fixture
def bucket(s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:  # noqa: F811
    """Return the options that reach the S3 emulator; its keys are in the environment."""
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return ("--storage-option", f"client_kwargs.endpoint_url={s3['client_kwargs']['endpoint_url']}")


def kill_at(moment: str, *arguments: str) -> None:
    """Run the command as a process that is killed when it calls ``module:name``."""
    module, name = moment.split(":")
    program = _DYING.format(module=module, name=name) + _CALL
    child = start(*arguments, command=[sys.executable, "-c", program])
    _, errors = child.communicate(timeout=120)
    assert child.returncode == -signal.SIGKILL, errors


def start(
    *arguments: str, command: Sequence[str] = COMMAND, **options: Any
) -> subprocess.Popen[str]:
    """Start the command as a process of its own."""
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.Popen(
        [*command, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
