"""``fit --algorithm nested``: the estimator's result, from the command line and as a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import Result

import daskcluster as dc

Run = Callable[..., Result]
Record = Callable[..., dict[str, Any]]
FIT = (
    "fit", "rows.npy", "--algorithm", "nested", "--n-clusters", "6", "--batch-size", "150",
    "--rho", "10", "--random-state", "4",
)  # fmt: skip


def twin(rows: Any, **changes: Any) -> dc.NestedMiniBatchKMeans:
    values: dict[str, Any] = {"batch_size": 150, "rho": 10.0, "random_state": 4, **changes}
    return dc.NestedMiniBatchKMeans(6, **values).fit(rows)


def test_the_command_gives_the_result_of_the_estimator(here: Path, record: Record) -> None:
    found = record(*FIT, "--bounds", "none", "--model", "m", "--labels", "labels.zarr")
    model = dc.load_model("m")
    expected = twin("rows.npy", bounds=False)
    assert isinstance(model, dc.NestedMiniBatchKMeans)
    assert (model.bounds, model.batch_size, model.rho) == (False, 150, 10.0)
    assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)
    assert found["n_iter"] == expected.n_iter_
    assert model.history_[-1]["batch_size"] == 2000


def test_validation_rows_are_given_by_url(here: Path, record: Record) -> None:
    np.save("other.npy", np.load("rows.npy")[::7])
    record(*FIT, "--validation", "other.npy", "--model", "m")
    model = dc.load_model("m")
    last = model.history_[-1]["validation"]
    other = np.load("other.npy")
    assert np.isclose(last, -model.score(other) / len(other))


def test_a_dry_run_counts_the_passes(here: Path, record: Record) -> None:
    projected = record(*FIT, "--max-iter", "9", "--model", "m", "--dry-run")
    assert (projected["planned"], projected["passes_at_most"]) == (True, 11)
