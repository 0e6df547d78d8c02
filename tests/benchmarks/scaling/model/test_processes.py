"""A scheduler and workers as processes, whose processor time is read, and a pass on them."""

from __future__ import annotations

import numpy as np

from daskcluster.data.generate import GeneratedDataset, Mixture
from daskcluster.engine.dask import DaskEngine
from tests.benchmarks.scaling.model.probe import PROBE, ProbeParams
from tests.benchmarks.scaling.model.processes import Processes


def test_processes_start_work_and_end() -> None:
    rows = GeneratedDataset(Mixture(n_features=16, n_clusters=2), 100_000)
    with Processes(1 << 30) as processes:
        processes.add("some", n_workers=3)
        client = processes.client
        names = {info["name"] for info in client.scheduler_info(n_workers=-1)["workers"].values()}
        assert names == {"some-0", "some-1", "some-2"}
        before = processes.seconds()
        with DaskEngine(client).place(rows) as placement:
            found = placement.reduce(PROBE, ProbeParams(b"x" * 1000, width=5))
        assert np.array_equal(found, [100_000, 0, 0, 0, 0])
        assert all(after >= early for after, early in zip(processes.seconds(), before, strict=True))
        assert processes.seconds()[2] > before[2]
        address = client.scheduler.address
        running = list(processes._running.values())
    assert all(process.poll() is not None for process in running)
    assert address.startswith("tcp://127.0.0.1:")
