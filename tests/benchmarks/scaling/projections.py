"""Projections of fits that are too large to run here: 80M x 3072 and 10^9 x 128."""

from __future__ import annotations

from typing import Any

from daskcluster.data.generate import Mixture
from daskcluster.methods.catalogue import plan_of
from tests.benchmarks.scaling.generated import GeneratedDataset
from tests.benchmarks.scaling.model.cluster import Cluster
from tests.benchmarks.scaling.model.projection import project_clusters
from tests.benchmarks.scaling.model.rates import Rates

SHAPES = ((80_000_000, 3072), (1_000_000_000, 128))
N_CLUSTERS = 1000
WORKERS = (10, 30, 100, 300, 1000)
TOUCHED = 0.33
"""Share of the rows that are checked with bounds, as on MNIST."""
CORESET = 100_000
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "lloyd": ("lloyd", {"max_iter": 20, "init": "random", "n_init": 1}),
    "bounds": ("hamerly", {"max_iter": 20, "init": "random", "n_init": 1}),
    "coreset + EM": ("vc-gmm", {"max_iter": 50, "coreset_size": CORESET}),
}
MACHINE: dict[str, Any] = {
    "threads": 1, "bandwidth": 1.25e9, "store_bandwidth": 2e10, "latency": 2e-4, "driver_threads": 8,
}  # fmt: skip
WORKER_BYTES = 8 << 30


def project_all(rates: Rates) -> list[dict[str, Any]]:
    """Return a record for each shape, algorithm and number of workers."""
    found = []
    for n, d in SHAPES:
        rows = GeneratedDataset(Mixture(n_features=d, n_clusters=1), n)
        clusters = [Cluster(count, **MACHINE) for count in WORKERS]
        for name, (algorithm, given) in FITS.items():
            plan = plan_of(rows, algorithm, {"n_clusters": N_CLUSTERS, **given})
            assert plan is not None
            projected = project_clusters(
                rows, plan, N_CLUSTERS, clusters,
                worker_memory=WORKER_BYTES, rates=rates, touched=TOUCHED,
            )  # fmt: skip
            for each in projected:
                found.append({"n": n, "d": d, "fit": name, **each.facts()})
    return found
