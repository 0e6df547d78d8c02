"""VariationalGaussianMixture: its fit, and labels, posteriors, densities, criteria and samples."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from daskcluster.chunk import for_rows
from daskcluster.chunkwise.assign import RowFunction, RowParams
from daskcluster.chunkwise.feature_scaling import undone
from daskcluster.data.csr import csr_of
from daskcluster.elementary import log
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.estimators.base import (
    LoopParameters,
    RowsEstimator,
    ScaledAttribute,
    from_provenance,
    in_declared_order,
    provenance,
)
from daskcluster.estimators.inputs import check_enough_rows, fit_dataset
from daskcluster.events import Callback, StopReason
from daskcluster.invariance import DRAWN, varies_with
from daskcluster.methods.coreset.estimator import check_coreset_size
from daskcluster.methods.mixture.algorithm import SETTLED, EMState
from daskcluster.methods.mixture.chunkwise.e_step import (
    EXACT_EM,
    POSTERIOR,
    STORED_POSTERIOR,
    EStep,
    MixtureParams,
    density_rows,
    label_by_density,
    posterior_rows,
    prepare_labels,
)
from daskcluster.methods.mixture.chunkwise.statistics import Gaussians, packed_size, precisions
from daskcluster.methods.mixture.fit import MixtureFit
from daskcluster.methods.mixture.model import MixtureModel, public_variances, stored_variances
from daskcluster.methods.mixture.parameters import MATRICES, MIXTURE, N_SAMPLES
from daskcluster.parameters.checks import check_value
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import Key, as_seed
from daskcluster.storage.pass_totals import PassTotals
from daskcluster.typing import Dataset


def as_csr(found: np.ndarray, n_components: int) -> Any:
    """Return structured posteriors (n, q) as a ``scipy.sparse.csr_array`` (n, k) with sorted columns.

    Rows that were left out have no entries.
    """
    from scipy.sparse import csr_array

    n, q = found.shape
    kept = found["components"][:, 0] >= 0
    starts = np.append(0, np.cumsum(q * kept))
    found = found if kept.all() else found[kept]
    values, index = (found[name].ravel() for name in ("probabilities", "components"))
    posteriors = csr_array((values, index, starts), shape=(n, n_components))
    posteriors.sort_indices()
    return posteriors


def dense_dataset(estimator: Any, X: Any, sample_weight: Any, **options: bool) -> Dataset:
    """Return `X` as a dataset of dense rows; see `fit_dataset`."""
    dataset = fit_dataset(estimator, X, sample_weight, scalable=True, **options)
    if csr_of(dataset) is not None:
        raise InvalidDataError(
            f"{type(estimator).__name__} takes dense rows, X is sparse; project the rows first, e.g. by "
            "scikit-learn's make_pipeline(TruncatedSVD(20), ...), or pass X.toarray() if it fits in memory."
        )
    return dataset


def gaussians_for(
    dtype: Any, means: np.ndarray, variances: Any, mixing: np.ndarray, covariance_type: str
) -> Gaussians:
    """Return a fitted mixture for rows of `dtype`; isotropic mixtures have no `mixing` weights.

    `variances` may have the shape of ``covariances_`` or that of a model.
    """
    shared = covariance_type == "isotropic"
    found = np.asarray(np.squeeze(variances) if shared else variances, np.float64)
    return Gaussians(
        for_rows(means, dtype),
        found[None] if covariance_type == "tied" and found.ndim == 2 else found,
        None if shared else np.asarray(mixing, np.float64),
    )


def log_likelihood(rows: ScaledPlacement, gaussians: Gaussians) -> tuple[float, float]:
    """Return the weighted sum of the rows' log-densities, and the total row weight. One pass.

    Raises
    ------
    InvalidParameterError
        All rows have weight zero.
    """
    step = EStep(gaussians, None)
    found = rows.reduce(EXACT_EM, lambda scale: MixtureParams(step, scale, learns=False))
    unweighted = rows.placement.dataset.weights is None
    weight = float(rows.known().n_rows if unweighted else rows.known().weight.value)
    if not weight > 0.0:
        raise InvalidParameterError(
            f"the total weight of the rows should be > 0, got {weight}; give some rows a positive weight."
        )
    return found.bound.value + weight * gaussians.log_constant, weight


_NOT_CONVERGED = (
    "Best performing initialization did not converge. Try different init parameters, or increase max_iter, "
    "tol, or check for degenerate data. The free energy still changed after max_iter={} iterations."
)


@varies_with(order=DRAWN)
@in_declared_order
@dataclass(eq=False, repr=False)
class VariationalGaussianMixture(LoopParameters, DensityMixin, RowsEstimator):
    """Gaussian mixture by truncated variational EM: var-GMM-S, or vc-GMM with a coreset.

    Each row has posteriors for a few components only: the nearest of its candidates. The candidates come
    from neighbourhoods of components, which are learnt during the fit. The cost of an iteration per row
    does not depend on the number of components. The result is bit-identical on any engine, for any
    chunking and any number of workers.

    Parameters
    ----------
    n_components : int >= 1, default 8
        Number of components.
    covariance_type : {"isotropic", "spherical", "diag", "tied", "full"}, default "isotropic"
        One variance for all components, with equal weights (the paper's model); one per component; or
        one per component and feature. For few features, a covariance matrix: ``"tied"``, one for all
        components; ``"full"``, one per component. All but the first also learn mixing weights.
    truncation : int >= 1, default 5
        C', the number of posteriors per row. With all components, EM is exact.
    n_neighbors : int >= 2, default 5
        G, the size of a neighbourhood, which includes the component itself; at least 2.
    n_random : int >= 0, default 0
        Extra components drawn at random for each row in each iteration.
    coreset_size : int >= 1, optional
        Fit a `daskcluster.LightweightCoreset` of this many rows. None: all rows.
    init : str, URL, array, callable or estimator, default "auto"
        Initial means. ``"auto"``: from a sample that is clustered by k-means++, Lloyd's algorithm and local
        search; with more than 64 components, ``"afk-mc2"``. A fitted estimator or the URL of a saved model
        is a warm start. A mixture of the same `covariance_type` (ours or scikit-learn's) provides its
        variances and weights as well.
    n_init : int >= 1, default 1
        Restarts, each with newly drawn initial means and candidate sets; the one with the highest free
        energy is kept. Means that are given start a single fit.
    weights_init : array-like of shape (k,), optional
        Initial mixing weights, as in scikit-learn; not for ``"isotropic"``.
    precisions_init : array-like, optional
        Inverses of the initial variances or matrices, in the shape that `covariance_type` has and, like
        `covariances_`, on the scale of the fit. With these or `weights_init`, each component has its own
        variance from the first iteration on.
    warmup_steps : int >= 0, default 0
        Searches before the first variance is set; 2 to 4 help where clusters overlap.
    reg_covar : float >= 0 or "auto", default "auto"
        Minimum variance. ``"auto"``: 1e-6 of the mean variance of the features; with ``"diag"``, ``"tied"``
        and ``"full"``, 1e-6 of each feature's variance, so that the units of the features do not matter.
        A matrix has at least this variance in every direction, and at least 1e-12 of its own variances:
        eigenvalues are raised where needed, and other matrices stay as they are. Nothing is added to the
        diagonal, unlike in scikit-learn.
    discard_empty : bool, default False
        Leave components that have no posterior weight at the end out of the mixture, which then has fewer
        than `n_components`, numbered in the same order. With ``"isotropic"``, the others get their
        weights.
    tol : float >= 0, default 0.0001
        Stop when the free energy, divided by total row weight and number of features, changes by less
        than this; 0 never stops. It is tested once each component has learnt its own variance: with
        all types but ``"isotropic"`` from the fourth iteration on, or from the second if initial
        variances or weights are given, or if EM is exact and starts from a sample.
    max_iter : int >= 0, default 300
        Maximum number of EM iterations; 0 keeps the initial means.
    search : {"tile", "row", "alternate"}, default "tile"
        The candidates of a row. ``"tile"``: the row's own components, and the neighbours' neighbours of
        the nearest one. ``"row"``: the neighbours of all its own components, as in the paper; this gives
        as many candidates, but rows of a component do not share them, so it is slower. ``"alternate"``:
        both in turn, which escapes local optima that hold either alone, at the mean of their costs.
    chain_length : int >= 1, default 10
        As in `daskcluster.KMeans`, for ``init="afk-mc2"``.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Where to run. None: the current Dask client if it can read the rows, else threads of this
        process.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    max_time : float > 0, optional
        Time limit in seconds; the iteration that exceeds it is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        Rows whose mean squared distance to the nearest mean goes into `history_` after each iteration.
    checkpoint : str or path, optional
        Save progress at this URL; continue with resume.
    checkpoint_every : int >= 1, default 10
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
    _means = ScaledAttribute("means_")

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
        resume : bool, default False
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
        fit = MixtureFit(self, X, dataset, resume=resume)
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

    def _take_over(self, fit: MixtureFit, result: EMState) -> None:
        gaussians, dataset = result.gaussians, fit.dataset
        k, weights = gaussians.k, gaussians.weights
        self._means = gaussians.means
        self.weights_ = np.full(k, 1.0 / k) if weights is None else weights
        self.covariances_ = public_variances(gaussians.variances, self.covariance_type)
        self.converged_ = result.stop_reason in SETTLED
        self.lower_bound_ = result.free_energy / result.weight
        self.n_iter_ = result.n_iter
        self.stop_reason_ = str(result.stop_reason)
        self.history_ = list(result.history)
        self.component_weights_ = result.masses
        self.seeding_ = fit.method
        self.passes_, self.bytes_read_ = fit.passes, fit.bytes_read
        self.n_rows_ = dataset.n_rows
        if fit.coreset is not None:
            self.coreset_ = fit.coreset.coreset_
        self.learn_labels(dataset, fit.engine, in_memory=dataset.in_memory)

    @property
    def precisions_(self) -> Any:
        """Inverses of the variances or covariance matrices, of the shape of ``covariances_``."""
        if self.covariance_type not in MATRICES:
            return 1.0 / self.covariances_
        found = precisions(self._gaussians(np.float64).whitening, self._means.shape[1])
        return found[0] if self.covariance_type == "tied" else found

    @property
    def precisions_cholesky_(self) -> Any:
        """Factors of the precisions as in scikit-learn: upper triangles, or roots for variances."""
        if self.covariance_type not in MATRICES:
            return np.sqrt(self.precisions_)
        packed, d = self._gaussians(np.float64).whitening, self._means.shape[1]
        found = np.zeros((len(packed), d, d))
        found[:, *np.triu_indices(d)] = packed
        return found[0] if self.covariance_type == "tied" else found

    # -- results for rows ----------------------------------------------------------------------

    def known_rows(self, X: Any, sample_weight: Any = None, *, complete: bool = False) -> Dataset:
        """Return `X` as a dataset of dense rows with the features of the fit; see `fit_dataset`."""
        check_is_fitted(self)
        return dense_dataset(self, X, sample_weight, reset=False, complete=complete)

    def label_function(self, dtype: Any) -> RowFunction:
        """Return the function that labels rows of `dtype`."""
        return RowFunction(label_by_density, self._gaussians(dtype), prepare_labels)

    def posterior_function(self, dtype: Any, *, stored: bool = True) -> RowFunction:
        """Return the function that finds the largest posteriors of rows, as stored or in float64."""
        kind = STORED_POSTERIOR if stored else POSTERIOR
        most = min(int(self.truncation), len(self._means))
        params = self._gaussians(dtype), most, kind
        return RowFunction(posterior_rows, params, None, kind, most, "posteriors")

    def save_posteriors(self, X: Any, output: str, **writing: Any) -> None:
        """Write the posteriors of all rows; see `predict_proba` and `map_rows`."""
        attributes = {"daskcluster": "posteriors", "n_components": len(self._means)}
        self.map_rows(X, self.posterior_function, output=output, attributes=attributes, **writing)

    def row_params(self, dtype: Any) -> RowParams:
        """Return the means as rows of `dtype` meet them."""
        return RowParams(for_rows(self._means, dtype))

    def scores(
        self,
        dataset: Dataset,
        callbacks: Sequence[Callback] = (),
        totals: PassTotals | None = None,
    ) -> tuple[float, float]:
        """Return the inertia about the nearest means, and the mean log-density. Two passes."""
        gaussians, engine = self._gaussians(dataset.dtype), choose_engine(self.engine, dataset)
        with engine.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
            placement.totals = totals
            rows = ScaledPlacement(placement)
            inertia = score_rows(rows, gaussians.means).inertia
            total, weight = log_likelihood(rows, gaussians)
        return inertia, total / weight

    def predict_proba(
        self,
        X: Any,
        *,
        output: str | None = None,
        overwrite: bool = False,
        storage_options: dict[str, Any] | None = None,
        resume: bool = False,
    ) -> Any:
        """Return the posteriors of the `truncation` most probable components of every row.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array, zarr.Array, Dataset, or URL
        output : str, optional
            URL of a Zarr group to stream the posteriors to, chunk by chunk: arrays ``components`` (int32)
            and ``probabilities`` (float32) of shape (n, C'), largest first. It appears once it is
            complete.
        overwrite, storage_options, resume
            See `daskcluster.KMeans.predict`.

        Returns
        -------
        scipy.sparse.csr_array of shape (n, k), float64
            `truncation` entries per row, which sum to one; the components are found by full search. With
            `output`, its URL instead.

        Notes
        -----
        Cost: one pass; without `output`, 12 bytes in this process for each of the n C' entries.
        """
        check_is_fitted(self)
        if output is None:
            # Cells that lack a value have no row of posteriors, and the result is in memory.
            found = self.map_rows(
                self.known_rows(X), partial(self.posterior_function, stored=False)
            )
            return as_csr(found, len(self._means))
        options = {"overwrite": overwrite, "storage_options": storage_options, "resume": resume}
        self.save_posteriors(X, output, **options)
        return output

    def score_samples(self, X: Any) -> Any:
        """Return the log-density of every row under the whole mixture, float64 (n,).

        Lazy for dask input.

        Notes
        -----
        Cost: one pass.
        """
        check_is_fitted(self)
        kind: dict[str, Any] = {"dtype": np.dtype(np.float64), "name": "densities"}
        return self.map_rows(
            X, lambda dtype: RowFunction(density_rows, self._gaussians(dtype), **kind)
        )

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: Any = None,
        resume: bool = False,
    ) -> float:
        """Return the mean log-density of the rows, weighted where they have weights.

        `checkpoint` and `resume` are those of `daskcluster.KMeans.score`.

        Notes
        -----
        Cost: one pass.
        """
        rows = self.known_rows(X, sample_weight, complete=True)
        with self.storing_score(rows, checkpoint, resume=resume) as stored:
            total, weight = self._likelihood(rows, None if stored is None else stored.totals())
        return total / weight

    def aic(self, X: Any) -> float:
        """Return Akaike's information criterion on the rows; lower is better. One pass."""
        return (
            2.0 * self.n_parameters() - 2.0 * self._likelihood(self.known_rows(X, complete=True))[0]
        )

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion on the rows; lower is better. One pass."""
        total, weight = self._likelihood(self.known_rows(X, complete=True))
        return self.n_parameters() * float(log(weight)) - 2.0 * total

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows from the mixture.

        Returns
        -------
        X : ndarray of shape (n_samples, d), dtype of the means
        y : ndarray of shape (n_samples,), int32
            The components that they were drawn from.
        """
        check_is_fitted(self)
        check_value(type(self).__name__, N_SAMPLES, n_samples)
        n = int(n_samples)
        generator = Key(as_seed(self.random_state), "mixture rows").generator()
        k, d = self._means.shape
        drawn = generator.choice(k, size=n, p=self.weights_ / self.weights_.sum()).astype(np.int32)
        variances = np.asarray(self.covariances_, np.float64)
        noise = generator.standard_normal((n, d))
        if self.covariance_type in MATRICES:
            factors = self._gaussians(np.float64).factors
            which = drawn if len(factors) == k else np.zeros(n, np.intp)
            X = self._means[drawn].astype(np.float64)
            for t in range(d):
                X += factors[which, :, t] * noise[:, t, None]
        else:
            if variances.ndim:
                variances = variances[drawn] if variances.ndim == 2 else variances[drawn][:, None]
            X = self._means[drawn] + np.sqrt(variances) * noise
        return undone(self.scaling_, X).astype(self._means.dtype), drawn

    # -- computation ------------------------------------------------------------------------------

    def _gaussians(self, dtype: Any) -> Gaussians:
        return gaussians_for(
            dtype, self._means, self.covariances_, self.weights_, self.covariance_type
        )

    def _likelihood(
        self, dataset: Dataset, totals: PassTotals | None = None
    ) -> tuple[float, float]:
        """Return the weighted sum of log-densities of known rows, and the weight."""
        gaussians = self._gaussians(dataset.dtype)
        with choose_engine(self.engine, dataset).place(dataset, footprint=ONE_PASS) as placement:
            placement.totals = totals
            return log_likelihood(ScaledPlacement(placement), gaussians)

    def n_parameters(self) -> int:
        """Return the number of free parameters of the mixture, as `aic` and `bic` count them."""
        check_is_fitted(self)
        k, d = self._means.shape
        variances = int(np.size(self.covariances_))
        if self.covariance_type in MATRICES:
            variances = variances // (d * d) * packed_size(d)
        return k * d + variances + (0 if self.covariance_type == "isotropic" else k - 1)

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
