"""``daskcluster sweep``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import daskcluster as dc

Run = Callable[..., Result]
Record = Callable[..., dict[str, Any]]
SWEEP = ("sweep", "rows.npy", "--random-state", "0", "--seeds", "2", "--coreset-size", "800")


def test_the_command_equals_select_k(here: Path, record: Record, rows: Any) -> None:
    found = record(*SWEEP, "--k", "2:12", "--threads", "2")
    twin = dc.select_k(rows, 2, 12, random_state=0, n_seeds=2, coreset_size=800)
    assert found["best_k"] == twin.best_k == 6
    assert found["candidates"] == twin.table()
    assert (found["passes"], found["n_rows"]) == (3, 2000)


def test_the_table_for_people(here: Path, run: Run) -> None:
    shown = run(*SWEEP, "--k", "2,4,6,8,10").stdout
    lines = shown.splitlines()
    assert lines[0].split()[:3] == ["k", "inertia", "spread"]
    assert [line.split()[0] for line in lines[1:6]] == ["2", "4", "6", "8", "10"]
    assert "best      k=6 by knee" in lines
    assert "note" in run(*SWEEP, "--k", "2:4", "--criterion", "silhouette").stdout


def test_outputs(here: Path, run: Run, record: Record) -> None:
    found = record(*SWEEP, "--k", "4:8:2", "--output", "sweep.json")
    written = json.loads(Path("sweep.json").read_text())
    assert written["candidates"] == found["candidates"]
    assert "pass --overwrite" in run(*SWEEP, "--output", "sweep.json").stderr
    assert run(*SWEEP, "--k", "4,6", "--output", "SWEEP.JSON").exit_code == 0
    assert json.loads(Path("SWEEP.JSON").read_text())["best_k"] in (4, 6)
    Path("SWEEP.JSON").unlink()
    assert run(*SWEEP, "--k", "4,6", "--output", "sweep.json", "--overwrite").exit_code == 0
    pytest.importorskip("matplotlib", reason="the plots extra is not installed")
    record(*SWEEP, "--k", "4:8:2", "--output", "curve.png")
    assert Path("curve.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in here.iterdir()) == ["curve.png", "rows.npy", "sweep.json"]


def test_mixtures(here: Path, record: Record) -> None:
    found = record(*SWEEP, "--k", "5,6,7", "--criterion", "bic", "--covariance-type", "spherical")
    assert found["best_k"] == 6
    assert found["candidates"][1]["bic"] is not None


def test_bad_ranges(here: Path, run: Run) -> None:
    for text in ("4:2", "0:3", "2:9:0", "two", "2:", "3,,4", "-1:4"):
        found = run(*SWEEP, f"--k={text}")
        assert found.exit_code == 2
        assert "should be a range such as 2:64" in found.stderr


def test_bad_use(here: Path, run: Run) -> None:
    refused = run(*SWEEP, "--output", "sweep.txt")
    assert refused.exit_code == 1
    assert "should end in one of .json, .png, .svg" in refused.stderr
    assert "n_samples=2000 should be >= k_max=2001" in run(*SWEEP, "--k", "5,2001").stderr


def test_scaled_features(here: Path, record: Record) -> None:
    found = record("sweep", "rows.npy", "-k", "2:4", "--scale", "standard", "--seeds", "1")
    assert [each["k"] for each in found["candidates"]] == [2, 3, 4]
    # The first cluster of scaled features: their variance is one, so two clusters cost less than n d.
    assert 0 < found["candidates"][0]["inertia"] < found["n_rows"] * found["n_features"]
