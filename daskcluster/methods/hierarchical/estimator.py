"""HierarchicalKMeans: very many clusters, found cell by cell and then refined together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from daskcluster.chunkwise.feature_scaling import undone
from daskcluster.errors import InvalidParameterError
from daskcluster.methods.hierarchical.fit import HierarchicalFit
from daskcluster.methods.hierarchical.levels import sizes_above
from daskcluster.methods.hierarchical.model import HierarchicalModel
from daskcluster.methods.hierarchical.parameters import HIERARCHICAL
from daskcluster.methods.kmeans.estimator import KMeansEstimator
from daskcluster.models.balance import Balance, ancestors, check_labels_alone
from daskcluster.models.kmeans import KMeansModel
from daskcluster.parameters.parameter import Parameter


@dataclass(eq=False, repr=False)
class HierarchicalKMeans(KMeansEstimator):
    """K-means with very many clusters, found cell by cell, and clusters of clusters.

    Rows are divided into about sqrt(k) cells by k-means of a coreset. Each cell gets clusters in
    proportion to the square root of its cost, its rows are clustered by weighted k-means on their own, and
    at last all centres are moved together by a few iterations of Lloyd's algorithm over all rows. Labels
    are exact: the nearest of all k centres. The result is the same to the bit on any engine, for any
    chunking and any number of workers.

    With several levels, the centres are clustered again, and their centres again. `resample_rounds` spreads
    the centres of each level evenly over the data.

    Parameters
    ----------
    n_clusters : int >= 1
    n_coarse : int >= 1 or "auto"
        Cells, at most `n_clusters`. ``"auto"``: the square root of `n_clusters`, which balances the work of
        both stages, and one cell for up to 64 MB of rows where an iteration over all of them takes some
        hundredths of a second.
    n_levels : int >= 1
        Levels of clusters: those of each level are clusters of the centres below, and a tenth as many, or
        the `n_levels`-th root of `n_clusters` where that is less: 5000, 500, 50; or 64, 16, 4.
    level_sizes : str or sequence of int, optional
        Numbers of clusters of the levels above the first, decreasing, instead of `n_levels`: ``[100, 10]``
        or ``"100,10"``.
    resample_rounds : int >= 0 or "auto"
        Rounds of resampling in each level: the `resample_size` rows (or centres) nearest to each centre are
        drawn, and new centres are fitted to them alone. Centres then spread evenly over the support of
        the data instead of following its density. ``"auto"``: 10 if there are several levels, but 2 in the
        first, whose rounds read all rows; otherwise 0.
    resample_size : int >= 2 or "auto"
        Rows that each cluster gives, or all it has. ``"auto"``: half the mean size of a cluster, 2 to 20.
    refine : bool
        Move all centres together once the cells are clustered. Otherwise, rows are not compared with
        centres of other cells before they are labelled.
    refine_iter : int >= 0
        Iterations of the refinement.
    init : {"auto", "k-means++", "k-means||", "afk-mc2", "random"}
        How the cells and the clusters within each are seeded. ``"auto"``: k-means++, and AFK-MC2 within
        large cells that get more than 64 clusters.
    max_iter : int >= 0
        Iterations at most, of the cells and within each.
    tol : float >= 0
        As in `daskcluster.KMeans`, for every stage with the variance of its own rows.
    metric : {"euclidean", "cosine"}
    random_state : int >= 0, RandomState or Generator, optional
    engine : see `daskcluster.KMeans`
        Cells are independent tasks on it.
    callbacks : sequence of callables
        Hear the events of `daskcluster.events`.
    verbose : int >= 0 or bool
    max_time : float > 0, optional
        Seconds; the refinement does not begin after them, and its iteration that exceeds them is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        As of `daskcluster.KMeans`, after each iteration of the refinement.
    bounds_memory : int >= 0 or "auto"
        Bytes that the bounds of the refinement may take; up to five iterations do without.
    chain_length : int >= 1
        Of ``"afk-mc2"``.
    checkpoint : str or path, optional
    checkpoint_every : int >= 1
        As of `daskcluster.KMeans`: commits follow the division into cells, every half a minute of groups of
        cells, all cells, and iterations of the refinement.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, d)
        Those of a cell are consecutive.
    coarse_centers_ : ndarray of shape (c, d)
        Of the cells; not part of a saved model, as the two below.
    coarse_sizes_, quotas_ : ndarray of shape (c,), int64
        Rows of each cell, and how many clusters it got.
    parents_ : list of ndarray of int32
        For each level but the last, the cluster of the next level that each cluster belongs to: the first
        is of shape (k,). Empty for one level.
    level_sizes_ : list of int
        Numbers of clusters of all levels, k first.
    labels_ : ndarray of shape (n,), int32, or Labels
        Clusters of the first level, as all figures are.
    inertia_ : float
        Weighted sum of squared distances of the rows to the nearest of all centres.
    n_iter_ : int
        Iterations of the refinement.
    cluster_sizes_, cluster_weights_, cluster_costs_ : ndarrays of shape (k,)
    passes_, bytes_read_, stop_reason_, seeding_, history_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`; the history is that of the refinement.

    Notes
    -----
    Cost: two passes for the coreset, one for the sizes of cells, one for their different rows (another one
    where cells with few of those leave their quota to others), one for each group of cells, `refine_iter`
    and one more for inertia and labels. Only the last two use all k centres: with c = sqrt(k) all
    others together take O(n d sqrt(k)) operations a pass or iteration. A group is a sixteenth of the
    rows, but at least 64 MB and at most 4 GB; rows in memory are gathered once. Memory: for each thread one
    group of cells and its statistics (8 k (d + 1) bytes, twice that for float64 or weighted rows), and the
    bounds of the refinement, if it has more than five iterations. Each round of resampling in the first
    level takes two passes, and memory for `resample_size` k rows in this process, which it clusters there.
    Levels above the first take no pass: they cluster at most k centres in this process.

    Two-level clustering for large vocabularies: Nister and Stewenius, "Scalable Recognition with a
    Vocabulary Tree" (CVPR 2006), with equal branching. What differs: quotas in proportion to the square
    root of the cost by Webster's method, at least one and at most the different rows of the cell; the
    refinement; full search for labels. Levels and resampling: Vo et al., "Automatic Data Curation for
    Self-Supervised Learning: A Clustering-Based Approach" (2024), algorithm 1. What differs: every k-means
    of a level is that of this class, and draws are seeded by round.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.random.default_rng(0).normal(size=(5000, 2)).astype(np.float32)
    >>> model = dc.HierarchicalKMeans(400, n_coarse=20, random_state=0).fit(X)
    >>> len(model.quotas_), int(model.quotas_.sum()), model.n_iter_
    (20, 400, 2)
    >>> bool((model.labels_ == model.predict(X)).all()), model.balance().empty
    (True, 0)
    >>> model = dc.HierarchicalKMeans(200, n_levels=2, random_state=0).fit(X)
    >>> model.level_sizes_, [len(parents) for parents in model.parents_]
    ([200, 20], [200])
    >>> bool((model.parents_[0][model.labels_] == model.predict(X, level=2)).all())
    True
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = HIERARCHICAL
    model_kinds = (KMeansModel.kind, HierarchicalModel.kind)

    n_clusters: int = 8
    _: KW_ONLY
    n_coarse: int | str = "auto"
    n_levels: int = 1
    level_sizes: str | Sequence[int] | None = None
    resample_rounds: int | str = "auto"
    resample_size: int | str = "auto"
    refine: bool = True
    refine_iter: int = 2
    init: str = "auto"
    max_iter: int = 100
    tol: float = 1e-4
    metric: str = "euclidean"
    random_state: Any = None
    engine: Any = None
    callbacks: Any = ()
    verbose: int = 0
    max_time: float | None = None
    validation: Any = None
    bounds_memory: int | str = "auto"
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
            Not allowed if the dataset has its own weights.
        resume : bool
            Resume from the last state under `checkpoint`; see `daskcluster.KMeans.fit`.

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
        fit = self.begin_fit(HierarchicalFit, X, sample_weight, resume=resume)
        run = fit.run()
        self.coarse_centers_ = undone(self.scaling_, fit.cells.coarse)
        self.coarse_sizes_, self.quotas_ = fit.cells.sizes, fit.cells.quotas
        self.parents_, self.level_sizes_ = fit.parents, [self.n_clusters, *fit.sizes_above]
        self._learn(run, fit)
        return self

    def predict(self, X: Any, *, level: int = 1, **options: Any) -> Any:
        """Return the nearest centre of every row, or the cluster of a level that it belongs to.

        Parameters
        ----------
        X, **options
            As of `daskcluster.KMeans.predict`.
        level : int
            From 1. Above it, a row gets the cluster of that level that its nearest centre belongs to.

        Returns
        -------
        labels : ndarray of int32, shape (n,)
            Or what else `daskcluster.KMeans.predict` returns.

        Raises
        ------
        InvalidParameterError
            There is no such level, or the nearest centres or distances of a level above the first.

        Notes
        -----
        Cost: one pass.
        """
        check_is_fitted(self)
        parents = ancestors(self.parents_, level)
        if parents is None:
            return super().predict(X, **options)
        n_nearest, distances = options.get("n_nearest"), options.get("return_distance", False)
        check_labels_alone(level, n_nearest=n_nearest, distances=distances)
        return self.predict_level(X, parents, **options)

    def to_model(self) -> KMeansModel:
        """Return the model: the learnt attributes, without the data."""
        model = super().to_model()
        if not self.parents_:
            return model
        sizes = tuple(self.level_sizes_[1:])
        return HierarchicalModel(**vars(model), parents=tuple(self.parents_), level_sizes=sizes)

    @classmethod
    def from_model(cls, model: KMeansModel) -> Self:
        """Return the fitted estimator that a model describes (without ``labels_``)."""
        self = super().from_model(model)
        above = list(getattr(model, "level_sizes", ()))
        self.parents_ = list(getattr(model, "parents", ()))
        self.level_sizes_ = [model.n_clusters, *above]
        if above and self.n_levels == 1 and self.level_sizes is None:
            self.level_sizes = above  # a list, which is not among the parameters of a model
        return self

    def balance(self) -> Balance:
        """Return how evenly the rows of the fit are spread over the clusters."""
        check_is_fitted(self)
        return Balance.of(self.cluster_sizes_)

    def check_parameters(self) -> None:
        super().check_parameters()
        sizes_above(self.n_clusters, self.n_levels, self.level_sizes)
        if self.n_coarse != "auto" and int(self.n_coarse) > self.n_clusters:
            raise InvalidParameterError(
                f"n_coarse={self.n_coarse} should be <= n_clusters={self.n_clusters}: every cell gets at "
                "least one cluster; lower it, or leave it 'auto'."
            )
