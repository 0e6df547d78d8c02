"""KernelKMeans: Lloyd's algorithm in the space of a kernel, all rows against all rows."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from daskcluster.engine.choose import choose_engine
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.fit import all_callbacks
from daskcluster.estimators.inputs import (
    is_out_of_core,
)
from daskcluster.methods.kernel.base import KernelEstimator
from daskcluster.methods.kernel.chunkwise.centres import GraphCentres
from daskcluster.methods.kernel.fit import KernelFit
from daskcluster.methods.kernel.graph import GraphKMeansModel, graph_arrays
from daskcluster.methods.kernel.model import KernelKMeansModel
from daskcluster.methods.kernel.parameters import KERNEL_KMEANS
from daskcluster.parameters.parameter import Parameter


class KernelKMeans(KernelEstimator):
    """K-means in the space of a Mercer kernel, or of a graph of neighbours.

    Every iteration compares all rows with all rows; the n x n matrix is never formed, its blocks are
    computed and added up as rows stream past each other. `daskcluster.MiniBatchKernelKMeans` comes
    close at a cost that does not depend on n. The result is the same to the bit on any engine and
    number of threads and workers.

    Parameters
    ----------
    n_clusters : int >= 1
    kernel : {"rbf", "laplacian", "polynomial", "linear", "cosine", "precomputed", "knn", "heat"}, callable
        As of `daskcluster.MiniBatchKernelKMeans`; and ``"knn"`` or ``"heat"``. ``"knn"`` is D^-1 A
        D^-1 with A the adjacency matrix of nearest neighbours (with loops, made symmetric) and D its
        row sums; ``"heat"`` is exp(-t L) with L = I - D^-1/2 A D^-1/2. The rows have to fit in memory.
    gamma : float >= 0 or "auto"
    degree : int >= 1
    coef0 : float
        As of `daskcluster.MiniBatchKernelKMeans`.
    n_neighbors : int >= 1
        Of ``"knn"`` and ``"heat"``: neighbours of each row, itself among them.
    heat_time : float > 0
        t of ``"heat"``.
    kernel_params : dict, optional
        Further arguments of a callable.
    init : {"k-means++", "random"}, array
        First centres, images of rows; or the numbers of these rows.
    n_init : int >= 1 or "auto"
        Starts, of which the one with the lowest inertia is kept; "auto" is one. Each takes as long as the
        first.
    max_iter : int >= 0
        Centre updates at most; 0 keeps the first centres.
    tol : float >= 0
        Stop when an iteration lowers the inertia by at most this times itself; 0: when no label changes.
    random_state : int >= 0, RandomState or Generator, optional
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
    verbose : int >= 0 or bool
    max_time : float > 0, optional
    checkpoint : str or path, optional
    checkpoint_every : int >= 1
        As of `daskcluster.KMeans`.

    Attributes
    ----------
    labels_, inertia_, gamma_, support_, support_clusters_, support_coefficients_, n_iter_, stop_reason_,
    history_, seeding_, passes_, bytes_read_, n_features_in_, cluster_sizes_, cluster_weights_,
    cluster_costs_
        As of `daskcluster.MiniBatchKernelKMeans`; the supports are all rows.

    Notes
    -----
    Cost: n^2 Gram values an iteration, in a pass for each 64 MB of rows; kernel k-means++ as many passes as
    there are clusters. Memory: 16 n k bytes, and a model of all rows. Graphs: 8 n `n_neighbors` bytes
    and some more; their nearest neighbours are found by scikit-learn. K(x, x) of the heat kernel is
    exact up to 12,000 rows, and an estimate above, on which labels do not depend.

    New rows are joined to the graph by the edges that they would have. Rows of the fit keep their
    degrees, and walks of the heat that come back through the new row are left out (see
    `daskcluster.methods.kernel.chunkwise.centres`).
    Rows at the distance of the last neighbour are neighbours too.
    The model holds all rows; ``predict`` compares each with all of them. There is no ``transform`` or
    ``score`` then, for K(x, x) of new rows is not known.

    Matrices that are no Mercer kernels (``"knn"`` is none) can give squared distances below zero, which
    count as zero; the inertia may then rise. A cluster without rows keeps its centre.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> rng = np.random.default_rng(0)
    >>> angle, ring = rng.uniform(0, 2 * np.pi, 500), np.arange(500) % 2
    >>> X = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1 + 4 * ring[:, None])
    >>> labels = dc.KernelKMeans(2, gamma=0.1, random_state=0).fit_predict(X)
    >>> len(set(zip(labels.tolist(), ring.tolist())))
    2
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = KERNEL_KMEANS

    model_kinds = (KernelKMeansModel.kind, GraphKMeansModel.kind)

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        kernel: Any = "rbf",
        gamma: float | str = "auto",
        degree: int = 3,
        coef0: float = 1.0,
        n_neighbors: int = 10,
        heat_time: float = 1.0,
        kernel_params: dict[str, Any] | None = None,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: Any = None,
        engine: Any = None,
        callbacks: Any = (),
        verbose: int = 0,
        max_time: float | None = None,
        checkpoint: Any = None,
        checkpoint_every: int = 10,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_neighbors = n_neighbors
        self.heat_time = heat_time
        self.kernel_params = kernel_params
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.engine = engine
        self.callbacks = callbacks
        self.verbose = verbose
        self.max_time = max_time
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, resume: bool = False
    ) -> Self:
        """Find clusters.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, zarr.Array, Dataset, or URL
            With ``kernel="precomputed"`` of shape (n, n).
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Not together with a dataset that has weights of its own.
        resume : bool
            Resume from the last state under `checkpoint`; see `daskcluster.KMeans.fit`.

        Raises
        ------
        CheckpointError
            What is under `checkpoint` is of other data or parameters, or damaged.
        InvalidParameterError, InvalidDataError
            Which say what, the value, the rule and the remedy.
        MemoryLimitError
            The engine's memory does not suffice.
        """
        self.check_parameters()
        dataset = self._rows_of(X, sample_weight)
        engine = choose_engine(self.engine, dataset)
        callbacks, labelled = all_callbacks(self), not is_out_of_core(X)
        fit = KernelFit(self, X, dataset, engine, callbacks, labelled=labelled, resume=resume)
        self._learn(*fit.run(), fit)
        return self

    def check_parameters(self) -> None:
        super().check_parameters()
        if not isinstance(self.init, str) and np.shape(self.init) != (self.n_clusters,):
            raise InvalidParameterError(
                f"init of shape {np.shape(self.init)} should be the numbers of {self.n_clusters} rows."
            )

    def to_model(self) -> KernelKMeansModel:
        """Return what was learnt as a plain value, all rows in it; a callable kernel is left out."""
        centres = getattr(self, "_centres", None)
        if not isinstance(centres, GraphCentres):
            return super().to_model()
        return GraphKMeansModel(**graph_arrays(centres, self.n_features_in_), **self._facts())
