"""One fit of very many clusters in a separate process, so that its peak memory can be measured.

``python -m tests.benchmarks.hierarchical_fit RUN ROWS.zarr K THREADS`` prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from daskcluster import HierarchicalKMeans, KMeans, LocalEngine
from daskcluster.events import Event, IterationEnded, SeedingEnded
from daskcluster.models.balance import Balance
from tests.benchmarks.harness.memory import forget_peak, peak_bytes
from tests.benchmarks.harness.peers import quietly


@dataclass(frozen=True)
class FitFigures:
    """Figures of one fit.

    Attributes
    ----------
    seconds, cpu_seconds : float
        By the clock, and of all threads together: on a machine that others use, too, the second is the
        better figure of what the fit takes.
    seeding_seconds, label_seconds : float
    iteration_seconds : list of float
    peak_bytes : int
        Memory at the peak, less what libraries take.
    inertia : float
    passes, n_rows : int
    balance : dict
        Of `daskcluster.models.balance.Balance`.
    """

    seconds: float
    cpu_seconds: float
    seeding_seconds: float
    iteration_seconds: list[float]
    label_seconds: float
    peak_bytes: int
    inertia: float
    passes: int
    n_rows: int
    balance: dict[str, Any]


def estimator(run: str, k: int, **settings: Any) -> Any:
    """Return the estimator of a run."""
    if run in ("random", "afk-mc2"):
        return KMeans(k, init=run, n_init=1, max_iter=2, tol=0, **settings)
    return HierarchicalKMeans(k, refine=run != "unrefined", **settings)


def measure(run: str, path: Path, k: int, threads: int) -> FitFigures:
    """Fit; return the figures of each stage."""
    engine = LocalEngine(threads)
    warm = np.random.default_rng(0).normal(size=(4000, 32)).astype(np.float32)
    quietly(estimator(run, 300, random_state=0, engine=engine), warm)
    before = psutil.Process().memory_info().rss
    forget_peak()
    source: Any = str(path) if run == "zarr" else np.load(path.with_suffix(".npy"))
    events: list[Event] = []
    model = estimator(run, k, random_state=0, engine=engine, callbacks=[events.append])
    began, busy = time.perf_counter(), time.process_time()
    quietly(model, source)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    seeding = sum(event.seconds for event in events if isinstance(event, SeedingEnded))
    iterations = [event.seconds for event in events if isinstance(event, IterationEnded)]
    return FitFigures(
        seconds=seconds,
        cpu_seconds=busy,
        seeding_seconds=seeding,
        iteration_seconds=iterations,
        label_seconds=seconds - seeding - sum(iterations),
        peak_bytes=peak_bytes() - before,
        inertia=model.inertia_,
        passes=model.passes_,
        n_rows=model.n_rows_,
        balance=Balance.of(model.cluster_sizes_).as_dict(),
    )


if __name__ == "__main__":
    name, rows, clusters, threads = sys.argv[1:]
    print(json.dumps(asdict(measure(name, Path(rows), int(clusters), int(threads)))))
