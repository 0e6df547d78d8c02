"""Streams of `MiniBatchKMeans`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from daskcluster.methods.minibatch.estimator import MiniBatchKMeans
from daskcluster.methods.streaming.fold import FoldSettings, StreamFold
from daskcluster.methods.streaming.learners.learner import Learner, remember_the_stream
from daskcluster.methods.streaming.minibatch import (
    MiniBatchFold,
    MiniBatchSteps,
    leaf_rows_for,
)
from daskcluster.methods.streaming.tree.node import LeafSettings
from daskcluster.models.kmeans import KMeansModel

_OF_THE_STREAM = ("half_life", "drift_threshold")
_STEPS = (
    "n_clusters",
    "init",
    "n_init",
    "batch_size",
    "learning_rate",
    "reassignment_ratio",
    "chain_length",
)


class MiniBatchLearner(Learner):
    """Centres that every row moves once.

    Notes
    -----
    Cost: rows are read once and go to this process, where every leaf takes three looks at the centres: one
    for drift, one of the steps, one for what clusters cost. Memory: the rows of a leaf, 16 batches.
    """

    algorithm: ClassVar[str] = "mini-batch"
    fold_class: ClassVar[type[StreamFold]] = MiniBatchFold

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        of_the_fit = {
            name: value for name, value in parameters.items() if name not in _OF_THE_STREAM
        }
        self._estimator = MiniBatchKMeans(**of_the_fit)
        self._estimator.check_parameters()

    def settings(self, dtype: str, seed: int) -> FoldSettings:
        steps = MiniBatchSteps(**{name: self.parameters[name] for name in _STEPS}, seed=seed)
        rows = leaf_rows_for(steps.batch_size, steps.n_clusters)
        # A coreset as large as the leaf is its rows.
        leaf = LeafSettings(rows, rows, seed, dtype, self.metric == "cosine", self.forgetting)
        return FoldSettings(leaf, steps, self.parameters["drift_threshold"])

    def model_of(self, fold: StreamFold, n_features: int) -> KMeansModel:
        found, fitted = fold.current(), self._estimator.__sklearn_clone__()
        assert found is not None
        fitted.cluster_centers_ = found.centres
        fitted.inertia_, fitted.n_iter_ = found.inertia, found.n_iter
        fitted.cluster_weights_, fitted.cluster_costs_ = found.weights, found.costs
        fitted.cluster_sizes_ = found.sizes
        remember_the_stream(fitted, fold, found, n_features)
        return fitted.to_model()
