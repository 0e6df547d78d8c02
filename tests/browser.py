"""A real browser without a window, for pages that people will look at."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip

needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no chromium is installed")


def browse(page: Path, folder: Path, *flags: str) -> str:
    """Show `page` and return what the browser writes to stdout; its profile goes into `folder`."""
    command = [str(PROGRAM), *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout
