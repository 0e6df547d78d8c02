"""Algorithms that can cluster a stream, and their adapters to the service loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, ClassVar

import numpy as np

from daskcluster.data.sparse import SparseDataset
from daskcluster.errors import WrongTypeError
from daskcluster.methods.minibatch.estimator import MiniBatchKMeans
from daskcluster.methods.minibatch.parameters import MINI_BATCH
from daskcluster.methods.mixture.estimator import VariationalGaussianMixture
from daskcluster.methods.mixture.model import MixtureModel, public_variances
from daskcluster.methods.mixture.parameters import MIXTURE
from daskcluster.methods.streaming.estimator import StreamingKMeans
from daskcluster.methods.streaming.fold import FoldSettings, StreamFold
from daskcluster.methods.streaming.minibatch import (
    MiniBatchFold,
    MiniBatchSteps,
    leaf_rows_for,
)
from daskcluster.methods.streaming.mixture import MixtureSearch, StreamMixture
from daskcluster.methods.streaming.parameters import (
    DRIFT_THRESHOLD,
    HALF_LIFE,
    STREAMING,
    SUMMARY_SIZE,
    WINDOW,
    leaf_rows_of,
    summary_size,
)
from daskcluster.methods.streaming.refit import StreamCentres
from daskcluster.methods.streaming.state import fold_of
from daskcluster.methods.streaming.tree.node import LeafSettings
from daskcluster.methods.streaming.tree.stream_rows import Forgetting
from daskcluster.models.kmeans import KMeansModel
from daskcluster.models.persist import Model
from daskcluster.parameters.algorithm import Algorithm, Catalogue
from daskcluster.parameters.checks import check_value
from daskcluster.parameters.parameter import Parameter
from daskcluster.storage.document import Document
from daskcluster.typing import Dataset


def _without(table: tuple[Parameter, ...], *names: str) -> tuple[Parameter, ...]:
    return tuple(parameter for parameter in table if parameter.name not in names)


_STOPS = ("verbose", "max_time", "checkpoint", "checkpoint_every")
_OF_PASSES = ("max_iter", "max_no_improvement", "tol", "init_size", "validation")

STREAMS = Catalogue(
    {
        "streaming": Algorithm(
            "daskcluster.methods.streaming.streams:KMeansLearner",
            STREAMING,
            about="k-means of a summary of all rows, with optional forgetting; clusters keep their numbers",
        ),
        "mini-batch": Algorithm(
            "daskcluster.methods.streaming.streams:MiniBatchLearner",
            (*_without(MINI_BATCH, *_STOPS, *_OF_PASSES), HALF_LIFE, DRIFT_THRESHOLD),
            about="each row moves the centres once; no rows are stored",
        ),
        "vc-gmm": Algorithm(
            "daskcluster.methods.streaming.streams:MixtureLearner",
            (
                *_without(MIXTURE, *_STOPS, "coreset_size", "discard_empty"),
                SUMMARY_SIZE,
                HALF_LIFE,
                WINDOW,
                DRIFT_THRESHOLD,
            ),
            about="a Gaussian mixture of the same summary, by truncated EM",
            rename={"n_clusters": "n_components"},
        ),
    }
)
"""Adapters of algorithms, by name. The first is the default."""


_NOT_OF_THE_STATE = ("verbose", "random_state")
"""Parameters that do not identify a state: `verbose`, and the seed, which the state itself stores."""

Names = tuple[str, ...] | None
"""Names of the features of a stream, if its rows have some."""


class Learner(ABC):
    """An algorithm for streams, with its parameters. It stores no rows.

    Parameters
    ----------
    parameters : mapping
        All parameters of its table in `daskcluster.methods.streaming.streams.STREAMS`, by name.

    Raises
    ------
    InvalidParameterError, WrongTypeError
    """

    algorithm: ClassVar[str]
    takes_sparse: ClassVar[bool] = True
    fold_class: ClassVar[type[StreamFold]] = StreamFold

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = dict(parameters)
        self.forgetting = Forgetting.of(parameters["half_life"], parameters.get("window"))
        check_value(self.algorithm, DRIFT_THRESHOLD, parameters["drift_threshold"])

    @property
    def metric(self) -> str:
        """The metric by which rows are compared."""
        return str(self.parameters.get("metric", "euclidean"))

    def facts(self) -> dict[str, Any]:
        """Return the parameters that, together with rows and seed, determine the state, as plain values."""
        return {
            name: value if isinstance(value, (int, float, str, type(None))) else repr(value)
            for name, value in self.parameters.items()
            if name not in _NOT_OF_THE_STATE
        }

    def empty(self, dtype: str, seed: int) -> StreamFold:
        """Return the state of a stream of rows in `dtype` before its first row."""
        return self.fold_class.empty(self.settings(dtype, seed))

    def restored(self, document: Document, dtype: str, seed: int) -> StreamFold:
        """Return the state that `document` describes.

        Raises
        ------
        ModelFormatError, KeyError
            `document` is not the state of such a stream.
        """
        return fold_of(document, self.settings(dtype, seed), self.fold_class)

    def check_rows(self, dataset: Dataset) -> None:
        """Refuse rows that the algorithm does not support.

        Raises
        ------
        WrongTypeError
        """
        if isinstance(dataset, SparseDataset) and not self.takes_sparse:
            raise WrongTypeError(
                f"algorithm={self.algorithm!r} takes dense rows, those of the source are sparse; project "
                "them to fewer features first, or use algorithm='streaming'."
            )

    @abstractmethod
    def settings(self, dtype: str, seed: int) -> FoldSettings:
        """Return the settings of a stream of rows in `dtype`."""

    @abstractmethod
    def model_of(self, fold: StreamFold, n_features: int, names: Names = None) -> Model:
        """Return the model of all rows in `fold`, which must have centres, and the names of features."""


def remember_the_stream(
    fitted: Any, fold: StreamFold, found: StreamCentres, n_features: int, names: Names
) -> None:
    """Set the attributes of an estimator that describe its fit to a stream."""
    fitted.stop_reason_, fitted.seeding_ = found.stop_reason, found.seeding
    fitted.history_, fitted.n_rows_ = fold.history, found.n_rows
    fitted.passes_, fitted.bytes_read_, fitted.n_features_in_ = 1, 0, n_features
    if names is not None:
        fitted.feature_names_in_ = np.asarray(names, dtype=object)


def make_learner(algorithm: str, given: Mapping[str, Any]) -> Learner:
    """Return the learner for `algorithm`, with the given parameters and defaults for the others.

    Raises
    ------
    InvalidParameterError
        The algorithm or a parameter is unknown, or a value is invalid.

    Examples
    --------
    >>> make_learner("mini-batch", {"n_clusters": 3}).parameters["batch_size"]
    1024
    """
    entry = STREAMS.find(algorithm)
    STREAMS.check(algorithm, given)
    defaults = {name: parameter.default for name, parameter in entry.parameters.items()}
    learner: Learner = resolve_name(entry.estimator)({**defaults, **given})
    return learner


class KMeansLearner(Learner):
    """K-means of a summary of all rows."""

    algorithm: ClassVar[str] = "streaming"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self._estimator = StreamingKMeans(**parameters)
        self._estimator.check_parameters()

    def settings(self, dtype: str, seed: int) -> FoldSettings:
        return self._estimator.fold_settings(dtype, seed)

    def model_of(self, fold: StreamFold, n_features: int, names: Names = None) -> KMeansModel:
        return self._estimator.standing_for(fold, n_features, names).to_model()


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
    """Mini-batch k-means: every row moves the centres once.

    Notes
    -----
    Cost: rows are read once, by this process. Every leaf is compared with the centres three times: for
    drift, for the steps, and for the costs of clusters. Memory: the rows of a leaf, 16 batches.
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
        # A coreset as large as its leaf consists of all rows.
        leaf = LeafSettings(rows, rows, seed, dtype, self.metric == "cosine", self.forgetting)
        return FoldSettings(leaf, steps, self.parameters["drift_threshold"])

    def model_of(self, fold: StreamFold, n_features: int, names: Names = None) -> KMeansModel:
        found, fitted = fold.current(), self._estimator.__sklearn_clone__()
        assert found is not None
        fitted.cluster_centers_ = found.centres
        fitted.inertia_, fitted.n_iter_ = found.inertia, found.n_iter
        fitted.cluster_weights_, fitted.cluster_costs_ = found.weights, found.costs
        fitted.cluster_sizes_ = found.sizes
        remember_the_stream(fitted, fold, found, n_features, names)
        return fitted.to_model()


_NOT_OF_EM = ("n_clusters", "half_life", "window", "drift_threshold", "random_state")


class MixtureLearner(Learner):
    """A Gaussian mixture of a summary of all rows.

    Notes
    -----
    Cost: as for `daskcluster.StreamingKMeans`, with EM on the summary instead of k-means. Drift is measured
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

    def model_of(self, fold: StreamFold, n_features: int, names: Names = None) -> MixtureModel:
        found = fold.current()
        assert isinstance(found, StreamMixture)
        fitted = self._estimator.__sklearn_clone__()
        fitted.means_, fitted.weights_ = found.centres, found.mixing
        fitted.covariances_ = public_variances(found.variances, found.covariance_type)
        fitted.component_weights_, fitted.n_iter_ = found.weights, found.n_iter
        fitted.lower_bound_ = found.lower_bound
        remember_the_stream(fitted, fold, found, n_features, names)
        return fitted.to_model()
