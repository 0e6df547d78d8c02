"""Jobs with a name, in this process: they go on where they were, and write their outputs once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import jobs
from daskcluster.errors import (
    InvalidParameterError,
    LeaseError,
    OutputExistsError,
    SchedulerUnreachableError,
)
from daskcluster.events import Event, IterationEnded, PassStarted
from daskcluster.jobs.identity import check_name
from daskcluster.jobs.run import Run
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.models.fitted import load_document
from daskcluster.storage.lease import Lease, folder_of


class PowerCutError(Exception):
    pass


@pytest.fixture
def rows(tmp_path: Path, noise: np.ndarray) -> str:
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=noise[:5000], chunks=(700, 8))
    return url


def fit(rows: str, model: Path, **changes: Any) -> jobs.FitRecord:
    values: dict[str, Any] = {
        "n_clusters": 9, "algorithm": "lloyd", "random_state": 3, "max_iter": 12, "tol": 0.0,
        "checkpoint_every": 1, "engine": "local",
    }  # fmt: skip
    return jobs.fit(rows, model=str(model), **{**values, **changes})


def cut_at(iteration: int) -> Any:
    def callback(event: Event) -> None:
        if isinstance(event, IterationEnded) and event.iteration >= iteration:
            raise PowerCutError

    return callback


def lose_the_scheduler(kind: type[Event], after: int) -> Any:
    """Return a callback that ends the work as a lost scheduler does, at an event of that kind."""
    heard: list[Event] = []

    def callback(event: Event) -> None:
        if isinstance(event, kind):
            heard.append(event)
            if len(heard) == after:
                raise SchedulerUnreachableError("the scheduler no longer answers")

    return callback


def notes_of(caught: Any) -> list[str]:
    return getattr(caught.value, "__notes__", [])


def forget_that_it_failed(model: Path) -> None:
    """Leave the lease as a process leaves it that was killed."""
    for ended in (model.parent / f"{model.name}.partial" / "jobs").glob("*.ended.json"):
        ended.unlink()


@pytest.mark.parametrize("killed", [False, True])
def test_a_job_resumes(rows: str, tmp_path: Path, killed: bool) -> None:
    whole = fit(rows, tmp_path / "whole", labels=str(tmp_path / "whole-labels"))
    model, labels = tmp_path / "m", str(tmp_path / "labels")
    with pytest.raises(PowerCutError):
        fit(rows, model, name="a", labels=labels, callbacks=(cut_at(6),))
    if killed:
        forget_that_it_failed(model)
    assert not model.exists()
    iterations: list[int] = []

    def count(event: Event) -> None:
        if isinstance(event, IterationEnded):
            iterations.append(event.iteration)

    record = fit(rows, model, name="a", labels=labels, callbacks=(count,))
    assert iterations[0] >= 6
    assert (record.inertia, record.n_iter, record.stop_reason) == (
        whole.inertia, whole.n_iter, whole.stop_reason
    )  # fmt: skip
    found, expected = load_document(str(model)), load_document(whole.model)
    assert found.centres.tobytes() == expected.centres.tobytes()
    np.testing.assert_array_equal(
        zarr.open_array(labels, mode="r")[:], zarr.open_array(whole.labels, mode="r")[:]
    )
    # The checkpoints are gone, the record stays.
    assert os.listdir(tmp_path / "m.partial") == ["jobs"]
    assert not (tmp_path / "whole.partial").exists()


def test_an_interrupted_job_says_that_its_name_resumes_it(rows: str, tmp_path: Path) -> None:
    with pytest.raises(SchedulerUnreachableError) as caught:
        fit(rows, tmp_path / "m", name="a", callbacks=(lose_the_scheduler(IterationEnded, 3),))
    (note,) = notes_of(caught)
    assert note == (
        f"The state of the job 'a' is stored at {str(tmp_path / 'm.partial')!r}: the same call under "
        "the same name resumes from it."
    )
    assert fit(rows, tmp_path / "m", name="a").n_iter == fit(rows, tmp_path / "whole").n_iter


def test_a_job_that_has_committed_nothing_says_nothing_of_it(rows: str, tmp_path: Path) -> None:
    with pytest.raises(SchedulerUnreachableError) as caught:
        fit(
            rows,
            tmp_path / "m",
            name="a",
            init="k-means||",
            callbacks=(lose_the_scheduler(PassStarted, 1),),
        )
    assert notes_of(caught) == []


def test_a_draw_that_ends_from_outside_says_where_its_state_is(rows: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"size": 300, "random_state": 0, "checkpoint": str(tmp_path / "kept")}
    with pytest.raises(SchedulerUnreachableError) as caught:
        jobs.build_coreset(
            rows,
            output=str(tmp_path / "c"),
            callbacks=(lose_the_scheduler(PassStarted, 2),),
            **given,
        )
    (note,) = notes_of(caught)
    assert note.startswith(
        f"The state of the draw is stored at {given['checkpoint']!r}: the same call"
    )
    assert jobs.build_coreset(rows, output=str(tmp_path / "c"), resume=True, **given).passes == 2


@pytest.mark.usefixtures("no_second_fit")
def test_a_job_that_is_done_returns_its_record(rows: str, tmp_path: Path) -> None:
    first = fit(rows, tmp_path / "m", name="a")
    assert fit(rows, tmp_path / "m", name="a") == first
    with pytest.raises(InvalidParameterError, match="max_iter was 12 and is 13"):
        fit(rows, tmp_path / "m", name="a", max_iter=13)
    with pytest.raises(OutputExistsError):
        fit(rows, tmp_path / "m", name="b")


@pytest.fixture
def no_second_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = KMeans.fit, []

    def once(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        assert len(calls) == 1
        return original(*arguments, **options)

    monkeypatch.setattr(KMeans, "fit", once)


def test_outputs_of_a_lost_run_are_replaced_by_the_same_job_only(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs are there, the record is not: who comes back may replace them, and nobody else."""
    model, labels = tmp_path / "m", tmp_path / "labels"

    def cut(*_: Any) -> None:
        raise PowerCutError

    with monkeypatch.context() as patched:
        patched.setattr(Run, "done", cut)
        with pytest.raises(PowerCutError):
            fit(rows, model, name="a", labels=str(labels))
    forget_that_it_failed(model)
    assert model.exists()
    with pytest.raises(LeaseError, match="by the job 'a'"):
        fit(rows, model, name="b", labels=str(labels), overwrite=True)
    fit(rows, model, name="a", labels=str(labels))
    assert labels.exists()


