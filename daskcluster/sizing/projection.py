"""A fit on clusters of several sizes, from metadata alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pkgutil import resolve_name
from typing import Any

from daskcluster.engine.memory import MemoryPlan, project
from daskcluster.errors import MemoryLimitError
from daskcluster.estimators.plan import MakePlan, Plan
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.parameters.checks import check_arguments
from daskcluster.sizing.cluster import Cluster
from daskcluster.sizing.forecast import FitForecast, forecast_fit
from daskcluster.sizing.rates import REFERENCE, Rates
from daskcluster.sizing.work import fit_work
from daskcluster.typing import Dataset


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
        """Return plain values, for programs."""
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


def plan_of(dataset: Dataset, algorithm: str, given: Mapping[str, Any]) -> Plan | None:
    """Return the plan of a fit; None if the algorithm has none.

    Parameters
    ----------
    dataset : Dataset
    algorithm : str
        A name of the catalogue.
    given : mapping
        The parameters that were given.

    Raises
    ------
    DaskClusterError
        What the fit would raise before it starts.
    """
    entry = ALGORITHMS.find(algorithm)
    if not entry.plan:
        return None
    check_arguments(entry, given)
    defaults = {name: parameter.default for name, parameter in entry.parameters.items()}
    make_plan: MakePlan = resolve_name(entry.plan)
    return make_plan(dataset, entry.arguments({**defaults, **given}))


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
        See `daskcluster.sizing.work.fit_work`.

    Returns
    -------
    list of Projection

    Examples
    --------
    >>> from daskcluster.data.generate import Mixture
    >>> from daskcluster.data.generated import GeneratedDataset
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
                n_threads=cluster.lanes,
                n_processes=max(1, cluster.workers),
            )
        except MemoryLimitError as error:
            found.append(Projection(cluster, refusal=str(error)))
            continue
        work = fit_work(dataset, plan, memory, n_clusters, stored=stored, touched=touched)
        found.append(Projection(cluster, memory, forecast_fit(work, cluster, rates)))
    return found
