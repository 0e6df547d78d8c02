"""Several hosts: scheduler, workers and the bucket have addresses of their own, and one is cut off."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskcluster import jobs
from daskcluster.models.fitted import load_document
from tests.jobs.conftest import ROOT, reached, soon
from tests.network import Network, answers, network_of, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

HOSTS = ("store", "scheduler", "alpha", "beta", "gamma")
FIT: dict[str, Any] = {
    "n_clusters": 60, "algorithm": "lloyd", "init": "random", "random_state": 5, "tol": 0.0,
    "max_iter": 60, "checkpoint_every": 4, "n_init": 1,
}  # fmt: skip
"""With iterations left when a host is cut off at the fifth, also on a fast machine."""


class Hosts:
    """The processes of the hosts of a network."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.scheduler = f"tcp://{network.address('scheduler')}:8786"
        self.store = f"http://{network.address('store')}:9000"
        self._log = (folder / "log").open("w")
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")},
            "PYTHONPATH": path, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_EC2_METADATA_DISABLED": "true",
            # A host that is cut off says no goodbye: what notices is the kernel, which does not mind a busy
            # machine, as a look at heartbeats would. Dask wants 11 s or more.
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s",
        }  # fmt: skip
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, host: str, *command: str) -> None:
        self._processes.append(
            subprocess.Popen(
                [*self.network.within(host), *command],
                env=self._environment,
                cwd=ROOT,
                stdout=self._log,
                stderr=self._log,
            )
        )

    def dask(self, host: str, role: str, *arguments: str) -> None:
        self.start(host, sys.executable, "-m", "dask", role, "--no-dashboard", *arguments)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    moto = Path(sys.executable).with_name("moto_server")
    if not moto.exists():
        pytest.skip("moto_server is not installed")
    with ExitStack() as stack:
        try:
            network = stack.enter_context(network_of(HOSTS))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespace can be made here: {error.stderr.strip()}")
        found = stack.enter_context(closing(Hosts(network, tmp_path_factory.mktemp("hosts"))))
        found.start("store", str(moto), "-H", network.address("store"), "-p", "9000")
        address = network.address("scheduler")
        found.dask("scheduler", "scheduler", "--host", address, "--port", "8786")
        for host in HOSTS[2:]:
            found.dask(host, "worker", found.scheduler, "--no-nanny", "--nthreads", "1",
                       "--host", network.address(host), "--name", host)  # fmt: skip
        yield found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "victim", ["the driver of the job", pytest.param("another worker", marks=pytest.mark.slow)]
)
def test_a_host_is_cut_off_in_the_middle(
    hosts: Hosts, noise: np.ndarray, tmp_path: Path, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    from daskcluster.data.convert import convert

    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    rows = noise[:30_000]
    jobs.fit(rows, model=str(tmp_path / "here"), engine="local", **FIT)  # while processes start
    expected = load_document(str(tmp_path / "here"))
    soon(lambda: answers(f"{hosts.store}/moto-api/"))
    options = {"client_kwargs": {"endpoint_url": hosts.store}}
    bucket = "driver" if "driver" in victim else "other"
    s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket=bucket)
    source, model = f"s3://{bucket}/noise.zarr", f"s3://{bucket}/model"
    convert(rows, source, chunk_rows=4_000, storage_options=options)

    with soon(lambda: connected(hosts.scheduler)) as client:
        client.wait_for_workers(2, timeout=200)
        jobs.submit(
            client, jobs.fit, source, name=bucket, model=model, storage_options=options, **FIT
        )
        status = reached(client, bucket, 5)
        names = {
            worker: info["name"]
            for worker, info in client.scheduler_info(n_workers=-1)["workers"].items()
        }
        others = sorted(name for worker, name in names.items() if worker != status.worker)
        cut = names[status.worker] if "driver" in victim else others[0]
        hosts.network.cut_off(cut)
        found = jobs.wait(client, bucket, timeout=240)
        assert found.state == "done", found
        assert found.attempt == (2 if "driver" in victim else 1)
        left = {info["name"] for info in client.scheduler_info(n_workers=-1)["workers"].values()}
        assert cut not in left
    written = load_document(model, options)
    assert written.centres.tobytes() == expected.centres.tobytes()
    assert (written.inertia, written.n_iter) == (expected.inertia, expected.n_iter)


def connected(scheduler: str) -> Any:
    """Return a client; a scheduler that is only just there may hang up."""
    from distributed import Client

    try:
        return Client(scheduler, set_as_default=False, timeout=60)
    except OSError:
        return None
