"""The programs that an image has, as this test has them; processes that end with their test."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PROGRAMS = {
    "daskcluster": "from daskcluster.cli.main import main; main()",
    "dask": "from dask.__main__ import main; main()",
}


def programs(folder: Path) -> dict[str, str]:
    """Return an environment where `daskcluster`, `dask` and `python` are those of this test."""
    folder.mkdir()
    for name, code in _PROGRAMS.items():
        start = f"import sys; sys.argv[0] = '{name}'; {code}"
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{start}" "$@"\n')
    for name in ("python", "python3"):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for program in folder.iterdir():
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Processes:
    """Processes with a log, each in a group of its own that ends with it."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("w")
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, command: list[str], environment: Mapping[str, str], cwd: Path) -> None:
        self.started.append(
            subprocess.Popen(
                command, env=dict(environment), cwd=cwd, stdout=self._log, stderr=self._log,
                start_new_session=True,
            )
        )  # fmt: skip

    def close(self) -> None:
        for process in reversed(self.started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._log.close()
