"""VariationalGaussianMixture: mixtures of many Gaussians, by EM with a few candidates per row."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from daskcluster.engine.choose import choose_engine
from daskcluster.estimators.fit import all_callbacks
from daskcluster.estimators.inputs import (
    check_enough_rows,
)
from daskcluster.estimators.provenance import from_provenance, provenance
from daskcluster.events import StopReason
from daskcluster.methods.coreset.estimator import check_coreset_size
from daskcluster.methods.mixture.algorithm import SETTLED, MixtureResult
from daskcluster.methods.mixture.fit import MixtureFit
from daskcluster.methods.mixture.model import MixtureModel, public_variances, stored_variances
from daskcluster.methods.mixture.parameters import MIXTURE
from daskcluster.methods.mixture.rows import MixtureRows, dense_dataset
from daskcluster.parameters.parameter import Parameter

_NOT_CONVERGED = (
    "Best performing initialization did not converge. Try different init parameters, or increase max_iter, "
    "tol, or check for degenerate data. The free energy still changed after max_iter={} iterations."
)


@dataclass(eq=False, repr=False)
class VariationalGaussianMixture(MixtureRows):
    """Gaussian mixture by truncated variational EM: var-GMM-S, or vc-GMM with a coreset.

    Each row has posteriors for a few components only: the nearest of its candidates. The candidates come
    from neighbourhoods of components, which are learnt during the fit. The cost of an iteration per row
    does not depend on the number of components. The result is bit-identical on any engine, for any
    chunking and any number of workers.

    Parameters
    ----------
    n_components : int >= 1
    covariance_type : {"isotropic", "spherical", "diag", "tied", "full"}
        One variance for all components, with equal weights (the paper's model); one per component; or
        one per component and feature. For few features, a covariance matrix: ``"tied"``, one for all
        components; ``"full"``, one per component. All but the first also learn mixing weights.
    truncation : int >= 1
        C', the number of posteriors per row. With all components, EM is exact.
    n_neighbors : int >= 2
        G, the size of a neighbourhood, which includes the component itself; at least 2.
    n_random : int >= 0
        Extra components drawn at random for each row in each iteration.
    coreset_size : int >= 1, optional
        Fit a `daskcluster.LightweightCoreset` of this many rows. None: all rows.
    init : {"auto", "k-means++", "k-means||", "afk-mc2", "random"}, URL, array, callable, estimator
        Initial means. ``"auto"``: from a sample that is clustered by k-means++, Lloyd's algorithm and local
        search; with more than 64 components, ``"afk-mc2"``. A fitted estimator or the URL of a saved model
        is a warm start. A mixture (ours or scikit-learn's) provides its variances and weights as well.
    n_init : int >= 1
        Restarts, each with newly drawn initial means and candidate sets; the one with the highest free
        energy is kept. Means that are given start a single fit.
    weights_init : array-like of shape (k,), optional
        Initial mixing weights; not for ``"isotropic"``.
    precisions_init : float, array-like of shape (k,), (k, d), (d, d) or (k, d, d), optional
        Inverses of the initial variances or matrices, in the shape that `covariance_type` has and, like
        `covariances_`, on the scale of the fit. With these or `weights_init`, each component has its own
        variance from the first iteration on.
    warmup_steps : int >= 0
        Searches before the first variance is set; 2 to 4 help where clusters overlap.
    reg_covar : float >= 0 or "auto"
        Minimum variance. ``"auto"``: 1e-6 of the mean variance of the features; with ``"diag"``, ``"tied"``
        and ``"full"``, 1e-6 of each feature's variance, so that the units of the features do not matter.
        A matrix has at least this variance in every direction, and at least 1e-12 of its own variances:
        eigenvalues are raised where needed, and other matrices stay as they are. Nothing is added to the
        diagonal, unlike in scikit-learn.
    discard_empty : bool
        Leave components that have no posterior weight at the end out of the mixture, which then has fewer
        than `n_components`, numbered in the same order. With ``"isotropic"``, the others get their
        weights.
    tol : float >= 0
        Stop when the free energy, divided by total row weight and number of features, changes by less
        than this; 0 never stops. It is tested once each component has learnt its own variance: with
        all types but ``"isotropic"`` from the fourth iteration on, or from the second if initial
        variances or weights are given, or if EM is exact and starts from a sample.
    max_iter : int >= 0
    search : {"tile", "row", "alternate"}
        The candidates of a row. ``"tile"``: the row's own components, and the neighbours' neighbours of
        the nearest one. ``"row"``: the neighbours of all its own components, as in the paper; this gives
        as many candidates, but rows of a component do not share them, so it is slower. ``"alternate"``:
        both in turn, which escapes local optima that hold either alone, at the mean of their costs.
    chain_length : int >= 1
        As in `daskcluster.KMeans`, for ``init="afk-mc2"``.
    random_state : int >= 0, RandomState or Generator, optional
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Hear the events of `daskcluster.events`.
    verbose : int >= 0 or bool
    max_time : float > 0, optional
    validation : str, array-like of shape (m, d) or Dataset, optional
        Rows whose mean squared distance to the nearest mean goes into `history_` after each iteration.
    checkpoint : str or path, optional
    checkpoint_every : int >= 1
        As in `daskcluster.KMeans`. A commit takes the bytes of the mixture plus 4 C' bytes per row, which
        the tasks write; with `coreset_size`, per row of the coreset, plus the coreset's own commit.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        Mixing weights.
    means_ : ndarray of shape (k, d)
        float32 if the rows have 32 bits or less and are exact in it, else float64. In the units of the
        data, even if the data were opened with ``scale=``.
    covariances_ : float, ndarray of shape (k,), (k, d), (d, d) or (k, d, d)
        Variances or covariance matrices, in the shape that `covariance_type` has. Like densities, they are
        on the scale of the fit if the data were scaled.
    precisions_ : float, ndarray of shape (k,), (k, d), (d, d) or (k, d, d)
        Inverses of the variances or matrices.
    precisions_cholesky_ : float or ndarray
        Their roots or, of matrices, their upper triangular factors, as in scikit-learn.
    converged_ : bool
    lower_bound_ : float
        Free energy divided by total row weight: a lower bound of the mean log-likelihood of the fitted
        rows, and equal to it where `truncation` is all components.
    n_iter_ : int
    history_ : list of dict
        A record per iteration: ``free_energy`` (a sum over rows, at the parameters that the iteration
        started from), ``inertia``, ``variance``, ``seconds``, ``n_distances`` (for the first iteration,
        including the searches before it), ``n_moved``, ``mean_squared_distance`` (the inertia, weighted by
        posteriors, over the weight of the rows), ``validation``.
    labels_ : ndarray of shape (n,), int32, or Labels
        Computed on first access, in one pass: an array for rows in memory, else a handle.
    coreset_ : Dataset
        The coreset that was fitted, if `coreset_size` was given; not pickled.
    stop_reason_, seeding_, passes_, bytes_read_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`.

    Notes
    -----
    Cost of each restart: seeding (two passes for a sample, two or three for afk-mc2), then
    ``warmup_steps`` + 1 passes, then one per iteration, and one more unless the fit ends by `tol`; at most
    C' + G^2 + `n_random` distances per row and pass. State: 4 C' bytes per row. With a coreset: two passes
    over the rows.

    With matrices, a distance takes d (d + 1) / 2 multiplications instead of d, and the sums take 16 d^2
    bytes per thread for each matrix, the matrices 64 d^2 bytes per process. A fit that exceeds the memory
    limit is refused; then use fewer features or ``"tied"``.

    If a worker is lost, the candidate sets of its rows are recomputed by repeating the steps since the
    last save. Sets are saved every eighth step if all workers share a host; otherwise the steps are
    repeated from the start. The parameters of these steps are sent to the cluster with each pass.

    Forster and Luecke (AISTATS 2018); Hirschberger, Forster and Luecke (arXiv 1810.00803). The free energy
    never falls, except where `reg_covar` raises a variance or where components switch to variances of
    their own after the second iteration. A component without rows keeps its mean.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2)) + 20 * rng.integers(0, 3, (600, 1))
    >>> model = dc.VariationalGaussianMixture(3, truncation=2, n_neighbors=2, random_state=0).fit(X)
    >>> sorted(int(round(c / 10)) for c in model.means_[:, 0]), round(model.covariances_)
    ([0, 2, 4], 1)
    >>> model.predict_proba(X[:2]).shape, model.converged_
    ((2, 3), True)
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = MIXTURE

    model_kinds = (MixtureModel.kind,)

    n_components: int = 8
    _: KW_ONLY
    covariance_type: str = "isotropic"
    truncation: int = 5
    n_neighbors: int = 5
    n_random: int = 0
    coreset_size: int | None = None
    init: Any = "auto"
    n_init: int = 1
    weights_init: Any = None
    precisions_init: Any = None
    warmup_steps: int = 0
    reg_covar: float | str = "auto"
    discard_empty: bool = False
    tol: float = 1e-4
    max_iter: int = 300
    search: str = "tile"
    chain_length: int = 10
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
        """Learn the mixture.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, zarr.Array, Dataset, or URL
            Dense rows.
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Not together with a dataset that has weights of its own.
        resume : bool
            Resume from the last state under `checkpoint`; the result is bit-identical to that of an
            uninterrupted fit. Without a saved state, the fit starts from the beginning.

        Raises
        ------
        CheckpointError
            The checkpoint belongs to other data or parameters, or is damaged.
        InvalidParameterError, InvalidDataError
            A parameter or the data is invalid.
        MemoryLimitError
            The fit needs more memory than the engine has.

        Warns
        -----
        ConvergenceWarning
            The fit reached `max_iter` before `tol`. Not given with ``tol=0``.
        """
        self.check_parameters()
        dataset = dense_dataset(self, X, sample_weight)
        check_enough_rows(dataset, self.n_components)
        engine = choose_engine(self.engine, dataset)
        fit = MixtureFit(self, X, dataset, engine, all_callbacks(self), resume=resume)
        self._take_over(fit, fit.run().result)
        if self.stop_reason_ == StopReason.MAX_ITER and self.n_iter_ and self.tol > 0.0:
            warnings.warn(_NOT_CONVERGED.format(self.max_iter), ConvergenceWarning, stacklevel=2)
        return self

    # -- checks -----------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.coreset_size is not None:
            check_coreset_size(self.coreset_size, "component", self.n_components)

    # -- results ----------------------------------------------------------------------------------

    def _take_over(self, fit: MixtureFit, result: MixtureResult) -> None:
        gaussians, dataset = result.gaussians, fit.dataset
        k, weights = gaussians.k, gaussians.weights
        self._means = gaussians.means
        self.weights_ = np.full(k, 1.0 / k) if weights is None else weights
        self.covariances_ = public_variances(gaussians.variances, self.covariance_type)
        self.converged_ = result.stop_reason in SETTLED
        self.lower_bound_ = result.free_energy / result.weight
        self.n_iter_ = result.n_iter
        self.stop_reason_ = str(result.stop_reason)
        self.history_ = result.history
        self.component_weights_ = result.masses
        self.seeding_ = fit.method
        self.passes_, self.bytes_read_ = fit.passes, fit.bytes_read
        self.n_rows_ = dataset.n_rows
        if fit.coreset is not None:
            self.coreset_ = fit.coreset.coreset_
        self.learn_labels(dataset, fit.engine, in_memory=dataset.in_memory)

    # -- the model --------------------------------------------------------------------------------

    def to_model(self) -> MixtureModel:
        """Return the fitted mixture as a `MixtureModel`, which holds no data."""
        check_is_fitted(self)
        return MixtureModel(
            centres=self._means,
            variances=stored_variances(self.covariances_, self.covariance_type),
            mixing=self.weights_,
            weights=self.component_weights_,
            covariance_type=self.covariance_type,
            lower_bound=self.lower_bound_ if np.isfinite(self.lower_bound_) else None,
            truncation=min(int(self.truncation), len(self._means)),
            **provenance(self),
        )

    def to_sklearn(self) -> Any:
        """Return a fitted `sklearn.mixture.GaussianMixture` with the same parameters, in float64.

        It evaluates all components, so its posteriors also cover those that `truncation` leaves out.
        """
        # Deferred: the import loads large parts of scikit-learn.
        from daskcluster.estimators.export import sklearn_mixture

        return sklearn_mixture(self)

    @classmethod
    def from_model(cls, model: MixtureModel) -> Self:
        """Return a fitted estimator with the parameters of a model, without ``labels_``."""
        known = {"n_components": model.n_clusters, "covariance_type": model.covariance_type}
        if "truncation" not in model.parameters:
            known["truncation"] = model.truncation
        self = from_provenance(cls, model, **known)
        self.scaling_, self._means, self.weights_ = model.scaling, model.centres, model.mixing
        self.covariances_ = public_variances(model.variances, model.covariance_type)
        self.component_weights_ = model.weights
        self.lower_bound_ = -np.inf if model.lower_bound is None else model.lower_bound
        self.converged_ = model.stop_reason in SETTLED
        return self
