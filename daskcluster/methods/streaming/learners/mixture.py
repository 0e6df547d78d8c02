"""Streams of `VariationalGaussianMixture` with a coreset: vc-GMM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from daskcluster.methods.mixture.estimator import VariationalGaussianMixture
from daskcluster.methods.mixture.model import MixtureModel
from daskcluster.methods.streaming.fold import FoldSettings, StreamFold
from daskcluster.methods.streaming.learners.learner import Learner, remember_the_stream
from daskcluster.methods.streaming.mixture import MixtureSearch, StreamMixture
from daskcluster.methods.streaming.parameters import leaf_rows_of, summary_size
from daskcluster.methods.streaming.tree.node import LeafSettings

_NOT_OF_EM = ("n_clusters", "half_life", "window", "drift_threshold", "random_state")


class MixtureLearner(Learner):
    """A Gaussian mixture of a summary of all rows.

    Notes
    -----
    Cost: as of `daskcluster.StreamingKMeans`, with EM of the summary in place of k-means. Drift is measured
    by squared distances to the nearest means.
    """

    algorithm: ClassVar[str] = "vc-gmm"
    takes_sparse: ClassVar[bool] = False

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        k = parameters["n_clusters"]
        own = {name: value for name, value in parameters.items() if name not in _NOT_OF_EM}
        self._size = summary_size(own.pop("coreset_size"), k)
        self._search = {**own, "n_components": k}
        self._estimator = VariationalGaussianMixture(
            **self._search, coreset_size=self._size, random_state=parameters["random_state"]
        )
        self._estimator.check_parameters()

    def settings(self, dtype: str, seed: int) -> FoldSettings:
        leaf = LeafSettings(
            self._size, leaf_rows_of(self._size), seed, dtype, False, self.forgetting
        )
        search = MixtureSearch(self._search, seed)
        return FoldSettings(leaf, search, self.parameters["drift_threshold"])

    def model_of(self, fold: StreamFold, n_features: int) -> MixtureModel:
        found = fold.current()
        assert isinstance(found, StreamMixture)
        fitted = self._estimator.__sklearn_clone__()
        variances, shared = found.variances, found.covariance_type == "isotropic"
        fitted.means_, fitted.weights_ = found.centres, found.mixing
        fitted.covariances_ = float(variances[0]) if shared else variances
        fitted.component_weights_, fitted.n_iter_ = found.weights, found.n_iter
        fitted.lower_bound_ = found.lower_bound
        remember_the_stream(fitted, fold, found, n_features)
        return fitted.to_model()
