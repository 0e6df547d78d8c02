"""``fit --algorithm vrkm++``: the estimator's result, from the command line and as a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import jobs

Record = Callable[..., dict[str, Any]]
FIT = ("fit", "rows.npy", "--n-clusters", "6", "--random-state", "4", "--max-iter", "3")


@pytest.mark.parametrize("variant", ["vrkm++", "vrkm"])
def test_the_command_gives_the_result_of_the_estimator(
    here: Path, record: Record, variant: str
) -> None:
    found = record(
        *FIT, "--algorithm", variant, "--learning-rate", "0.01", "--epoch-size", "0.5",
        "--n-partitions", "1", "--tol", "0", "--model", "m",
    )  # fmt: skip
    model = dc.load_model("m")
    expected = dc.VarianceReducedKMeans(
        6, variant=variant, learning_rate=0.01, epoch_size=0.5, tol=0, max_iter=3, random_state=4
    ).fit("rows.npy")
    assert isinstance(model, dc.VarianceReducedKMeans)
    assert (model.variant, model.learning_rate, model.n_partitions) == (variant, 0.01, 1)
    assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)
    assert found["n_iter"] == expected.n_iter_


def test_words_in_place_of_numbers(here: Path) -> None:
    jobs.fit(
        "rows.npy", n_clusters=6, model="m", algorithm="vrkm++", epoch_size="doubling",
        learning_rate="auto", init="random", max_iter=4, random_state=4, tol=0.0,
    )  # fmt: skip
    steps = [record["n_steps"] for record in dc.load_model("m").history_]
    assert steps == [2, 4, 8, 16]


def test_a_dry_run_counts_the_passes(here: Path, record: Record) -> None:
    for variant, passes in (("vrkm++", 1 + 3 + 1), ("vrkm", 1 + 2 * 3 + 1)):
        fit = (*FIT, "--algorithm", variant, "--init", "random", "--model", "m", "--overwrite")
        assert record(*fit, "--dry-run")["passes_at_most"] == passes
        assert 2 < record(*fit, "--tol", "0")["passes"] <= passes
