"""Rows under saved models, in jobs: the estimator of every kind of model has the functions of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any

from daskcluster.estimators.examples import MOST_RANKED, Examination
from daskcluster.events import Callback
from daskcluster.models.persist import Model

ESTIMATORS: dict[str, str] = {
    "kmeans": "daskcluster.methods.kmeans.estimator:KMeans",
    "hierarchical-kmeans": "daskcluster.methods.hierarchical.estimator:HierarchicalKMeans",
    "partitions": "daskcluster.methods.partition.partitioning:PartitionRows",
    "mixture": "daskcluster.methods.mixture.estimator:VariationalGaussianMixture",
    "kernel-kmeans": "daskcluster.methods.kernel.estimator:KernelKMeans",
    "graph-kmeans": "daskcluster.methods.kernel.estimator:KernelKMeans",
}
"""Import paths of estimators by kind of model, as in `daskcluster.models.persist.KINDS`."""


def estimator_of(model: Model, engine: Any = None) -> Any:
    """Return an estimator that has results for rows under a model, on an engine."""
    kind: Any = resolve_name(ESTIMATORS[model.kind])
    return kind.from_model(model).set_params(engine=engine)


def examine(
    model: Model,
    dataset: Any,
    *,
    shown: int = 0,
    most: int = MOST_RANKED,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> Examination:
    """Return size, weight and cost of every cluster, and its `most` nearest and farthest rows.

    Kernel k-means has no examples, since its centres are not points in the space of the rows.

    Parameters
    ----------
    dataset : anything that estimators take
    shown : int
        Number of clusters, from the largest, for which the example rows are returned as well. If it is
        positive, so is a sample of 10,000 rows, for silhouettes and the stability of k-means.

    Notes
    -----
    Cost: one pass with k + 1 distances per row. Each worker returns at most 40 k (`most` + 1) bytes, its
    part of the sample, and example rows of all clusters if these take at most 64 MiB; else those of the
    `shown` clusters are read once more.
    """
    estimator = estimator_of(model, engine)
    rows = estimator.known_rows(dataset, complete=True)
    found: Examination = estimator.examine(rows, shown, most, callbacks)
    return found
