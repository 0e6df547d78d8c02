"""``daskcluster coreset``, and ``fit --algorithm coreset``."""

from __future__ import annotations

import json
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
DRAW = ("coreset", "rows.npy", "--size", "300", "--random-state", "4", "--threads", "2")


def test_a_coreset_takes_the_place_of_the_rows(here: Path, record: Record, rows: Any) -> None:
    found = record(*DRAW, "--output", "few.zarr")
    assert (found["output"], found["size"], found["n_rows"]) == ("few.zarr", 300, 2000)
    assert (found["passes"], found["seed"], found["total_weight"]) == (2, 4, 2000)
    twin = dc.LightweightCoreset(300, random_state=4).fit(rows)
    opened = dc.open_dataset("few.zarr")
    assert np.array_equal(opened.to_numpy(), twin.coreset_.to_numpy())
    assert found["coreset_weight"] == np.asarray(opened.weights).sum()
    fitted = record("fit", "few.zarr", "--n-clusters", "6", "--random-state", "0", "--model", "m")
    assert fitted["n_rows"] == 300
    assert load_document("m").weights.sum() == pytest.approx(found["coreset_weight"])


def test_it_refuses_to_overwrite(here: Path, run: Run, record: Record) -> None:
    record(*DRAW, "--output", "few.zarr")
    refused = run(*DRAW, "--output", "few.zarr")
    assert refused.exit_code == 1
    assert "pass --overwrite" in refused.stderr
    assert record(*DRAW, "--size", "20", "--output", "few.zarr", "--overwrite")["size"] == 20
    zarr.create_array("mine.zarr", data=np.zeros(3))
    refused = run(*DRAW, "--output", "mine.zarr", "--overwrite")
    assert refused.exit_code == 1
    assert "is not of a kind that" in refused.stderr
    assert "would replace the source" in run(*DRAW, "--output", "rows.npy").stderr


def test_quality_is_one_more_pass(here: Path, run: Run, record: Record) -> None:
    found = record(*DRAW, "--output", "few.zarr", "--quality", "5")
    assert found["passes"] == 3
    assert found["quality"]["costs"][0]["name"] == "mean"
    assert found["quality"]["largest_error"] < 1
    shown = run(*DRAW, "--output", "few.zarr", "--quality", "5", "--overwrite").stdout
    assert "cost of k-means++" in shown
    assert "off by" in shown


def test_dry_run_writes_nothing(here: Path, run: Run, record: Record) -> None:
    before = sorted(here.iterdir())
    found = record(*DRAW, "--dry-run")
    assert (found["passes_at_most"], found["size"], found["dry_run"]) == (2, 300, True)
    assert record(*DRAW, "--dry-run", "--quality", "3")["passes_at_most"] == 3
    assert "memory" in run(*DRAW, "--dry-run").stdout
    assert sorted(here.iterdir()) == before
    assert run(*DRAW).exit_code == 2


def test_weights_of_a_group(here: Path, run: Run, record: Record, rows: Any) -> None:
    weights = np.arange(2000) % 3
    zarr.create_group("g.zarr").create_array("X", data=rows)
    zarr.open_group("g.zarr").create_array("w", data=weights)
    source = ("coreset", "g.zarr", "--array", "X", "--weights", "w", "--size", "100")
    assert record(*source, "--output", "few.zarr")["total_weight"] == weights.sum()
    indices = zarr.open_group("few.zarr", mode="r")["indices"][:]
    assert (weights[indices] > 0).all()


def test_fit_on_a_coreset(here: Path, record: Record, rows: Any) -> None:
    flags = ("--n-clusters", "6", "--random-state", "0", "--algorithm", "coreset")
    fitted = record("fit", "rows.npy", *flags, "--coreset-size", "400", "--model", "m")
    assert (fitted["estimator"], fitted["passes"]) == ("CoresetKMeans", 2)
    twin = dc.CoresetKMeans(6, coreset_size=400, random_state=0).fit(rows)
    assert load_document("m").centres.tobytes() == twin.cluster_centers_.tobytes()
    labelled = record(
        "fit", "rows.npy", *flags, "--coreset-size", "400", "--model", "n", "--labels", "l"
    )
    assert labelled["passes"] == 3
    assert np.array_equal(zarr.open_array("l", mode="r")[:], twin.labels_)


def test_info_describes_the_source_of_a_coreset(here: Path, run: Run, record: Record) -> None:
    np.save("rows.npy", np.random.default_rng(0).normal(size=(1000, 3)))
    run("coreset", "rows.npy", "--size", "50", "--random-state", "4", "--output", "few.zarr")
    found = record("info", "few.zarr")["coreset"]
    expected = {"kind": "lightweight", "size": 50, "n_rows": 1000, "seed": 4}
    assert found.items() >= expected.items()
    text = run("info", "few.zarr").output
    line = next(line for line in text.splitlines() if line.lstrip().startswith("coreset"))
    assert json.loads(line.removeprefix("coreset")) == found
    dc.merge_coresets("few.zarr", "few.zarr").save("both.zarr")
    assert run("info", "both.zarr").output.count("lightweight") == 2
