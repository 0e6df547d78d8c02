"""One fit out of core in a process of its own, whose memory nothing else has touched.

``python -m tests.benchmarks.ooc_fit URL CENTRES.npy ALGORITHM ITERATIONS THREADS`` prints one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster import LocalEngine, open_dataset
from daskcluster.engine.memory import BASELINE_BYTES, RESIDENT_SHARE, Footprint, MemoryPlan
from daskcluster.typing import Dataset
from tests.benchmarks.peers import quietly

WARM_UP_ROWS, WARM_UP_ITERATIONS = 20_000, 8
BOUNDS_BYTES = 16
"""Of memory for each row: 12 for one lower bound a row, the rest for what an algorithm likes to keep."""


@dataclass(frozen=True)
class BoundsOnly(MemoryPlan):
    """A plan with room for bounds, whatever the limit; it is rows that the limit keeps out."""

    room: int = 0

    @property
    def state_room(self) -> int:
        return self.room


class UnkeptRows(LocalEngine):
    """Keeps bounds between passes and no partition, as if there were too many to matter.

    With a common limit for rows and bounds, a fit without bounds would have their room for rows, and
    what is read would depend on the limit more than on the bounds.
    """

    def __init__(self, n_threads: int) -> None:
        # Half of it is the baseline's, so nothing is left for rows.
        super().__init__(n_threads, memory_limit=int(BASELINE_BYTES / RESIDENT_SHARE))

    def plan(self, dataset: Dataset, footprint: Footprint | None = None) -> MemoryPlan:
        plan = super().plan(dataset, footprint)
        return BoundsOnly(**vars(plan), room=dataset.n_rows * BOUNDS_BYTES)


def measure(
    url: str, centres: np.ndarray, algorithm: str, iterations: int, threads: int
) -> dict[str, Any]:
    """Fit, and return what it took and the digest of what it found."""
    dataset = open_dataset(url)
    engine = UnkeptRows(threads)
    assert engine.plan(dataset).residents == 0
    first = dataset.take(np.arange(min(WARM_UP_ROWS, dataset.n_rows)))
    _fit(first, centres, algorithm, WARM_UP_ITERATIONS, engine)  # kernels are compiled or loaded
    del first
    before = memory("VmRSS")
    forget_peak()
    began = time.perf_counter()
    model = _fit(dataset, centres, algorithm, iterations, engine)
    return {
        "seconds": time.perf_counter() - began,
        "peak_bytes": memory("VmHWM") - before,
        "bytes_read": model.bytes_read_,
        "passes": model.passes_,
        "n_iter": model.n_iter_,
        "inertia": model.inertia_,
        "digest": hashlib.sha256(model.cluster_centers_.tobytes()).hexdigest(),
        "bytes_by_iteration": [record["bytes_read"] for record in model.history_],
        "touched_by_iteration": [record["n_touched"] for record in model.history_],
    }


def _fit(rows: Any, centres: np.ndarray, algorithm: str, iterations: int, engine: Any) -> Any:
    from daskcluster import KMeans

    model = KMeans(
        len(centres),
        init=centres,
        n_init=1,
        algorithm=algorithm,
        max_iter=iterations,
        tol=0,
        engine=engine,
    )
    return quietly(model, rows)


def memory(field: str) -> int:
    """Return a figure of this process in bytes: VmRSS is now, VmHWM the peak."""
    # Not getrusage: its peak is inherited from the process that started this one.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; memory is measured on Linux only.")


def forget_peak() -> None:
    """Let the peak begin anew, where the system allows it; else it includes the warm-up's."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


if __name__ == "__main__":
    url, file, algorithm, iterations, threads = sys.argv[1:]
    found = measure(url, np.load(file), algorithm, int(iterations), int(threads))
    print(json.dumps(found))
