"""Jobs that drive a cluster of separate processes from inside it, on rows in a bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client

from daskcluster import jobs
from daskcluster.errors import (
    EngineError,
    InvalidParameterError,
    JobCancelledError,
    JobNotFoundError,
    WrongTypeError,
)
from daskcluster.models.fitted import is_model, load_document
from daskcluster.storage.files import list_names
from daskcluster.storage.lease import folder_of
from tests.data.conftest import SECRET
from tests.jobs.conftest import Cluster, kill_worker, reached, soon
from tests.methods.streaming.service.feeds import OPTIONS, portion, put

FIT: dict[str, Any] = {
    "n_clusters": 100, "algorithm": "lloyd", "init": "random", "random_state": 5, "tol": 0.0,
    "checkpoint_every": 4, "n_init": 1,
}  # fmt: skip
LONG = 60
"""Iterations of a fit that lasts some seconds, also because it commits to the bucket."""


@pytest.fixture(scope="module")
def expected(noise: np.ndarray) -> Any:
    """Return a function that makes the same fit on threads of this process, once."""
    found: dict[int, Any] = {}

    def make(max_iter: int, random_state: int = 5) -> Any:
        key = 1000 * max_iter + random_state
        if key not in found:
            url = f"memory://expected/{key}"
            given = {**FIT, "max_iter": max_iter, "random_state": random_state}
            jobs.fit(noise, model=url, engine="local", overwrite=True, **given)
            found[key] = load_document(url)
        return found[key]

    return make


def submit(client: Client, source: str, endpoint: Any, name: str, **changes: Any) -> str:
    """Submit a fit, and return the URL of its model."""
    model = f"s3://rows/jobs/{name}"
    given = {**FIT, "model": model, "storage_options": endpoint, **changes}
    jobs.submit(client, jobs.fit, source, name=name, **given)
    return model


def ended(client: Client, name: str) -> jobs.JobStatus:
    return jobs.wait(client, name, timeout=240)


@pytest.mark.kills
def test_the_client_may_leave(
    cluster: Cluster, source: str, endpoint: Any, s3: Any, expected: Any
) -> None:
    with cluster.client() as client:
        labels = "s3://rows/jobs/labels"
        model = submit(client, source, endpoint, "left", max_iter=LONG, labels=labels)
        reached(client, "left", 2)
    with cluster.client() as client:
        found = ended(client, "left")
        assert (found.state, found.iteration, found.kind) == ("done", expected(LONG).n_iter, "fit")
        assert found.record is not None
        assert found.record["model"] == model
        assert found.record["versions"]["daskcluster"]
        text = "\n".join(line for _, line in jobs.logs(client, "left"))
        assert "engine dask" in text
        assert "running: tcp://" in text
        assert SECRET not in text
        assert "left" in [job.name for job in jobs.list_jobs(client)]
    written = load_document(model, s3)
    assert written.centres.tobytes() == expected(LONG).centres.tobytes()
    assert written.inertia == expected(LONG).inertia
    sizes = np.bincount(zarr.open_array(labels, mode="r", storage_options=s3)[:], minlength=100)
    np.testing.assert_array_equal(sizes, expected(LONG).sizes)
    assert list_names(folder_of(model, s3)) == ["jobs"]


@pytest.mark.kills
def test_two_jobs_at_once(
    client: Client, source: str, endpoint: Any, s3: Any, expected: Any
) -> None:
    models = {
        name: submit(client, source, endpoint, name, max_iter=15, random_state=seed)
        for seed, name in ((6, "two-a"), (7, "two-b"))
    }
    both = [ended(client, name) for name in models]
    assert [job.state for job in both] == ["done", "done"], both
    for seed, model in zip((6, 7), models.values(), strict=True):
        found, truth = load_document(model, s3), expected(15, seed)
        assert found.centres.tobytes() == truth.centres.tobytes()


@pytest.mark.kills
def test_a_job_is_cancelled_and_continues(
    client: Client, source: str, endpoint: Any, s3: Any, expected: Any
) -> None:
    model = submit(client, source, endpoint, "stopped", max_iter=LONG)
    reached(client, "stopped", 5)
    assert jobs.cancel(client, "stopped").state == "running"
    found = ended(client, "stopped")
    assert found.state == "cancelled"
    assert "submit it again under its name" in found.error
    assert not is_model(model, storage_options=s3)
    stopped_at = found.iteration
    assert 5 <= stopped_at < expected(LONG).n_iter
    submit(client, source, endpoint, "stopped", max_iter=LONG)
    found = ended(client, "stopped")
    assert (found.state, found.attempt) == ("done", 2)
    assert load_document(model, s3).centres.tobytes() == expected(LONG).centres.tobytes()
    # It did not begin at its beginning.
    assert any("resumes from its checkpoint" in text for _, text in jobs.logs(client, "stopped"))
    assert jobs.cancel(client, "stopped").state == "done"


@pytest.mark.kills
def test_the_worker_that_has_the_job_is_killed(
    cluster: Cluster, client: Client, source: str, endpoint: Any, s3: Any, expected: Any
) -> None:
    model = submit(client, source, endpoint, "killed", max_iter=LONG)
    first = reached(client, "killed", 9)
    kill_worker(client, first.worker)
    cluster.add_worker()
    found = ended(client, "killed")
    assert (found.state, found.attempt) == ("done", 2), found
    assert found.worker != first.worker
    assert load_document(model, s3).centres.tobytes() == expected(LONG).centres.tobytes()
    texts = [text for _, text in jobs.logs(client, "killed")]
    assert any("resumes from its checkpoint" in text for text in texts)
    client.wait_for_workers(2, timeout=200)


def test_a_bare_task_drives_the_cluster(
    client: Client, source: str, endpoint: Any, s3: Any, expected: Any
) -> None:
    model = "s3://rows/jobs/bare"
    given = {**FIT, "model": model, "storage_options": endpoint, "max_iter": 15}
    future = client.submit(jobs.fit, source, pure=False, **given)
    record = future.result(timeout=240)
    assert record.n_iter == 15
    assert load_document(model, s3).centres.tobytes() == expected(15).centres.tobytes()
    found = jobs.status(client, future.key)
    assert found.state == "done"
    assert any("engine dask" in text for _, text in jobs.logs(client, future.key))


def test_predict_score_and_coresets_are_jobs(
    client: Client, source: str, endpoint: Any, s3: Any
) -> None:
    options = {"storage_options": endpoint}
    model, labels, few = (f"s3://rows/jobs/chain-{name}" for name in ("model", "labels", "few"))
    fit = {**FIT, "max_iter": 3, "model": model, **options}
    record = jobs.submit(client, jobs.fit, source, **fit).result(timeout=200)
    predicted = jobs.submit(client, jobs.predict, model, source, output=labels, **options)
    scored = jobs.submit(client, jobs.score, model, source, **options)
    drawn = jobs.submit(
        client, jobs.build_coreset, source, size=100, output=few, random_state=0, **options
    )
    assert predicted.result(timeout=200).n_rows == 60_000
    assert scored.result(timeout=200).inertia == record.inertia
    assert drawn.result(timeout=200).size == 100
    assert zarr.open_array(labels, mode="r", storage_options=s3).shape == (60_000,)


@pytest.mark.slow
def test_a_stream_continues_where_its_worker_was_killed(
    cluster: Cluster, client: Client, endpoint: Any, s3: Any, tmp_path: Path
) -> None:
    feed, state = "s3://rows/jobs/feed", "s3://rows/jobs/feed-state"

    def arrive(number: int) -> None:
        url = f"{feed}/part-{number:04d}.zarr"
        zarr.create_array(url, data=portion(number), chunks=(300, 3), storage_options=s3)
        put(tmp_path / "feed", number)

    def seen(rows: int) -> Any:
        found = jobs.status(client, "followed")
        assert not found.is_over, found
        return found if found.rows_seen == rows else None

    arrive(0)
    message = {"state": state, "storage_options": endpoint, "every": 0.3, **OPTIONS}
    jobs.submit(client, jobs.stream, feed, name="followed", **message)
    first = soon(lambda: seen(700))
    kill_worker(client, first.worker)
    arrive(1)
    cluster.add_worker()
    second = soon(lambda: seen(1400))
    assert (second.attempt, second.worker != first.worker) == (2, True)
    assert jobs.cancel(client, "followed").state == "running"
    assert ended(client, "followed").state == "cancelled"
    arrive(2)
    again = {**message, "every": None}
    cycle = jobs.submit(client, jobs.stream, feed, name="followed", **again).result(timeout=200)
    assert (cycle.rows_seen, cycle.new_rows) == (2100, 700)
    whole = jobs.stream(str(tmp_path / "feed"), state=str(tmp_path / "state"), **OPTIONS)
    one, two = load_document(cycle.model, s3), load_document(whole.model or "")
    assert one.centres.tobytes() == two.centres.tobytes()
    client.wait_for_workers(2, timeout=200)


def test_a_failed_job_reports_its_error_and_may_be_corrected(
    client: Client, source: str, endpoint: Any
) -> None:
    options = {"storage_options": endpoint, "n_clusters": 3, "model": "s3://rows/jobs/wrong"}
    future = jobs.submit(client, jobs.fit, "s3://rows/nothing.zarr", name="wrong", **options)
    found = ended(client, "wrong")
    assert found.state == "failed"
    assert "There is no Zarr array" in found.error
    with pytest.raises(FileNotFoundError):
        future.result(timeout=200)
    # The arguments may be mended under the same name, also while the failure is still held.
    given = {**FIT, **options, "max_iter": 2}
    assert jobs.submit(client, jobs.fit, source, name="wrong", **given).result(timeout=200)
    assert jobs.status(client, "wrong").state == "done"
    with pytest.raises(JobNotFoundError, match="knows no job 'absent'"):
        jobs.status(client, "absent")


def test_refused_before_anything_travels(
    client: Client, source: str, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"n_clusters": 3, "model": "s3://rows/jobs/m"}
    with pytest.raises(InvalidParameterError, match="key, secret would be sent in plain text"):
        jobs.submit(client, jobs.fit, source, storage_options=s3, **given)
    with pytest.raises(WrongTypeError, match=r"should be a function of daskcluster\.jobs"):
        jobs.submit(client, sum, [1])
    with pytest.raises(InvalidParameterError, match="letters, digits"):
        jobs.submit(client, jobs.fit, source, name="a/b", **given)

    def other_versions(*_: Any, **__: Any) -> None:
        raise EngineError("client, scheduler and workers should run the same software")

    monkeypatch.setattr("daskcluster.jobs.registry.check_versions", other_versions)
    with pytest.raises(EngineError, match="same software"):
        jobs.submit(client, jobs.fit, source, **given)


def test_a_job_that_is_cancelled_before_it_runs(
    client: Client, source: str, endpoint: Any, s3: Any
) -> None:
    """A direct call with the name of a job listens as well, where its engine has a scheduler."""
    given = {**FIT, "model": "s3://rows/jobs/early", "storage_options": s3, "max_iter": LONG}

    def stop(event: Any) -> None:
        jobs.cancel(client, "early")

    with pytest.raises(JobCancelledError, match="'early' was cancelled"):
        jobs.fit(source, name="early", engine=client, callbacks=(stop,), **given)
    assert jobs.status(client, "early").state == "cancelled"