def test_a_run_that_was_overtaken_writes_nothing(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "m"
    monkeypatch.setattr("daskcluster.jobs.run.LEASE_SECONDS", 0.0)

    def overtake(event: Event) -> None:
        if isinstance(event, IterationEnded) and event.iteration == 4:
            record = fit(rows, model, name="a")
            assert record.n_iter == 12

    with pytest.raises(LeaseError, match="restarted by another process"):
        fit(rows, model, name="a", callbacks=(overtake,))
    assert fit(rows, model, name="a").n_iter == 12


def test_an_overtaken_run_is_refused_at_its_commit(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "m"
    monkeypatch.setattr("daskcluster.jobs.run.LEASE_SECONDS", 1e9)
    original = KMeans.fit

    def fit_and_be_overtaken(*arguments: Any, **options: Any) -> Any:
        fitted = original(*arguments, **options)
        file = max((tmp_path / "m.partial" / "jobs").glob("*.json"))
        Lease(folder_of(str(model)), "a", json.loads(file.read_text())["arguments"]).take()
        return fitted

    monkeypatch.setattr(KMeans, "fit", fit_and_be_overtaken)
    with pytest.raises(LeaseError, match="this run stops"):
        fit(rows, model, name="a")
    assert not model.exists()


def test_coresets_and_labels_have_names_too(rows: str, tmp_path: Path) -> None:
    made = fit(rows, tmp_path / "m")
    for job, arguments in (
        (jobs.build_coreset, {"size": 50, "random_state": 0}),
        (jobs.predict, {}),
    ):
        output = str(tmp_path / job.__name__)
        given = (made.model, rows) if job is jobs.predict else (rows,)
        record = job(*given, output=output, name="x", engine="local", **arguments)
        assert job(*given, output=output, name="x", engine="local", **arguments) == record
        with pytest.raises(OutputExistsError):
            job(*given, output=output, engine="local", **arguments)
    assert jobs.score(made.model, rows, name="x", engine="local").inertia == made.inertia


def test_names_that_no_job_may_have() -> None:
    for name in ("", "a/b", "-a", "a b", "x" * 101, 3):
        with pytest.raises(InvalidParameterError, match="should be 1 to 100 letters"):
            check_name(name)


def test_a_job_that_fails_at_its_start_leaves_nothing(rows: str, tmp_path: Path) -> None:
    before = sorted(os.listdir(tmp_path))
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            fit(str(tmp_path / "none.zarr"), tmp_path / "m", name="a")
        assert sorted(os.listdir(tmp_path)) == before
    with pytest.raises(InvalidParameterError, match="n_clusters"):
        fit(rows, tmp_path / "m", name="a", n_clusters=10**6)
    assert sorted(os.listdir(tmp_path)) == before
    assert fit(rows, tmp_path / "m", name="a").n_iter == 12  # of other arguments
