"""Jobs: plain arguments in, whole outputs and a small record out."""

from __future__ import annotations

import inspect
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import jobs, quantization_error
from daskcluster.errors import (
    DaskClusterError,
    DatasetNotFoundError,
    InvalidDataError,
    InvalidParameterError,
    ModelFormatError,
    OutputExistsError,
)
from daskcluster.events import Event, FitEnded, PassStarted
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.methods.load import load_model
from daskcluster.models.fitted import load_document

SUBMIT_KEYWORDS = {
    "key",
    "workers",
    "resources",
    "retries",
    "priority",
    "fifo_timeout",
    "allow_other_workers",
    "actor",
    "actors",
    "pure",
}


@pytest.fixture
def rows(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((6, 5)) * 8
    X = centres[rng.integers(0, 6, 3000)] + rng.standard_normal((3000, 5))
    group = zarr.open_group(str(tmp_path / "rows.zarr"), mode="w")
    group.create_array("X", data=X.astype(np.float32), chunks=(700, 5))
    group.create_array("w", data=rng.random(3000), chunks=(700,))
    return str(tmp_path / "rows.zarr")


def fit(source: str, model: Path, **changes: Any) -> jobs.FitRecord:
    values: dict[str, Any] = {"n_clusters": 6, "array": "X", "random_state": 0, "engine": "local"}
    return jobs.fit(source, model=str(model), **{**values, **changes})


def test_a_fit_writes_the_model_that_the_estimator_finds(rows: str, tmp_path: Path) -> None:
    record = fit(rows, tmp_path / "m")
    X = zarr.open_group(rows, mode="r")["X"]
    estimator = KMeans(6, init="k-means||", random_state=0, engine="local").fit(X)
    model = load_document(record.model)
    assert model.centres.tobytes() == estimator.cluster_centers_.tobytes()
    assert record.inertia == estimator.inertia_ == model.inertia
    assert record.n_iter == estimator.n_iter_
    assert record.passes == estimator.passes_ == model.passes
    assert record.bytes_read == estimator.bytes_read_
    assert (record.n_rows, record.n_features, record.n_clusters) == (3000, 5, 6)
    assert record.seeding == "k-means||"
    assert record.versions["daskcluster"]


def test_a_record_is_small_and_plain(rows: str, tmp_path: Path) -> None:
    record = fit(rows, tmp_path / "m")
    assert len(pickle.dumps(record)) < 2000
    assert pickle.loads(pickle.dumps(record)) == record
    assert json.loads(json.dumps(record.as_dict()))["model"] == str(tmp_path / "m")


def test_labels_are_those_of_predict_in_memory(rows: str, tmp_path: Path) -> None:
    labels, output = str(tmp_path / "labels"), str(tmp_path / "output")
    record = fit(rows, tmp_path / "m", labels=labels)
    assert record.passes == load_document(record.model).passes  # the last one has the labels
    predicted = jobs.predict(record.model, rows, array="X", output=output, engine="local")
    assert (predicted.passes, predicted.n_rows) == (1, 3000)
    X = np.asarray(zarr.open_group(rows, mode="r")["X"][:])  # type: ignore[index]
    estimator = KMeans.from_model(load_document(record.model))
    expected = estimator.predict(X)
    for url in (labels, output):
        written = zarr.open_array(url, mode="r")
        assert written.dtype == np.int32
        assert written.shape == (3000,)
        assert written.chunks == (700,)
        np.testing.assert_array_equal(written[:], expected)


def test_score_is_the_inertia_on_the_rows(rows: str, tmp_path: Path) -> None:
    record = fit(rows, tmp_path / "m")
    found = jobs.score(record.model, rows, array="X", engine="local")
    assert found.inertia == record.inertia == -found.score
    assert found.passes == 1
    weighted = jobs.score(record.model, rows, array="X", weights="w", engine="local")
    assert weighted.inertia < found.inertia


def test_weights_by_name(rows: str, tmp_path: Path) -> None:
    record = fit(rows, tmp_path / "m", weights="w")
    weights = zarr.open_group(rows, mode="r")["w"][:]  # type: ignore[index]
    model = load_document(record.model)
    assert model.weights.sum() == pytest.approx(np.asarray(weights).sum())
    assert model.sizes.sum() == 3000


def test_callbacks_get_the_events_of_the_whole_job(rows: str, tmp_path: Path) -> None:
    events: list[Event] = []
    fit(rows, tmp_path / "m", labels=str(tmp_path / "l"), callbacks=(events.append,))
    assert any(isinstance(event, FitEnded) for event in events)
    passes = [event.name for event in events if isinstance(event, PassStarted)]
    assert passes[-1] == "score"


def test_a_warm_start_from_a_saved_model(rows: str, tmp_path: Path) -> None:
    first = fit(rows, tmp_path / "m", tol=0.0)
    second = fit(rows, tmp_path / "m", tol=0.0, init=first.model, overwrite=True)
    assert (second.n_iter, second.stop_reason, second.seeding) == (1, "converged", "model")
    assert second.inertia == first.inertia


def test_runs_as_a_bare_dask_task(client: Any, rows: str, tmp_path: Path) -> None:
    future = client.submit(
        jobs.fit,
        rows,
        n_clusters=6,
        model=str(tmp_path / "task"),
        array="X",
        random_state=0,
        pure=False,
    )
    record = future.result()
    assert record.inertia == fit(rows, tmp_path / "here").inertia
    here, there = load_document(str(tmp_path / "here")), load_document(record.model)
    assert here.centres.tobytes() == there.centres.tobytes()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_of_the_catalogue_is_a_job(name: str, rows: str, tmp_path: Path) -> None:
    record = fit(rows, tmp_path / "m", algorithm=name, labels=str(tmp_path / "l"))
    assert (record.algorithm, record.estimator) == (name, ALGORITHMS[name].class_name)
    assert load_document(record.model).estimator == ALGORITHMS[name].class_name
    estimator = load_model(record.model)
    X = zarr.open_group(rows, mode="r")["X"]
    written = zarr.open_array(str(tmp_path / "l"), mode="r")[:]
    np.testing.assert_array_equal(written, estimator.predict(X))
    scored = jobs.score(record.model, rows, array="X", engine="local")
    assert np.isfinite(scored.inertia)
    assert scored.score == pytest.approx(estimator.score(X), rel=1e-12)
    if "kernel" not in name:
        expected = quantization_error(X, load_document(record.model).centres)
        assert scored.inertia == pytest.approx(expected, rel=1e-9)


def test_no_parameter_has_the_name_of_an_argument_of_a_job_or_of_submit() -> None:
    for job in (jobs.fit, jobs.predict, jobs.score):
        assert not SUBMIT_KEYWORDS & set(inspect.signature(job).parameters), job
    taken = SUBMIT_KEYWORDS | set(inspect.signature(jobs.fit).parameters)
    for name, algorithm in ALGORITHMS.items():
        assert set(algorithm.parameters) & taken <= {"n_clusters", "random_state"}, name


# -- refused before any work ------------------------------------------------------------------------


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*arguments: Any, **options: Any) -> None:
        raise AssertionError("work began before the outputs were checked")

    monkeypatch.setattr(KMeans, "fit", work)
    monkeypatch.setattr("daskcluster.estimators.base.save_rows", work)


