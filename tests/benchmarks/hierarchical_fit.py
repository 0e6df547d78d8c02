"""One fit of very many clusters in a process of its own, whose memory nothing else has touched.

``python -m tests.benchmarks.hierarchical_fit RUN ROWS.zarr K THREADS`` prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster import HierarchicalKMeans, KMeans, LocalEngine
from daskcluster.bench.ooc_fit import forget_peak, memory
from daskcluster.bench.peers import quietly
from daskcluster.events import Event, IterationEnded, SeedingEnded
from daskcluster.models.balance import Balance


def estimator(run: str, k: int, **settings: Any) -> Any:
    """Return what a run fits."""
    if run in ("random", "afk-mc2"):
        return KMeans(k, init=run, n_init=1, max_iter=2, tol=0, **settings)
    return HierarchicalKMeans(k, refine=run != "unrefined", **settings)


def measure(run: str, path: Path, k: int, threads: int) -> dict[str, Any]:
    """Fit, and return what each stage took."""
    engine = LocalEngine(threads)
    warm = np.random.default_rng(0).normal(size=(4000, 32)).astype(np.float32)
    quietly(estimator(run, 300, random_state=0, engine=engine), warm)
    before = memory("VmRSS")
    forget_peak()
    source: Any = str(path) if run == "zarr" else np.load(path.with_suffix(".npy"))
    events: list[Event] = []
    model = estimator(run, k, random_state=0, engine=engine, callbacks=[events.append])
    began = time.perf_counter()
    quietly(model, source)
    seconds = time.perf_counter() - began
    seeding = sum(event.seconds for event in events if isinstance(event, SeedingEnded))
    iterations = [event.seconds for event in events if isinstance(event, IterationEnded)]
    return {
        "seconds": seconds,
        "seeding_seconds": seeding,
        "iteration_seconds": iterations,
        "label_seconds": seconds - seeding - sum(iterations),
        "peak_bytes": memory("VmHWM") - before,
        "inertia": model.inertia_,
        "passes": model.passes_,
        "n_rows": model.n_rows_,
        "balance": Balance.of(model.cluster_sizes_).as_dict(),
    }


if __name__ == "__main__":
    name, rows, clusters, threads = sys.argv[1:]
    print(json.dumps(measure(name, Path(rows), int(clusters), int(threads))))
