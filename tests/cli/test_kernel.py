"""``fit --algorithm mini-batch-kernel``: the estimator's result, from the command line and as a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import jobs

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


def test_none_keeps_all_batches(here: Path, record: Record) -> None:
    record(*FIT, "--truncation", "none", "--model", "m")
    assert dc.load_model("m").inertia_ == twin("rows.npy", truncation=None).inertia_


def test_a_job_gives_the_same(here: Path) -> None:
    jobs.fit(
        "rows.npy", n_clusters=5, model="m", algorithm="mini-batch-kernel", batch_size=200,
        max_iter=8, random_state=4, kernel="cosine",
    )  # fmt: skip
    assert dc.load_model("m").inertia_ == twin("rows.npy", kernel="cosine").inertia_


def test_a_dry_run_knows_it(here: Path, record: Record) -> None:
    projected = record(*FIT, "--model", "m", "--dry-run")
    assert projected["planned"] is True
    assert projected["seeding"] == "k-means++"
    assert projected["passes_at_most"] >= twin("rows.npy").passes_


def test_the_full_batch_and_what_it_will_take(here: Path, record: Record) -> None:
    np.save("few.npy", np.load("rows.npy")[:400])
    args = ("fit", "few.npy", "--algorithm", "kernel", "--n-clusters", "3", "--random-state", "1")
    found = record(*args, "--model", "m")
    model = dc.KernelKMeans(3, random_state=1).fit("few.npy")
    assert found["inertia"] == model.inertia_
    projected = record(*args, "--model", "other", "--dry-run")
    assert model.passes_ <= projected["passes_at_most"]


@pytest.mark.parametrize("kernel", ["knn", "heat"])
def test_graphs_are_saved_and_label_new_rows(
    here: Path, run: Callable[..., Any], record: Record, kernel: str
) -> None:
    rows = np.load("rows.npy")
    np.save("few.npy", rows[:400])
    args = ("--algorithm", "kernel", "--n-clusters", "3", "--random-state", "1")
    record("fit", "few.npy", *args, "--kernel", kernel, "--model", "m", "--labels", "labels.zarr")
    model = dc.KernelKMeans(3, kernel=kernel, random_state=1).fit("few.npy")
    assert np.array_equal(zarr.open_array("labels.zarr")[:], np.asarray(model.labels_))
    record("predict", "m", "rows.npy", "--output", "all.zarr")
    found = zarr.open_array("all.zarr")[:]
    assert np.array_equal(found[:400], np.asarray(model.labels_))
    assert np.array_equal(found, model.predict(rows))
    refused = run("score", "m", "rows.npy")
    assert refused.exit_code == 1
    assert "it can label other rows (predict)" in refused.output


def test_graphs_serve_mini_batches(here: Path, record: Record) -> None:
    np.save("few.npy", np.load("rows.npy")[:400])
    options = ("--kernel", "heat", "--n-neighbors", "7", "--heat-time", "2.5")
    found = record(FIT[0], "few.npy", *FIT[2:], *options, "--model", "m", "--labels", "labels.zarr")
    expected = twin("few.npy", kernel="heat", n_neighbors=7, heat_time=2.5)
    assert found["inertia"] == expected.inertia_
    assert np.array_equal(zarr.open_array("labels.zarr")[:], np.asarray(expected.labels_))
    projected = record(FIT[0], "few.npy", *FIT[2:], *options, "--model", "o", "--dry-run")
    assert projected["passes_at_most"] >= expected.passes_


def test_a_precomputed_matrix_is_fitted_and_labels_rows(here: Path, record: Record) -> None:
    rows = np.load("rows.npy")[:300].astype(np.float64)
    K = (rows @ rows.T + 1.0) ** 2
    np.save("K.npy", K)
    args = ("--algorithm", "kernel", "--n-clusters", "3", "--random-state", "1")
    record("fit", "K.npy", *args, "--kernel", "precomputed", "--model", "m", "--labels", "l.zarr")
    record("predict", "m", "K.npy", "--output", "again.zarr")
    assert np.array_equal(zarr.open_array("again.zarr")[:], zarr.open_array("l.zarr")[:])
