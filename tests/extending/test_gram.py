"""A Gram function from outside: the intersection of histograms (Barla, Odone and Verri 2003)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import ModelFormatError
from daskcluster.extending import register_gram
from daskcluster.methods.kernel_kmeans.chunkwise import FUNCTIONS
from daskcluster.methods.kernel_kmeans.parameters import KERNELS

NAME = "intersection"


def intersection(X: Any, Y: Any) -> np.ndarray:
    return np.minimum(np.asarray(X)[:, None, :], np.asarray(Y)[None, :, :]).sum(axis=2)


if __name__ != "__main__":  # as a package does when it is imported: here for DASKCLUSTER_PRELOAD
    register_gram(NAME, intersection)
    del FUNCTIONS[NAME], KERNELS[NAME]
    if "tests.extending.test_gram" in os.environ.get("DASKCLUSTER_PRELOAD", ""):
        register_gram(NAME, intersection)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_gram(NAME, intersection)
    yield
    FUNCTIONS.pop(NAME, None)
    KERNELS.pop(NAME, None)


def histograms() -> np.ndarray:
    """Return rows of two kinds, which overlap nowhere."""
    rng = np.random.default_rng(0)
    rows = rng.random((300, 6))
    rows[::2, :3] = 0
    rows[1::2, 3:] = 0
    return rows / rows.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("estimator", [dc.KernelKMeans, dc.MiniBatchKernelKMeans])
def test_it_is_the_callable_by_its_name(estimator: Any) -> None:
    rows = histograms()
    named, given = (
        estimator(2, kernel=k, max_iter=20, random_state=0).fit(rows) for k in (NAME, intersection)
    )
    np.testing.assert_array_equal(named.labels_, given.labels_)
    np.testing.assert_array_equal(named.predict(rows), given.predict(rows))
    assert named.inertia_ == given.inertia_
    assert len(set(named.labels_[::2])) == len(set(named.labels_[1::2])) == 1


def test_any_engine_gives_the_same_bits(client: Any) -> None:
    here, there = (
        dc.MiniBatchKernelKMeans(2, kernel=NAME, max_iter=20, random_state=0, engine=engine).fit(
            histograms()
        )
        for engine in ("local", client)
    )
    np.testing.assert_array_equal(here.labels_, np.asarray(there.labels_))


def test_a_saved_model_finds_it_again(tmp_path: Path) -> None:
    rows, url = histograms(), str(tmp_path / "m")
    model = dc.KernelKMeans(2, kernel=NAME, random_state=0).fit(rows)
    model.save(url)
    np.testing.assert_array_equal(dc.load_model(url).predict(rows), model.predict(rows))
    del FUNCTIONS[NAME]
    with pytest.raises(ModelFormatError, match="if another package registers it"):
        dc.load_model(url)


def test_the_command_line_takes_its_name(tmp_path: Path) -> None:
    rows, model = str(tmp_path / "rows.npy"), str(tmp_path / "model.zarr")
    np.save(rows, histograms())
    fit = ["fit", rows, "--algorithm", "kernel", "--n-clusters", "2", "--kernel", NAME, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "daskcluster", *fit, "--random-state", "0", "--model", model],
        env={**os.environ, "DASKCLUSTER_PRELOAD": "tests.extending.test_gram"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["n_rows"] == 300
    assert dc.load_model(model).kernel == NAME
