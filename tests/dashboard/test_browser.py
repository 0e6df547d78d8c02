"""The page of fits on a scheduler's dashboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

import daskcluster as dc
from daskcluster import dashboard, jobs
from daskcluster.dashboard import show_fits
from tests.browser import browse, needs_browser

pytestmark = needs_browser
FINAL = ("--virtual-time-budget=4000", "--dump-dom")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp://",  # a cluster without one has no address for its pages
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_a_browser_shows_fits_as_they_come(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    dc.KMeans(5, random_state=0, max_iter=7, tol=0, engine=cluster).fit(rows)  # before the page
    url = show_fits(cluster)
    assert show_fits(cluster) == url
    source, model = str(tmp_path / "rows.npy"), str(tmp_path / "model")
    record = jobs.fit(source, n_clusters=4, model=model, name="monday", engine=cluster)
    fresh = dashboard.LatestFits.table
    empty, asked = dashboard.LatestFits(), list[int]()

    def nothing_at_first(self: Any, now: float) -> str:
        asked.append(1)
        return fresh(empty if len(asked) == 1 else self, now)

    monkeypatch.setattr(dashboard.LatestFits, "table", nothing_at_first)
    page = browse(url, tmp_path, *FINAL)
    assert len(asked) > 1  # the script came for more
    assert "No fit has run" not in page
    lines = re.findall(r"<tr>\s*<td>.*?</tr>", page, re.DOTALL)
    assert len(lines) == 2
    assert "monday" in lines[0]
    assert f"{record.stop_reason}</span>" in lines[0]
    assert "max iter" in lines[1]
    assert "7 / 7" in lines[1]
    assert "<polyline" in lines[1]
    picture = tmp_path / "fits.png"
    browse(url, tmp_path, "--window-size=1100,400", f"--screenshot={picture}")
    assert picture.stat().st_size > 5_000
