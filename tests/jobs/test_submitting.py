"""A name stands for one job with its arguments, also where it is submitted again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

from daskcluster import jobs
from daskcluster.errors import InvalidParameterError, LeaseError
from daskcluster.events import Event
from daskcluster.jobs.registry import JobRegistry
from daskcluster.storage.lease import Lease, folder_of
from tests.clusters import default_scheduler_kept
from tests.jobs.conftest import reached
from tests.methods.streaming.service.feeds import OPTIONS, put

FIT: dict[str, Any] = {"n_clusters": 5, "random_state": 0, "algorithm": "lloyd", "init": "random"}
LONG: dict[str, Any] = {**FIT, "n_clusters": 80, "tol": 0.0, "max_iter": 100_000, "n_init": 1}


@pytest.fixture(scope="module")
def local() -> Iterator[Client]:
    """Yield a client of a cluster in this process, of which a test may leave jobs."""
    with (
        default_scheduler_kept(),
        start() as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def start() -> LocalCluster:
    options: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    return LocalCluster(2, threads_per_worker=1, processes=False, **options)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, noise: np.ndarray) -> str:
    path = tmp_path_factory.mktemp("rows")
    for name, part in (("rows", noise[:20_000]), ("other", noise[:5000])):
        zarr.create_array(str(path / f"{name}.zarr"), data=part, chunks=(5000, 8))
    return str(path / "rows.zarr")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:90]


def state_files(output: Any) -> dict[str, str]:
    folder = Path(f"{output}.partial") / "jobs"
    return {path.name: path.read_text() for path in folder.iterdir()}


def log_of(client: Client, name: str) -> list[tuple[float, str]]:
    return jobs.logs(client, name)


class Untouched:
    """Asserts that nothing of a job changes: its status, its log, and its state in the store."""

    def __init__(self, client: Client, name: str, output: Any) -> None:
        self._look = lambda: (
            jobs.status(client, name), log_of(client, name),
            state_files(output) if output is not None else None,
        )  # fmt: skip

    def __enter__(self) -> None:
        self._before = self._look()

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            assert self._look() == self._before


# -- after the end ---------------------------------------------------------------------------------------


def test_a_job_that_is_done_is_not_replaced(
    local: Client, rows: str, name: str, tmp_path: Path
) -> None:
    model = tmp_path / "m"
    record = jobs.submit(local, jobs.fit, rows, model=str(model), name=name, **FIT).result()
    others: dict[str, dict[str, Any]] = {
        "n_clusters was 5 and is 6": {"n_clusters": 6},
        "columns was the default and is": {"columns": ["a"]},
        "source was": {"source": rows.replace("rows.zarr", "other.zarr")},
        "model was": {"model": str(tmp_path / "n")},
        "max_iter was the default and is 7": {"max_iter": 7},
    }
    with Untouched(local, name, model):
        for said, other in others.items():
            given = {"source": rows, "model": str(model), "name": name, **FIT, **other}
            with pytest.raises(
                InvalidParameterError, match=f"'{name}' .done.*{said}.*another name"
            ):
                jobs.submit(local, jobs.fit, **given)
            # Neither may a call in this process, or a bare task, that uses the cluster.
            with pytest.raises(InvalidParameterError, match=said):
                jobs.fit(engine=local, **given)
            with pytest.raises(InvalidParameterError, match=said):
                local.submit(jobs.fit, pure=False, **given).result()
        with pytest.raises(InvalidParameterError, match="it is the job 'fit' and not 'score'"):
            jobs.submit(local, jobs.score, str(model), rows, name=name)
    same = {**FIT, "n_clusters": np.int32(5), "max_iter": 300, "columns": None}
    again = jobs.submit(local, jobs.fit, source=Path(rows), model=model, name=name, **same)
    assert again.result() == record


def test_a_job_that_was_cancelled_keeps_its_checkpoint(
    local: Client, rows: str, name: str, tmp_path: Path
) -> None:
    model = tmp_path / "m"
    given = {"model": str(model), "name": name, "checkpoint_every": 1, **LONG}
    jobs.submit(local, jobs.fit, rows, **given)
    reached(local, name, 3)
    jobs.cancel(local, name)
    found = jobs.wait(local, name, timeout=60)
    assert found.state == "cancelled"
    stored = {path: path.read_bytes() for path in (tmp_path / "m.partial").rglob("*.json")}
    with (
        Untouched(local, name, model),
        pytest.raises(InvalidParameterError, match=r"cancelled.*max_iter was 100000 and is 3"),
    ):
        jobs.submit(local, jobs.fit, rows, **{**given, "max_iter": 3})
    # Without a scheduler that knows it, the state in the store tells.
    with pytest.raises(InvalidParameterError, match="max_iter was 100000 and is 3"):
        jobs.fit(rows, engine="local", **{**given, "max_iter": 3})
    assert {path: path.read_bytes() for path in stored} == stored
    jobs.submit(local, jobs.fit, rows, **given)
    resumed = reached(local, name, (found.iteration or 0) + 1)
    assert resumed.attempt == 2
    jobs.cancel(local, name)
    jobs.wait(local, name, timeout=60)


def test_jobs_without_state_in_a_store(local: Client, rows: str, name: str, tmp_path: Path) -> None:
    model = jobs.fit(rows, model=str(tmp_path / "m"), **FIT).model
    record = jobs.submit(local, jobs.score, model, rows, name=name).result()
    same = jobs.submit(local, jobs.score, source=rows, model=model, metrics=[], name=name)
    assert same.result().inertia == record.inertia
    with (
        Untouched(local, name, None),
        pytest.raises(InvalidParameterError, match=r"source was .* and is .*other"),
    ):
        jobs.submit(local, jobs.score, model, rows.replace("rows.z", "other.z"), name=name)
    jobs.submit(local, jobs.score, model, np.ones((50, 8)), name=f"{name}-rows").result()
    with pytest.raises(InvalidParameterError, match="source was '<array"):
        jobs.submit(local, jobs.score, model, np.zeros((50, 8)), name=f"{name}-rows")


# -- while it runs ---------------------------------------------------------------------------------------


def test_a_running_job_is_not_joined_by_another(
    local: Client, rows: str, name: str, tmp_path: Path
) -> None:
    given = {"model": str(tmp_path / "m"), "name": name, **LONG}
    future = jobs.submit(local, jobs.fit, rows, **given)
    reached(local, name, 1)
    assert jobs.submit(local, jobs.fit, Path(rows), **given).key == future.key
    for job, other in (
        (jobs.fit, {**given, "max_iter": 3}),
        (jobs.fit, {**given, "model": str(tmp_path / "n")}),
        (jobs.sweep, {"name": name}),
    ):
        with pytest.raises(InvalidParameterError, match=f"'{name}' .running. has other"):
            jobs.submit(local, job, rows, **other)
        with pytest.raises(InvalidParameterError, match=f"'{name}' .running. has other"):
            job(rows, engine=local, **other)
    found = jobs.status(local, name)
    assert (found.state, found.attempt) == ("running", 1)
    jobs.cancel(local, name)
    assert jobs.wait(local, name, timeout=60).state == "cancelled"


def test_a_refused_call_does_not_withdraw_a_request_to_stop(
    local: Client, rows: str, name: str, tmp_path: Path
) -> None:
    registry = JobRegistry(local)
    registry.announce(name, state="running", kind="fit", key="", arguments={"n_clusters": 1})
    jobs.cancel(local, name)
    with pytest.raises(InvalidParameterError, match="n_clusters was 1 and is 5"):
        jobs.fit(rows, model=str(tmp_path / "m"), name=name, engine=local, **FIT)
    assert registry.is_cancelled(name)


def test_of_two_clients_that_submit_at_once_one_is_refused(
    local: Client, rows: str, name: str, tmp_path: Path
) -> None:
    found: dict[int, Any] = {}
    barrier = threading.Barrier(4)

    def submit(number: int) -> None:
        with Client(local.scheduler.address, set_as_default=False) as client:
            barrier.wait()
            given = {**FIT, "n_clusters": 3 + number % 2, "model": str(tmp_path / "m")}
            try:
                found[number] = jobs.submit(client, jobs.fit, rows, name=name, **given).result()
            except InvalidParameterError as error:
                found[number] = error

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    (won,) = {record.n_clusters for record in found.values() if not isinstance(record, Exception)}
    for number, outcome in found.items():
        assert isinstance(outcome, InvalidParameterError) == (3 + number % 2 != won)
    assert jobs.status(local, name).attempt == 1


def test_a_task_of_the_user_is_no_job(local: Client, rows: str, name: str, tmp_path: Path) -> None:
    own = local.submit(len, "abc", key=name)
    assert own.result() == 3
    model = jobs.fit(rows, model=str(tmp_path / "m"), **FIT)
    future = jobs.submit(local, jobs.score, model.model, rows, name=name)
    assert future.key != name
    assert future.result().inertia == model.inertia


def test_a_stream_may_be_followed_at_another_pace_after_its_end(
    local: Client, name: str, tmp_path: Path
) -> None:
    put(tmp_path / "feed", 0)
    feed, given = str(tmp_path / "feed"), {"state": str(tmp_path / "state"), **OPTIONS}
    jobs.submit(local, jobs.stream, feed, name=name, every=0.2, **given)
    until(lambda: jobs.status(local, name).rows_seen == 700)
    with pytest.raises(InvalidParameterError, match=r"every was 0\.2 and is the default"):
        jobs.submit(local, jobs.stream, feed, name=name, **given)
    jobs.cancel(local, name)
    assert jobs.wait(local, name, timeout=60).state == "cancelled"
    with pytest.raises(InvalidParameterError, match="n_clusters was 4 and is 5"):
        jobs.submit(local, jobs.stream, feed, name=name, **{**given, "n_clusters": 5})
    put(tmp_path / "feed", 1)
    assert jobs.submit(local, jobs.stream, feed, name=name, **given).result().rows_seen == 1400


def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# -- at another cluster ----------------------------------------------------------------------------------


def test_the_state_in_the_store_refuses_at_another_cluster(
    local: Client, rows: str, name: str, tmp_path: Path
) -> None:
    model = tmp_path / "m"
    given = {"model": str(model), "name": name, **FIT}
    record = jobs.submit(local, jobs.fit, rows, **given).result()
    before = state_files(model)
    with start() as cluster, Client(cluster, set_as_default=False) as client:
        # The scheduler does not know the job, so it is refused when it starts.
        future = jobs.submit(client, jobs.fit, rows, **{**given, "n_clusters": 6})
        with pytest.raises(InvalidParameterError, match="n_clusters was 5 and is 6"):
            future.result()
        assert jobs.status(client, name).state == "failed"
        assert state_files(model) == before
        # That this one failed does not let it replace the job that is done.
        with pytest.raises(InvalidParameterError, match="n_clusters was 5 and is 6"):
            jobs.submit(client, jobs.fit, rows, **{**given, "n_clusters": 6}).result()
        assert jobs.submit(client, jobs.fit, rows, **given).result() == record
        assert state_files(model) == before


def test_an_output_that_another_job_writes_is_refused(
    local: Client, rows: str, name: str, tmp_path: Path
) -> None:
    model = str(tmp_path / "m")
    Lease(folder_of(model), "other", {}).take()
    with pytest.raises(LeaseError, match="is being written by the job 'other'"):
        jobs.submit(local, jobs.fit, rows, model=model, name=name, **FIT).result()


# -- what the scheduler keeps ----------------------------------------------------------------------------


def test_the_scheduler_keeps_arguments_and_no_credential(
    local: Client, rows: str, name: str, tmp_path: Path
) -> None:
    options = {"auto_mkdir": True, "client_kwargs": {"endpoint_url": "http://h"}}
    given = {"model": str(tmp_path / "m"), "storage_options": options, "name": name, **FIT}
    jobs.submit(local, jobs.fit, rows, **given).result()
    found = jobs.status(local, name)
    assert found.arguments == {"source": rows, "model": str(tmp_path / "m"), **FIT}
    assert json.loads(json.dumps(found.as_dict()))["arguments"] == found.arguments
    with pytest.raises(InvalidParameterError, match="contains a credential"):
        jobs.submit(local, jobs.fit, "s3://key:secret@bucket/rows", **{**given, "name": "secret"})
    assert "secret@" not in str(local.get_events())


def test_paths_are_those_of_the_client(local: Client, name: str) -> None:
    """A worker may stand in another folder, where relative paths mean something else."""
    registry = JobRegistry(local)
    facts: dict[str, Any] = {"kind": "fit", "key": "forgotten"}
    registry.announce(name, state="submitted", arguments={"source": "/client/rows"}, **facts)
    registry.announce(name, state="running", arguments={"source": "/worker/rows"}, **facts)
    assert jobs.status(local, name).arguments == {"source": "/client/rows"}
    assert jobs.status(local, name).state == "lost"
    registry.announce(
        name, state="running", kind="fit", key="", arguments={"source": "/shell/rows"}
    )
    assert jobs.status(local, name).arguments == {"source": "/shell/rows"}
    assert jobs.status(local, name).state == "running"


def test_a_call_in_this_process_is_known_with_its_arguments(
    local: Client, rows: str, name: str, tmp_path: Path
) -> None:
    seen: list[str] = []

    def look(event: Event) -> None:
        seen.append(jobs.status(local, name).state)

    given = {"model": str(tmp_path / "m"), "name": name, **FIT}
    jobs.fit(rows, engine=local, callbacks=(look,), **given)
    assert set(seen) == {"running"}
    assert jobs.status(local, name).arguments == {"source": rows, "model": given["model"], **FIT}
