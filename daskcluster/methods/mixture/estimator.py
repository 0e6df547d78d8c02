"""VariationalGaussianMixture: mixtures of many Gaussians, by EM with few candidates per row."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.estimators.fit import all_callbacks
from daskcluster.estimators.inputs import (
    check_enough_rows,
    is_out_of_core,
)
from daskcluster.estimators.labels import Labels
from daskcluster.estimators.provenance import from_provenance, provenance
from daskcluster.events import StopReason
from daskcluster.methods.coreset.estimator import LabelsLater, check_coreset_size
from daskcluster.methods.mixture.chunkwise.rows import MixtureRowParams, label_by_density
from daskcluster.methods.mixture.fit import MixtureFit, MixtureRun
from daskcluster.methods.mixture.model import MixtureModel
from daskcluster.methods.mixture.parameters import MIXTURE
from daskcluster.methods.mixture.rows import MixtureRows, dense_dataset
from daskcluster.models.persist import save_model
from daskcluster.parameters.parameter import Parameter
from daskcluster.typing import Dataset

_NOT_CONVERGED = (
    "Best performing initialization did not converge. Try different init parameters, or increase max_iter, "
    "tol, or check for degenerate data. The free energy still changed after max_iter={} iterations."
)


class VariationalGaussianMixture(LabelsLater, MixtureRows):
    """Gaussian mixture by truncated variational EM: var-GMM-S, and with a coreset vc-GMM.

    Each row has posteriors for a few components only, those that are nearest among the ones it has
    looked at; where it looks follows from neighbourhoods of components that are learnt on the way. An
    iteration costs the same for each row however many components there are. The result is the same to
    the bit on any engine, for any chunking and any number of workers.

    Parameters
    ----------
    n_components : int >= 1
    covariance_type : {"isotropic", "spherical", "diag"}
        One variance for all components, which then weigh the same (the paper's model); one for each;
        one for each and feature. The latter two learn mixing weights.
    truncation : int >= 1
        C', posteriors of a row. With all components, EM is exact.
    n_neighbors : int >= 2
        G, at least 2: components in a neighbourhood, the component itself among them.
    n_random : int >= 0
        Extra components drawn at random for each row in each iteration.
    coreset_size : int >= 1, optional
        Learn from a `daskcluster.LightweightCoreset` of so many rows. None: from all rows.
    init : {"auto", "k-means++", "k-means||", "afk-mc2", "random"}, URL, array, callable, estimator
        First means; a fitted estimator or the URL of a saved model is a warm start. Of another mixture
        (or of scikit-learn's) variances and weights are taken as well.
    n_init : int >= 1
        Restarts, from first means and sets that are drawn anew; the one with the highest free energy is
        kept. Given means are used as they are, once.
    weights_init : array-like of shape (k,), optional
        First mixing weights, for ``"spherical"`` and ``"diag"``.
    precisions_init : float, array-like of shape (k,) or (k, d), optional
        Inverses of the first variances, after `covariance_type`, on the scale of the fit like
        `covariances_`. With these or `weights_init` components have variances of their own from the first
        iteration on.
    warmup_steps : int >= 0
        Searches without learning, before the first variance is set: 2 to 4 help where clusters overlap.
    reg_covar : float >= 0 or "auto"
        Least variance. ``"auto"``: 1e-6 of the features' mean variance; with ``"diag"`` 1e-6 of each
        feature's own, so that the units of features do not matter.
    tol : float >= 0
        Stop when the free energy changes by less than this for each unit of row weight and feature; 0:
        never. It is tested once the components have learnt variances of their own: with ``"spherical"``
        and ``"diag"`` from the fourth iteration on, or from the second if it begins with them.
    max_iter : int >= 0
    search : {"tile", "row", "alternate"}
        Where rows look: at their own components and the neighbours' neighbours of the nearest
        (``"tile"``), or at the neighbours of all their own components (``"row"``, as in the paper): as
        many, but not shared by the rows of a component, hence slower. ``"alternate"``: both in turn,
        which ends in better optima where either alone is stuck, at the mean of their costs.
    chain_length : int >= 1
        Of ``init="afk-mc2"``.
    random_state : int >= 0, RandomState or Generator, optional
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Hear the events of `daskcluster.events`.
    verbose : int >= 0 or bool
    max_time : float > 0, optional
    checkpoint : str or path, optional
    checkpoint_every : int >= 1
        As of `daskcluster.KMeans`. A commit takes the bytes of the mixture and, written by the tasks
        themselves, 4 C' bytes a row; with `coreset_size` that of the coreset.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        Mixing weights.
    means_ : ndarray of shape (k, d)
        float32 for rows of 32 bits or less that are exact in it, else float64. In the units of the data,
        also where those were opened with ``scale=``.
    covariances_ : float, ndarray of shape (k,) or (k, d)
        Variances, after `covariance_type`; like densities on the scale of the fit, if it had one.
    precisions_ : float, ndarray of shape (k,) or (k, d)
        Their inverses.
    converged_ : bool
    lower_bound_ : float
        Free energy of the mixture for each unit of row weight: a lower bound of the mean
        log-likelihood of the rows that were learnt from, which it is where `truncation` is all components.
    n_iter_ : int
    history_ : list of dict
        For each iteration ``free_energy`` (a sum over rows, at the parameters that the iteration
        started from), ``inertia``, ``variance``, ``seconds``, ``n_distances`` (of the first: with the
        searches before it), ``n_moved``.
    labels_ : ndarray of shape (n,), int32, or Labels
        Computed when asked for, one pass: an array for rows given in memory, else a handle.
    coreset_ : Dataset
        What was learnt from, where `coreset_size` was given; left out of pickles.
    stop_reason_, seeding_, passes_, bytes_read_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`.

    Notes
    -----
    Cost of each start: seeding (two or three passes for afk-mc2), then ``warmup_steps`` + 1 passes, then
    one an iteration, and one more where the fit does not end by `tol`; at most C' + G^2 + `n_random`
    distances a row and pass. State: 4 C' bytes a row. With a coreset: two passes over the rows. Sets that
    are lost with a worker are made again from those that were saved last (every eighth step, where all
    workers share a host; else from the first ones) and the steps since, whose parameters travel with each
    pass to a cluster.

    Forster and Luecke (AISTATS 2018); Hirschberger, Forster and Luecke (arXiv 1810.00803). The free energy
    never falls, but for the floor and the switch to variances of the components' own after the
    second iteration. A component without rows keeps its mean.

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

    def __init__(
        self,
        n_components: int = 8,
        *,
        covariance_type: str = "isotropic",
        truncation: int = 5,
        n_neighbors: int = 5,
        n_random: int = 0,
        coreset_size: int | None = None,
        init: Any = "afk-mc2",
        n_init: int = 1,
        weights_init: Any = None,
        precisions_init: Any = None,
        warmup_steps: int = 0,
        reg_covar: float | str = "auto",
        tol: float = 1e-4,
        max_iter: int = 300,
        search: str = "tile",
        chain_length: int = 10,
        random_state: Any = None,
        engine: Any = None,
        callbacks: Any = (),
        verbose: int = 0,
        max_time: float | None = None,
        checkpoint: Any = None,
        checkpoint_every: int = 10,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.truncation = truncation
        self.n_neighbors = n_neighbors
        self.n_random = n_random
        self.coreset_size = coreset_size
        self.init = init
        self.n_init = n_init
        self.weights_init = weights_init
        self.precisions_init = precisions_init
        self.warmup_steps = warmup_steps
        self.reg_covar = reg_covar
        self.tol = tol
        self.max_iter = max_iter
        self.search = search
        self.chain_length = chain_length
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
        """Learn the mixture.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, zarr.Array, Dataset, or URL
            Dense rows.
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Not together with a dataset that has weights of its own.
        resume : bool
            Resume from the last state under `checkpoint`, to the same bits as if the fit had never been
            interrupted. Without one the fit begins at its beginning.

        Raises
        ------
        CheckpointError
            What is under `checkpoint` is of other data or parameters, or damaged.
        InvalidParameterError, InvalidDataError
            Which say what, the value, the rule and the remedy.
        MemoryLimitError
            The engine's memory does not suffice.

        Warns
        -----
        ConvergenceWarning
            `max_iter` ended the fit before `tol` did. With ``tol=0`` that is what was asked for.
        """
        self.check_parameters()
        dataset = dense_dataset(self, X, sample_weight)
        check_enough_rows(dataset, self.n_components)
        engine = choose_engine(self.engine, dataset)
        fit = MixtureFit(self, X, dataset, engine, all_callbacks(self), resume=resume)
        self._take_over(fit.run(), dataset, engine, in_memory=not is_out_of_core(X))
        if self.stop_reason_ == StopReason.MAX_ITER and self.n_iter_ and self.tol > 0.0:
            warnings.warn(_NOT_CONVERGED.format(self.max_iter), ConvergenceWarning, stacklevel=2)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Learn the mixture, and return the label of every row; see ``labels_``."""
        return self.fit(X, sample_weight=sample_weight).labels_

    # -- checks -----------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.coreset_size is not None:
            check_coreset_size(self.coreset_size, "component", self.n_components)

    # -- what was learnt --------------------------------------------------------------------------

    def _take_over(
        self, run: MixtureRun, dataset: Dataset, engine: Engine, *, in_memory: bool
    ) -> None:
        result, gaussians = run.result, run.result.gaussians
        k, weights = gaussians.k, gaussians.weights
        self._means = gaussians.means
        self.weights_ = np.full(k, 1.0 / k) if weights is None else weights
        self.covariances_ = float(gaussians.variances) if gaussians.shared else gaussians.variances
        self.converged_ = result.stop_reason in (StopReason.CONVERGED, StopReason.TOLERANCE)
        self.lower_bound_ = result.free_energy / result.weight
        self.n_iter_ = result.n_iter
        self.stop_reason_ = str(result.stop_reason)
        self.history_ = result.history
        self.component_weights_ = result.masses
        self.seeding_ = run.seeding
        self.passes_, self.bytes_read_ = run.passes, run.bytes_read
        self.n_rows_ = dataset.n_rows
        if run.coreset is not None:
            self.coreset_ = run.coreset.coreset_
        labels = Labels(
            dataset,
            self._means,
            engine,
            params=MixtureRowParams.of(self._gaussians(dataset.dtype)),
            fn=label_by_density,
        )
        self._label_later(labels, in_memory=in_memory)

    # -- the model --------------------------------------------------------------------------------

    def save(
        self, url: str, *, overwrite: bool = False, storage_options: dict[str, Any] | None = None
    ) -> None:
        """Write the model to `url` (Zarr and JSON, no pickle).

        Raises
        ------
        OutputExistsError
            There is something at `url` and `overwrite` is False.
        """
        save_model(self.to_model(), url, overwrite=overwrite, storage_options=storage_options)

    def to_model(self) -> MixtureModel:
        """Return what was learnt as a plain, data-free value."""
        check_is_fitted(self)
        return MixtureModel(
            centres=self._means,
            variances=np.atleast_1d(np.asarray(self.covariances_, np.float64)),
            mixing=self.weights_,
            weights=self.component_weights_,
            covariance_type=self.covariance_type,
            lower_bound=self.lower_bound_ if np.isfinite(self.lower_bound_) else None,
            truncation=min(int(self.truncation), len(self._means)),
            **provenance(self),
        )

    def to_sklearn(self) -> Any:
        """Return a fitted `sklearn.mixture.GaussianMixture` with the same parameters, in float64.

        It evaluates all components: its posteriors differ from ours by what `truncation` leaves out.
        """
        # Imports half of scikit-learn, which nothing else needs.
        from daskcluster.estimators.export import sklearn_mixture

        return sklearn_mixture(self)

    @classmethod
    def from_model(cls, model: MixtureModel) -> Self:
        """Return the fitted estimator that a model describes (without ``labels_``)."""
        known = {"n_components": model.n_clusters, "covariance_type": model.covariance_type}
        if "truncation" not in model.parameters:
            known["truncation"] = model.truncation
        self = from_provenance(cls, model, **known)
        shared = model.covariance_type == "isotropic"
        self.scaling_, self._means, self.weights_ = model.scaling, model.centres, model.mixing
        self.covariances_ = float(model.variances[0]) if shared else model.variances
        self.component_weights_ = model.weights
        self.lower_bound_ = -np.inf if model.lower_bound is None else model.lower_bound
        self.converged_ = model.stop_reason in (StopReason.CONVERGED, StopReason.TOLERANCE)
        return self
