"""Rows under saved models, in jobs: the estimator of every kind of model has the functions of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.examples import MOST_RANKED, Examination
from daskcluster.events import Callback
from daskcluster.methods.hierarchical.estimator import HierarchicalKMeans
from daskcluster.methods.hierarchical.model import HierarchicalModel
from daskcluster.methods.kernel.estimator import KernelKMeans
from daskcluster.methods.kernel.graph import GraphKMeansModel
from daskcluster.methods.kernel.model import KernelKMeansModel
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.methods.mixture.estimator import VariationalGaussianMixture
from daskcluster.methods.mixture.model import MixtureModel
from daskcluster.methods.partition.model import PartitionModel, PartitionRows
from daskcluster.models.kmeans import KMeansModel
from daskcluster.models.persist import Model
from daskcluster.typing import Dataset

ESTIMATORS: dict[str, Any] = {
    KMeansModel.kind: KMeans,
    HierarchicalModel.kind: HierarchicalKMeans,
    PartitionModel.kind: PartitionRows,
    MixtureModel.kind: VariationalGaussianMixture,
    KernelKMeansModel.kind: KernelKMeans,
    GraphKMeansModel.kind: KernelKMeans,
}
"""Estimators by kind of model, as in `daskcluster.models.persist.KINDS`, whichever class was fitted."""


def estimator_of(model: Model, engine: Any = None) -> Any:
    """Return an estimator that has results for rows under a model, on an engine."""
    return ESTIMATORS[model.kind].from_model(model).set_params(engine=engine)


def check_posteriors(model: Model) -> None:
    """Raise if the model has no posteriors.

    Raises
    ------
    InvalidParameterError
    """
    if model.kind != MixtureModel.kind:
        raise InvalidParameterError(
            f"a model of kind {model.kind!r} has no posteriors; leave posteriors out, or give a model of "
            f"kind {MixtureModel.kind!r}."
        )


def evaluate(
    model: Model, dataset: Dataset, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> ScoreStatistics:
    """Return size, weight and cost of every cluster on `dataset`. One pass."""
    estimator = estimator_of(model, engine)
    rows = estimator.known_rows(model.features.align(dataset))
    found: ScoreStatistics = estimator.cluster_scores(rows, callbacks)
    return found


def examine(
    model: Model,
    dataset: Dataset,
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
    rows = estimator.known_rows(model.features.align(dataset))
    found: Examination = estimator.examine(rows, shown, most, callbacks)
    return found
