"""The kernel k-means estimators: what they share, and KernelKMeans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskcluster.chunkwise.assign import RowFunction, ScoreStatistics
from daskcluster.engine.choose import choose_engine
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import (
    ClusterEstimator,
    LoopParameters,
    figures,
    from_provenance,
    in_declared_order,
    provenance,
    take_figures,
)
from daskcluster.estimators.inputs import check_enough_rows, fit_dataset
from daskcluster.events import Callback
from daskcluster.invariance import DRAWN, varies_with
from daskcluster.methods.kernel_kmeans.chunkwise import (
    CALLABLE,
    GramCentres,
    GraphCentres,
    gram_distance_rows,
    label_by_gram,
)
from daskcluster.methods.kernel_kmeans.fit import (
    GramFit,
    KernelFit,
    check_square,
    measure_by_gram,
    refuse_distances,
)
from daskcluster.methods.kernel_kmeans.graph import GraphKMeansModel, graph_arrays
from daskcluster.methods.kernel_kmeans.model import KernelKMeansModel, support_arrays
from daskcluster.methods.kernel_kmeans.parameters import KERNEL_KMEANS, is_graph
from daskcluster.parameters.parameter import Parameter
from daskcluster.reports.contents import Clusters
from daskcluster.storage.pass_totals import PassTotals
from daskcluster.typing import Dataset


@dataclass(eq=False, repr=False)
class KernelEstimator(LoopParameters, ClusterEstimator):
    """Base of estimators whose centres are weighted sums of images of rows.

    Its fields are the parameters that all of them have.
    """

    model_kinds: ClassVar[tuple[str, ...]] = (KernelKMeansModel.kind, GraphKMeansModel.kind)
    fit_kind: ClassVar[type[GramFit]]
    n_clusters: int = 8
    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: float | str = "auto"
    degree: int = 3
    coef0: float = 1.0
    n_neighbors: int = 10
    heat_time: float = 1.0
    kernel_params: dict[str, Any] | None = None
    init: Any = "k-means++"
    n_local_trials: int | None = None
    n_init: int | str = "auto"
    tol: float = 0.0

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_centres")

    # -- results for rows -------------------------------------------------------------------------

    def label_function(self, dtype: Any) -> RowFunction:
        """Return the function that labels rows of any dtype."""
        return RowFunction(label_by_gram, self._known_centres())

    def transform(self, X: Any) -> Any:
        """Return the distance of every row to every centre in the space of the kernel, float64 (n, k).

        A precomputed matrix must be that of the fit, because K(x, x) of other rows is not known. Kernels
        of graphs have no `transform`.

        Notes
        -----
        Cost: one pass; the result takes 8 n k bytes.
        """
        centres = self._known_centres()
        refuse_distances(centres)
        if centres.gram.is_precomputed:
            check_square(self, self.known_rows(X))
        shape = np.dtype(np.float64), len(centres.norms)
        function = RowFunction(gram_distance_rows, centres, None, *shape, "distances")
        return self.map_rows(X, lambda _: function)

    def cluster_scores(
        self,
        dataset: Dataset,
        callbacks: Sequence[Callback] = (),
        totals: PassTotals | None = None,
    ) -> ScoreStatistics:
        """Return size, weight and cost of every cluster on rows with the features of the fit. One pass."""
        centres = self._known_centres()
        refuse_distances(centres)
        if centres.gram.is_precomputed:
            check_square(self, dataset)
        with choose_engine(self.engine, dataset).place(dataset, callbacks=callbacks) as placement:
            placement.totals = totals
            return measure_by_gram(placement, centres)

    def examine(
        self, dataset: Dataset, shown: int, most: int, callbacks: Sequence[Callback] = ()
    ) -> Clusters:
        """Return the figures of every cluster; its centre is no point in the space of the rows."""
        return Clusters.of(
            self.cluster_scores(dataset, callbacks), weighted=dataset.weights is not None
        )

    def _known_centres(self) -> GramCentres:
        """Return the centres, with the function of a callable kernel."""
        check_is_fitted(self)
        gram = self._centres.gram
        if gram.name == CALLABLE and gram.function is None:
            if not callable(self.kernel):
                raise InvalidParameterError(
                    "the model was fitted with a callable kernel, which is not saved with it; restore it "
                    "with set_params(kernel=function) before predict."
                )
            sums = replace(self._centres.sums, gram=replace(gram, function=self.kernel))
            self._centres = replace(self._centres, sums=sums)
        return self._centres

    # -- scikit-learn ------------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return len(self._centres.norms)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not callable(self.kernel)
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.kernel_params and not callable(self.kernel):
            raise InvalidParameterError(
                f"kernel_params={self.kernel_params!r} are arguments of a callable kernel; for "
                f"kernel={self.kernel!r} set gamma, degree and coef0 instead."
            )

    # -- results -----------------------------------------------------------------------------------

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
        resume : bool, default False
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
        self.check_parameters()
        precomputed = self.kernel == "precomputed"  # such values have no features to scale
        dataset = fit_dataset(self, X, sample_weight, scalable=not precomputed)
        check_enough_rows(dataset, self.n_clusters)
        if precomputed:
            check_square(self, dataset)
        fit = self.fit_kind(self, X, dataset, resume=resume)
        run = fit.run()
        self._centres = run.result.centres
        self._show_centres()
        checked = "n_neighbors and heat_time" if is_graph(self.kernel) else "gamma"
        self.learn_fit(
            fit,
            run.result,
            run.found,
            f", or to a kernel that hardly distinguishes them: check {checked}",
        )
        self.learn_labels(fit.dataset, fit.engine, run.labels, in_memory=run.labels is not None)
        return self

    def _show_centres(self) -> None:
        sums = self._centres.sums
        self.gamma_ = sums.gram.gamma
        self.support_ = sums.points.indices
        self.support_clusters_ = sums.groups.astype(np.int32)
        self.support_coefficients_ = sums.factors

    def to_model(self) -> KernelKMeansModel:
        """Return the fitted model with its support rows; a callable kernel is left out.

        With a graph's kernel, or after a fit on the full batch, it holds all rows.
        """
        centres, d = self._centres, self.n_features_in_
        facts = {**figures(self), **provenance(self)}
        if isinstance(centres, GraphCentres):
            return GraphKMeansModel(**graph_arrays(centres, d), **facts)
        return KernelKMeansModel(**support_arrays(centres, d), **facts)

    @classmethod
    def from_model(cls, model: KernelKMeansModel) -> Self:
        """Return a fitted estimator with the parameters of a model, without ``labels_``."""
        self = from_provenance(cls, model, n_clusters=model.n_clusters)
        self.scaling_, self._centres = model.scaling, model.gram_centres()
        self._show_centres()
        take_figures(self, model)
        return self


@varies_with(order=DRAWN)
@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class KernelKMeans(KernelEstimator):
    """K-means in the space of a Mercer kernel, or of a graph of neighbours.

    Every iteration compares all rows with all rows. The n x n matrix is never formed: its blocks are
    computed and summed as rows stream through. `daskcluster.MiniBatchKernelKMeans` gives similar results
    at a cost that does not depend on n. The result is bit-identical on any engine and for any number of
    threads and workers.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    kernel : str or callable, default "rbf"
        As in `daskcluster.MiniBatchKernelKMeans`.
    gamma : float >= 0 or "auto", default "auto"
        Parameter of the rbf, laplacian and polynomial kernels. auto: from the variances of the features.
    degree : int >= 1, default 3
        Degree of the polynomial kernel.
    coef0 : float, default 1.0
        As in `daskcluster.MiniBatchKernelKMeans`.
    n_neighbors : int >= 1, default 10
        Neighbours of each row, including the row itself; for ``"knn"`` and ``"heat"``.
    heat_time : float > 0, default 1.0
        t of ``"heat"``.
    kernel_params : dict, optional
        Further arguments of a callable kernel.
    init : {"k-means++", "random"} or array, default "k-means++"
        How to choose the rows whose images are the initial centres; or the numbers of these rows.
    n_local_trials : int >= 1, optional
        Candidates per centre of greedy k-means++; 1 is plain k-means++, as in the papers. By default
        2 + log(k), rounded down.
    n_init : int >= 1 or "auto", default "auto"
        Number of starts; the one with the lowest inertia is kept. "auto" is one. Every start takes about
        the same time.
    max_iter : int >= 0, default 300
        Maximum number of centre updates; 0 keeps the initial centres.
    tol : float >= 0, default 0.0
        Stop when an iteration lowers the inertia by at most this fraction; 0 runs until no label changes.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Where to run. None: the current Dask client if it can read the rows, else threads of this
        process.
    callbacks : sequence of callables, default ()
        Callables that receive the events of a fit.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    max_time : float > 0, optional
        Time limit in seconds; the iteration that exceeds it is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        Rows whose mean squared distance to the centres, in the space of the kernel, goes into `history_`
        after each iteration. Not for precomputed matrices and graphs.
    checkpoint : str or path, optional
        Save progress at this URL; continue with resume.
    checkpoint_every : int >= 1, default 10
        As in `daskcluster.KMeans`.

    Attributes
    ----------
    labels_, inertia_, gamma_, support_, support_clusters_, support_coefficients_, n_iter_, stop_reason_,
    history_, seeding_, passes_, bytes_read_, n_features_in_, cluster_sizes_, cluster_weights_,
    cluster_costs_
        As in `daskcluster.MiniBatchKernelKMeans`; all rows are supports.

    Notes
    -----
    Cost: n^2 Gram values per iteration, in one pass per 64 MB of rows; kernel k-means++ takes one pass per
    cluster. Memory: 16 n k bytes, plus the model, which holds all rows. Graphs take
    n (16 d + 160 (n_neighbors + 8) + 48 c) bytes, where c is k for ``"knn"`` and at least 512 for
    ``"heat"``, or 64 beyond 12,000 rows; scikit-learn finds their nearest neighbours. K(x, x) of the
    heat kernel is exact for up to 12,000 rows and an estimate for more; labels do not depend on it.

    With a graph, ``predict`` compares each new row with all rows of the fit and connects it to its
    neighbours. All rows at the distance of the last neighbour count as neighbours. The degrees of the
    rows of the fit stay the same, and for the heat kernel, walks that return through the new row are left
    out (see `daskcluster.methods.kernel_kmeans.chunkwise`). K(x, x) of new rows is not known, so there
    is no ``transform`` or ``score``.

    Matrices that are not Mercer kernels (such as ``"knn"``) can give negative squared distances, which
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

    max_iter: int = 300
    fit_kind = KernelFit
