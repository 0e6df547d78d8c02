"""A cluster of separate processes, and rows in a bucket that only its own credentials open."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from daskcluster import jobs
from daskcluster.data.convert import convert
from tests.data.conftest import KEY_ID, SECRET, s3  # noqa: F401  (a fixture)

ROOT = Path(__file__).resolve().parents[2]


def soon(condition: Callable[[], Any], seconds: float = 500.0) -> Any:
    """Return the first true answer, or fail."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.15)


def reached(client: Client, name: str, iteration: int) -> jobs.JobStatus:
    """Return how a job stands that has made so many iterations, or fail if it ends before."""

    def there() -> Any:
        found = jobs.status(client, name)
        assert not found.is_over, found
        return found if (found.iteration or 0) >= iteration else None

    return soon(there)


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(
        self, folder: Path, environment: dict[str, str], arguments: Sequence[str] = ()
    ) -> None:
        self._file = folder / "scheduler.json"
        self._arguments = arguments
        self._log = (folder / "log").open("w")
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self._environment = {**os.environ, **environment, "PYTHONPATH": path}
        self._processes = [self._start("scheduler", "--host", "127.0.0.1", "--port", "0")]
        soon(lambda: self._file.exists() and self._file.stat().st_size)

    def _start(self, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", role, "--scheduler-file", str(self._file),
             "--no-dashboard", *self._arguments, *arguments],
            env=self._environment, cwd=ROOT, stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def add_worker(self) -> None:
        self._processes.append(self._start("worker", "--no-nanny", "--nthreads", "1"))

    @property
    def address(self) -> str:
        return str(json.loads(self._file.read_text())["address"])

    def kill_scheduler(self) -> None:
        self._processes[0].kill()

    def client(self) -> Client:
        return Client(scheduler_file=str(self._file), set_as_default=False, timeout=200)

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
        for process in self._processes:
            process.wait()
        self._log.close()


@pytest.fixture(scope="session")
def endpoint(s3: dict[str, Any]) -> dict[str, Any]:  # noqa: F811
    """Return the storage options that may travel."""
    return {"client_kwargs": {"endpoint_url": s3["client_kwargs"]["endpoint_url"]}}


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
    s3: dict[str, Any],  # noqa: F811
) -> Iterator[Cluster]:
    """Yield two workers whose environment has the credentials, as that of this process has not."""
    secrets = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), secrets)
    for _ in range(2):
        cluster.add_worker()
    try:
        with cluster.client() as client:
            client.wait_for_workers(2, timeout=200)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with cluster.client() as client:
        yield client


@pytest.fixture(scope="session")
def noise() -> np.ndarray:
    """Return rows without clusters: fits of them go on to the last iteration."""
    return np.random.default_rng(1).random((60_000, 8), np.float32)


@pytest.fixture(scope="session")
def source(s3: dict[str, Any], noise: np.ndarray) -> str:  # noqa: F811
    url = "s3://rows/jobs/noise.zarr"
    convert(noise, url, chunk_rows=8_000, storage_options=s3)
    return url


def kill_worker(client: Client, address: str) -> None:
    """Kill the process of a worker on this machine."""
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)
