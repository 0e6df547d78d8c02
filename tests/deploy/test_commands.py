"""What the chart's containers run, run here: a scheduler, two workers and the job, on rows in a bucket.

In mode `operator` they are those that the Dask operator's own controller makes, encrypted.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster.jobs.catalogue import declared_jobs
from daskcluster.models.fitted import load_document
from tests.data.conftest import KEY_ID, SECRET, s3  # noqa: F401  (a fixture)
from tests.deploy.chart import ROOT, Container, pods, render
from tests.deploy.operated import operated
from tests.deploy.programs import Processes, is_healthy, programs
from tests.jobs.conftest import soon
from tests.security.certificates import make_files
from tests.servers.processes import free_port

ENTRYPOINT = str(ROOT / "deploy" / "docker" / "entrypoint.sh")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path / "log")
    try:
        yield found
    finally:
        found.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["deployment", pytest.param("operator", marks=pytest.mark.slow)])
def test_the_rendered_commands_work_together(
    tmp_path: Path,
    processes: Processes,
    s3: dict[str, Any],  # noqa: F811
    mode: str,
) -> None:
    rows = np.random.default_rng(2).random((20_000, 6), np.float32)
    bucket = f"s3://rows/{mode}"
    zarr.create_array(f"{bucket}/noise.zarr", data=rows, chunks=(3_000, 6), storage_options=s3)
    endpoint = s3["client_kwargs"]["endpoint_url"]
    fit = ["fit", f"{bucket}/noise.zarr", "--n-clusters", "5", "--model", f"{bucket}/model"]
    encrypted = mode == "operator"
    rendered = render(
        {
            "mode": mode,
            "tls": {"enabled": encrypted, "secretName": "certificates"},
            "job": {"enabled": True, "args": [*fit, "--random-state", "0", "--json"]},
            "env": [
                {"name": "AWS_ENDPOINT_URL", "value": endpoint},
                {"name": "AWS_DEFAULT_REGION", "value": "us-east-1"},
            ],
            "envFrom": [{"secretRef": {"name": "bucket"}}],
            "worker": {"resources": {"limits": {"cpu": "1", "memory": "2Gi"}}},
        }
    )
    made = operated(rendered) if encrypted else rendered
    (service,) = (m["metadata"]["name"] for m in made if m["kind"] == "Service")
    comm, scheduler_page = free_port(), free_port()
    files = make_files(tmp_path / "certificates", "cluster")
    here = {
        f"{service}:8786": f"127.0.0.1:{comm}",
        "/tls/ca.crt": files.ca,
        "/tls/tls.crt": files.cert,
        "/tls/tls.key": files.key,
    }
    environment = {
        **programs(tmp_path / "bin"),
        "AWS_ACCESS_KEY_ID": KEY_ID,  # what the secret of envFrom has
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "DASK_TEMPORARY_DIRECTORY": str(tmp_path / "scratch"),
    }

    def start(pod: dict[str, Any], *own_ports: str) -> None:
        container = Container(pod, here)
        processes.start(
            [ENTRYPOINT, *container.arguments, *own_ports],
            {**environment, **container.variables},
            tmp_path,
        )

    (scheduler,) = of_container(made, "scheduler")
    start(scheduler, "--port", str(comm), "--dashboard-address", f":{scheduler_page}")
    pages = [free_port(), free_port()]
    workers = of_container(made, "worker")
    for page, worker in zip(pages, workers * 2, strict=False):  # one pod of two, or two pods
        # Two pods have two addresses; two processes here need two ports, and two names.
        start(worker, "--worker-port", "0", "--nanny-port", "0", "--name", f"worker-{page}",
              "--dashboard-address", f":{page}")  # fmt: skip
    for page in (scheduler_page, *pages):
        soon(lambda page=page: is_healthy(page))

    (pod,) = of_container(made, "command")
    job = Container(pod, here)
    record = None
    for _ in range(2):  # a pod that is started again finds that the work is done
        done = subprocess.run(
            [ENTRYPOINT, *job.arguments],
            env={**environment, **job.variables}, cwd=tmp_path,
            capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + (tmp_path / "log").read_text()
        found = json.loads(done.stdout.splitlines()[-1])
        assert record is None or found == record
        record = found
    assert record is not None
    assert load_document(f"{bucket}/model", s3).inertia == record["inertia"]
    log = (tmp_path / "log").read_text()
    assert SECRET not in log
    assert f"{'tls' if encrypted else 'tcp'}://127.0.0.1:{comm}" in log
    # Dask's metrics that the page names.
    named = set(re.findall(r"`(dask_[a-z]+_\w+)`", (ROOT / "deploy" / "README.md").read_text()))
    served = metrics_at(scheduler_page) + metrics_at(pages[0])
    assert named
    assert named <= set(re.findall(r"^# TYPE (\w+)", served, re.MULTILINE))
    with urllib.request.urlopen(f"http://127.0.0.1:{scheduler_page}/fits", timeout=30) as page:
        assert b'class="badge ended"' in page.read()  # the job's


def test_a_rendered_stream_answers_for_its_health(tmp_path: Path, processes: Processes) -> None:
    rows = np.random.default_rng(3).random((4_000, 3), np.float32)
    zarr.create_array(tmp_path / "incoming" / "one.zarr", data=rows, chunks=(1_000, 3))
    arguments = ["stream", "incoming", "--state", "state", "--n-clusters", "5"]
    loop = ["--every", "1s", "--settle", "0", "--scheduler", "local"]
    (pod,) = of_container(
        render({"stream": {"enabled": True, "args": [*arguments, *loop]}}), "stream"
    )
    container, port = Container(pod, {}), free_port()
    own = ("--metrics-port", str(port), "--metrics-address", "127.0.0.1")
    environment = {**programs(tmp_path / "bin"), **container.variables}
    environment["DASK_TEMPORARY_DIRECTORY"] = str(tmp_path / "scratch")
    processes.start([ENTRYPOINT, *container.arguments, *own], environment, tmp_path)
    assert pod["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/health"
    soon(lambda: is_healthy(port))
    soon(lambda: "daskcluster_stream_rows_seen 4000.0" in metrics_at(port))


def metrics_at(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        return str(page.read(), "utf-8")


def of_container(manifests: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the pods whose container has that name."""
    return [pod for pod in pods(manifests) if pod["containers"][0]["name"] == name]


def test_a_worker_without_a_scheduler_says_so(tmp_path: Path) -> None:
    environment = programs(tmp_path / "bin")
    environment.pop("DASK_SCHEDULER_ADDRESS", None)
    done = subprocess.run(
        [ENTRYPOINT, "worker"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "set DASK_SCHEDULER_ADDRESS" in done.stderr


def test_every_job_takes_the_kernels_of_the_image() -> None:
    script = Path(ENTRYPOINT).read_text()
    (line,) = (each for each in script.splitlines() if each.startswith("fit | "))
    assert {each.strip(" )") for each in line.split("|")} == {*declared_jobs(), "demo"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [([], "Usage:"), (["--version"], "version"), (["python3", "-V"], "Python")],
)
def test_other_words_are_commands(tmp_path: Path, arguments: list[str], text: str) -> None:
    done = subprocess.run(
        [ENTRYPOINT, *arguments], env=programs(tmp_path / "bin"), capture_output=True, text=True,
        check=True, cwd=tmp_path,
    )  # fmt: skip
    assert text in done.stdout
