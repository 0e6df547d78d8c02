"""What `MiniBatchKMeans.fit` will take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.data.batches import fits
from daskcluster.estimators.footprint import batches_footprint
from daskcluster.estimators.initial import GIVEN, method_for
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.kmeans_plan import pass_flop
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.typing import Dataset


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return what a fit with `parameters` takes on `dataset`: starts are tried on a sample alone."""
    n_clusters = int(parameters["n_clusters"])
    check_enough_rows(dataset, n_clusters)
    method = method_for(parameters["init"], in_memory=True)
    # A uniform sample of rows that do not fit is a pass.
    return Plan(
        seeding=method,
        passes_seeding=int(not fits(dataset) and method not in GIVEN),
        restarts=1,
        passes_at_most=int(parameters["max_iter"]) + 1,
        footprint=batches_footprint(dataset, n_clusters),
        flop=pass_flop(dataset, n_clusters),
        commit_bytes=centres_bytes(dataset, n_clusters, wide=True) + 8 * n_clusters,
    )
