"""Methods of a fitted mixture on rows: labels, posteriors, densities, criteria, samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import DensityMixin
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
from daskcluster.estimators.base import OnScale, RowsEstimator
from daskcluster.estimators.inputs import fit_dataset
from daskcluster.events import Callback
from daskcluster.methods.mixture.chunkwise.e_step import (
    LIKELIHOOD,
    POSTERIOR,
    STORED_POSTERIOR,
    LikelihoodParams,
    density_rows,
    label_by_density,
    posterior_rows,
    prepare_labels,
    stored_posteriors,
)
from daskcluster.methods.mixture.chunkwise.statistics import Gaussians, packed_size, precisions
from daskcluster.methods.mixture.parameters import MATRICES, N_SAMPLES
from daskcluster.parameters.checks import check_value
from daskcluster.randomness import Key, as_seed
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
    order = np.argsort(found["components"], axis=1, kind="stable")
    index = np.take_along_axis(found["components"], order, axis=1).ravel()
    values = np.take_along_axis(found["probabilities"], order, axis=1).ravel()
    return csr_array((values, index, starts), shape=(n, n_components))


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
    found = rows.reduce(LIKELIHOOD, lambda scale: LikelihoodParams(gaussians, scale))
    weight = float(found.weight.value)
    if not weight > 0.0:
        raise InvalidParameterError(
            f"the total weight of the rows should be > 0, got {weight}; give some rows a positive weight."
        )
    return found.bounds.value + weight * gaussians.log_constant, weight


class MixtureRows(DensityMixin, RowsEstimator):
    """Base of estimators that learn a Gaussian mixture.

    Subclasses have the parameters ``engine``, ``callbacks``, ``truncation`` and ``random_state``, and learn
    ``means_``, ``covariances_`` and ``weights_``. Rows are compared with ``_means``: the means on the scale
    of the fit.
    """

    truncation: int
    random_state: Any
    covariance_type: str
    covariances_: Any
    weights_: np.ndarray
    means_: np.ndarray
    _means = OnScale("means_")

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
        compute = stored_posteriors if stored else posterior_rows
        kind = STORED_POSTERIOR if stored else POSTERIOR
        most = min(int(self.truncation), len(self._means))
        return RowFunction(compute, (self._gaussians(dtype), most), None, kind, most, "posteriors")

    def save_posteriors(self, X: Any, output: str, **writing: Any) -> None:
        """Write the posteriors of all rows; see `predict_proba` and `map_rows`."""
        attributes = {"daskcluster": "posteriors", "n_components": len(self._means)}
        self.map_rows(X, self.posterior_function, output=output, attributes=attributes, **writing)

    def row_params(self, dtype: Any) -> RowParams:
        """Return the means as rows of `dtype` meet them."""
        return RowParams(for_rows(self._means, dtype))

    def scores(self, dataset: Dataset, callbacks: Sequence[Callback] = ()) -> tuple[float, float]:
        """Return the inertia about the nearest means, and the mean log-density. Two passes."""
        gaussians, engine = self._gaussians(dataset.dtype), choose_engine(self.engine, dataset)
        with engine.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
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

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the mean log-density of the rows, weighted where they have weights.

        Notes
        -----
        Cost: one pass.
        """
        total, weight = self._likelihood(X, sample_weight)
        return total / weight

    def aic(self, X: Any) -> float:
        """Return Akaike's information criterion on the rows; lower is better. One pass."""
        return 2.0 * self.n_parameters() - 2.0 * self._likelihood(X, None)[0]

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion on the rows; lower is better. One pass."""
        total, weight = self._likelihood(X, None)
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

    def _likelihood(self, X: Any, sample_weight: Any) -> tuple[float, float]:
        """Return the weighted sum of log-densities, and the weight."""
        dataset = self.known_rows(X, sample_weight, complete=True)
        gaussians = self._gaussians(dataset.dtype)
        with choose_engine(self.engine, dataset).place(dataset, footprint=ONE_PASS) as placement:
            return log_likelihood(ScaledPlacement(placement), gaussians)

    def n_parameters(self) -> int:
        """Return the number of free parameters of the mixture, as `aic` and `bic` count them."""
        check_is_fitted(self)
        k, d = self._means.shape
        variances = int(np.size(self.covariances_))
        if self.covariance_type in MATRICES:
            variances = variances // (d * d) * packed_size(d)
        return k * d + variances + (0 if self.covariance_type == "isotropic" else k - 1)
