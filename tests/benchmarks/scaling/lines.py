"""Measured and predicted passes with limited bandwidth; each worker has a network namespace."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daskcluster.data.convert import convert
from daskcluster.engine.local import default_threads
from tests.benchmarks.harness.race import say
from tests.benchmarks.scaling.model.cluster import Cluster
from tests.benchmarks.scaling.model.processes import Processes
from tests.benchmarks.scaling.model.rates import Rates
from tests.benchmarks.scaling.problems import Problem, compared, small
from tests.network import Network, answers, network_of, why_not

MEGABITS, QUICK = (100, 400, 1600), (400,)
N_WORKERS = 4
WORKER_BYTES = 2 << 30
TOTALS = Problem("totals", 16_384, 512, 1000, iterations=4)
BUCKET = Problem("bucket", 200_000, 32, 8, kept=False, iterations=4)
_STARTING_SECONDS = 60.0


def compare(rates: Rates, *, quick: bool) -> list[dict[str, Any]]:
    """Return a record for each bandwidth and problem; none if no network can be created."""
    if (missing := why_not()) is not None:
        say(f"  lines: {missing}")
        return []
    found = []
    workers = [f"worker{number}" for number in range(N_WORKERS)]
    totals, bucket = (small(p) if quick else p for p in (TOTALS, BUCKET))
    with (
        tempfile.TemporaryDirectory(prefix="daskcluster-scaling-") as folder,
        network_of(["scheduler", "store", *workers]) as network,
        _store(network) as options,
        Processes(WORKER_BYTES, within=network.within(), host_of=network.addresses) as processes,
    ):
        stored = totals.write(Path(folder))
        if options is not None:
            convert(bucket.write(Path(folder)), "s3://rows/bucket.zarr", storage_options=options)
        for worker in workers:
            processes.add(worker)
        for megabits in QUICK if quick else MEGABITS:
            bandwidth = 1e6 * megabits / 8
            network.limit(bandwidth)
            cluster = Cluster(
                N_WORKERS,
                cores=default_threads(),
                one_host=True,
                bandwidth=bandwidth,
                store_bandwidth=bandwidth,
            )
            say(f"  {megabits} Mbit/s")
            found.append(compared(totals, stored, processes.client, cluster, rates))
            if options is not None:
                found.append(
                    compared(
                        bucket, "s3://rows/bucket.zarr", processes.client, cluster, rates,
                        storage_options=options,
                    )
                )  # fmt: skip
    return found


@contextmanager
def _store(network: Network) -> Iterator[dict[str, Any] | None]:
    """Serve a bucket on a separate host, and yield its address; None if no server is installed."""
    server = Path(sys.executable).with_name("moto_server")
    if not server.exists():
        say("  the bucket is left out: moto_server is not installed")
        yield None
        return
    address = network.address("store")
    settings = {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": address, "no_proxy": address,
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)  # of the workers, too, which are started later
    with subprocess.Popen(
        [*network.within("store"), str(server), "-H", address, "-p", "9000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _wait_for(f"http://{address}:9000/moto-api/")
            options = {"client_kwargs": {"endpoint_url": f"http://{address}:9000"}}
            import s3fs

            s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket="rows")
            yield options
        finally:
            process.kill()
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + _STARTING_SECONDS
    while not answers(url):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing answers at {url}")
        time.sleep(0.1)
