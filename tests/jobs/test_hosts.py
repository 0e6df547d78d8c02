"""Several hosts: scheduler, workers and the bucket have addresses of their own, and one is cut off.

Each stands in a network namespace, joined by a bridge; needs root and iproute2.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskcluster import jobs
from daskcluster.models.persist import load_document
from tests.jobs.conftest import ROOT, reached, soon

# A run of its own has names and addresses of its own: several may go on at once.
_MINE = os.getpid()
NET = f"10.213.{_MINE % 254}"
BRIDGE = f"dc{_MINE}b"
HOSTS = {"store": 2, "scheduler": 3, "alpha": 4, "beta": 5, "gamma": 6}
_LEFT = re.compile(r"^dc(\d+)-\w+|dc(\d+)b(?=:)", re.MULTILINE)
FIT: dict[str, Any] = {
    "n_clusters": 60, "algorithm": "lloyd", "init": "random", "random_state": 5, "tol": 0.0,
    "max_iter": 24, "checkpoint_every": 4, "n_init": 1,
}  # fmt: skip


def ip(*words: str, check: bool = True) -> str:
    done = subprocess.run(["ip", *words], check=check, capture_output=True, text=True)
    return done.stdout


def address(host: str) -> str:
    return f"{NET}.{HOSTS[host]}"


def namespace(host: str) -> str:
    return f"dc{_MINE}-{host}"


def link(host: str) -> str:
    return f"dc{_MINE}h{HOSTS[host]}"


def make_network() -> None:
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{NET}.1/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    for host in HOSTS:
        ip("netns", "add", namespace(host))
        ip("link", "add", link(host), "type", "veth", "peer", "name", "eth0", "netns",
           namespace(host))  # fmt: skip
        ip("link", "set", link(host), "master", BRIDGE, "up")
        for words in (
            ("addr", "add", f"{address(host)}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", namespace(host), *words)


def remove_network(pid: int = _MINE) -> None:
    for host in HOSTS:
        ip("netns", "del", f"dc{pid}-{host}", check=False)
    ip("link", "del", f"dc{pid}b", check=False)


def remove_what_was_left() -> None:
    """Remove the networks of runs that were killed."""
    text = ip("netns", "list", check=False) + ip(
        "-o", "link", "show", "type", "bridge", check=False
    )
    for pid in {int(first or second) for first, second in _LEFT.findall(text)}:
        if not Path(f"/proc/{pid}").exists():
            remove_network(pid)


class Hosts:
    """The processes of the hosts."""

    def __init__(self, folder: Path) -> None:
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
                ["ip", "netns", "exec", namespace(host), *command],
                env=self._environment,
                cwd=ROOT,
                stdout=self._log,
                stderr=self._log,
            )
        )

    def dask(self, host: str, role: str, *arguments: str) -> None:
        self.start(host, sys.executable, "-m", "dask", role, "--no-dashboard", *arguments)

    def cut_off(self, host: str) -> None:
        ip("link", "set", link(host), "down")

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    moto = Path(sys.executable).with_name("moto_server")
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    if not moto.exists():
        pytest.skip("moto_server is not installed")
    remove_what_was_left()
    try:
        make_network()
    except subprocess.CalledProcessError as error:
        remove_network()
        pytest.skip(f"no network namespace can be made here: {error.stderr.strip()}")
    found = Hosts(tmp_path_factory.mktemp("hosts"))
    try:
        found.start("store", str(moto), "-H", address("store"), "-p", "9000")
        found.dask("scheduler", "scheduler", "--host", address("scheduler"), "--port", "8786")
        for host in ("alpha", "beta", "gamma"):
            found.dask(host, "worker", f"tcp://{address('scheduler')}:8786", "--no-nanny",
                       "--nthreads", "1", "--host", address(host), "--name", host)  # fmt: skip
        yield found
    finally:
        found.close()
        remove_network()


def answers() -> bool:
    try:
        with urllib.request.urlopen(f"http://{address('store')}:9000/moto-api/", timeout=1):
            return True
    except OSError:
        return False


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
    soon(answers)
    options = {"client_kwargs": {"endpoint_url": f"http://{address('store')}:9000"}}
    bucket = "driver" if "driver" in victim else "other"
    s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket=bucket)
    source, model = f"s3://{bucket}/noise.zarr", f"s3://{bucket}/model"
    convert(rows, source, chunk_rows=4_000, storage_options=options)

    with soon(connected) as client:
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
        hosts.cut_off(cut)
        found = jobs.wait(client, bucket, timeout=240)
        assert found.state == "done", found
        assert found.attempt == (2 if "driver" in victim else 1)
        left = {info["name"] for info in client.scheduler_info(n_workers=-1)["workers"].values()}
        assert cut not in left
    written = load_document(model, options)
    assert written.centres.tobytes() == expected.centres.tobytes()
    assert (written.inertia, written.n_iter) == (expected.inertia, expected.n_iter)


def connected() -> Any:
    """Return a client; a scheduler that is only just there may hang up."""
    from distributed import Client

    try:
        return Client(f"tcp://{address('scheduler')}:8786", set_as_default=False, timeout=60)
    except OSError:
        return None
