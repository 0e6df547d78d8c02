"""StreamingKMeans: k-means of a stream of rows in bounded memory, with optional forgetting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from daskcluster.chunk import compute_dtype
from daskcluster.data.features import names_differ
from daskcluster.engine.choose import choose_engine
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import from_provenance, in_declared_order
from daskcluster.estimators.fit import all_callbacks
from daskcluster.estimators.inputs import check_enough_rows, check_kept_rows, fit_dataset
from daskcluster.estimators.rows import Labels
from daskcluster.invariance import DRAWN, varies_with
from daskcluster.methods.coreset.estimator import check_coreset_size
from daskcluster.methods.kmeans.estimator import KMeansEstimator
from daskcluster.methods.streaming.fold import (
    FoldSettings,
    RefitSettings,
    StreamFold,
    fold_of_model,
)
from daskcluster.methods.streaming.parameters import STREAMING, leaf_rows_of, summary_size
from daskcluster.methods.streaming.tree import (
    Forgetting,
    LeafSettings,
    Part,
    check_timestamp,
    sum_up,
)
from daskcluster.models.fitted import KMeansModel
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import as_seed
from daskcluster.typing import Dataset, Visibility

_FROM_CENTRES = {
    "cluster_centers_": "centres",
    "_centres": "centres",
    "inertia_": "inertia",
    "cluster_sizes_": "sizes",
    "cluster_weights_": "weights",
    "cluster_costs_": "costs",
    "cluster_births_": "births",
    "n_iter_": "n_iter",
    "stop_reason_": "stop_reason",
    "seeding_": "seeding",
}
"""Fitted attributes, and their names in `StreamCentres`."""

_FROM_FOLD: dict[str, Callable[[StreamFold], Any]] = {
    "rows_seen_": lambda fold: fold.n_rows,
    "n_rows_": lambda fold: fold.n_rows,
    "remembered_": lambda fold: fold.remembered,
    "history_": lambda fold: fold.history,
    "drift_": lambda fold: {**fold.drift.body(), "counts": fold.drift.counts},
    "coreset_": StreamFold.summary,
}


@varies_with(order=DRAWN)
@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class StreamingKMeans(KMeansEstimator):
    """K-means of a stream: rows arrive in batches of any size, are read once, and may be forgotten.

    Rows are cut into leaves of a fixed number of rows. Each leaf becomes a lightweight coreset (Bachem,
    Lucic and Krause, KDD 2018), and every four coresets are merged and reduced to one, so that the summary
    of all rows stays small (Har-Peled and Mazumdar, STOC 2004). Centres are computed on the summary,
    starting from the previous ones, and clusters keep their numbers. The initial clusters are numbered in
    the order in which their first rows arrived. The state depends only on the rows and their order; it is
    bit-identical for any batches, chunks, threads and workers.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    coreset_size : int >= 1 or "auto", default "auto"
        m, the number of rows of each coreset. ``"auto"``: 20 k max(1, ln k), at least 2,000. A leaf has
        eight times as many rows, rounded up to a multiple of 1,024.
    half_life : str or number, optional
        Number of later rows after which the weight of a row has halved; or, as a time such as ``"90s"``,
        ``"10m"``, ``"6h"`` or ``"7d"``, its age relative to the latest timestamp.
    window : str or number, optional
        Age, in rows or as a time, at which rows are forgotten, to within an eighth of the window. Cannot
        be combined with `half_life`.
    drift_threshold : float >= 1, default 1.5
        New rows no longer fit when their mean squared distance to the current centres is this many times
        that of earlier leaves.
    init : str, URL, array, callable or estimator, default "auto"
        How to choose the initial centres; ``"auto"`` is k-means++.
    max_iter : int >= 0, default 100
        Maximum number of centre updates per search; 0 keeps its initial centres.
    tol : float >= 0, default 0.0001
        Stop when the centres' squared movement is at most this times the mean feature variance; 0 runs
        until nothing moves.
    metric : {"euclidean", "cosine"}, default "euclidean"
        For each search on the summary; see `daskcluster.KMeans`.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Makes the coresets; everything else runs in this process.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`, including `DriftFound`.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    chain_length : int >= 1, default 10
        As in `daskcluster.KMeans`, for ``"afk-mc2"``.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, d)
        Centres for all rows so far; computed on first access after new rows.
    cluster_births_ : ndarray of shape (k,), int64
        Number of rows seen when each cluster was created. Clusters keep their numbers; if a cluster
        disappears, its number may go to a new one, which then has a later birth.
    inertia_ : float
        Weighted sum of squared distances on the summary, with current weights.
    labels_ : ndarray of shape (n,), int32, or Labels
        Labels of the rows of `fit`, or of the last call of `partial_fit`, under the current centres;
        computed on access.
    rows_seen_, n_rows_ : int
        Number of rows so far.
    remembered_ : float
        Weight of all rows after forgetting.
    coreset_ : Dataset
        The weighted summary.
    drift_ : dict
        ``error`` of the last leaf under the centres before it, ``baseline``, their ``ratio``, ``is_high``,
        and ``counts``, the weight of its rows in each cluster.
    cluster_sizes_, cluster_weights_, cluster_costs_ : ndarrays of shape (k,)
        Number of rows in the summary, weight after forgetting, and inertia of each cluster.
    n_iter_, passes_, bytes_read_, stop_reason_, seeding_, history_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`; `history_` has a record per search for centres.

    Notes
    -----
    Cost: every row is read once. A leaf visits its rows twice (three times with weights or a half-life) and
    takes on average a third of a merge of 4 m rows. Centres are recomputed when new rows have a sixth of
    the remembered weight, by k-means of the summary from the previous centres. When new rows have half of
    it, a local search (Lattanzi and Sohler, ICML 2019) also moves single centres.
    Memory: at most 33 coresets of m rows (three more each time that the number of rows quadruples), and
    the rows of a leaf. The time and memory per row do not depend on the number of earlier rows.

    Difference from the papers: the weights of a coreset are scaled so that they sum to the weight of its
    rows, which is known.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> rng = np.random.default_rng(0)
    >>> model = dc.StreamingKMeans(2, coreset_size=200, random_state=0)
    >>> for day in range(10):
    ...     rows = rng.normal(size=(1000, 2)) + 20 * rng.integers(0, 2, (1000, 1))
    ...     model = model.partial_fit(rows)
    >>> sorted(int(c) for c in model.cluster_centers_[:, 0].round(-1)), model.rows_seen_
    ([0, 20], 10000)
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = STREAMING

    coreset_size: int | str = "auto"
    half_life: Any = None
    window: Any = None
    drift_threshold: float = 1.5
    init: Any = "auto"
    max_iter: int = 100
    tol: float = 1e-4
    # A stream has no end, and a service of its own that keeps its state.
    max_time: ClassVar[None] = None  # type: ignore[misc]
    validation: ClassVar[None] = None  # type: ignore[misc]
    checkpoint: ClassVar[None] = None  # type: ignore[misc]
    checkpoint_every: ClassVar[int] = 10  # type: ignore[misc]

    # -- fitting ----------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # type: ignore[override]
        """Start anew and fold in the rows of `X`, in order.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, zarr.Array, Dataset, or URL
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Not together with a dataset that has weights of its own.

        Returns
        -------
        self

        Raises
        ------
        InvalidParameterError, InvalidDataError
            A parameter or the data is invalid.

        Notes
        -----
        Cost: one pass.
        """
        self.check_parameters()
        dataset = fit_dataset(self, X, sample_weight)
        check_enough_rows(dataset, self.n_clusters)
        self._begin(dataset)
        self.passes_ = 1
        self._fold_in(dataset, None)
        check_kept_rows(self._fold.n_kept, dataset.n_rows, self.n_clusters)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, timestamp: float | None = None
    ) -> Self:
        """Fold more rows in.

        Parameters
        ----------
        X : array-like of shape (b, d), or anything `fit` takes
            Any number of rows.
        y : ignored
        sample_weight : array-like of shape (b,), optional
        timestamp : float, optional
            Time of the rows, in seconds of any clock. Required if `half_life` or `window` is a time.

        Returns
        -------
        self
        """
        self.check_parameters()
        fresh = not hasattr(self, "_fold")
        dataset = fit_dataset(self, X, sample_weight, reset=fresh)
        if fresh:
            self._begin(dataset)
        return self._fold_in(dataset, timestamp)

    def merge(self, other: StreamingKMeans) -> Self:
        """Merge the state of another estimator, for a stream that ran in parallel.

        If ages are numbers of rows, the last rows of both streams have the same age.

        Parameters
        ----------
        other : StreamingKMeans
            An estimator with the same parameters, except for the seed. Not changed.

        Returns
        -------
        self

        Raises
        ------
        InvalidParameterError
            Parameters or numbers of features differ, or this estimator has seen no rows.
        """
        mine, theirs = (each.__dict__.get("_fold") for each in (self, other))
        if theirs is None:
            return self
        if mine is None:
            raise InvalidParameterError(
                f"merge needs rows on both sides, and this {type(self).__name__} has seen none; merge in "
                "the other direction, or call partial_fit first."
            )
        own, others = (getattr(each, "feature_names_in_", None) for each in (self, other))
        if own is not None and others is not None and own.tolist() != others.tolist():
            raise names_differ(own.tolist(), others.tolist())
        if self.n_features_in_ != other.n_features_in_:
            raise InvalidParameterError(
                f"a stream of {other.n_features_in_} features cannot be merged into one of "
                f"{self.n_features_in_}; merge streams with the same features."
            )
        if replace(mine.settings.leaf, seed=0) != replace(theirs.settings.leaf, seed=0):
            raise InvalidParameterError(
                "streams can be merged only if they have the same coreset_size, half_life, window, metric "
                "and dtype; create both with the same parameters."
            )
        mine.absorb(theirs)
        return self

    def _begin(self, dataset: Dataset) -> None:
        dtype = compute_dtype(dataset.dtype).name
        self._fold = StreamFold.empty(self.fold_settings(dtype, as_seed(self.random_state)))
        self.passes_ = self.bytes_read_ = 0

    def fold_settings(self, dtype: str, seed: int) -> FoldSettings:
        """Return the settings of a stream of rows in `dtype`."""
        size, cosine = summary_size(self.coreset_size, self.n_clusters), self.metric == "cosine"
        forgetting = Forgetting.of(self.half_life, self.window)
        names = "max_iter", "tol", "metric", "chain_length"
        search = {name: getattr(self, name) for name in names}
        return FoldSettings(
            LeafSettings(size, leaf_rows_of(size), seed, dtype, cosine, forgetting),
            RefitSettings(self.n_clusters, self.init, search, seed),
            self.drift_threshold,
        )

    def _fold_in(self, dataset: Dataset, timestamp: float | None) -> Self:
        self._rows = dataset, getattr(dataset, "grid", None)
        engine, callbacks = choose_engine(self.engine, dataset), all_callbacks(self)
        check_timestamp(self._fold.settings.leaf.forgetting, timestamp)
        fold, part = self._fold.twin(), Part(dataset, (0, dataset.n_rows), timestamp)
        leaf = fold.settings.leaf
        with closing(sum_up([part], fold.position(), leaf, engine, callbacks)) as pieces:
            for piece in pieces:
                fold.add_piece(piece, callbacks)
        self._fold = fold
        if not dataset.in_memory:
            self.bytes_read_ += dataset.bytes_of((0, dataset.n_rows))
        return self

    # -- results ----------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        fold = self.__dict__.get("_fold")
        return fold is not None and fold.current() is not None

    def __getattr__(self, name: str) -> Any:
        # Fitted attributes are computed on demand, from all rows so far.
        fold = self.__dict__.get("_fold")
        if name == "labels_" and "_rows" in self.__dict__:
            dataset: Any = self._rows[0]
            if self._rows[1] is not None:  # a grid, which pickles lack
                dataset = dataset.with_facts(grid=self._rows[1])
            labels = Labels(dataset, self.label_function(dataset.dtype), self.engine)
            return np.asarray(labels) if dataset.in_memory else labels
        if name not in _FROM_CENTRES and name not in _FROM_FOLD:
            return super().__getattr__(name)
        if fold is None:
            raise AttributeError(
                f"this {type(self).__name__} has no {name} yet: it has seen no rows."
            )
        if name in _FROM_FOLD:
            return _FROM_FOLD[name](fold)
        centres = fold.current()
        if centres is None:
            raise AttributeError(
                f"this {type(self).__name__} has no {name} yet: it has seen fewer rows than clusters."
            )
        return getattr(centres, _FROM_CENTRES[name])

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "_rows" in state and state["_rows"][0].visibility is Visibility.PROCESS:
            del state["_rows"]
        return state

    @classmethod
    def from_model(cls, model: KMeansModel) -> Self:
        """Return a fitted estimator with the parameters of a model, ready for more rows.

        The centres, with the weights of their clusters, stand for the rows so far.
        """
        self = from_provenance(cls, model, metric=model.metric)
        for name in _FROM_CENTRES.keys() | _FROM_FOLD.keys():
            self.__dict__.pop(name, None)
        settings = self.fold_settings(model.centres.dtype.name, as_seed(self.random_state))
        self._fold = fold_of_model(model, settings)
        return self

    def standing_for(
        self, fold: StreamFold, n_features: int, names: Sequence[str] | None = None
    ) -> Self:
        """Return an estimator with the same parameters that is fitted to `fold`."""
        twin = self.__sklearn_clone__()
        if names is not None:
            twin.feature_names_in_ = np.asarray(names, dtype=object)
        twin.__dict__.update(_fold=fold, n_features_in_=n_features, passes_=1, bytes_read_=0)
        return twin

    # -- checks -----------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.coreset_size != "auto":
            check_coreset_size(int(self.coreset_size), "cluster", self.n_clusters)
        Forgetting.of(self.half_life, self.window)
