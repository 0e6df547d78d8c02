"""The page in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from daskcluster.reports.contents import Clusters, Report
from daskcluster.reports.pages import as_html
from tests.browser import browse, needs_browser
from tests.reports.models import make_model

ASK = """<script>addEventListener("load", () => { document.title =
  [...document.images].map(i => i.naturalWidth).join(" ") + "; " +
  (document.documentElement.scrollWidth <= innerWidth) })</script></body>"""

pytestmark = needs_browser


@pytest.mark.parametrize("width", [900, 390])
def test_a_browser_shows_the_page(tmp_path: Path, width: int) -> None:
    k = 30
    data = Clusters(np.ones(k, int), np.ones(k), np.arange(k) + 1.0, "elsewhere")
    text = as_html(Report(make_model(k), title="a model", data=data))
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", ASK))
    shown = browse(page, tmp_path, f"--window-size={width},1200", "--dump-dom")
    found = re.search(r"<title>([^<]*)</title>", shown)
    assert found is not None
    widths, fits = found.group(1).split("; ")
    assert len(widths.split()) == text.count("<img")
    assert min(map(int, widths.split())) > 100
    assert fits == "true"
    picture = tmp_path / "page.png"
    browse(page, tmp_path, f"--window-size={width},3000", f"--screenshot={picture}")
    assert picture.stat().st_size > 20_000
