"""Rates of a Dask cluster: CPU time of client, scheduler and workers for tasks, handles and bytes."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster import open_dataset
from daskcluster.data.convert import convert
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.engine import Placement
from daskcluster.typing import Dataset
from tests.benchmarks.scaling.model.least_squares import solve_rates
from tests.benchmarks.scaling.model.probe import PROBE, ProbeParams
from tests.benchmarks.scaling.model.processes import Processes
from tests.benchmarks.scaling.model.rates import RoleRate

PARTITIONS = (32, 256)
"""Of about 1 MB; all of them are held."""
MORE_WORKERS = 30
"""In a third process, next to two that have one: tasks go to 2 workers, then to 32."""
PAYLOAD = 480 << 10
"""Bytes sent within a task."""
WORKER_BYTES = 4 << 30
_LEAST_SECONDS = 0.6
"""Of each kind of pass: the system counts processor time in hundredths of a second."""
_LEAST_PASSES, _WARM_UP = 4, 2
_ASKED = 40


@dataclass(frozen=True)
class EngineRates:
    """Costs of passes in addition to their rows; see `tests.benchmarks.scaling.model.rates.Rates`."""

    client: RoleRate
    scheduler: RoleRate
    worker: RoleRate
    round_trip: float


@dataclass(frozen=True)
class _Run:
    """One kind of pass: its counts, the CPU seconds of each role, and the elapsed seconds."""

    n_tasks: int
    n_handles: int
    n_bytes: int
    client: float
    scheduler: float
    worker: float
    wall: float

    @property
    def counts(self) -> tuple[float, float, float, float]:
        return 1.0, float(self.n_tasks), float(self.n_handles), float(self.n_bytes)


def engine_rates(*, more_workers: int = MORE_WORKERS) -> EngineRates:
    """Start processes and measure passes without computation.

    Parameters
    ----------
    more_workers : int
        Of the third process; more make the figures steadier and take longer.
    """
    with (
        tempfile.TemporaryDirectory(prefix="daskcluster-calibrate-") as folder,
        Processes(WORKER_BYTES) as processes,
    ):
        few, many = (_stored(folder, count) for count in PARTITIONS)
        processes.add("one")
        processes.add("two")
        runs = [_measured(processes, few, 2), _measured(processes, many, 2)]
        asked_few = _asking(processes)
        processes.add("more", more_workers)
        slots = 2 + more_workers
        runs += [
            _measured(processes, few, slots),
            _measured(processes, few, slots, payload=PAYLOAD),
            _measured(processes, few, slots, width=PAYLOAD // 8),
        ]
        asked_many = _asking(processes)
    a_worker = [
        max(0.0, many - few) / more_workers for few, many in zip(asked_few, asked_many, strict=True)
    ]
    return _rates(runs, *a_worker)


def _rates(runs: list[_Run], client_worker: float, scheduler_worker: float) -> EngineRates:
    counts = [run.counts for run in runs]
    # What asking after them takes was measured by itself.
    client = solve_rates(counts, [run.client - client_worker * run.n_tasks for run in runs])
    asked = [scheduler_worker * run.n_tasks for run in runs]
    scheduler = solve_rates(
        counts, [run.scheduler - each for run, each in zip(runs, asked, strict=True)]
    )
    worker = solve_rates([each[1:] for each in counts], [run.worker for run in runs])
    first = runs[0]
    idle = first.wall - first.client - first.scheduler - first.worker / 2
    return EngineRates(
        _role(client, client_worker),
        _role(scheduler, scheduler_worker),
        _role(np.concatenate([[0.0], worker]), 0.0),
        max(0.0, idle),
    )


def _role(found: np.ndarray, a_worker: float) -> RoleRate:
    a_pass, a_task, a_handle, a_byte = found.tolist()
    return RoleRate(a_pass, a_task, a_handle, a_worker, a_byte)


def _stored(folder: str, n_partitions: int) -> Dataset:
    """Write rows of ones, which are cheap to read."""
    path = os.path.join(folder, f"{n_partitions}.zarr")
    rows = np.ones((n_partitions * 4096, 64), np.float32)
    convert(rows, path, chunk_rows=4096)
    return open_dataset(path)


def _measured(
    processes: Processes, dataset: Dataset, slots: int, *, payload: int = 0, width: int = 1
) -> _Run:
    with DaskEngine(processes.client).place(dataset) as placement:
        params = ProbeParams(os.urandom(payload), width)
        for _ in range(_WARM_UP):
            placement.reduce(PROBE, params)
        client, scheduler, worker, wall = _passes(processes, placement, params)
    n_tasks = min(slots, len(dataset.partitions))
    return _Run(
        n_tasks, len(dataset.partitions), n_tasks * (payload + 8 * width), client, scheduler, worker, wall
    )  # fmt: skip


def _passes(
    processes: Processes, placement: Placement, params: ProbeParams
) -> tuple[float, float, float, float]:
    """Return the seconds of one pass: CPU time of client, scheduler and all workers, and elapsed time."""
    before, began, passes = processes.seconds(), time.perf_counter(), 0
    while passes < _LEAST_PASSES or time.perf_counter() - began < _LEAST_SECONDS:
        placement.reduce(PROBE, params)
        passes += 1
    wall = time.perf_counter() - began
    client, scheduler, worker = (
        (after - early) / passes for after, early in zip(processes.seconds(), before, strict=True)
    )
    return client, scheduler, worker, wall / passes


def _asking(processes: Processes) -> tuple[float, float]:
    """Return the CPU time of client and scheduler for a request of the list of workers."""
    client: Any = processes.client
    before = processes.seconds()
    for _ in range(_ASKED):
        client.scheduler_info(n_workers=-1)
    after = processes.seconds()
    return (after[0] - before[0]) / _ASKED, (after[1] - before[1]) / _ASKED
