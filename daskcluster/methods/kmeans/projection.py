"""What `KMeans.fit` will take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.chunk import compute_dtype
from daskcluster.data.sparse import SparseDataset
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, Travel, centres_bytes
from daskcluster.methods.kmeans.footprint import fit_footprint, statistics_bytes
from daskcluster.methods.kmeans.initial import method_for, restarts_for
from daskcluster.methods.kmeans.kinds import BOUNDS, automatic, fallbacks
from daskcluster.typing import Dataset

KMEANS_PARALLEL_PASSES = 6
"""Its rounds and one pass for the weights of the candidates."""
AFK_MC2_PASSES = 2
"""One for the moments of the rows, one for the proposals."""


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return what a fit with `parameters` takes on `dataset`; see `daskcluster.estimators.plan`."""
    n_clusters = int(parameters["n_clusters"])
    check_enough_rows(dataset, n_clusters)
    method = method_for(parameters["init"], in_memory=dataset.in_memory)
    seeding = seeding_passes(method, n_clusters)
    restarts = restarts_for(method, parameters["n_init"], in_memory=dataset.in_memory)
    budget = parameters["bounds_memory"]
    states = bounds_bytes(dataset, n_clusters, parameters["algorithm"])
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=restarts,
        passes_at_most=(seeding + int(parameters["max_iter"]) + 1) * restarts,
        footprint=fit_footprint(dataset, n_clusters, method, int(parameters["chain_length"])),
        flop=pass_flop(dataset, n_clusters),
        states=states,
        states_at_most=None if budget == "auto" else int(budget),
        commit_bytes=centres_bytes(dataset, n_clusters) * (2 if restarts > 1 else 1),
        travel=travel(dataset, n_clusters, bounded=bool(states)),
    )


def travel(dataset: Dataset, n_clusters: int, *, bounded: bool) -> Travel:
    """Return what a pass sends: centres (with bounds, those before them as well), and sums back."""
    sent = centres_bytes(dataset, n_clusters) * (2 if bounded else 1)
    return Travel(sent, statistics_bytes(dataset, n_clusters))


def seeding_passes(method: str, n_clusters: int) -> int:
    """Return the passes over the rows of a seeding method, as `method_for` names it."""
    passes = {
        "k-means++": n_clusters + 1,
        "k-means||": KMEANS_PARALLEL_PASSES,
        "afk-mc2": AFK_MC2_PASSES,
    }
    return passes.get(method, 0)


def pass_flop(dataset: Dataset, n_clusters: int) -> float:
    """Return the operations of one pass in which every row looks at every centre."""
    values = dataset.n_rows * dataset.n_features
    if isinstance(dataset, SparseDataset):
        values = dataset.n_entries
    return 2.0 * values * n_clusters


def bounds_bytes(dataset: Dataset, n_clusters: int, algorithm: str) -> dict[str, int]:
    """Return the bytes of each kind of bounds that the algorithm may keep."""
    if algorithm == "lloyd" or isinstance(dataset, SparseDataset):
        return {}
    dtype = compute_dtype(dataset.dtype)
    kinds = (
        automatic(dataset.n_features, n_clusters, dtype)
        if algorithm == "auto"
        else fallbacks(BOUNDS[algorithm])
    )
    return {str(kind): dataset.n_rows * kind.row_bytes(n_clusters, dtype) for kind in kinds}
