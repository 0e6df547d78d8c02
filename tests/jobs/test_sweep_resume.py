"""Sweeps that die: a resumed one repeats no finished fit, and ends with the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import jobs
from daskcluster.engine import local
from daskcluster.engine.operations import WorkQueue
from daskcluster.errors import CheckpointError, InvalidParameterError
from daskcluster.estimators import checkpoints
from daskcluster.jobs import selection
from daskcluster.jobs.selection import KeptFits
from daskcluster.storage import pass_totals
from daskcluster.storage.checkpoint import CheckpointFolder
from daskcluster.storage.location import locate
from daskcluster.storage.pass_totals import PassTotals
from tests.estimators.interruption import Killed, killed
from tests.estimators.test_killed_passes import slow_rows

N = 6000
GIVEN: dict[str, Any] = {"n_seeds": 2, "coreset_size": 900, "random_state": 0, "engine": "local"}


def blobs() -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = 25 * rng.normal(size=(5, 3))
    return (centres[rng.integers(0, 5, N)] + rng.normal(size=(N, 3))).astype(np.float32)


X = blobs()


@pytest.fixture
def rows(tmp_path: Path) -> str:
    zarr.create_array(str(tmp_path / "rows.zarr"), data=X, chunks=(500, 3))
    return str(tmp_path / "rows.zarr")


@pytest.fixture(params=["disk", "memory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "bucket":
        s3 = request.getfixturevalue("s3")
        return locate(f"s3://rows/{tmp_path.name}/kept", s3)
    return str(tmp_path / "kept") if request.param == "disk" else f"memory://{tmp_path}/kept"


def bits(found: dc.KSelection) -> Any:
    centres = {k: (each.dtype, each.tobytes()) for k, each in found.centres.items()}
    return found.best_k, found.candidates, found.notes, found.coreset_size, found.passes, centres


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Record the fits that are made."""
    made: list[tuple[int, int]] = []

    def recording(fit: Any) -> Any:
        def recorded(few: Any, k: int, number: int, **settings: Any) -> Any:
            made.append((k, number))
            return fit(few, k, number, **settings)

        return recorded

    for name in ("_fit_kmeans", "_fit_mixture"):
        monkeypatch.setattr(selection, name, recording(getattr(selection, name)))
    return made


def dies_after(monkeypatch: pytest.MonkeyPatch, n_fits: int) -> None:
    keep, kept = KeptFits.keep, [0]

    def last(self: KeptFits, fit: Any) -> None:
        keep(self, fit)
        kept[0] += 1
        if kept[0] == n_fits:
            raise Killed

    monkeypatch.setattr(KeptFits, "keep", last)


@pytest.mark.parametrize(
    ("place", "criterion"),
    [("disk", "knee"), ("disk", "silhouette"), ("memory", "bic"), ("bucket", "knee")],
    indirect=["place"],
)
def test_finished_fits_are_not_repeated(
    rows: str, place: Any, fits: list[tuple[int, int]], criterion: str
) -> None:
    given = {**GIVEN, "criterion": criterion, "engine": dc.LocalEngine(1)}
    whole = dc.select_k(rows, 2, 5, **given)
    expected = sorted(fits)
    fits.clear()
    deaths = 0
    for n_fits in (1, 2, 3, 100):
        with pytest.MonkeyPatch.context() as within:
            dies_after(within, n_fits)
            try:
                found = dc.select_k(rows, 2, 5, checkpoint=place, resume=deaths > 0, **given)
            except Killed:
                deaths += 1
    assert deaths == 3
    assert sorted(fits) == expected
    assert bits(found) == bits(whole)
    again = dc.select_k(rows, 2, 5, checkpoint=place, resume=True, **given)
    assert bits(again) == bits(whole)
    assert sorted(fits) == expected


