"""Mixtures from the command line: what a dry run says, and posteriors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import daskcluster as dc

Record = Callable[..., dict[str, Any]]
FIT = ("fit", "rows.npy", "--n-clusters", "6", "--random-state", "0", "--model", "m")


def test_no_fit_makes_more_passes_than_a_dry_run_says(here: Path, record: Record) -> None:
    for given, passes in (
        (("--warmup-steps", "2"), 15),
        (("--init", "random"), 11),
        (("--truncation", "6"), 13),
    ):
        fit = (*FIT, "--algorithm", "var-gmm", "--max-iter", "9", "--overwrite", *given)
        projected = record(*fit, "--dry-run")
        assert projected["passes_at_most"] == passes
        assert projected["memory"]["state"] == 2000 * (24 if "--truncation" in given else 20)
        assert record(*fit)["passes"] <= passes


def test_with_a_coreset_there_are_two_passes(here: Path, record: Record) -> None:
    fit = (*FIT, "--algorithm", "vc-gmm", "--coreset-size", "300")
    assert record(*fit, "--dry-run")["passes_at_most"] == record(*fit)["passes"] == 2


def test_posteriors_are_written_next_to_labels(here: Path, record: Record) -> None:
    record(*FIT, "--algorithm", "var-gmm", "--truncation", "2")
    found = record("predict", "m", "rows.npy", "--output", "labels", "--posteriors", "posteriors")
    assert found["posteriors"] == "posteriors"
    group = zarr.open_group("posteriors", mode="r")
    matrix = dc.load_model("m").predict_proba(np.load("rows.npy"))
    assert group["components"].shape == (2000, 2)
    assert np.allclose(group["probabilities"][:].sum(axis=1), 1.0)
    assert np.array_equal(np.sort(group["components"][:], axis=1).ravel(), matrix.indices)
