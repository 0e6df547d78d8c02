"""``fit --algorithm mini-batch-kernel``: the estimator's result, from the command line and as a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import daskcluster as dc

Record = Callable[..., dict[str, Any]]
FIT = (
    "fit", "rows.npy", "--algorithm", "mini-batch-kernel", "--n-clusters", "5", "--batch-size", "200",
    "--random-state", "4", "--max-iter", "8", "--gamma", "0.05",
)  # fmt: skip


def twin(rows: Any, **changes: Any) -> dc.MiniBatchKernelKMeans:
    values: dict[str, Any] = {"batch_size": 200, "max_iter": 8, "random_state": 4, "gamma": 0.05}
    return dc.MiniBatchKernelKMeans(5, **{**values, **changes}).fit(rows)


def test_the_command_gives_the_result_of_the_estimator(here: Path, record: Record) -> None:
    found = record(*FIT, "--truncation", "50", "--model", "m", "--labels", "labels.zarr")
    expected = twin("rows.npy", truncation=50)
    assert found["inertia"] == expected.inertia_
    assert np.array_equal(zarr.open_array("labels.zarr")[:], np.asarray(expected.labels_))
    record("predict", "m", "rows.npy", "--output", "again.zarr")
    assert np.array_equal(zarr.open_array("again.zarr")[:], np.asarray(expected.labels_))
    assert record("score", "m", "rows.npy")["inertia"] == expected.inertia_


def test_without_truncation_all_batches_are_kept(here: Path, record: Record) -> None:
    projected = record(*FIT, "--truncation", "none", "--dry-run")
    record(*FIT, "--truncation", "none", "--model", "m")
    expected = twin("rows.npy", truncation=None)
    assert dc.load_model("m").inertia_ == expected.inertia_
    assert projected["passes_at_most"] >= expected.passes_


def test_the_full_batch_makes_no_more_passes_than_a_dry_run_says(
    here: Path, record: Record
) -> None:
    np.save("few.npy", np.load("rows.npy")[:400])
    args = ("fit", "few.npy", "--algorithm", "kernel", "--n-clusters", "3", "--random-state", "1")
    found = record(*args, "--model", "m")
    model = dc.KernelKMeans(3, random_state=1).fit("few.npy")
    assert found["inertia"] == model.inertia_
    projected = record(*args, "--model", "other", "--dry-run")
    assert model.passes_ <= projected["passes_at_most"]


def test_graphs_are_saved_and_label_new_rows(
    here: Path, run: Callable[..., Any], record: Record
) -> None:
    rows = np.load("rows.npy")
    np.save("few.npy", rows[:400])
    args = ("--algorithm", "kernel", "--n-clusters", "3", "--random-state", "1")
    record("fit", "few.npy", *args, "--kernel", "knn", "--model", "m", "--labels", "labels.zarr")
    model = dc.KernelKMeans(3, kernel="knn", random_state=1).fit("few.npy")
    assert np.array_equal(zarr.open_array("labels.zarr")[:], np.asarray(model.labels_))
    record("predict", "m", "rows.npy", "--output", "all.zarr")
    found = zarr.open_array("all.zarr")[:]
    assert np.array_equal(found[:400], np.asarray(model.labels_))
    assert np.array_equal(found, model.predict(rows))
    refused = run("score", "m", "rows.npy")
    assert refused.exit_code == 1
    assert "it can label other rows (predict)" in refused.output


def test_a_precomputed_matrix_is_fitted_and_labels_rows(here: Path, record: Record) -> None:
    rows = np.load("rows.npy")[:300].astype(np.float64)
    K = (rows @ rows.T + 1.0) ** 2
    np.save("K.npy", K)
    args = ("--algorithm", "kernel", "--n-clusters", "3", "--random-state", "1")
    record("fit", "K.npy", *args, "--kernel", "precomputed", "--model", "m", "--labels", "l.zarr")
    record("predict", "m", "K.npy", "--output", "again.zarr")
    assert np.array_equal(zarr.open_array("again.zarr")[:], zarr.open_array("l.zarr")[:])
