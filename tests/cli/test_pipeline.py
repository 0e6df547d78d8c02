"""``fit --algorithm vc-gmm``: from rows to labels in one command, and the same in pieces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import Result

import daskcluster as dc
from daskcluster.models.fitted import load_document

Run = Callable[..., Result]
Record = Callable[..., dict[str, Any]]
SEED = ("--random-state", "7")
LEARN = ("--n-clusters", "6", "--truncation", "3", *SEED)


@pytest.fixture
def stored(here: Path, rows: np.ndarray) -> str:
    """Return the URL of the rows in Zarr, in chunks that are not all alike."""
    array = zarr.create_array("rows.zarr", shape=rows.shape, chunks=(300, 4), dtype=rows.dtype)
    array[:] = rows
    return "rows.zarr"


def test_one_command_and_its_pieces_give_the_same_bits(
    stored: str, record: Record, rows: np.ndarray
) -> None:
    one = ("fit", stored, "--algorithm", "vc-gmm", "--coreset-size", "400", *LEARN)
    found = record(*one, "--model", "m", "--labels", "l")
    assert (found["estimator"], found["seeding"]) == ("VariationalGaussianMixture", "sample")
    assert found["passes"] == 3
    twin = dc.VariationalGaussianMixture(6, truncation=3, coreset_size=400, random_state=7)
    assert dc.load_model("m").means_.tobytes() == twin.fit(rows).means_.tobytes()
    labels = zarr.open_array("l", mode="r")
    assert (labels.shape, labels.dtype, labels.chunks) == ((2000,), np.int32, (300,))
    assert np.array_equal(labels[:], twin.predict(rows))
    record("coreset", stored, "--size", "400", *SEED, "--output", "few.zarr")
    fitted = record("fit", "few.zarr", "--algorithm", "var-gmm", *LEARN, "--model", "n")
    assert fitted["n_rows"] == 400
    record("predict", "n", stored, "--output", "k")
    assert load_document("n").centres.tobytes() == load_document("m").centres.tobytes()
    assert np.array_equal(zarr.open_array("k")[:], labels[:])


def test_progress_names_the_stages(stored: str, run: Run) -> None:
    flags = ("--algorithm", "vc-gmm", "--coreset-size", "400", *LEARN, "--progress")
    lines = run("fit", stored, *flags, "--model", "m").stderr.splitlines()
    words = (
        "vc-gmm:",
        "coreset of 400 rows for 2,000: 2 passes",
        "seeding by sample",
        "iteration",
        "ended",
    )
    places = [next(i for i, line in enumerate(lines) if line.startswith(w)) for w in words]
    assert places == sorted(places)
