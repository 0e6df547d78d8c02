"""Measured and predicted passes on one to eight workers of one thread on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from daskcluster.engine.local import default_threads
from tests.benchmarks.harness.race import say
from tests.benchmarks.scaling.model.cluster import Cluster
from tests.benchmarks.scaling.model.processes import Processes
from tests.benchmarks.scaling.model.rates import Rates
from tests.benchmarks.scaling.problems import PROBLEMS, compared, small

WORKERS, QUICK = (1, 2, 4, 8), (1, 2)
WORKER_BYTES = 2 << 30


def compare(rates: Rates, *, quick: bool) -> list[dict[str, Any]]:
    """Return a record for each number of workers and problem."""
    problems = [small(problem) for problem in PROBLEMS] if quick else list(PROBLEMS)
    found = []
    with tempfile.TemporaryDirectory(prefix="daskcluster-scaling-") as folder:
        urls = {problem.name: problem.write(Path(folder)) for problem in problems}
        with Processes(WORKER_BYTES) as processes:
            for count in QUICK if quick else WORKERS:
                for number in range(processes.n_workers, count):
                    processes.add(f"worker{number}")
                cluster = Cluster(count, cores=default_threads(), one_host=True)
                for problem in problems:
                    say(f"  {count} workers: {problem.name}")
                    url = urls[problem.name]
                    found.append(compared(problem, url, processes.client, cluster, rates))
    return found
