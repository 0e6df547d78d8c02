"""MiniBatchKernelKMeans: kernel k-means by mini-batches, with steps whose cost does not depend on n."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

from daskcluster.errors import InvalidParameterError
from daskcluster.methods.kernel.estimator import KernelEstimator
from daskcluster.methods.kernel.graph import GraphKMeansModel
from daskcluster.methods.kernel.minibatch.fit import MiniBatchKernelFit
from daskcluster.methods.kernel.minibatch.graph import GraphBatchFit
from daskcluster.methods.kernel.model import KernelKMeansModel
from daskcluster.methods.kernel.parameters import MINI_BATCH_KERNEL, is_graph
from daskcluster.parameters.parameter import Parameter


@dataclass(eq=False, repr=False)
class MiniBatchKernelKMeans(KernelEstimator):
    """K-means in the space of a Mercer kernel, by mini-batches, for any number of rows.

    A step compares a batch of rows with the centres, which are weighted sums of images of a few rows, and
    moves each centre towards the mean of its rows. Clusters need not be convex. The n x n matrix is never
    formed. The result is bit-identical on any engine and for any number of threads and workers.

    Parameters
    ----------
    n_clusters : int >= 1
    kernel : {"rbf", "laplacian", "polynomial", "linear", "cosine", "precomputed", "knn", "heat"}, callable
        exp(-gamma |x - y|^2), exp(-gamma |x - y|_1), (gamma x.y + coef0)^degree, x.y, x.y of rows scaled to
        length one. ``"precomputed"``: X is the symmetric matrix (n, n), in memory or not. ``"knn"`` and
        ``"heat"`` are kernels of the graph of nearest neighbours, as in `daskcluster.KernelKMeans`; the
        rows must fit in memory. A callable takes two blocks of rows and returns the matrix of their values.
    gamma : float >= 0 or "auto"
        ``"auto"`` is 1 / (4 times the sum of the features' variances), from one pass.
    degree : int >= 1
    coef0 : float
        Parameters of the polynomial kernel.
    n_neighbors : int >= 1
        Neighbours of each row, including the row itself; for ``"knn"`` and ``"heat"``.
    heat_time : float > 0
        t of ``"heat"``.
    kernel_params : dict, optional
        Further arguments of a callable kernel.
    batch_size : int >= 1
        Rows per step.
    replacement : bool
        Draw the rows of a batch independently, as the paper does, so that it may hold a row several times
        (and more rows than there are). By default every row comes once a pass.
    truncation : int >= 1, None or False
        tau: a centre consists of the latest batches that together have at least tau of its rows, so of at
        most tau + batch_size rows. None keeps all batches (Algorithm 1); each step is then a pass over
        all rows.
    normalize_truncated : bool
        Scale the coefficients of a truncated centre so that they sum to one. False leaves them as in
        equation (1) of the paper; centres then shrink towards the origin.
    cut_batches : bool
        Drop rows one by one, oldest batch first, so that a centre never has more than tau rows. By default
        whole batches are dropped, as the paper's formulas say; where a batch alone brings tau rows to each
        cluster, smaller values of tau then change nothing.
    learning_rate : {"count", "sqrt"}
        As in `daskcluster.MiniBatchKMeans`.
    init : {"k-means++", "random"}, array
        How to choose the rows of a random sample whose images are the initial centres; or rows (k, d); or,
        with a precomputed kernel or a graph, row numbers (k,).
    n_local_trials : int >= 1, optional
        Candidates per centre of greedy k-means++; 1 is plain k-means++, as in the paper. By default
        2 + log(k), rounded down.
    n_init : int >= 1 or "auto"
        Number of starts, each with other batches; the one with the lowest inertia on all rows is kept.
        "auto" is one. Every start takes about the same time.
    init_size : int >= 1, optional
        Rows in the sample; by default three batches, and at least 3 k.
    max_iter : int >= 0
        Maximum number of batches; 0 keeps the initial centres.
    tol : float >= 0
        Stop when a step lowers the mean squared distance of its batch by less than this; 0 never stops.
    random_state : int >= 0, RandomState or Generator, optional
    engine : Engine, dask.distributed.Client, "local", address, or None
        Where passes run; see `daskcluster.KMeans`. Steps run in this process.
    callbacks : sequence of callables
        Called with the events of `daskcluster.events`.
    verbose : int >= 0 or bool
    max_time : float > 0, optional
        Seconds for the steps, without the last pass; the step that exceeds them is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        As of `daskcluster.KernelKMeans`, after each step.
    checkpoint : str or path, optional
    checkpoint_every : int >= 1
        As in `daskcluster.KMeans`, counted in steps.

    Attributes
    ----------
    labels_ : ndarray of shape (n,), int32, or Labels
    inertia_ : float
        Weighted sum of squared distances to the centres, in the space of the kernel.
    gamma_ : float
    support_ : ndarray of shape (m,), int64
        Numbers of the rows that make up the centres; negative for centres given as `init`.
    support_clusters_, support_coefficients_ : ndarrays of shape (m,)
        The centre and the coefficient of each support.
    history_ : list of dict
        A record per step; see `daskcluster.events.KernelStepEnded`. ``mean_squared_distance`` and
        ``validation`` are measured in the space of the kernel.
    n_iter_, stop_reason_, seeding_, passes_, bytes_read_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`.
    cluster_sizes_, cluster_weights_, cluster_costs_ : ndarrays of shape (k,)

    Notes
    -----
    Cost of a step: at most (b + b / k) k (tau + b) + b^2 Gram values for any n; with
    ``truncation=None``, n b. ``gamma="auto"`` takes one pass before the first step. Inertia and labels
    take one pass at the end, with at most k (tau + b) Gram values per row. Memory: k (tau + b) rows twice,
    and the batches as in `daskcluster.MiniBatchKMeans`; with ``truncation=None``, all batches and 16 n k
    bytes.

    For a graph, the rows are read once, and scikit-learn finds their nearest neighbours. The matrix is
    never formed. A step with ``"knn"`` takes the entries of b + k (tau + b) sparse rows, about
    `n_neighbors` to twice as many in each. A step with ``"heat"`` takes one product of the matrix with k
    columns, by a series of about 20 sparse products for t = 1, exact to 10^-13 of the sum: as much as an
    iteration of `daskcluster.KernelKMeans`, for any batch size. K(x, x) and new rows are as there: exact
    for up to 12,000 rows, and neither ``transform`` nor ``score``. Memory: at most
    n (160 (n_neighbors + 8) + 48 c + 16 d) bytes, with ``truncation=None`` too. c is k for ``"knn"``; for
    ``"heat"`` it is at least 512, or 64 beyond 12,000 rows, for K(x, x).

    B. Jourdan and G. Schwartzman, "Mini-batch kernel k-means" (2024), Algorithms 1 and 2. By default
    batches are drawn without replacement, pass after pass, as in `daskcluster.MiniBatchKMeans`.
    ``replacement=True``, ``normalize_truncated=False``, ``n_local_trials=1`` and ``init_size=n`` follow the
    paper to the letter. Signs and indices in the paper that disagree with its derivation are corrected.
    Negative squared distances, which come from rounding or from a matrix that is not a Mercer kernel,
    count as zero. The centre of a cluster without rows in a batch does not move.

    Examples
    --------
    Two rings, which k-means cannot separate:

    >>> import numpy as np
    >>> import daskcluster as dc
    >>> rng = np.random.default_rng(0)
    >>> angle, ring = rng.uniform(0, 2 * np.pi, 2000), rng.integers(0, 2, 2000)
    >>> X = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1 + 4 * ring[:, None])
    >>> model = dc.MiniBatchKernelKMeans(2, gamma=0.5, batch_size=256, random_state=0).fit(X)
    >>> len(model.support_) <= 2 * (200 + 256)
    True
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = MINI_BATCH_KERNEL

    model_kinds = (KernelKMeansModel.kind, GraphKMeansModel.kind)

    n_clusters: int = 8
    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: float | str = "auto"
    degree: int = 3
    coef0: float = 1.0
    n_neighbors: int = 10
    heat_time: float = 1.0
    kernel_params: dict[str, Any] | None = None
    batch_size: int = 1024
    replacement: bool = False
    truncation: int | None = 200
    normalize_truncated: bool = True
    cut_batches: bool = False
    learning_rate: str = "sqrt"
    init: Any = "k-means++"
    n_local_trials: int | None = None
    n_init: int | str = "auto"
    init_size: int | None = None
    max_iter: int = 200
    tol: float = 0.0
    random_state: Any = None
    engine: Any = None
    callbacks: Any = ()
    verbose: int = 0
    max_time: float | None = None
    validation: Any = None
    checkpoint: Any = None
    checkpoint_every: int = 10

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, resume: bool = False
    ) -> Self:
        """Find centres.

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
            The checkpoint belongs to other data or parameters, or is damaged.
        InvalidParameterError, InvalidDataError
            A parameter or the data is invalid.
        MemoryLimitError
            The fit needs more memory than the engine has.
        """
        kind = GraphBatchFit if is_graph(self.kernel) else MiniBatchKernelFit
        return self._fitted(kind, X, sample_weight, resume=resume)

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.init_size is not None and self.init_size < self.n_clusters:
            raise InvalidParameterError(
                f"init_size={self.init_size} should be >= n_clusters={self.n_clusters}: the initial "
                "centres are distinct rows of the sample."
            )
