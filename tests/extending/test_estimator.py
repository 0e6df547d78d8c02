"""An estimator from outside the package: jobs and the command line fit it, models of it load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

import daskcluster as dc
from daskcluster import jobs
from daskcluster.errors import InvalidParameterError, ModelFormatError
from daskcluster.methods.catalogue import ALGORITHMS
from tests.extending.shrunken import ShrunkenKMeans
from tests.methods.declared import check_declaration
from tests.methods.test_scikit_learn import DENSE, SPARSE

X = (
    np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    + 9 * np.eye(3, dtype="f")[np.arange(500) % 3]
)
ENTRY = ALGORITHMS.pop("shrunken")
"""As its module registers it; taken back here, for other tests look at all that the catalogue has."""
PRELOAD = {"DASKCLUSTER_PRELOAD": "tests.extending.shrunken"}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "shrunken", ENTRY)


def test_signature_and_docstring_have_the_declared_parameters() -> None:
    check_declaration(ShrunkenKMeans)


def test_scikit_learn_checks() -> None:
    reason = "repeated rows draw other numbers"
    check_estimator(
        ShrunkenKMeans(3, random_state=0),
        expected_failed_checks={DENSE: reason, SPARSE: reason},
        on_fail="raise",
    )


def test_any_engine_gives_the_same_bits(client: Any) -> None:
    import dask.array as da

    here = ShrunkenKMeans(3, shrinkage=0.1, random_state=0, engine="local").fit(X)
    there = ShrunkenKMeans(3, shrinkage=0.1, random_state=0, engine=client)
    there.fit(da.from_array(X, chunks=(70, 3)))
    assert there.cluster_centers_.tobytes() == here.cluster_centers_.tobytes()
    assert np.array_equal(np.asarray(there.labels_), here.labels_)


def test_a_job_fits_it_and_its_model_comes_back(tmp_path: Path) -> None:
    model = str(tmp_path / "model.zarr")
    record = jobs.fit(
        X, n_clusters=3, model=model, algorithm="shrunken", random_state=0, shrinkage=0.1
    )
    assert (record.estimator, record.algorithm) == ("ShrunkenKMeans", "shrunken")
    again = dc.load_model(model)
    assert type(again) is ShrunkenKMeans
    assert again.shrinkage == 0.1
    fitted = ShrunkenKMeans(3, shrinkage=0.1, random_state=0).fit(X)
    assert again.cluster_centers_.tobytes() == fitted.cluster_centers_.tobytes()
    with pytest.raises(InvalidParameterError, match=r"must be a float in \[0, 1\)"):
        jobs.fit(X, n_clusters=3, model=model, algorithm="shrunken", shrinkage=1.0, overwrite=True)


def test_without_it_the_model_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ShrunkenKMeans(3, random_state=0).fit(X).save(str(tmp_path / "m"))
    monkeypatch.delitem(ALGORITHMS, "shrunken")
    with pytest.raises(ModelFormatError, match="'ShrunkenKMeans', known are KMeans"):
        dc.load_model(str(tmp_path / "m"))


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return process("-m", "daskcluster", *arguments, **environment)


def process(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


ONE_BY_ONE = """
import json, sys
from click.testing import CliRunner
from daskcluster.cli.main import main
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, words)
    print(json.dumps([done.exit_code, done.stdout, done.stderr]))
"""
"""Commands in one process, which imports the package once."""


def test_the_command_line_has_its_flags(tmp_path: Path) -> None:
    rows, model = str(tmp_path / "rows.npy"), str(tmp_path / "model.zarr")
    np.save(rows, X)
    fit = ("fit", rows, "--n-clusters", "3", "--model", model, "--algorithm", "shrunken")
    commands = [
        (*fit, "--shrinkage", "0.1", "--random-state", "0", "--json"),
        (*fit, "--shrinkage", "1"),
        (*fit, "--shrinkage", "-0.1"),
        ("fit", "--help"),
    ]
    ran = process("-c", ONE_BY_ONE, json.dumps(commands), **PRELOAD)
    done, *refused, helped = map(json.loads, ran.stdout.splitlines())
    assert done[0] == 0, done
    assert json.loads(done[1].splitlines()[-1])["estimator"] == "ShrunkenKMeans"
    assert dc.load_model(model).shrinkage == 0.1
    assert len(refused) == 2
    for code, _, error in refused:
        assert code == 2
        assert "is not in the range 0<=x<1" in " ".join(error.split())
    assert "--shrinkage" in helped[1]
    unknown = command(*fit)
    assert unknown.returncode == 2
    assert "'shrunken' is not one of" in " ".join(unknown.stderr.split())


def test_a_module_that_is_not_there_is_named() -> None:
    failed = command("fit", "--help", DASKCLUSTER_PRELOAD="no_such_module")
    assert failed.returncode == 1
    assert "DASKCLUSTER_PRELOAD='no_such_module'" in failed.stderr
