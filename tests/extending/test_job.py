"""A job from outside has a command, a dry run, a detached form and a lease, also on workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from daskcluster import jobs
from daskcluster.cli.main import main
from daskcluster.engine.connect import local_cluster
from daskcluster.jobs.spec import JOBS
from tests.extending.extremes import SPEC, extremes

del JOBS[SPEC.name]  # other tests see the jobs of this package alone
ROOT = Path(__file__).parents[2]
ROWS = np.random.default_rng(0).normal(size=(500, 3))
EXTREMES = np.stack([ROWS.min(axis=0), ROWS.max(axis=0)])


@pytest.fixture
def rows(tmp_path: Path) -> str:
    zarr.save_array(str(tmp_path / "rows.zarr"), ROWS)
    return str(tmp_path / "rows.zarr")


@pytest.fixture
def registered() -> Iterator[None]:
    JOBS[SPEC.name] = SPEC
    yield
    del JOBS[SPEC.name]


def call(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == code, done.output
    return done.output


def test_its_command(rows: str, registered: None, tmp_path: Path) -> None:
    listed = [sys.executable, "-m", "daskcluster", "--help"]
    preloaded = {**os.environ, "DASKCLUSTER_PRELOAD": "tests.extending.extremes"}
    done = subprocess.run(
        listed, capture_output=True, text=True, check=True, cwd=ROOT, env=preloaded
    )
    shown = done.stdout
    assert "Write the extreme values of all features." in shown
    shown = call("extremes", "--help")
    for flag in ("--output URL", "--overwrite", "--missing", "--detach", "--dry-run", "--json"):
        assert flag in shown, flag
    plan = json.loads(call("extremes", rows, "--dry-run", "--json"))
    assert (plan["n_rows"], plan["passes_at_most"]) == (500, 1)
    assert "'--output': the URL to write them to" in call("extremes", rows, code=2)
    made = ("extremes", rows, "--output", str(tmp_path / "out.zarr"))
    assert call(*made).startswith(f"values  {EXTREMES.min():g} to")
    assert np.array_equal(zarr.open_array(tmp_path / "out.zarr", mode="r")[:], EXTREMES)
    assert "exists already" in call(*made, code=1)
    same = ("extremes", rows, "--output", rows, "--overwrite")
    assert "would replace the source" in call(*same, code=1)


def test_on_workers(
    rows: str, registered: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_cluster(1, 1, None) as client:
        address = client.scheduler.address
        monkeypatch.chdir(tmp_path)
        made = ("extremes", "rows.zarr", "--output", "out.zarr", "--name", "far")
        detached = (*made, "--detach", "--scheduler", address, "--json")
        sent = json.loads(call(*detached).splitlines()[-1])
        assert sent["output"] == str(tmp_path / "out.zarr")
        found: Any = jobs.wait(client, "far", timeout=60)
        assert found.state == "failed"
        assert "knows no job 'extremes'; import the module" in found.error
        client.run(import_module, SPEC.function.partition(":")[0])
        call(*detached)
        found = jobs.wait(client, "far", timeout=60)
        assert (found.state, found.kind) == ("done", "extremes"), found.error
        again = jobs.submit(client, extremes, rows, output=str(tmp_path / "out.zarr"), name="far")
        assert again.result().as_dict() == found.record
        plain = client.submit(extremes, rows, output=str(tmp_path / "b.zarr"), pure=False)
        assert plain.result().largest == EXTREMES.max()
