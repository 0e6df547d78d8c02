"""The projected cost of `MiniBatchKMeans.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from daskcluster.engine.memory import Footprint
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.methods.kmeans.fit import fit_footprint, pass_flop
from daskcluster.methods.kmeans.initial import GIVEN, is_auto, method_for
from daskcluster.methods.minibatch.batches import ROOM_BYTES, fits, held_bytes
from daskcluster.typing import Dataset


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the cost of a fit with `parameters` on `dataset`; starts are tried on a sample alone."""
    n_clusters = int(parameters["n_clusters"])
    check_enough_rows(dataset, n_clusters)
    method = method_for(parameters["init"], in_memory=True)
    # A uniform sample of rows that do not fit is a pass, and one by sensitivity at most two.
    sampled = not fits(dataset) and method not in GIVEN
    seeding = int(sampled) * (2 if is_auto(parameters["init"]) else 1)
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=1,
        passes_at_most=seeding + int(parameters["max_iter"]) + 1,
        footprint=batches_footprint(dataset, n_clusters),
        flop=pass_flop(dataset, n_clusters),
        commit_bytes=centres_bytes(dataset, n_clusters, wide=True) + 8 * n_clusters,
    )


def batches_footprint(dataset: Dataset, n_clusters: int, room_bytes: int = ROOM_BYTES) -> Footprint:
    """Return what k-means by mini-batches needs, steps in one process and passes before and after them."""
    found = fit_footprint(dataset, n_clusters, "sample")
    return replace(found, ahead_bytes=held_bytes(dataset, room_bytes))
