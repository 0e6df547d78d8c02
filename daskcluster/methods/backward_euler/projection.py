"""The projected cost of `BackwardEulerKMeans.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.methods.minibatch.fit import batches_footprint
from daskcluster.typing import Dataset


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the cost of a fit with `parameters` on `dataset`, if no step is repeated.

    All starts are evaluated in one pass, and the best one once more for its labels; as many passes as their
    batches have rows; one for the mean if there is one cluster; and those of Lloyd's algorithm.
    """
    n_clusters, n_init = int(parameters["n_clusters"]), int(parameters["n_init"])
    check_enough_rows(dataset, n_clusters)
    batch = min(int(parameters["batch_size"]), dataset.n_rows)
    steps = int(parameters["max_iter"]) * int(parameters["inner_iter"])
    drawn = n_init * (steps + 1) * batch if steps else 0
    return Plan(
        seeding=method_for(parameters["init"], in_memory=True),
        passes_seeding=0,
        restarts=n_init,
        passes_at_most=-(-drawn // dataset.n_rows)
        + (2 if n_init > 1 else 1)
        + (n_clusters == 1)
        + int(parameters["refine_iter"]),
        footprint=batches_footprint(dataset, n_clusters),
        flop=pass_flop(dataset, n_clusters),
        commit_bytes=n_init * (3 * centres_bytes(dataset, n_clusters, wide=True) + 8 * n_clusters),
    )
