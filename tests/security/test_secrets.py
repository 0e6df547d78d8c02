"""A secret is planted where secrets are given, and then looked for wherever anybody could look."""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import daskcluster as dc
from daskcluster import jobs
from daskcluster.data.convert import convert
from daskcluster.engine.connect import local_cluster
from daskcluster.errors import DaskClusterError
from daskcluster.events import Event, PassEnded
from daskcluster.storage.location import locate
from tests.cli.conftest import run  # noqa: F401  (a fixture)
from tests.data.conftest import SECRET, s3  # noqa: F401  (a fixture)
from tests.security.evidence import Evidence

TOKEN = "planted-session-token"
SOURCE = "s3://rows/secrets/rows.zarr"


@pytest.fixture(scope="module")
def options(s3: dict[str, Any]) -> dict[str, Any]:  # noqa: F811
    return {**s3, "token": TOKEN}


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((3000, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def stored(options: dict[str, Any], rows: np.ndarray) -> str:
    convert(rows, SOURCE, chunk_rows=500, storage_options=options)
    return SOURCE


@pytest.fixture(scope="module")
def cluster(options: dict[str, Any]) -> Iterator[Any]:
    """Yield a client of a worker that has the secrets in its environment, as workers should."""
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()
    given = {
        "AWS_ACCESS_KEY_ID": options["key"],
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": TOKEN,
    }
    before = dict(os.environ)
    os.environ.update(given)
    try:
        with local_cluster(1, memory_limit=2 << 30) as client:
            yield client
    finally:
        os.environ.clear()
        os.environ.update(before)


def of_scheduler(dask_scheduler: Any) -> list[str]:
    """Return all that the scheduler knows of its tasks."""
    tasks = [
        f"{task.key} {task.run_spec!r} {task.annotations} {task.exception_text}"
        for task in dask_scheduler.tasks.values()
    ]
    kept = [
        repr(getattr(dask_scheduler, name, "")) for name in ("transition_log", "unknown_durations")
    ]
    return [*tasks, *kept, repr(dask_scheduler.get_events())]


def test_a_fit_on_a_cluster_shows_no_secret(
    cluster: Any,
    stored: str,
    options: dict[str, Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    evidence = Evidence()

    def hear(event: Event) -> None:
        evidence.keep("an event", event)
        if isinstance(event, PassEnded):
            evidence.keep("the scheduler", repr(cluster.run_on_scheduler(of_scheduler)))

    with (
        caplog.at_level(logging.DEBUG, "distributed"),
        caplog.at_level(logging.DEBUG, "daskcluster"),
    ):
        dataset = dc.open_dataset(stored, storage_options=options)
        folder = locate(str(tmp_path / "state"), options)
        model = dc.KMeans(
            3, random_state=0, engine=cluster, callbacks=(hear,), checkpoint=folder
        ).fit(dataset)
        record = jobs.fit(
            stored,
            n_clusters=2,
            model="s3://rows/secrets/model",
            labels="s3://rows/secrets/labels",
            checkpoint=str(tmp_path / "job"),
            storage_options=options,
            engine=cluster,
            callbacks=(hear,),
        )
    model.save(str(tmp_path / "model"))
    for name, thing in (
        ("the dataset", dataset),
        ("its recipe", dataset.recipe()),
        ("the location", folder),
        ("the estimator", model),
        ("the record", record),
    ):
        evidence.keep_pickled(name, thing)
    evidence.keep("the labels", model.labels_)
    evidence.keep("the state", vars(model.labels_).keys())
    evidence.keep("the record", json.dumps(record.as_dict()))
    evidence.keep_folder("what was written", tmp_path)
    keep_bucket(evidence, options)
    evidence.keep("logs", caplog.text)
    evidence.keep("logs of workers", repr(cluster.get_worker_logs()))
    evidence.keep("logs of the scheduler", repr(cluster.get_scheduler_logs()))
    evidence.keep("the streams", "".join(capfd.readouterr()))
    assert evidence.keep_pages("dashboard", page(cluster, "info/main/workers.html")) > 3
    for path in ("json/identity.json", "json/index.html", "metrics", "status", "graph", "health"):
        evidence.keep_pages("dashboard", page(cluster, path))
    worker = next(iter(cluster.scheduler_info(n_workers=-1)["workers"].values()))
    port = worker["services"]["dashboard"]
    evidence.keep_pages("worker", f"http://127.0.0.1:{port}/health")
    evidence.keep_pages("worker", f"http://127.0.0.1:{port}/info/main/workers.html")
    assert len(evidence) > 50
    assert evidence.places_of(SECRET, TOKEN) == []


def page(client: Any, path: str) -> str:
    return str(client.dashboard_link).removesuffix("status") + path


def keep_bucket(evidence: Evidence, options: dict[str, Any]) -> None:
    import s3fs

    fs = s3fs.S3FileSystem(**options)
    fs.invalidate_cache()
    for name in fs.find("rows/secrets"):
        evidence.keep(f"name in the bucket: {name}", name)
        if "rows.zarr/c" not in name:
            evidence.keep(f"bucket: {name}", fs.cat_file(name))


def failures(stored: str, options: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    closed = {**options, "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"}}
    closed["config_kwargs"] = {"retries": {"max_attempts": 0}, "connect_timeout": 1}
    unknown = {**options, "no_such_option": 1}
    return {
        "absent": lambda: dc.open_dataset("s3://rows/secrets/absent", storage_options=options),
        "no bucket": lambda: dc.load_model("s3://absent/m", storage_options=options),
        "unreachable": lambda: dc.open_dataset(stored, storage_options=closed),
        "no option": lambda: dc.open_dataset(stored, storage_options=unknown),
        "in a URL": lambda: dc.open_dataset(f"s3://key:{SECRET}@rows/x.zarr"),
        "signed": lambda: dc.open_dataset(f"https://h/x.zarr?X-Amz-Signature={SECRET}"),
        "exists": lambda: jobs.fit(
            stored, n_clusters=2, model="s3://rows/secrets/rows.zarr", storage_options=options
        ),
        "no such engine": lambda: jobs.fit(
            stored, n_clusters=2, model="s3://rows/secrets/m2", storage_options=options, engine=3
        ),
        "no extra": lambda: dc.open_dataset("nothing://x", storage_options=options),
    }


@pytest.mark.kills
@pytest.mark.parametrize(
    "name",
    ["absent", "no bucket", "unreachable", "no option", "in a URL", "signed", "exists",
     "no such engine", "no extra"],
)  # fmt: skip
def test_errors_show_no_secret(name: str, stored: str, options: dict[str, Any]) -> None:
    with pytest.raises(DaskClusterError) as caught:
        failures(stored, options)[name]()
    message = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    # The lines of this file are quoted in the traceback; they name the secret, and do not hold it.
    assert SECRET not in message
    assert TOKEN not in message


def test_the_command_line_shows_no_secret(
    cluster: Any,
    stored: str,
    options: dict[str, Any],
    tmp_path: Path,
    run: Callable[..., Result],  # noqa: F811
) -> None:
    endpoint = f"client_kwargs.endpoint_url={options['client_kwargs']['endpoint_url']}"
    there = ("--storage-option", endpoint)
    address = cluster.scheduler_info()["address"]
    state = str(tmp_path / "state")
    fit = ("fit", stored, "--n-clusters", "3", "--model", str(tmp_path / "m"), *there)
    evidence = Evidence()
    for arguments, code in (
        ((*fit, "--dry-run", "--json"), 0),
        ((*fit, "--json", "--progress", "--checkpoint", state, "--scheduler", address), 0),
        ((*fit, "--debug"), 1),
        (("info", stored, "--json", *there), 0),
        (("info", "s3://absent/rows.zarr", *there), 1),
        (("score", str(tmp_path / "m"), stored, "--json", "--progress", *there), 0),
        (("fit", stored, "--storage-option", f"secret={SECRET}"), 2),
    ):
        result = run(*arguments)
        assert result.exit_code == code, result.output
        evidence.keep(" ".join(arguments[:2]), result.output)
        if result.exception is not None:
            message = traceback.format_exception(result.exception)
            evidence.keep(f"error of {arguments[0]}", "".join(message))
    evidence.keep_folder("what was written", tmp_path)
    assert len(evidence) > 15
    assert evidence.places_of(SECRET, TOKEN) == []
