"""VarianceReducedKMeans: full passes, and between them steps of single rows without their noise."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

from daskcluster.methods.kmeans.estimator import KMeansEstimator
from daskcluster.methods.variance_reduced.fit import VarianceReducedFit
from daskcluster.methods.variance_reduced.parameters import VARIANCE_REDUCED
from daskcluster.parameters.parameter import Parameter
from daskcluster.typing import Dataset


@dataclass(eq=False, repr=False)
class VarianceReducedKMeans(KMeansEstimator):
    """Variance reduced k-means (VRKM, VRKM++).

    An epoch assigns all rows and moves centres to the means of their rows, as Lloyd's algorithm does. Then
    rows drawn at random move centres one by one, at a constant rate: only rows whose nearest centre has
    changed meanwhile pull, so the noise of stochastic gradients fades as the fit settles.

    Parameters
    ----------
    n_clusters : int >= 1
    init : {"auto", "k-means++", "k-means||", "afk-mc2", "random"}, URL, array, callable, estimator
        As of `KMeans`.
    variant : {"vrkm++", "vrkm"}
        ``"vrkm"`` computes the full gradient too, in one more pass an epoch. It is zero where steps begin,
        so both give the same centres, to the bit.
    learning_rate : float >= 0 or "auto"
        eta, the share of the way that a step moves a centre. ``"auto"`` is the paper's K / n. The paper
        goes beyond a hundred times that on large data; if steps diverge, it is halved.
    adaptive_rate : bool
        From the second epoch on, the rate is that of Barzilai and Borwein, as Tan et al. ("Barzilai-Borwein
        step size for stochastic gradient descent", 2016) have it: usually two to five times K / n. It costs
        no pass.
    epoch_size : float >= 0 or "doubling"
        Steps of an epoch, as a multiple of the rows; 0 is Lloyd's algorithm. ``"doubling"``: 2^s in epoch
        s, to twice the rows at most.
    n_partitions : int >= 1 or "auto"
        1 is the sequential algorithm of the paper; its rows have to fit into memory. Of several partitions
        (of stored rows: whole chunks), each takes its share of the steps from the same centres, and what
        all did is added up: they run side by side, and no row leaves its partition. ``"auto"``: 1 for
        rows of up to 256 MB, else one for each 64 MB.
    guard : bool
        Undo an epoch that raises the inertia. False: the rate and the centres stay as the steps leave them,
        as in the paper; but steps that take a centre farther than any two rows can be apart are dropped.
    max_iter : int >= 0
        Epochs at most; 0 keeps the first centres.
    tol : float >= 0
        Stop when the inertia changes by at most this times itself from one epoch to the next; 0 waits until
        nothing moves.
    metric : {"euclidean", "cosine"}
        With ``"cosine"``, centres are scaled to length one at the end of each epoch.
    random_state : int >= 0, RandomState or Generator, optional
    engine : Engine, dask.distributed.Client, "local", address, or None
        As of `KMeans`. The steps of a single partition run in this process in any case.
    callbacks : sequence of callables
        Hear the events of `daskcluster.events`, an `EpochEnded` for each epoch.
    verbose : int >= 0 or bool
    max_time : float > 0, optional
        Seconds for the whole fit; the epoch that exceeds them is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        As of `daskcluster.KMeans`, after each epoch.
    chain_length : int >= 1
        Rows that afk-mc2 proposes for each centre.
    checkpoint : str or path, optional
        As of `daskcluster.KMeans`; a commit takes the bytes of the centres twice.
    checkpoint_every : int >= 1
        Epochs between two commits.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, stop_reason_, seeding_, n_features_in_, feature_names_in_
        As of `KMeans`.
    cluster_sizes_, cluster_weights_, cluster_costs_ : ndarrays of shape (k,)
    n_iter_ : int
        Epochs.
    passes_, bytes_read_ : int
        Passes over all rows, steps of several partitions included; decoded bytes fetched from the store.
    history_ : list of dict
        A record per epoch: ``inertia`` of the centres it began with, ``shift``, ``seconds``,
        ``learning_rate``, ``n_steps``, ``n_switched`` (steps whose row had changed centres), ``went_back``,
        ``full_gradient`` (its length; of ``"vrkm"``), ``n_distances``, ``mean_squared_distance``,
        ``validation``.

    Notes
    -----
    Cost: n k distances and one pass an epoch, T k distances of its steps, for which several partitions
    read the rows once more; ``"vrkm"`` one more pass; in the end one pass for inertia and labels. What
    travels: 8 k (d + 1) bytes a task and pass. Memory: 20 k (d + 1) bytes more than `KMeans` for each
    thread, and the rows of a partition.

    The guard: the inertia of an epoch is that of the centres it begins with. If it is higher than an epoch
    before, steps have lost more than the means had gained: centres go back to those means, the rate is
    halved, and a `Notice` says so. Hence the inertia never rises at any rate. ``guard=False`` and
    ``tol=0`` follow the paper but for that.

    What differs from the paper (Zhao et al., "Large-scale k-means clustering via variance reduction",
    Neurocomputing 2018): the guard and `tol`; with weights, rows are drawn in proportion to them; empty
    clusters keep their centres. The paper's objective is half the inertia.

    The result does not depend on the engine, threads or workers; nor on chunks, if there is one partition.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.array([[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> model = dc.VarianceReducedKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.tolist()), model.inertia_
    ([[1.0, 2.0], [10.0, 2.0]], 16.0)
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = VARIANCE_REDUCED

    n_clusters: int = 8
    _: KW_ONLY
    init: Any = "auto"
    variant: str = "vrkm++"
    learning_rate: float | str = "auto"
    adaptive_rate: bool = False
    epoch_size: float | str = 1.0
    n_partitions: int | str = "auto"
    guard: bool = True
    max_iter: int = 300
    tol: float = 1e-4
    metric: str = "euclidean"
    random_state: Any = None
    engine: Any = None
    callbacks: Any = ()
    verbose: int = 0
    max_time: float | None = None
    validation: Any = None
    chain_length: int = 10
    checkpoint: Any = None
    checkpoint_every: int = 10

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, resume: bool = False
    ) -> Self:
        """Find centres.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, zarr.Array, Dataset, or URL
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Not together with a dataset that has weights of its own.
        resume : bool
            Resume from the last state under `checkpoint`; see `daskcluster.KMeans.fit`.

        Returns
        -------
        self

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
        fit = self.begin_fit(VarianceReducedFit, X, sample_weight, resume=resume)
        self._learn(fit.run(), fit)
        return self

    def rate_for(self, dataset: Dataset) -> float:
        """Return the learning rate of the first epoch."""
        if self.learning_rate == "auto":
            return min(1.0, self.n_clusters / dataset.n_rows)
        return float(self.learning_rate)

    @property
    def wanted_partitions(self) -> int | None:
        """Number of partitions requested; None derives it from the size of the rows."""
        return None if self.n_partitions == "auto" else int(self.n_partitions)
