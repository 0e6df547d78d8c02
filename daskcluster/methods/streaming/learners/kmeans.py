"""Streams of `StreamingKMeans`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from daskcluster.methods.streaming.estimator import StreamingKMeans
from daskcluster.methods.streaming.fold import FoldSettings, StreamFold
from daskcluster.methods.streaming.learners.learner import Learner
from daskcluster.models.kmeans import KMeansModel


class KMeansLearner(Learner):
    """K-means of a summary of all rows."""

    algorithm: ClassVar[str] = "streaming"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self._estimator = StreamingKMeans(**parameters)
        self._estimator.check_parameters()

    def settings(self, dtype: str, seed: int) -> FoldSettings:
        return self._estimator.fold_settings(dtype, seed)

    def model_of(self, fold: StreamFold, n_features: int) -> KMeansModel:
        return self._estimator.standing_for(fold, n_features).to_model()
