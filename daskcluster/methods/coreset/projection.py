"""The projected cost of `CoresetKMeans.fit` and of drawing a coreset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, Stage, Travel, centres_bytes
from daskcluster.methods.coreset.fit import coreset_footprint
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.typing import Dataset

CORESET_PASSES = 2
"""One for the mean of the rows, one for the draws."""


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the cost of a fit with `parameters` on `dataset`, without passes over the coreset."""
    k, size = int(parameters["n_clusters"]), min(int(parameters["coreset_size"]), dataset.n_rows)
    check_enough_rows(dataset, k)
    products = 2.0 * size * dataset.n_features * k
    return Plan(
        seeding=method_for(parameters["init"], in_memory=True),
        passes_seeding=0,
        restarts=1,
        passes_at_most=CORESET_PASSES,
        footprint=coreset_footprint(dataset, size),
        flop=pass_flop(dataset, 1),
        commit_bytes=coreset_bytes(dataset, size) + centres_bytes(dataset, k),
        travel=coreset_travel(dataset, size),
        kernel="scan",
        afterwards=Stage(
            "nearest", size, dataset.n_features, products, int(parameters.get("max_iter", 1))
        ),
    )


def coreset_travel(dataset: Dataset, size: int) -> Travel:
    """Return the bytes that the passes of a coreset send: a point, sums of features, the drawn rows."""
    row_bytes = dataset.bytes_of((0, dataset.n_rows)) // max(1, dataset.n_rows)
    d = dataset.n_features
    return Travel(sent=8 * d, returned=16 * d, drawn=size * (row_bytes + 48))


def coreset_bytes(dataset: Dataset, size: int) -> int:
    """Return the bytes of a commit of a coreset: its rows as they are stored, weights and indices."""
    if size >= dataset.n_rows:
        return 0  # the rows themselves
    row_bytes = dataset.bytes_of((0, dataset.n_rows)) // max(1, dataset.n_rows)
    return size * (row_bytes + 16)
