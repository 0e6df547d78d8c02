"""Algorithms that can cluster a stream: their searches for centres, and their adapters to the service loop.

Mini-batch k-means cuts each leaf into batches, and each batch moves the centres once. Batches are those of
Sculley (WWW 2010), with the learning rates of `MiniBatchKMeans`. Rows of a stream are seldom in random
order, so the rows of a leaf are shuffled first, with a random key of the leaf. Only the rows of the open
leaf are kept. Difference from the paper: after each leaf, a local search moves single centres
(`swap_remembered`). It replaces the random reassignment of `daskcluster.methods.minibatch.algorithm`, which
ignores how much a move lowers the cost.

A Gaussian mixture is vc-GMM on the summary of all rows so far. Hirschberger, Forster and Luecke (arXiv
1810.00803) fit one coreset of a fixed dataset; here the coreset is that of a merge-and-reduce tree, and EM
starts from the previous means.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any, ClassVar, Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres, nearest_with_distances
from daskcluster.data.csr import csr_of
from daskcluster.engine.local import default_threads
from daskcluster.errors import WrongTypeError
from daskcluster.events import StopReason
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.methods.minibatch.algorithm import LabelledLeaf, swap_remembered
from daskcluster.methods.minibatch.chunkwise import Batch, MiniBatchStepper, MovingCentres
from daskcluster.methods.minibatch.estimator import MiniBatchKMeans
from daskcluster.methods.minibatch.parameters import MINI_BATCH
from daskcluster.methods.minibatch.sample import centres_of_sample
from daskcluster.methods.mixture.chunkwise.e_step import label_by_density
from daskcluster.methods.mixture.estimator import VariationalGaussianMixture, gaussians_for
from daskcluster.methods.mixture.model import MixtureModel, public_variances, stored_variances
from daskcluster.methods.mixture.parameters import MIXTURE
from daskcluster.methods.streaming.estimator import StreamingKMeans
from daskcluster.methods.streaming.fold import (
    FoldSettings,
    StreamCentres,
    StreamFold,
    births_after,
    fit_summary,
    fold_of,
    matched,
)
from daskcluster.methods.streaming.parameters import (
    DRIFT_THRESHOLD,
    HALF_LIFE,
    STREAMING,
    SUMMARY_SIZE,
    WINDOW,
    leaf_rows_of,
    summary_size,
)
from daskcluster.methods.streaming.tree import Carried, Forgetting, LeafSettings, Node
from daskcluster.models.fitted import KMeansModel, Model
from daskcluster.parameters.algorithm import Algorithm, Catalogue
from daskcluster.parameters.checks import check_value
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows
from daskcluster.storage.document import Document
from daskcluster.typing import Dataset

LEAF_BATCHES = 16
"""Minimum number of batches per leaf, the range of the shuffle and the interval of drift and labels."""

_LEAF_ROWS_A_CLUSTER = 10
_RANDOM_INITS = 3


def leaf_rows_for(batch_size: int, n_clusters: int) -> int:
    """Return the number of rows of a leaf: whole batches, and enough rows to seed the centres from.

    Examples
    --------
    >>> leaf_rows_for(1024, 8), leaf_rows_for(100, 500)
    (16384, 5000)
    """
    batches = max(LEAF_BATCHES, -(-_LEAF_ROWS_A_CLUSTER * n_clusters // batch_size))
    return batches * batch_size


@dataclass(frozen=True)
class MovedCentres(StreamCentres):
    """Centres moved by batches.

    `weights` are the weights of the rows that each has seen, `costs` those of the rows when they arrived.

    Attributes
    ----------
    exact : ndarray of shape (k, d), float64
        `centres` before rounding to the rows' dtype.
    weight : float
        Weight of all rows.
    tick : float
        Clock of the stream at these centres.
    """

    exact: np.ndarray
    weight: float
    tick: float


@dataclass
class MiniBatchFold(StreamFold):
    """The state of a stream whose centres are moved by batches; its search is a `MiniBatchLearner`.

    Centres are updated at every full leaf, whose rows are then dropped.
    """

    most_found: ClassVar[int] = sys.maxsize

    def _close_leaf(
        self, node: Node, carried: Carried, opening: Rows | None, *, became_high: bool
    ) -> None:
        self.tree.closed()  # drops the rows; no node is added
        weights = node.weights_at(self.settings.leaf.forgetting, self.tree.now)
        found = self._after(node.rows, weights, opening)
        if found is not None:
            self._take_over(found)

    def current(self) -> StreamCentres | None:
        """Return the centres after all rows, including the open leaf; None if there are too few rows."""
        return super().current() or self.fitted

    def _sought(self, opening: Rows | None, **wider: bool) -> StreamCentres | None:
        return self._after(*self.tree.summary(), opening)

    @property
    def remembered(self) -> float:
        """Weight of all rows after forgetting."""
        before = self._aged()
        return self.tree.weight + (0.0 if before is None else before.weight)

    def _aged(self) -> MovedCentres | None:
        before = self.fitted
        if before is None:
            return None
        assert isinstance(before, MovedCentres)
        forgetting = self.settings.leaf.forgetting
        left = float(forgetting.left(before.tick, now=self.tree.now))
        aged = {name: getattr(before, name) * left for name in ("weights", "costs", "weight")}
        return replace(before, **aged)

    def _after(self, rows: Rows, weights: np.ndarray, opening: Rows | None) -> MovedCentres | None:
        """Return the centres after more rows; `weights` are current."""
        before = self._aged()
        if not len(rows):
            return before
        chunk = self.settings.leaf.chunk(rows, weights)
        found = self.settings.refit.seek(chunk, before, self.n_rows)
        found = self._numbered(found, opening, rows)
        assert found is None or isinstance(found, MovedCentres)
        return None if found is None else replace(found, tick=self.tree.now)


FRESH_GAIN = 0.01
"""A mixture fitted from scratch replaces the refined one if its free energy per feature is larger by this;
2 % smaller variances give as much."""


@dataclass(frozen=True)
class StreamMixture(StreamCentres):
    """A mixture of a stream; `centres` are its means, `weights` the posterior weights of components.

    Attributes
    ----------
    variances : ndarray of shape (1,), (k,), (k, d), (1, d, d) or (k, d, d), float64
        As in `daskcluster.methods.mixture.model.MixtureModel`.
    mixing : ndarray of shape (k,), float64
    lower_bound : float
        Free energy divided by total weight.
    covariance_type : str
    """

    variances: np.ndarray
    mixing: np.ndarray
    lower_bound: float
    covariance_type: str

    def nearest(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """Return the component with the largest posterior, and the squared distance to its mean."""
        gaussians = gaussians_for(
            self.centres.dtype, self.centres, self.variances, self.mixing, self.covariance_type
        )
        prepared = PreparedCentres(self.centres)
        labels = label_by_density(chunk, (gaussians, prepared))
        distances = np.empty(len(labels))
        for block in chunk.blocks():
            place = slice(block.start - chunk.start, block.stop - chunk.start)
            prepared.sqdist_to_assigned(block.rows, labels[place], distances[place])
        return labels, distances


def _without(table: tuple[Parameter, ...], *names: str) -> tuple[Parameter, ...]:
    return tuple(parameter for parameter in table if parameter.name not in names)


_STOPS = ("verbose", "max_time", "validation", "checkpoint", "checkpoint_every")
_OF_PASSES = ("max_iter", "max_no_improvement", "tol", "init_size")

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
                *_without(MIXTURE, *_STOPS, "coreset_size"),
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
    seed = 0

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = dict(parameters)
        self.forgetting = Forgetting.of(parameters["half_life"], parameters.get("window"))
        check_value(self.algorithm, DRIFT_THRESHOLD, parameters["drift_threshold"])

    @property
    def init(self) -> Any:
        """The initialization of the first centres."""
        return self.parameters["init"]

    def seeded(self, seed: int) -> Self:
        """Return a copy that searches for centres with a seed."""
        twin = copy(self)
        twin.seed = seed
        return twin

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
        if csr_of(dataset) is not None and not self.takes_sparse:
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


class MiniBatchLearner(Learner):
    """Mini-batch k-means: every row moves the centres once.

    Notes
    -----
    Cost: rows are read once, by this process. Every leaf is compared with the centres three times: for
    drift, for the steps, and for the costs of clusters. Memory: the rows of a leaf, 16 batches.
    """

    algorithm: ClassVar[str] = "mini-batch"
    finds: ClassVar[type[StreamCentres]] = MovedCentres
    fold_class: ClassVar[type[StreamFold]] = MiniBatchFold

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        of_the_fit = {
            name: value for name, value in parameters.items() if name not in _OF_THE_STREAM
        }
        self._estimator = MiniBatchKMeans(**of_the_fit)
        self._estimator.check_parameters()

    def settings(self, dtype: str, seed: int) -> FoldSettings:
        rows = leaf_rows_for(self._estimator.batch_size, self._estimator.n_clusters)
        # A coreset as large as its leaf consists of all rows.
        leaf = LeafSettings(rows, rows, seed, dtype, self.metric == "cosine", self.forgetting)
        return FoldSettings(leaf, self.seeded(seed), self.parameters["drift_threshold"])

    def seek(
        self,
        rows: Chunk,
        before: StreamCentres | None,
        n_rows: int,
        *,
        fresh: bool = False,
        grow: bool = False,
    ) -> MovedCentres | None:
        """Return the centres after all batches of the rows; None if there are too few rows to seed from.

        `fresh` and `grow` have no effect: `swap_remembered` decides by itself whether to move centres.

        Notes
        -----
        Cost: b k distances per batch, one more visit of the rows with the final centres, and
        `swap_remembered`.
        """
        assert before is None or isinstance(before, MovedCentres)
        given, k = self._estimator, self._estimator.n_clusters
        method = method_for(given.init, in_memory=True)
        if before is None:
            if rows.n_rows < k:
                return None
            restarts = given.n_init
            if restarts == "auto":
                restarts = _RANDOM_INITS if method == "random" else 1
            sample = Batch(rows.rows, np.arange(rows.n_rows), rows.weights, rows.normalize)
            seed = Key(self.seed, "centres of a stream", n_rows).derived_seed()
            centres = centres_of_sample(sample, given, seed, int(restarts))
            state, n_steps = MovingCentres.start(centres), 0
        else:
            exact, dtype = before.exact.copy(), before.centres.dtype
            state = MovingCentres(
                exact, exact.astype(dtype), before.weights.copy(), before.costs.copy()
            )
            n_steps = before.n_iter
        stepper = MiniBatchStepper(state, given.learning_rate, default_threads())
        with stepper.threads():
            key = Key(self.seed, "batches of a leaf", n_rows)
            order = key.generator().permutation(rows.n_rows)
            for first in range(0, len(order), given.batch_size):
                listed = order[first : first + given.batch_size]
                n_steps += 1
                stepper.step(Batch(rows.rows, listed, rows.weights, rows.normalize))
        leaf = LabelledLeaf.of(rows, state.centres)
        costs, weight = leaf.costs(k), float(leaf.weights.sum())
        if before is not None:
            costs += before.costs
            weight += before.weight
        ratio = given.reassignment_ratio
        if ratio != 0.0:
            seed = Key(self.seed, "swaps of a leaf", n_rows).derived_seed()
            low = 0.0 if ratio == "auto" else float(ratio)
            after = swap_remembered(state, leaf, costs, seed, low=low)
            if after is not None:
                costs = after
                leaf = LabelledLeaf.of(rows, state.centres)
        return MovedCentres(
            state.centres,
            births_after(before, state.centres, n_rows),
            state.seen,
            costs,
            leaf.sizes(k),
            n_rows,
            n_steps,
            str(StopReason.MAX_ITER),
            method,
            state.exact,
            weight,
            0.0,
        )

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
    finds: ClassVar[type[StreamCentres]] = StreamMixture
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
        return FoldSettings(leaf, self.seeded(seed), self.parameters["drift_threshold"])

    def seek(
        self,
        rows: Chunk,
        before: StreamCentres | None,
        n_rows: int,
        *,
        fresh: bool = False,
        grow: bool = False,
    ) -> StreamMixture | None:
        """Return the mixture of weighted rows; None if there are fewer rows than components.

        `grow` has no effect: a mixture keeps its number of components.

        Notes
        -----
        Cost: EM on m rows in memory, from the previous means; with `fresh`, also from scratch.
        """
        if rows.n_rows < int(self._search["n_components"]):
            return None
        if before is None:
            return self._found(rows, None, n_rows, self.init)
        best = self._found(rows, before, n_rows, before.centres)
        if not fresh:
            return best
        other = self._found(rows, None, n_rows, "k-means++")
        if other.lower_bound <= best.lower_bound + FRESH_GAIN * rows.rows.shape[1]:
            return best
        other = other.reordered(matched(before.centres, other.centres))
        return replace(other, births=births_after(before, other.centres, n_rows))

    def _found(
        self,
        rows: Chunk,
        before: StreamCentres | None,
        n_rows: int,
        init: Any,
    ) -> StreamMixture:
        seed = int(Key(self.seed, "mixture refit", n_rows).generator().integers(2**31))
        n_init = self._search.get("n_init", 1) if isinstance(init, str) else 1
        mixture = VariationalGaussianMixture(
            **{**self._search, "init": init, "n_init": n_init},
            random_state=seed,
            coreset_size=None,
        )
        fit_summary(mixture, rows)
        means = mixture.means_
        labels, distances = nearest_with_distances(rows, means)
        weights = rows.masses
        k = len(means)
        return StreamMixture(
            means,
            births_after(before, means, n_rows),
            mixture.component_weights_,
            np.bincount(labels, weights * distances, minlength=k),
            np.bincount(labels, minlength=k),
            n_rows,
            mixture.n_iter_,
            mixture.stop_reason_,
            mixture.seeding_ if before is None else before.seeding,
            stored_variances(mixture.covariances_, mixture.covariance_type),
            mixture.weights_,
            float(mixture.lower_bound_),
            mixture.covariance_type,
        )

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
