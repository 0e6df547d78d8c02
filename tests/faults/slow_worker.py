"""A slow worker: how much of its work moves to the other one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.harness.parts import Table
from tests.faults.fits import write_rows
from tests.faults.processes import Cluster

N_ROWS, N_CLUSTERS, ITERATIONS = 200_000, 256, 24
CYCLE_SECONDS = 0.04


@contextmanager
def slowed(pid: int, speed: float) -> Iterator[None]:
    """Let a process run only the share `speed` of the time."""
    over = threading.Event()

    def breathe() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(CYCLE_SECONDS * (1 - speed))
            os.kill(pid, signal.SIGCONT)
            time.sleep(CYCLE_SECONDS * speed)

    thread = threading.Thread(target=breathe)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def fit(cluster: Cluster, folder: Path) -> Any:
    from distributed import Client

    import daskcluster as dc

    with Client(cluster.address, set_as_default=False) as client:
        start = dc.open_dataset(str(folder / "rows.zarr")).take(np.arange(N_CLUSTERS))
        model = dc.KMeans(
            N_CLUSTERS, init=start, max_iter=ITERATIONS, tol=0, algorithm="lloyd", engine=client
        )
        return model.fit(str(folder / "rows.zarr"))


def measure(folder: Path, speed: float = 0.25) -> dict[str, float]:
    """Return the seconds per iteration with two equal workers, and with one slow worker.

    With equal shares an iteration would take 1 / speed times as long, with perfect ones
    2 / (1 + speed) times.
    """
    write_rows(folder, N_ROWS)
    cluster = Cluster(folder / "cluster", 2)
    try:
        cluster.wait_for_workers()
        fit(cluster, folder)
        even = fit(cluster, folder)
        with slowed(cluster.workers[0].pid, speed):
            uneven = fit(cluster, folder)
    finally:
        cluster.close()
    if even.cluster_centers_.tobytes() != uneven.cluster_centers_.tobytes():
        raise AssertionError("the results differ")
    late = [[step["seconds"] for step in m.history_[ITERATIONS // 2 :]] for m in (even, uneven)]
    return {
        "speed": speed,
        "even": median(late[0]),
        "uneven": median(late[1]),
        "ratio": median(late[1]) / median(late[0]),
        "equal shares": 1 / speed,
        "perfect shares": 2 / (1 + speed),
    }


def table(found: dict[str, float]) -> Table:
    """Return the seconds of an iteration, and their ratios."""
    equal, perfect = found["equal shares"], found["perfect shares"]
    slowed_down = f"one of them running {found['speed']:.0%} of the time"
    rows = [
        ["of equal speed", f"{found['even']:.3f}", 1],
        [slowed_down, f"{found['uneven']:.3f}", f"{found['ratio']:.2f}"],
        ["the same, if each kept half of the rows", None, f"{equal:.2f}"],
        ["the same, if moving work cost nothing", None, f"{perfect:.2f}"],
    ]
    return Table("Two workers", ["two workers", "seconds per iteration", "ratio"], rows)
