"""The projected cost of `NestedMiniBatchKMeans.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.methods.kmeans.fit import (
    bounds_bytes,
    fit_footprint,
    pass_flop,
    seeding_passes,
    travel,
)
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.methods.nested.batches import HOME_BYTES
from daskcluster.typing import Dataset


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return what a fit with `parameters` takes on `dataset`.

    Rounds on a part of the rows are no passes. Their number is not known in advance: at most all of
    `max_iter` are on all rows.
    """
    n_clusters, size = int(parameters["n_clusters"]), int(parameters["batch_size"])
    check_enough_rows(dataset, n_clusters)
    is_whole = size >= dataset.n_rows
    at_home = size * dataset.bytes_of((0, dataset.n_rows)) <= HOME_BYTES * dataset.n_rows
    seeded_in_memory = dataset.in_memory if is_whole else at_home
    method = method_for(parameters["init"], in_memory=seeded_in_memory)
    seeding = seeding_passes(method, n_clusters) if is_whole else 0
    gathering = int(not is_whole and parameters["shuffle"] and not dataset.in_memory)
    budget, bounds = parameters["bounds_memory"], parameters["bounds"]
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=1,
        passes_at_most=seeding + gathering + int(parameters["max_iter"]) + 1,
        footprint=fit_footprint(dataset, n_clusters, method if is_whole else "sample"),
        flop=pass_flop(dataset, n_clusters),
        states=bounds_bytes(dataset, n_clusters, "lloyd" if not bounds else str(bounds)),
        states_at_most=None if budget == "auto" else int(budget),
        commit_bytes=centres_bytes(dataset, n_clusters) * (2 if parameters["seeds_vote"] else 1),
        travel=travel(dataset, n_clusters, bounded=bool(bounds)),
    )