@pytest.mark.parametrize("criterion", ["knee", "bic"])
def test_a_running_fit_and_the_coreset_resume(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, criterion: str
) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    given = {**GIVEN, "criterion": criterion, "engine": dc.LocalEngine(1)}
    scaled = dc.open_dataset(rows, scale="standard")
    whole = dc.select_k(scaled, 4, 6, **given)
    deaths, seen = 0, set()
    for n_commits in (1, 1, 2, 1, 3, 5, 2, 4, 7):
        again = {"checkpoint": str(tmp_path / "kept"), "resume": deaths > 0, **given}
        deaths += killed(partial(dc.select_k, scaled, 4, 6, **again), n_commits)
        seen |= {
            file.parts[-3] for file in (tmp_path / "kept").glob("*/running-*/*/0000000[3-9]-*")
        }
    assert deaths > 7
    assert seen  # fits died in their midst
    found = dc.select_k(scaled, 4, 6, checkpoint=str(tmp_path / "kept"), resume=True, **given)
    assert bits(found) == bits(whole)
    assert not list((tmp_path / "kept").glob("*/running-*/*"))


def test_a_long_check_resumes_within_its_pass(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = dc.select_k(rows, 3, 6, **GIVEN)
    monkeypatch.setattr(pass_totals, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(pass_totals, "_COST", 0)
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.0005)
    monkeypatch.setattr(WorkQueue, "add_rows", slow_rows)
    given = {**GIVEN, "checkpoint": str(tmp_path / "kept")}
    write = PassTotals.write

    def dies_in_check(self: PassTotals, name: str, payload: bytes) -> None:
        write(self, name, payload)
        if "coreset" not in self.folder.url:
            raise Killed

    with pytest.MonkeyPatch.context() as within:
        within.setattr(PassTotals, "write", dies_in_check)
        with pytest.raises(Killed):
            dc.select_k(rows, 3, 6, **given)
    opened = dc.open_dataset(rows)
    found = dc.select_k(rows, 3, 6, resume=True, **given)
    assert bits(found)[1:4] == bits(whole)[1:4]
    assert bits(found)[5] == bits(whole)[5]
    assert found.bytes_read < whole.bytes_read + opened.n_rows * 12


def test_another_sweep_is_refused_by_name(rows: str, place: Any, tmp_path: Path) -> None:
    given = {**GIVEN, "checkpoint": place}
    dc.select_k(rows, 2, 4, **given)
    others: dict[str, dict[str, Any]] = {
        "parameters.k_max was 4 and is 5": {"k_max": 5},
        "parameters.n_seeds was 2 and is 1": {"n_seeds": 1},
        "parameters.criterion was 'knee' and is 'bic'": {"criterion": "bic"},
        "parameters.random_state was 0 and is 1": {"random_state": 1},
        "parameters.max_iter was 100 and is 9": {"max_iter": 9},
        "parameters.metric was 'euclidean' and is 'cosine'": {"metric": "cosine"},
        r"parameters.ks was None and is '\[3\]'": {"ks": [3]},
    }
    for text, changed in others.items():
        with pytest.raises(CheckpointError, match=text):
            dc.select_k(rows, **{"k_min": 2, "k_max": 4, **given, **changed}, resume=True)
    changed_rows = X.copy()
    changed_rows[-1] += 1
    for source, text in (
        (changed_rows, "data.first_and_last_rows was"),
        (X[:-5], "data.rows was 6000 and is 5995"),
        (dc.open_dataset(X, weights=np.ones(N)), "data.weighted was False and is True"),
    ):
        with pytest.raises(CheckpointError, match=text):
            dc.select_k(source, 2, 4, **given, resume=True)
    with pytest.raises(InvalidParameterError, match="resume=True needs checkpoint="):
        dc.select_k(rows, 2, 4, **GIVEN, resume=True)


def test_the_seed_of_an_unseeded_sweep_is_kept(rows: str, tmp_path: Path) -> None:
    given = {**GIVEN, "random_state": None, "checkpoint": str(tmp_path / "kept")}
    with pytest.MonkeyPatch.context() as within:
        dies_after(within, 3)
        with pytest.raises(Killed):
            dc.select_k(rows, 2, 5, **given)
    found = dc.select_k(rows, 2, 5, **given, resume=True)
    assert bits(dc.select_k(rows, 2, 5, **given, resume=True)) == bits(found)
    anew = dc.select_k(rows, 2, 5, **given)
    assert bits(anew)[5] != bits(found)[5]


def test_rows_that_lack_values_keep_finished_fits(
    tmp_path: Path, fits: list[tuple[int, int]]
) -> None:
    lacking = X.copy()
    lacking[7, 1] = np.nan
    opened = dc.open_dataset(lacking, missing="partial")
    whole = dc.select_k(opened, 2, 5, **GIVEN)
    fits.clear()
    with pytest.MonkeyPatch.context() as within:
        dies_after(within, 5)
        with pytest.raises(Killed):
            dc.select_k(opened, 2, 5, checkpoint=str(tmp_path / "kept"), **GIVEN)
    n_made = len(fits)
    found = dc.select_k(opened, 2, 5, checkpoint=str(tmp_path / "kept"), resume=True, **GIVEN)
    assert bits(found) == bits(whole)
    assert len(fits) < n_made + 8


def test_workers_keep_fits(rows: str, tmp_path: Path, client: Any) -> None:
    given = {**GIVEN, "engine": client}
    whole = dc.select_k(rows, 2, 5, **GIVEN)
    for url, kept_by in ((str(tmp_path / "kept"), "tasks"), (f"memory://{tmp_path}", "driver")):
        found = dc.select_k(rows, 2, 5, checkpoint=url, **given)
        assert bits(found) == bits(whole), kept_by
        with pytest.MonkeyPatch.context() as within:
            within.setattr(CheckpointFolder, "commit", None)  # nothing is left to do
            found = dc.select_k(rows, 2, 5, checkpoint=url, resume=True, **GIVEN)
        assert bits(found) == bits(whole), kept_by


DYING = """
import os, signal, sys
from daskcluster.cli.main import main
from daskcluster.jobs.selection import KeptFits
keep, kept = KeptFits.keep, [0]
def last(self, fit):
    keep(self, fit)
    kept[0] += 1
    if kept[0] == 5:
        os.kill(os.getpid(), signal.SIGKILL)
KeptFits.keep = last
main(sys.argv[1:])
"""


@pytest.mark.kills
@pytest.mark.parametrize("kept", [("--checkpoint", "kept"), ("--name", "numbers")])
def test_a_killed_command_resumes(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: tuple[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["sweep", rows, "-k", "2:6", "--seeds", "2", "--coreset-size", "900"]
    common += ["--random-state", "0", "--threads", "1", "--json", "--output"]
    run = [sys.executable, "-m", "daskcluster", *common]
    whole = json.loads(subprocess.check_output([*run, "whole.json"]).splitlines()[-1])
    dead = subprocess.run([sys.executable, "-c", DYING, *common, "found.json", *kept], check=False)
    assert dead.returncode == -signal.SIGKILL
    assert not os.path.exists("found.json")
    resume = ["--resume"] * (kept[0] == "--checkpoint")
    again = [*run, "found.json", *kept, *resume]
    found = json.loads(subprocess.check_output(again, timeout=120).splitlines()[-1])
    for name in ("best_k", "candidates", "notes", "passes", "n_rows", "coreset_size"):
        assert found[name] == whole[name], name
    assert json.loads(Path("found.json").read_text())["candidates"] == whole["candidates"]


def test_a_named_job_leaves_nothing_but_its_output(rows: str, tmp_path: Path) -> None:
    output = str(tmp_path / "table.json")
    given = {**GIVEN, "ks": [2, 4], "output": output, "name": "numbers"}
    with pytest.MonkeyPatch.context() as within:
        dies_after(within, 2)
        with pytest.raises(Killed):
            jobs.sweep(rows, **given)
    assert list(tmp_path.glob("table.json*/*/fit-*"))
    record = jobs.sweep(rows, **given)
    assert record.candidates == jobs.sweep(rows, ks=[2, 4], **GIVEN).candidates
    assert not list(tmp_path.glob("table.json*/*/fit-*"))
