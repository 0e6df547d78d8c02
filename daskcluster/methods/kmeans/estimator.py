"""The parts that users call: KMeans, the base of all k-means estimators, and seeding on its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from scipy import sparse

from daskcluster.chunkwise.examples import Sample
from daskcluster.chunkwise.feature_scaling import PARTIAL
from daskcluster.data.features import refuse_partial
from daskcluster.data.spec import AS_THEY_ARE
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import (
    CentreEstimator,
    LoopParameters,
    figures,
    from_provenance,
    in_declared_order,
    provenance,
    take_figures,
)
from daskcluster.estimators.fit import Fit, FitRun
from daskcluster.estimators.inputs import check_enough_rows, fit_dataset
from daskcluster.estimators.opening import open_stored
from daskcluster.events import Callback
from daskcluster.invariance import DRAWN, SEEDING, varies_with
from daskcluster.methods.kmeans.fit import KMeansFit, fit_partial
from daskcluster.methods.kmeans.initial import candidate_reducer
from daskcluster.methods.kmeans.parameters import KMEANS
from daskcluster.metrics.agreement import Stability
from daskcluster.models.fitted import KMeansModel
from daskcluster.parameters import shared
from daskcluster.parameters.checks import check_value
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import as_seed
from daskcluster.reports.contents import Clusters
from daskcluster.seeding.methods import afk_mc2 as _afk_mc2
from daskcluster.seeding.methods import kmeans_parallel as _kmeans_parallel
from daskcluster.seeding.methods import kmeans_plusplus as _kmeans_plusplus
from daskcluster.sparse_rows import Rows, SparseRows
from daskcluster.typing import Dataset

OneFit = TypeVar("OneFit", bound=Fit)

N_FITS = 5
_MAX_ITER = 50
_LEAST_ROWS = 20
"""Rows per cluster below which a sample says little about its clusters."""
_MOST_TERMS = 2e9
"""Most distances times features of an iteration, so that all fits take a few seconds."""


@dataclass(eq=False, repr=False)
class KMeansEstimator(LoopParameters, CentreEstimator):
    """Base of the k-means estimators.

    Its fields are the parameters that most of them have.
    """

    fit_class: ClassVar[type[Fit]]
    model_kinds: ClassVar[tuple[str, ...]] = (KMeansModel.kind,)
    n_clusters: int = 8
    _: KW_ONLY
    metric: str = "euclidean"
    chain_length: int = 10

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, resume: bool = False
    ) -> Self:
        """Find centres.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, zarr.Array, Dataset, or URL
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Not allowed if the dataset has its own weights.
        resume : bool, default False
            Resume from the last state under `checkpoint`, to the same bits as if the fit had never been
            interrupted (counters of work may differ). Without one, the fit starts from scratch.

        Returns
        -------
        self

        Raises
        ------
        CheckpointError
            The state under `checkpoint` is damaged, or belongs to other data or parameters.
        InvalidParameterError, InvalidDataError
            X or a parameter is not valid.
        MemoryLimitError
            The memory of the engine is too small.
        """
        self.check_parameters()
        scaling = getattr(X, "scaling", None)
        if self.fits_partial and scaling is not None and scaling.kind == PARTIAL:
            self._learn(*fit_partial(self, X, sample_weight))
            return self
        fit = self.begin_fit(self.fit_class, X, sample_weight, resume=resume)
        run = fit.run()
        self._learn_own(fit)
        self._learn(run, fit)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        # Features are known before a fit may fail.
        return hasattr(self, "cluster_centers_")

    def _check_rows(self, dataset: Dataset) -> None:
        check_enough_rows(dataset, self.n_clusters)

    def begin_fit(self, kind: type[OneFit], X: Any, sample_weight: Any, **options: Any) -> OneFit:
        """Return one call of fit on `X`, ready to run; its parameters are checked."""
        dataset = fit_dataset(self, X, sample_weight, scalable=True)
        self._check_rows(dataset)
        return kind(self, X, dataset, **options)

    # -- what was learnt --------------------------------------------------------------------------

    def _learn_own(self, fit: Any) -> None:
        """Set what only this class learns from a fit."""

    def _learn(self, best: FitRun, fit: Fit) -> None:
        self._centres, self._search = best.result.centres, best.search
        self._n_init = fit.restarts
        self.learn_fit(fit, best.result, best.found)
        self.learn_labels(fit.dataset, fit.engine, best.labels, in_memory=fit.labelled)

    def examine(
        self, dataset: Dataset, shown: int, most: int, callbacks: Sequence[Callback] = ()
    ) -> Clusters:
        """Return figures, nearest and farthest rows, and the stability of clusters. One pass."""
        found = super().examine(dataset, shown, most, callbacks)
        if found.sample is None:
            return found
        return replace(found, stability=stability(found.sample, len(self._centres)))

    def to_model(self) -> KMeansModel:
        """Return the model: the learnt attributes, without the data."""
        return KMeansModel(
            centres=self._centres,
            metric=self.metric,
            **figures(self),
            **provenance(self),
        )

    def to_sklearn(self) -> Any:
        """Return a fitted `sklearn.cluster.KMeans` with these centres, which predicts the same labels.

        For the cosine metric it stands behind a `sklearn.preprocessing.Normalizer` in a pipeline. It has
        ``labels_`` where they are in memory. Rows that are as near to two centres, up to rounding, may get
        the other label.
        """
        # Imports half of scikit-learn, which nothing else needs.
        from daskcluster.estimators.export import sklearn_kmeans

        return sklearn_kmeans(self)

    def to_faiss(self) -> Any:
        """Return a flat Faiss index of the centres, in float32 (``pip install "daskcluster[faiss]"``).

        The index is of inner products for the cosine metric, else of squared distances.

        Raises
        ------
        MissingExtraError
            Faiss is not installed.
        """
        from daskcluster.estimators.export import faiss_index  # imports half of scikit-learn

        return faiss_index(self)

    @classmethod
    def from_model(cls, model: KMeansModel) -> Self:
        """Return the fitted estimator that a model describes (without ``labels_``)."""
        known = {"n_clusters": model.n_clusters, "metric": model.metric}
        self = from_provenance(cls, model, **known)
        self.scaling_, self._centres, self._search = model.scaling, model.centres, model.search
        take_figures(self, model)
        return self


@varies_with(storage=SEEDING, order=DRAWN)
@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class KMeans(KMeansEstimator):
    """K-means clustering of rows in memory, on disk or in a bucket.

    The result is the same to the bit on any engine, for any chunking and any number of workers.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    init : str, URL, array, callable or estimator, default "auto"
        ``"auto"``: k-means++ for rows in memory, k-means|| elsewhere. Other names are ``"k-means++"``,
        ``"k-means||"``, ``"afk-mc2"`` and ``"random"``. A fitted estimator or the URL of a saved model is
        a warm start.
    n_init : int >= 1 or "auto", default "auto"
        Restarts, the one with the lowest inertia wins. ``"auto"``: 1, but 10 for random rows in memory.
    algorithm : {"auto", "lloyd", "elkan", "hamerly", "yinyang"}, default "auto"
        All give the same result to the bit. ``"lloyd"`` computes all distances in each iteration;
        the others keep bounds of distances and skip rows whose label cannot change: one lower bound a
        row (hamerly), one for each group of about ten centres (yinyang), or one for each centre (elkan).
        ``"auto"`` switches between them during the fit; it takes elkan for up to 64 centres whose bounds
        are an eighth of a row's bytes at most. Of sparse rows, all distances are computed.
    max_iter : int >= 0, default 300
        Centre updates at most; 0 keeps the initial centres.
    tol : float >= 0, default 0.0001
        Stop when the squared movement of all centres is at most this times the mean feature
        variance; 0 waits until nothing moves.
    metric : {"euclidean", "cosine"}, default "euclidean"
        ``"cosine"`` is spherical k-means (Dhillon and Modha 2001): rows and centres of length one. Rows of
        zeros stay zeros, with a warning that counts them.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Where to run. None: the current Dask client if there is one that can read the rows, else
        threads of this process.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    max_time : float > 0, optional
        Seconds for the whole fit; the iteration that exceeds them is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        Rows whose mean squared distance to the centres goes into `history_` after each iteration. Its
        computation takes no part in the times there.
    bounds_memory : int >= 0 or "auto", default "auto"
        Bytes that bounds may take, over all workers. Where they do not suffice, a kind with fewer bounds
        takes the place of the one that was asked for: elkan, yinyang, hamerly, lloyd. ``"auto"``: what
        the engine's memory limit leaves.
    chain_length : int >= 1, default 10
        Rows that ``"afk-mc2"`` proposes for each centre: more come closer to k-means++.
    checkpoint : str or path, optional
        Folder or URL under which the state of the fit is stored, for ``fit(..., resume=True)`` to
        resume a killed one: after the seeding, then each `checkpoint_every` iterations or half a
        minute, whichever is first, and at the end. A commit takes the bytes of the centres; two stay.
    checkpoint_every : int >= 1, default 10
        Iterations between two commits; one takes some 10 ms on a local disk.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, d)
        float32 for rows of 32 bits or less that are exact in it, else float64.
    labels_ : ndarray of shape (n,), int32, or Labels
        An array for rows given in memory, a dask array or Series for a dask array or frame, else a handle
        that computes them when asked. Of a DataArray, those of the cells with data: ``predict(X)`` returns
        their map.
    inertia_ : float
        Weighted sum of squared distances of the rows to their nearest centres.
    n_iter_, passes_, bytes_read_ : int
        Centre updates; passes over the rows; decoded bytes fetched from the store.
    stop_reason_, seeding_ : str
    history_ : list of dict
        A record per iteration: its inertia, the ``mean_squared_distance`` of the rows (inertia over weight,
        which the records of all estimators have), the centres' shift, seconds, bytes read, rows that were
        touched and distances that were computed, and the mean squared distance of the `validation` rows.
    cluster_sizes_, cluster_weights_, cluster_costs_ : ndarrays of shape (k,)
        Rows, weight and inertia of each cluster.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Cost: seeding (none for an array, k + 1 passes for k-means++, 6 for k-means||, 2 for AFK-MC2) plus one
    pass an iteration plus one for the final inertia and labels, for each restart; no pass for validation.
    Memory: two partitions, the read-ahead window, the packed centres and the statistics (8 k (d + 1)
    bytes, twice that for float64 or weighted rows) per thread; per row k-means++'s 8 bytes and
    k-means||'s 4 while seeding, the labels of rows in memory, and the bounds: 12 bytes (hamerly), 8 + 4 for
    each group of centres (yinyang), 8 + 4 k (elkan). Chunks in which no bound fails are not read.

    Lloyd, "Least squares quantization in PCM" (1982); Elkan (ICML 2003), Hamerly (SDM 2010), Ding et al.
    ("Yinyang K-means", ICML 2015), whose bounds here also carry the rounding error of the scores.
    Clusters that run empty move to the farthest rows, as in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.array([[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> model = dc.KMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> int(model.predict([[0, 0]])[0]) == int(model.labels_[0])
    True
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = KMEANS
    fit_class: ClassVar[type[Fit]] = KMeansFit
    fits_partial: ClassVar[bool] = True

    init: Any = "auto"
    n_init: int | str = "auto"
    algorithm: str = "auto"
    max_iter: int = 300
    tol: float = 1e-4
    bounds_memory: int | str = "auto"


# -- stability of clusters ----------------------------------------------------------------------------


def stability(sample: Sample, n_clusters: int) -> Stability | None:
    """Compare the clusters of a sample with those that k-means finds there from five other seeds.

    Parameters
    ----------
    sample : Sample
    n_clusters : int

    Returns
    -------
    Stability, or None
        None if there is a single cluster, if the sample has fewer than 20 rows per cluster, and for rows
        with weights or missing values.

    Notes
    -----
    Cost: five fits of at most 50 iterations on at most 10,000 rows, in this process.
    """
    most = min(len(sample.rows), int(_MOST_TERMS / (n_clusters * sample.rows.shape[1])))
    if n_clusters < 2 or sample.weighted or most < _LEAST_ROWS * n_clusters:
        return None
    at = np.arange(most) * len(sample.rows) // most
    rows, labels = sample.rows[at], sample.labels[at]
    if not np.isfinite(rows.data if isinstance(rows, SparseRows) else rows).all():
        return None
    return Stability.of(labels, _refits(rows, n_clusters, sample.metric), n_clusters)


def _refits(rows: Rows, n_clusters: int, metric: str) -> Iterator[Any]:
    data: Any = rows
    if isinstance(rows, SparseRows):
        data = sparse.csr_array((rows.data, rows.indices, rows.offsets), shape=rows.shape)
    for seed in range(N_FITS):
        model = KMeans(
            n_clusters,
            n_init=1,
            max_iter=_MAX_ITER,
            metric=metric,
            random_state=seed,
            engine="local",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few iterations, of duplicates
            yield model.fit(data).labels_


# -- seeding on its own -------------------------------------------------------------------------------


@varies_with(order=DRAWN)
def kmeans_plusplus(
    X: Any,
    n_clusters: int,
    *,
    sample_weight: Any = None,
    random_state: Any = None,
    n_local_trials: int | None = None,
    engine: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose centres by greedy k-means++ (Arthur and Vassilvitskii 2007).

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    n_clusters : int
    sample_weight : array-like of shape (n,), optional
    random_state : int, RandomState or Generator, optional
    n_local_trials : int, optional
        Candidates a step; default 2 + floor(log k).
    engine : Engine, dask.distributed.Client, "local" or address, optional

    Returns
    -------
    centers : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
        Rows that the centres are.

    Notes
    -----
    Cost: k + 1 passes, 8 bytes of state a row.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]])
    >>> centers, indices = dc.kmeans_plusplus(X, 2, random_state=0)
    >>> bool((X[indices] == centers).all()), len(set((indices // 2).tolist()))
    (True, 2)
    """
    if n_local_trials is not None and n_local_trials < 1:
        raise InvalidParameterError(
            f"n_local_trials={n_local_trials} should be >= 1; leave it out for 2 + log(k)."
        )
    with _placed(X, sample_weight, n_clusters, engine) as rows:
        return _kmeans_plusplus(
            rows, n_clusters, as_seed(random_state), n_local_trials=n_local_trials
        )


@varies_with(order=DRAWN)
def kmeans_parallel(
    X: Any,
    n_clusters: int,
    *,
    sample_weight: Any = None,
    random_state: Any = None,
    oversampling: float = 2.0,
    n_rounds: int = 5,
    engine: Any = None,
) -> np.ndarray:
    """Choose centres by k-means|| (Bahmani et al. 2012) in ``n_rounds + 1`` passes.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    n_clusters : int
    sample_weight : array-like of shape (n,), optional
    random_state : int, RandomState or Generator, optional
    oversampling : float, default 2.0
        Rows drawn a round, in units of k.
    n_rounds : int, default 5
    engine : Engine, dask.distributed.Client, "local" or address, optional

    Returns
    -------
    ndarray of shape (k, d)

    Notes
    -----
    Cost: ``n_rounds + 1`` passes, 4 bytes of state a row.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]])
    >>> dc.kmeans_parallel(X, 2, random_state=0).shape
    (2, 2)
    """
    if not oversampling > 0 or n_rounds < 1:
        raise InvalidParameterError(
            f"oversampling={oversampling} should be > 0 and n_rounds={n_rounds} >= 1."
        )
    seed = as_seed(random_state)
    with _placed(X, sample_weight, n_clusters, engine) as rows:
        return _kmeans_parallel(
            rows,
            n_clusters,
            seed,
            reduce_candidates=candidate_reducer(seed, rows),
            oversampling=oversampling,
            n_rounds=n_rounds,
        )


@varies_with(order=DRAWN)
def afk_mc2(
    X: Any,
    n_clusters: int,
    *,
    chain_length: int = 10,
    sample_weight: Any = None,
    random_state: Any = None,
    engine: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose centres by AFK-MC2 (Bachem et al. 2016): k-means++ by Markov chains, in two passes.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    n_clusters : int
    chain_length : int, default 10
        Rows proposed for each centre. Longer chains come closer to k-means++ without candidates.
    sample_weight : array-like of shape (n,), optional
    random_state : int, RandomState or Generator, optional
    engine : Engine, dask.distributed.Client, "local" or address, optional

    Returns
    -------
    centers : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
        Rows that the centres are.

    Notes
    -----
    Cost: two passes, and more only where few rows are distinct; n + m k^2 / 2 distances for chains of
    length m, and their k m rows in memory.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]])
    >>> centers, indices = dc.afk_mc2(X, 2, random_state=0)
    >>> bool((X[indices] == centers).all()), len(set((indices // 2).tolist()))
    (True, 2)
    """
    check_value("afk_mc2", shared.CHAIN_LENGTH, chain_length)
    with _placed(X, sample_weight, n_clusters, engine) as rows:
        return _afk_mc2(rows, n_clusters, as_seed(random_state), chain_length=chain_length)


@contextmanager
def _placed(X: Any, sample_weight: Any, n_clusters: int, engine: Any) -> Iterator[ScaledPlacement]:
    """Yield the rows of `X` placed on an engine, if there are enough of them."""
    dataset, _ = open_stored(X, AS_THEY_ARE, weights=sample_weight)
    refuse_partial(dataset, "a seeding of its own")
    if not 1 <= n_clusters <= dataset.n_rows:
        raise InvalidParameterError(
            f"n_samples={dataset.n_rows} should be >= n_clusters={n_clusters} >= 1."
        )
    with choose_engine(engine, dataset).place(dataset) as placement:
        yield ScaledPlacement(placement)
