"""One out-of-core fit in a separate process, so that its peak memory can be measured.

``python -m tests.benchmarks.comparisons.ooc_fit URL CENTRES.npy ALGORITHM ITERATIONS THREADS [ROW_BYTES]``
prints one JSON object. ROW_BYTES is the state per row of the algorithm.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from daskcluster import KMeans, LocalEngine, VariationalGaussianMixture, open_dataset
from daskcluster.engine.memory import BASELINE_BYTES, RESIDENT_SHARE, Footprint, MemoryPlan
from daskcluster.host import give_back_memory
from daskcluster.typing import Dataset
from tests.benchmarks.harness.memory import forget_peak, peak_bytes
from tests.benchmarks.harness.peers import fit_ours, quietly

MIXTURE, SEEDING = "var-gmm", "k-means||"
WARM_UP_ROWS, WARM_UP_ITERATIONS = 20_000, 8
BOUNDS_BYTES = 16
"""Memory per row: 12 bytes for bounds with one lower bound per row, the rest for optional state."""


@dataclass(frozen=True)
class BoundsOnly(MemoryPlan):
    """A plan with room for bounds whatever the limit; only rows are not kept."""

    room: int = 0

    @property
    def state_room(self) -> int:
        return self.room


class UnkeptRows(LocalEngine):
    """A local engine that keeps bounds between passes, but no partition.

    With a common limit for rows and bounds, a fit without bounds would keep more rows, and the bytes read
    would depend more on the limit than on the bounds. Unless `limited`, freed memory is treated as on a
    host whose memory is the limit.
    """

    def __init__(
        self,
        n_threads: int,
        row_bytes: int = BOUNDS_BYTES,
        state_bytes: int = 0,
        *,
        limited: bool = False,
    ) -> None:
        # The share for resident data covers the baseline and the state, and leaves nothing for rows.
        self._full = int((BASELINE_BYTES + state_bytes) / RESIDENT_SHARE)
        super().__init__(n_threads, memory_limit=self._full if limited else None)
        self._row_bytes = row_bytes

    @property
    def memory_limit(self) -> int:
        return self._full

    def plan(self, dataset: Dataset, footprint: Footprint | None = None) -> MemoryPlan:
        """Return the plan of `LocalEngine` with room for state, and none for partitions."""
        plan = super().plan(dataset, footprint)
        kept = {**vars(plan), "resident": 0, "residents": 0}
        return BoundsOnly(**kept, room=dataset.n_rows * self._row_bytes)


def start(words: list[str]) -> dict[str, Any]:
    """Run this module in a separate process; return the result of `measure`.

    Raises
    ------
    RuntimeError
        It failed.
    """
    root = Path(__file__).resolve().parents[3]
    places = [str(root), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.comparisons.ooc_fit", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(
    url: str, centres: np.ndarray, algorithm: str, iterations: int, threads: int,
    row_bytes: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Fit; return time, memory, bytes read and a digest of the centres."""
    dataset = open_dataset(url)
    engine = (
        UnkeptRows(threads, limited=True)
        if row_bytes is None
        else UnkeptRows(threads, row_bytes, row_bytes * dataset.n_rows, limited=True)
    )
    first = dataset.take(np.arange(min(WARM_UP_ROWS, dataset.n_rows)))
    _fit(first, centres, WARM_UP_ITERATIONS, engine, algorithm)  # kernels are compiled or loaded
    del first
    give_back_memory()  # otherwise the fit could reuse memory that the warm-up freed
    before = psutil.Process().memory_info().rss
    forget_peak()
    began = time.perf_counter()
    model = _fit(dataset, centres, iterations, engine, algorithm)
    return {
        "seconds": time.perf_counter() - began,
        "peak_bytes": peak_bytes() - before,
        "bytes_read": model.bytes_read_,
        "passes": model.passes_,
        "n_iter": model.n_iter_,
        **(_details(model) if hasattr(model, "inertia_") else {}),
    }


def _details(model: Any) -> dict[str, Any]:
    return {
        "inertia": model.inertia_,
        "digest": hashlib.sha256(model.cluster_centers_.tobytes()).hexdigest(),
        "bytes_by_iteration": [record["bytes_read"] for record in model.history_],
        "touched_by_iteration": [record["n_touched"] for record in model.history_],
    }


def _fit(rows: Any, centres: np.ndarray, iterations: int, engine: Any, algorithm: str) -> Any:
    if algorithm == MIXTURE:
        model = VariationalGaussianMixture(
            len(centres), init=centres, max_iter=iterations, tol=0.0, random_state=0, engine=engine
        )
        return quietly(model, rows)
    if algorithm == SEEDING:
        seeded = KMeans(
            len(centres), init=SEEDING, max_iter=1, tol=0, random_state=0, engine=engine
        )
        return quietly(seeded, rows)
    return fit_ours(rows, centres, iterations, engine, algorithm)


if __name__ == "__main__":
    place, file, name, updates, cores, *state = sys.argv[1:]
    taken = measure(
        place, np.load(file), name, int(updates), int(cores), *(int(each) for each in state)
    )
    sys.stdout.write(json.dumps(taken) + "\n")
