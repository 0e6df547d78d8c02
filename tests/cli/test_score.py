"""``daskcluster score --metrics``: measures of the clusters that a model makes of rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from daskcluster import jobs, metrics
from daskcluster.methods.load import load_model

ALL = ("calinski-harabasz", "davies-bouldin", "silhouette", "simplified-silhouette")


@pytest.fixture
def model(here: Path, record: Callable[..., Any]) -> str:
    record("convert", "rows.npy", "rows.zarr", "--chunk-rows", "300")
    record("fit", "rows.zarr", "--n-clusters", "5", "--random-state", "0", "--model", "m")
    return "m"


def test_measures_are_those_of_the_labels(
    model: str, rows: np.ndarray, record: Callable[..., Any], run: Callable[..., Result]
) -> None:
    plain = record("score", model, "rows.zarr")
    found = record("score", model, "rows.zarr", "--metrics", "all")
    assert plain["metrics"] is None
    assert (found["inertia"], found["passes"]) == (plain["inertia"], plain["passes"] + 3)
    labels = load_model(model).predict(rows)
    assert tuple(found["metrics"]) == ALL
    for name, value in found["metrics"].items():
        assert value == getattr(metrics, name.replace("-", "_"))(rows, labels)
    text = run("score", model, "rows.zarr", "--metrics", "davies-bouldin,silhouette").stdout
    assert "davies bouldin" in text
    assert "calinski" not in text


def test_an_empty_cluster_does_not_change_the_measures(model: str, rows: np.ndarray) -> None:
    labels = load_model(model).predict(rows)
    few = rows[labels != 2]
    found = jobs.score(model, few, metrics=ALL)
    assert found.metrics is not None
    for name, value in found.metrics.items():
        measure = getattr(metrics, name.replace("-", "_"))
        assert value == pytest.approx(measure(few, labels[labels != 2]), rel=1e-12)


def test_mixtures_and_kernel_models_label_rows_in_their_own_way(
    here: Path, rows: np.ndarray
) -> None:
    for algorithm in ("var-gmm", "mini-batch-kernel"):
        given = {"n_clusters": 4, "random_state": 0, "max_iter": 5}
        jobs.fit(rows, algorithm=algorithm, model=algorithm, **given)
        labels = load_model(algorithm).predict(rows)
        found = jobs.score(algorithm, rows, metrics=("davies-bouldin",))
        assert found.metrics == {"davies-bouldin": metrics.davies_bouldin(rows, labels)}


def test_the_cosine_silhouette_of_a_cosine_model(here: Path, rows: np.ndarray) -> None:
    jobs.fit(rows, n_clusters=4, model="cosine", random_state=0, metric="cosine")
    labels = load_model("cosine").predict(rows)
    found = jobs.score("cosine", rows, metrics=ALL[2:]).metrics
    assert found is not None
    assert found["silhouette"] == metrics.silhouette(rows, labels, metric="cosine")
    expected = metrics.simplified_silhouette(rows, labels, metric="cosine")
    assert found["simplified-silhouette"] == expected


def test_a_sample_of_rows(model: str, record: Callable[..., Any]) -> None:
    few = ("score", model, "rows.zarr", "--metrics", "silhouette", "--sample-size", "200")
    one, same, other = (record(*few, "--random-state", seed)["metrics"] for seed in "112")
    assert one == same != other


def test_an_unknown_measure_is_bad_usage(model: str, run: Callable[..., Result]) -> None:
    result = run("score", model, "rows.zarr", "--metrics", "silhouette,beauty")
    assert result.exit_code == 2
    assert "'beauty' should be one of calinski-harabasz" in " ".join(result.stderr.split())
