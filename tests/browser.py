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


def browse(page: Path | str, folder: Path, *flags: str) -> str:
    """Show `page`, a file or a URL, and return what comes to stdout; the profile goes into `folder`."""
    url = page if isinstance(page, str) else page.as_uri()
    command = [str(PROGRAM), *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout
