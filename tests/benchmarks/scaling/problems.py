"""Fits whose passes are measured and predicted, each with another bottleneck."""

from __future__ import annotations

import statistics
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster import KMeans, open_dataset
from daskcluster.data.generate import generate
from daskcluster.engine.dask import DaskEngine
from daskcluster.methods.catalogue import plan_of
from daskcluster.typing import Dataset
from tests.benchmarks.scaling.model.cluster import Cluster
from tests.benchmarks.scaling.model.forecast import Forecast, forecast
from tests.benchmarks.scaling.model.rates import Rates
from tests.benchmarks.scaling.model.work import fit_work

UNKEPT_BYTES = 600 << 20
"""Memory of a worker that cannot cache rows: the libraries take half of it."""
FIRST = 2
"""Iterations that do not count: rows are read, and the speed of workers is measured."""


@dataclass(frozen=True)
class Problem:
    """Lloyd passes over stored rows.

    Attributes
    ----------
    name : str
    n, d, k : int
    kept : bool
        Rows stay in the workers' memory.
    iterations : int
    """

    name: str
    n: int
    d: int
    k: int
    kept: bool = True
    iterations: int = 8

    @property
    def shape(self) -> str:
        return f"{self.n:,}, {self.d}, {self.k}"

    def write(self, folder: Path) -> str:
        """Write the rows, with several chunks per worker; return their path."""
        path = folder / f"{self.name}.zarr"
        if not path.exists():
            generate(
                str(path),
                n_rows=self.n,
                n_features=self.d,
                n_clusters=32,
                spread=1.0,
                chunk_rows=max(1, self.n // 64),
            )
        return str(path)

    def parameters(self, rows: Dataset) -> dict[str, Any]:
        centres = rows.take(np.arange(self.k))
        return {
            "n_clusters": self.k, "init": centres, "n_init": 1, "max_iter": self.iterations,
            "tol": 0.0,
        }  # fmt: skip

    def measured(self, rows: Dataset, client: Any, n_workers: int) -> float:
        """Return the median seconds of an iteration."""
        limit = None if self.kept else n_workers * UNKEPT_BYTES
        engine = DaskEngine(client, memory_limit=limit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it does not converge, and should not
            model = KMeans(algorithm="lloyd", engine=engine, **self.parameters(rows)).fit(rows)
        return statistics.median(record["seconds"] for record in model.history_[FIRST:])

    def predicted(
        self, rows: Dataset, client: Any, cluster: Cluster, rates: Rates, *, stored: float = 1.0
    ) -> Forecast:
        """Return the prediction for a later pass."""
        limit = None if self.kept else cluster.workers * UNKEPT_BYTES
        plan = plan_of(rows, "lloyd", {**self.parameters(rows), "init": "random"})
        assert plan is not None
        memory = DaskEngine(client, memory_limit=limit).plan(rows, plan.footprint)
        work = fit_work(rows, plan, memory, self.k, stored=stored)
        return forecast(work.later, cluster, rates)


PROBLEMS = (
    Problem("kernel", 200_000, 128, 500),
    Problem("tasks", 65_536, 16, 8, iterations=14),
    Problem("totals", 16_384, 512, 1000),
    Problem("reading", 2_000_000, 16, 8, kept=False),
)


def small(problem: Problem) -> Problem:
    """Return the problem with an eighth of the rows, for ``--quick``."""
    return Problem(
        problem.name, max(2048, problem.n // 8), problem.d, min(problem.k, 200), problem.kept, 4
    )


def compared(
    problem: Problem, url: str, client: Any, cluster: Cluster, rates: Rates, **more: Any
) -> dict[str, Any]:
    """Measure a problem, predict it, and return both."""
    rows = open_dataset(url, **more)
    took = problem.measured(rows, client, cluster.workers)
    found = problem.predicted(rows, client, cluster, rates)
    return {
        "problem": problem.name,
        "shape": problem.shape,
        "workers": cluster.workers,
        "bandwidth": None if np.isinf(cluster.bandwidth) else cluster.bandwidth,
        "measured": took,
        "predicted": found.seconds,
        "bottleneck": found.bottleneck,
        "terms": found.terms,
    }
