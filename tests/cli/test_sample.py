"""``daskcluster sample``, ``fit`` with levels and ``predict --level``, from rows to a sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import daskcluster as dc

Run = Callable[..., Result]
Record = Callable[..., dict[str, Any]]
FIT = (
    "fit", "rows.npy", "--algorithm", "hierarchical", "--n-clusters", "60", "--level-sizes", "12,3",
    "--resample-rounds", "1", "--random-state", "0", "--model", "m", "--threads", "2",
)  # fmt: skip
SAMPLE = ("sample", "m", "rows.npy", "--size", "300", "--random-state", "4")


@pytest.fixture
def fitted(here: Path, record: Record) -> Any:
    record(*FIT)
    return dc.load_model("m")


def test_from_rows_to_a_sample(here: Path, fitted: Any, record: Record, rows: Any) -> None:
    assert record("info", "m")["levels"] == "60 clusters in 12 in 3"
    found = record(*SAMPLE, "--output", "ids.npy", "--rows", "few.zarr", "--weighted")
    assert (found["size"], found["passes"], found["levels"]) == (300, 2, [60, 12, 3])
    # Even over the last level first.
    assert found["after"][-1]["variation"] < 0.01 < found["before"][-1]["variation"]
    expected = dc.balanced_sample(fitted, rows, size=300, random_state=4)
    assert np.array_equal(np.load("ids.npy"), expected.rows)
    assert np.array_equal(dc.open_dataset("few.zarr").to_numpy(), rows[expected.rows])
    again = record("fit", "few.zarr", "--n-clusters", "6", "--model", "n")
    assert again["n_rows"] == 300


def test_rows_are_chosen_by_distance_or_by_a_score(
    here: Path, fitted: Any, record: Record, rows: Any
) -> None:
    np.save("scores.npy", np.arange(2000.0))
    for how, given in (("nearest", "nearest"), ("scores.npy", np.arange(2000.0))):
        done = record(*SAMPLE, "--how", how, "--output", "ids.npy", "--overwrite")
        assert done["how"] == how
        expected = dc.balanced_sample(fitted, rows, size=300, how=given, random_state=4)
        assert np.array_equal(np.load("ids.npy"), expected.rows)


def test_labels_of_a_level(here: Path, fitted: Any, run: Run, record: Record, rows: Any) -> None:
    record("predict", "m", "rows.npy", "--level", "2", "--output", "two.npy")
    assert np.array_equal(np.load("two.npy"), fitted.predict(rows, level=2))
    refused = run("predict", "m", "rows.npy", "--level", "4", "--output", "four.npy")
    assert "level=4 should be in [1, 3]" in refused.stderr
    refused = run("predict", "m", "rows.npy", "--level", "2", "--distances", "--output", "d.zarr")
    assert "gives labels alone" in refused.stderr


def test_invalid_samples_are_refused(here: Path, fitted: Any, run: Run) -> None:
    assert run(*SAMPLE).exit_code == 2
    assert run(*SAMPLE, "--output", "a.npy", "--weighted").exit_code == 2
    assert "would replace the source" in run(*SAMPLE, "--output", "rows.npy").stderr
    refused = run(*SAMPLE, "--output", "a.npy", "--how", "nonsense")
    assert refused.exit_code == 1
    assert "how='nonsense' should be random, nearest, farthest" in refused.stderr
    assert run(*SAMPLE, "--output", "a.npy").exit_code == 0
    refused = run(*SAMPLE, "--output", "a.npy")
    assert (refused.exit_code, "pass --overwrite" in refused.stderr) == (1, True)
    assert run(*SAMPLE, "--output", "a.npy", "--overwrite").exit_code == 0
    assert run(*SAMPLE, "--output", "b.npy", "--rows", "b.npy").exit_code == 1


def test_dry_run_writes_nothing(here: Path, fitted: Any, run: Run, record: Record) -> None:
    before = sorted(here.iterdir())
    found = record(*SAMPLE, "--dry-run")
    assert (found["passes_at_most"], found["size"], found["dry_run"]) == (2, 300, True)
    assert found["memory"]["state"] == 4 * 2000
    shown = run(*SAMPLE, "--dry-run").stdout
    assert "seeding" not in shown
    assert "memory" in shown
    assert sorted(here.iterdir()) == before


def test_the_table_names_rows_and_levels(here: Path, fitted: Any, run: Run) -> None:
    shown = run(*SAMPLE, "--output", "ids.csv").stdout
    assert "size        300\n" in shown
    assert "levels      60, 12, 3\n" in shown
    assert "level 3" in shown
