"""The projected cost of `VarianceReducedKMeans.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.data.partitioned import partition_edges
from daskcluster.engine.memory import Footprint, thread_rows
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.methods.kmeans.fit import pass_flop, seeding_passes
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.methods.variance_reduced.fit import vrkm_footprint
from daskcluster.methods.variance_reduced.step_rule import secant_bytes
from daskcluster.typing import Dataset


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return what a fit with `parameters` takes on `dataset`."""
    n_clusters, wanted = int(parameters["n_clusters"]), parameters["n_partitions"]
    check_enough_rows(dataset, n_clusters)
    assert isinstance(dataset, RowDataset)
    method = method_for(parameters["init"], in_memory=dataset.in_memory)
    seeding = seeding_passes(method, n_clusters)
    edges = partition_edges(dataset, None if wanted == "auto" else int(wanted))
    gathering, stepping = 0, 0
    if not dataset.in_memory:
        gathering, stepping = (1, 0) if len(edges) == 2 else (0, 1)
    an_epoch = 1 + stepping + int(parameters["variant"] == "vrkm")
    adapts = bool(parameters["adaptive_rate"])
    kept = secant_bytes(n_clusters, dataset.n_features) if adapts else 0
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=1,
        passes_at_most=seeding + gathering + an_epoch * int(parameters["max_iter"]) + 1,
        footprint=_footprint(dataset, n_clusters, parameters["init"], edges, adapts),
        flop=pass_flop(dataset, n_clusters),
        commit_bytes=2 * centres_bytes(dataset, n_clusters) + kept,
    )


def _footprint(
    dataset: Dataset, n_clusters: int, init: object, edges: np.ndarray, adapts: bool
) -> Footprint:
    """Return what a fit needs; its partitions are larger than those that a projection counts."""
    found = vrkm_footprint(dataset, n_clusters, init, len(edges) - 1, adapts=adapts)
    if len(edges) == 2 or dataset.in_memory:
        return found
    larger = thread_rows(dataset, pairwise(edges.tolist())) - thread_rows(
        dataset, dataset.partitions
    )
    return replace(found, thread_bytes=found.thread_bytes + max(0, larger))
