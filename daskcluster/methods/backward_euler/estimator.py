"""BackwardEulerKMeans: implicit gradient steps on mini-batches, which pass bad local minima."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

from daskcluster.methods.backward_euler.fit import BackwardEulerFit
from daskcluster.methods.backward_euler.parameters import BACKWARD_EULER
from daskcluster.methods.kmeans.estimator import KMeansEstimator
from daskcluster.parameters.parameter import Parameter


@dataclass(eq=False, repr=False)
class BackwardEulerKMeans(KMeansEstimator):
    """K-means by stochastic backward Euler: where the first centres are hardly matters.

    An outer step solves the implicit gradient step of the k-means objective by a few fixed-point
    iterations, each on a new mini-batch, and goes to the average of what they pass. The first steps are
    so large that centres leave bad local minima; then they shrink. The result is the same to the bit on
    any engine and any number of threads and workers.

    Parameters
    ----------
    n_clusters : int >= 1
    init : {"auto", "k-means++", "k-means||", "afk-mc2", "random"}, URL, array, callable, estimator
        First centres, chosen among the rows of a random sample (three batches, at least 3 k rows).
        ``"auto"`` draws far rows more often and refines the centres of k-means++, as in
        `daskcluster.MiniBatchKMeans`.
    n_init : int >= 1
        Independent starts, of which the one with the lowest inertia is kept. They run at the same time on
        the threads of this process, or on the workers of a cluster if these can read the rows; each gives
        the same bits as alone. Given centres are the same for all of them, but batches differ.
    batch_size : int >= 1
        Rows of an inner iteration; the paper's M.
    step_size : float > 0 or "auto"
        Of the first outer step: the paper's gamma, for its objective phi = 1 / (2 n) times the sum of
        squared distances. ``"auto"`` is 2.2 k: beyond k, where the fixed-point iteration of balanced
        clusters would not converge without the average. The larger, the farther centres go.
    decay : float in (0, 1]
        Step size over that of the step before, in (0, 1]; beta.
    averaging : float in [0, 1)
        Weight of the old average of the trajectory, in [0, 1); alpha. 0 keeps the last iterate.
    inner_iter : int >= 1
        Fixed-point iterations of an outer step; imaxit.
    max_iter : int >= 0
        Outer steps; omaxit. 0 keeps the first centres.
    size_limit : float > 0, None or False
        A cluster with more than this multiple of the mean number of rows steps as one that has as many:
        else its centre would overshoot so far that nothing settles. None: no limit, as in the paper.
    guard : bool
        Redo a step that diverges with half its size. False: steps are those of the paper, and diverge.
    refine_iter : int >= 0
        Iterations of Lloyd's algorithm, at most, that finish the start that is kept.
    metric : {"euclidean", "cosine"}
    random_state : int >= 0, RandomState or Generator, optional
    engine : Engine, dask.distributed.Client, "local", address, or None
        Where starts and the last passes run, see `daskcluster.KMeans`. A single start runs in this process.
    callbacks : sequence of callables
        Hear the events of `daskcluster.events`: of a single start an `ImplicitStepEnded` for each step, of
        several a `StartEnded` for each of them when all are evaluated.
    verbose : int >= 0 or bool
    max_time : float > 0, optional
        Seconds, without the last passes; the step that exceeds them is the last of its start.
    validation : str, array-like of shape (m, d) or Dataset, optional
        As of `daskcluster.KMeans`, after each outer step of every start.
    chain_length : int >= 1
        Rows that ``"afk-mc2"`` proposes for each centre.
    checkpoint : str or path, optional
        As of `daskcluster.KMeans`. Each start has commits of its own, of 8 k (3 d + 1) bytes.
    checkpoint_every : int >= 1
        Outer steps between two commits.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, seeding_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`; `inertia_` is 2 n phi, on all rows.
    start_inertias_ : ndarray of shape (n_init,), float64
        Inertia of every start, on all rows; NaN where `max_time` left none for it. Not saved. Of several
        starts before `refine_iter`, of a single one after it.
    n_iter_ : int
        Outer steps of the start that was kept.
    stop_reason_ : str
        max_iter, max_time or callback.
    history_ : list of dict
        A record for each outer step of that start: see `daskcluster.events.ImplicitStepEnded`.
    passes_, bytes_read_, cluster_sizes_, cluster_weights_, cluster_costs_
        As in `daskcluster.KMeans`, of all starts together.

    Notes
    -----
    Cost: ``max_iter inner_iter + 1`` batches of M k distances for each start, one pass for inertia and
    labels, one more for all of several starts, one for each of `refine_iter`. Memory: 48 k d bytes for each
    start at a time, 8 bytes a row for the order of rows in memory; of rows elsewhere 256 MB for each start
    at a time, or once for all of them on one machine if they fit there. A worker returns centres and
    history, once.

    P. Yin, M. Pham, A. Oberman and S. Osher, "Stochastic backward Euler: an implicit gradient descent
    algorithm for k-means clustering", J. Sci. Comput. 77 (2018), section 2.1. ``init="random"``,
    ``size_limit=None`` and ``guard=False`` follow it to the letter; its text as we have it lacks gamma,
    alpha and beta. Different by default: `size_limit`; with `guard`, a step is redone with half the size
    if the mean objective of a batch at its end exceeds 4 times the value at its beginning. In any case, a
    cluster without rows in a batch keeps its centre, and batches are drawn without replacement, as in
    `daskcluster.MiniBatchKMeans`, whose notes on sampling hold here. With one cluster the objective is a
    parabola: the centre goes to its minimum, the mean of the rows, in one pass more. With several, centres
    end near those of batches, not at the means of their clusters: `refine_iter`, or a `KMeans` that takes
    the model as ``init``, continues from there to the fixed point.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.repeat([[0.0, 0.0], [10.0, 10.0]], 500, axis=0)
    >>> model = dc.BackwardEulerKMeans(n_clusters=2, n_init=3, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.round(2).tolist()), model.start_inertias_.shape
    ([[0.0, 0.0], [10.0, 10.0]], (3,))
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = BACKWARD_EULER

    n_clusters: int = 8
    _: KW_ONLY
    init: Any = "auto"
    n_init: int = 1
    batch_size: int = 1000
    step_size: float | str = "auto"
    decay: float = 1 / 1.02
    averaging: float = 0.9
    inner_iter: int = 5
    max_iter: int = 100
    size_limit: float | bool | None = 1.25
    guard: bool = True
    refine_iter: int = 0
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
        fit = self.begin_fit(BackwardEulerFit, X, sample_weight, resume=resume)
        run = fit.run()
        self.start_inertias_ = fit.inertias
        self._learn(run, fit)
        return self
