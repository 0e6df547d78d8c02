"""KMeans: Lloyd's algorithm on rows wherever they live, with scikit-learn's interface."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from daskcluster.chunkwise.feature_scaling import PARTIAL
from daskcluster.methods.kmeans.base import KMeansEstimator
from daskcluster.methods.kmeans.fit import KMeansFit
from daskcluster.methods.kmeans.parameters import KMEANS
from daskcluster.methods.kmeans.partial import fit_partial
from daskcluster.parameters.parameter import Parameter


class KMeans(KMeansEstimator):
    """K-means clustering of rows in memory, on disk or in a bucket.

    The result is the same to the bit on any engine, for any chunking and any number of workers.

    Parameters
    ----------
    n_clusters : int >= 1
    init : {"auto", "k-means++", "k-means||", "afk-mc2", "random"}, URL, array, callable, estimator
        ``"auto"``: k-means++ for rows in memory, k-means|| elsewhere. A fitted estimator or the URL of
        a saved model is a warm start.
    n_init : int >= 1 or "auto"
        Restarts, the one with the lowest inertia wins. ``"auto"``: 1, but 10 for random rows in memory.
    algorithm : {"auto", "lloyd", "elkan", "hamerly", "yinyang"}
        All give the same result to the bit. ``"lloyd"`` computes all distances in each iteration;
        the others keep bounds of distances and skip rows whose label cannot change: one lower bound a
        row (hamerly), one for each group of about ten centres (yinyang), or one for each centre (elkan).
        ``"auto"`` switches between them during the fit; it takes elkan for up to 64 centres whose bounds
        are an eighth of a row's bytes at most. Sparse rows take hamerly in place of the other bounds.
    max_iter : int >= 0
        Centre updates at most; 0 keeps the initial centres.
    tol : float >= 0
        Stop when the squared movement of all centres is at most this times the mean feature
        variance; 0 waits until nothing moves.
    metric : {"euclidean", "cosine"}
        ``"cosine"`` is spherical k-means (Dhillon and Modha 2001): rows and centres of length one.
    random_state : int >= 0, RandomState or Generator, optional
    engine : Engine, dask.distributed.Client, "local", address, or None
        Where to run. None: the current Dask client if there is one that can read the rows, else
        threads of this process.
    callbacks : sequence of callables
        Hear the events of `daskcluster.events`.
    verbose : int >= 0 or bool
        Above 0, iterations are printed as they end.
    max_time : float > 0, optional
        Seconds for the whole fit; the iteration that exceeds them is the last.
    bounds_memory : int >= 0 or "auto"
        Bytes that bounds may take, over all workers. Where they do not suffice, a kind with fewer bounds
        takes the place of the one that was asked for: elkan, yinyang, hamerly, lloyd. ``"auto"``: what
        the engine's memory limit leaves.
    chain_length : int >= 1
        Rows that ``"afk-mc2"`` proposes for each centre: more come closer to k-means++.
    checkpoint : str or path, optional
        Folder or URL under which the state of the fit is stored, for ``fit(..., resume=True)`` to
        resume a killed one: after the seeding, then each `checkpoint_every` iterations or half a
        minute, whichever is first, and at the end. A commit takes the bytes of the centres; two stay.
    checkpoint_every : int >= 1
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
        A record per iteration: its inertia, the centres' shift, seconds, bytes read, rows that were
        touched and distances that were computed.
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
    fits_partial: ClassVar[bool] = True

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "auto",
        n_init: int | str = "auto",
        algorithm: str = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        metric: str = "euclidean",
        random_state: Any = None,
        engine: Any = None,
        callbacks: Any = (),
        verbose: int = 0,
        max_time: float | None = None,
        bounds_memory: int | str = "auto",
        chain_length: int = 10,
        checkpoint: Any = None,
        checkpoint_every: int = 10,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.algorithm = algorithm
        self.max_iter = max_iter
        self.tol = tol
        self.metric = metric
        self.random_state = random_state
        self.engine = engine
        self.callbacks = callbacks
        self.verbose = verbose
        self.max_time = max_time
        self.bounds_memory = bounds_memory
        self.chain_length = chain_length
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every

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
        resume : bool
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
        if scaling is not None and scaling.kind == PARTIAL:
            self._learn(*fit_partial(self, X, sample_weight))
            return self
        fit = self.begin_fit(KMeansFit, X, sample_weight, resume=resume)
        self._learn(fit.run(), fit)
        return self
