"""Scores that die within a pass: a resumed one reads the rest, and has the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import jobs
from daskcluster.errors import CheckpointError, InvalidParameterError
from daskcluster.parameters.algorithm import MEASURES
from daskcluster.storage.location import locate
from tests.data.conftest import s3  # noqa: F401  (a fixture)
from tests.estimators.interruption import Killed
from tests.estimators.test_killed_passes import (  # noqa: F401  (fixtures)
    K,
    N,
    dies_at,
    kept_always,
    rows,
)

pytestmark = pytest.mark.usefixtures("kept_always")

MODELS: dict[str, Any] = {
    "k-means": lambda: dc.KMeans(K, max_iter=2, random_state=0, engine="local"),
    "cosine": lambda: dc.KMeans(K, metric="cosine", max_iter=2, random_state=0, engine="local"),
    "kernel": lambda: dc.MiniBatchKernelKMeans(4, max_iter=3, random_state=0, engine="local"),
    "mixture": lambda: dc.VariationalGaussianMixture(K, max_iter=2, random_state=0, engine="local"),
}


@pytest.fixture(params=["disk", "memory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "bucket":
        return locate(f"s3://rows/{tmp_path.name}/kept", request.getfixturevalue("s3"))
    return str(tmp_path / "kept") if request.param == "disk" else f"memory://{tmp_path}/kept"


def with_deaths(score: Any, steps: Any) -> tuple[Any, int]:
    """Score in processes that die after so many kept totals; return the result and the number of deaths."""
    deaths = 0
    for step in steps:
        with pytest.MonkeyPatch.context() as within:
            dies_at(within, step)
            try:
                return score(resume=deaths > 0), deaths
            except Killed:
                deaths += 1
    return score(resume=True), deaths


@pytest.mark.parametrize("name", MODELS)
def test_a_score_resumes_within_its_pass(
    rows: Any,  # noqa: F811
    kept_always: list[int],  # noqa: F811
    place: Any,
    name: str,
) -> None:
    model = MODELS[name]().fit(rows)
    whole = model.score(rows)

    def score(resume: bool) -> float:
        return float(model.score(rows, checkpoint=place, resume=resume))

    found, deaths = with_deaths(score, (3, 1, 5, 2, 400))
    assert deaths >= 3
    assert any(0 < count < N for count in kept_always)
    assert found == whole


@pytest.mark.parametrize("name", ["cosine", "mixture"])
def test_the_job_resumes_in_every_pass_of_its_measures(
    rows: Any,  # noqa: F811
    tmp_path: Path,
    name: str,
) -> None:
    url = str(tmp_path / "model")
    MODELS[name]().fit(rows).save(url)
    # The silhouette is not defined for weighted rows.
    measures = [each for each in MEASURES if rows.weights is None or each != "silhouette"]
    given: dict[str, Any] = {"metrics": measures, "sample_size": 500, "engine": "local"}
    whole = jobs.score(url, rows, random_state=0, **given)
    given |= {"random_state": 0, "checkpoint": str(tmp_path / "kept")}

    def score(resume: bool) -> Any:
        return jobs.score(url, rows, resume=resume, **given)

    found, deaths = with_deaths(score, (2, 9, 4, 23, 2, 16, 30, 11, 7, 40))
    assert deaths > 4
    assert (found.inertia, found.score, found.metrics) == (
        whole.inertia,
        whole.score,
        whole.metrics,
    )
    assert not list((tmp_path / "kept").iterdir())


def test_a_resumed_score_reads_the_rest(rows: Any, tmp_path: Path) -> None:  # noqa: F811
    url = str(tmp_path / "model")
    MODELS["k-means"]().fit(rows).save(url)
    given = {"checkpoint": str(tmp_path / "kept"), "engine": "local"}
    whole = jobs.score(url, rows, engine="local")
    with pytest.MonkeyPatch.context() as within:
        dies_at(within, 8)
        with pytest.raises(Killed):
            jobs.score(url, rows, **given)
    found = jobs.score(url, rows, resume=True, **given)
    assert found.inertia == whole.inertia
    assert found.bytes_read < whole.bytes_read


def test_totals_of_others_are_refused_by_name(rows: Any, tmp_path: Path) -> None:  # noqa: F811
    model = MODELS["k-means"]().fit(rows)
    kept = str(tmp_path / "kept")
    with pytest.MonkeyPatch.context() as within:
        dies_at(within, 3)
        with pytest.raises(Killed):
            model.score(rows, checkpoint=kept)
    other = dc.KMeans(K, max_iter=3, random_state=1, engine="local").fit(rows)
    with pytest.raises(CheckpointError, match=r"parameters\.model was"):
        other.score(rows, checkpoint=kept, resume=True)
    changed = rows.to_numpy()
    changed[-1] *= 2
    with pytest.raises(CheckpointError, match=r"data\.first_and_last_rows was"):
        model.score(changed, checkpoint=kept, resume=True)
    with pytest.raises(InvalidParameterError, match="resume=True needs checkpoint="):
        model.score(rows, resume=True)
    assert np.isfinite(model.score(rows, checkpoint=kept, resume=True))