@pytest.mark.usefixtures("no_work")
def test_outputs_that_exist_are_refused_before_work(rows: str, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("x")
    taken = str(tmp_path / "taken")
    with pytest.raises(OutputExistsError, match="exists"):
        fit(rows, tmp_path / "taken")
    with pytest.raises(OutputExistsError, match="overwrite=True"):
        fit(rows, tmp_path / "taken", overwrite=True)
    for overwrite in (False, True):
        with pytest.raises(OutputExistsError, match="exists"):
            fit(rows, tmp_path / "m", labels=taken, overwrite=overwrite)
    assert os.listdir(taken) == ["file"]


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("output", ["rows.zarr", "rows.zarr/", "../{here}/rows.zarr", "."])
def test_an_output_never_replaces_an_input(
    rows: str, tmp_path: Path, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = output.format(here=tmp_path.name)
    with pytest.raises(InvalidParameterError, match="would replace the source"):
        fit("rows.zarr", tmp_path / "m", labels=url, overwrite=True)
    with pytest.raises(InvalidParameterError, match="would replace the source"):
        fit("rows.zarr", Path(url), overwrite=True)


@pytest.mark.usefixtures("no_work")
def test_parameters_that_the_algorithm_lacks(rows: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="'lloyd' has no parameter 'max_iters'"):
        fit(rows, tmp_path / "m", algorithm="lloyd", max_iters=3)
    with pytest.raises(InvalidParameterError, match="algorithm='magic' should be one of auto"):
        fit(rows, tmp_path / "m", algorithm="magic")
    assert os.listdir(tmp_path) == ["rows.zarr"]


@pytest.mark.usefixtures("no_work")
def test_two_outputs_need_two_places(rows: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="different URLs"):
        fit(rows, tmp_path / "m", labels=str(tmp_path / "m"))


def test_inputs_that_do_not_fit(rows: str, tmp_path: Path) -> None:
    record = fit(rows, tmp_path / "m")
    wide = np.zeros((4, 7), np.float32)
    with pytest.raises(InvalidDataError, match="X has 7 features, but KMeans is expecting 5"):
        jobs.predict(record.model, wide, output=str(tmp_path / "l"))
    with pytest.raises(InvalidDataError, match="X has 7 features"):
        jobs.score(record.model, wide)
    with pytest.raises(ModelFormatError, match="no model can be read"):
        jobs.score(str(tmp_path / "absent"), wide)
    with pytest.raises(DatasetNotFoundError):
        fit(str(tmp_path / "absent"), tmp_path / "m2")
    with pytest.raises(DatasetNotFoundError):
        fit(rows, tmp_path / "m2", array="Y")
    with pytest.raises(InvalidParameterError, match="n_samples=3000 should be >= n_clusters=4000"):
        fit(rows, tmp_path / "m2", n_clusters=4000)
    assert sorted(os.listdir(tmp_path)) == ["m", "rows.zarr"]


def test_bad_rows_leave_no_output(tmp_path: Path) -> None:
    rows = np.zeros((50, 2), np.float32)
    rows[31, 1] = np.nan
    with pytest.raises(DaskClusterError, match="NaN"):
        jobs.fit(rows, n_clusters=2, model=str(tmp_path / "m"), labels=str(tmp_path / "l"))
    assert os.listdir(tmp_path) == []
