"""The page in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from daskcluster.reports.contents import Clusters, Report
from daskcluster.reports.html import as_html
from tests.reports.models import make_model

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
ASK = """<script>addEventListener("load", () => { document.title =
  [...document.images].map(i => i.naturalWidth).join(" ") + "; " +
  (document.documentElement.scrollWidth <= innerWidth) })</script></body>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")


def browse(page: Path, folder: Path, *flags: str) -> str:
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    k = 30
    data = Clusters("elsewhere", np.ones(k, int), np.ones(k), np.arange(k) + 1.0)
    text = as_html(Report(make_model(k), title="a model", data=data))
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", ASK))
    shown = browse(page, tmp_path, "--window-size=900,1200", "--dump-dom")
    found = re.search(r"<title>([^<]*)</title>", shown)
    assert found is not None
    widths, fits = found.group(1).split("; ")
    assert len(widths.split()) == text.count("<img")
    assert min(map(int, widths.split())) > 100
    assert fits == "true"
    picture = tmp_path / "page.png"
    browse(page, tmp_path, "--window-size=900,3000", f"--screenshot={picture}")
    assert picture.stat().st_size > 20_000
