"""The projected cost of `KMeans.fit`: passes, and memory beyond the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.chunk import compute_dtype
from daskcluster.chunkwise.pruned import search_bytes
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.memory import Footprint
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, Travel, centres_bytes
from daskcluster.methods.kmeans.bounds import BOUNDS, automatic, fallbacks
from daskcluster.methods.kmeans.chunkwise.sparse_hamerly import SPARSE_HAMERLY
from daskcluster.methods.kmeans.initial import method_for, restarts_for
from daskcluster.parameters import shared
from daskcluster.seeding.methods import most_candidates, most_drawn, n_proposals
from daskcluster.typing import Dataset

_COPIES = 2
"""Rows that have been drawn are joined: for a moment they are there twice."""


def fit_footprint(
    dataset: Dataset, n_clusters: int, method: str, chain_length: int = shared.CHAIN_LENGTH.default
) -> Footprint:
    """Return what k-means needs per thread, per row and per process.

    Parameters
    ----------
    dataset : Dataset
    n_clusters : int
    method : str
        Of seeding among all rows, as `method_for` names it; another word where a sample is enough.
    chain_length : int
        Of ``"afk-mc2"``.
    """
    statistics = statistics_bytes(dataset, n_clusters)
    panels = 2 * 4 * (n_clusters + 64) * (dataset.n_features + 1)
    drawn = most_drawn(n_clusters) * _row_bytes(dataset) if method == "k-means||" else 0
    row_bytes = {"k-means++": 8, "k-means||": 4}.get(method, 0)
    held = seeding_bytes(dataset, n_clusters, method, chain_length)
    searched = search_bytes(n_clusters, dataset.n_features, compute_dtype(dataset.dtype))
    return Footprint(2 * statistics + panels + searched + drawn, row_bytes, held)


def statistics_bytes(dataset: Dataset, n_clusters: int) -> int:
    """Return the bytes of the sums and weights of clusters: on two grids where one is not exact."""
    grids = 2 if dataset.weights is not None or dataset.dtype.itemsize == 8 else 1
    return 8 * n_clusters * (dataset.n_features + 1) * grids


def seeding_bytes(
    dataset: Dataset, n_clusters: int, method: str, chain_length: int = shared.CHAIN_LENGTH.default
) -> int:
    """Return the bytes of rows that a seeding holds in one process: candidates, or proposals."""
    if method == "k-means||":
        drawn = most_candidates(n_clusters)
    elif method == "afk-mc2":
        drawn = n_proposals(n_clusters, chain_length)
    else:
        return 0
    return _COPIES * min(drawn, dataset.n_rows) * _row_bytes(dataset)


def _row_bytes(dataset: Dataset) -> int:
    """Return the bytes of a row that has been drawn, on average, with its number and its key."""
    size = compute_dtype(dataset.dtype).itemsize * dataset.n_features
    if isinstance(dataset, SparseDataset):
        size = dataset.row_bytes
    return size + 16


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
    """Return the operations of one pass that computes all distances."""
    values = dataset.n_rows * dataset.n_features
    if isinstance(dataset, SparseDataset):
        values = dataset.n_entries
    return 2.0 * values * n_clusters


def bounds_bytes(dataset: Dataset, n_clusters: int, algorithm: str) -> dict[str, int]:
    """Return the bytes of each kind of bounds that the algorithm may keep."""
    if algorithm == "lloyd":
        return {}
    dtype = compute_dtype(dataset.dtype)
    if isinstance(dataset, SparseDataset):
        return {str(SPARSE_HAMERLY): dataset.n_rows * SPARSE_HAMERLY.row_bytes(n_clusters, dtype)}
    kinds = (
        automatic(dataset.n_features, n_clusters, dtype)
        if algorithm == "auto"
        else fallbacks(BOUNDS[algorithm])
    )
    return {str(kind): dataset.n_rows * kind.row_bytes(n_clusters, dtype) for kind in kinds}
