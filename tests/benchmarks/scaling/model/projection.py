"""Projections of a fit on clusters of several sizes, from metadata alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from daskcluster.engine.memory import MemoryPlan, project
from daskcluster.errors import MemoryLimitError
from daskcluster.estimators.plan import Plan
from daskcluster.typing import Dataset
from tests.benchmarks.scaling.model.cluster import Cluster
from tests.benchmarks.scaling.model.forecast import FitForecast, forecast_fit
from tests.benchmarks.scaling.model.rates import REFERENCE, Rates
from tests.benchmarks.scaling.model.work import fit_work


@dataclass(frozen=True)
class Projection:
    """A fit on one cluster.

    Attributes
    ----------
    cluster : Cluster
    memory : MemoryPlan or None
    forecast : FitForecast or None
        Both None where the work does not fit the workers' memory.
    refusal : str
        Why it does not.
    """

    cluster: Cluster
    memory: MemoryPlan | None = None
    forecast: FitForecast | None = None
    refusal: str = ""

    def facts(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        facts: dict[str, Any] = {"workers": self.cluster.workers, "threads": self.cluster.threads}
        if self.forecast is None or self.memory is None:
            return {**facts, "refusal": self.refusal}
        found = self.forecast
        return {
            **facts,
            "resident_bytes": self.memory.resident,
            "memory_bytes": self.memory.projected,
            "seconds_at_most": found.seconds,
            "driver_seconds": found.stage,
            "bottleneck": found.bottleneck,
            **{
                name: {**asdict(each), "bottleneck": each.bottleneck}
                for name, each in (
                    ("first_pass", found.first),
                    ("later_pass", found.later),
                    ("labels_pass", found.labels),
                )
            },
        }


def project_clusters(
    dataset: Dataset,
    plan: Plan,
    n_clusters: int,
    clusters: Sequence[Cluster],
    *,
    worker_memory: int,
    rates: Rates = REFERENCE,
    stored: float = 1.0,
    touched: float = 1.0,
) -> list[Projection]:
    """Project one fit on several clusters.

    Parameters
    ----------
    dataset : Dataset
        Of which no row is read.
    plan : Plan
    n_clusters : int
    clusters : sequence of Cluster
    worker_memory : int
        Bytes that each worker may use.
    rates : Rates
    stored, touched : float
        See `tests.benchmarks.scaling.model.work.fit_work`.

    Returns
    -------
    list of Projection

    Examples
    --------
    >>> from daskcluster.data.generate import Mixture
    >>> from tests.benchmarks.scaling.generated import GeneratedDataset
    >>> from daskcluster.methods.catalogue import plan_of
    >>> rows = GeneratedDataset(Mixture(n_features=128, n_clusters=2), 10**9)
    >>> plan = plan_of(rows, "lloyd", {"n_clusters": 1000, "max_iter": 20})
    >>> clusters = [Cluster(10, bandwidth=1e9), Cluster(100, bandwidth=1e9)]
    >>> few, many = project_clusters(rows, plan, 1000, clusters, worker_memory=8 << 30)
    >>> few.forecast.seconds > 5 * many.forecast.seconds
    True
    """
    found = []
    for cluster in clusters:
        try:
            memory = project(
                dataset,
                plan.footprint if cluster.workers == 0 else plan.footprint.of_workers(),
                limit=worker_memory * max(1, cluster.workers),
                n_threads=cluster.slots,
                n_processes=max(1, cluster.workers),
            )
        except MemoryLimitError as error:
            found.append(Projection(cluster, refusal=str(error)))
            continue
        work = fit_work(dataset, plan, memory, n_clusters, stored=stored, touched=touched)
        found.append(Projection(cluster, memory, forecast_fit(work, cluster, rates)))
    return found
