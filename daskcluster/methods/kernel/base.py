"""Base of the kernel k-means estimators: predict, transform, score, and fitted attributes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.engine.choose import choose_engine
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import ClusterEstimator
from daskcluster.estimators.cells import is_xarray, map_cells
from daskcluster.estimators.examples import Examination
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.inputs import (
    check_enough_rows,
    fit_dataset,
    with_features_of,
)
from daskcluster.estimators.labels import Labels, results_of_rows, save_rows
from daskcluster.estimators.lazy import is_dask_frame, map_blocks, map_frame, scaled_blocks
from daskcluster.estimators.provenance import from_provenance, provenance
from daskcluster.methods.kernel.chunkwise.centres import (
    GramCentres,
    GramRowParams,
    GraphCentres,
    gram_distance_rows,
    label_by_gram,
)
from daskcluster.methods.kernel.chunkwise.gram import CALLABLE
from daskcluster.methods.kernel.graph import GraphKMeansModel, graph_arrays
from daskcluster.methods.kernel.initial import (
    check_square,
    measure_by_gram,
    refuse_distances,
)
from daskcluster.methods.kernel.jobs import KernelJobs
from daskcluster.methods.kernel.minibatch.algorithm import KernelResult
from daskcluster.methods.kernel.model import KernelKMeansModel, support_arrays
from daskcluster.typing import Dataset


class KernelEstimator(ClusterEstimator):
    """Base of estimators whose centres are weighted sums of images of rows.

    Subclasses have the parameters ``n_clusters``, ``kernel`` and those of the kernel, ``n_init``,
    ``max_iter``, ``tol``, ``engine``, ``callbacks``, ``verbose``, ``max_time``, ``checkpoint`` and
    ``checkpoint_every``.
    """

    n_clusters: int
    n_init: int | str
    kernel: Any
    engine: Any
    callbacks: Any
    verbose: int
    max_iter: int
    tol: float
    max_time: float | None
    checkpoint: Any
    checkpoint_every: int
    model_kinds: tuple[str, ...] = (KernelKMeansModel.kind,)
    scaling_: FeatureScaling | None = None
    _centres: GramCentres

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_centres")

    # -- results for rows -------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        *,
        output: str | None = None,
        overwrite: bool = False,
        storage_options: dict[str, Any] | None = None,
        resume: bool = False,
    ) -> Any:
        """Return the nearest centre of every row, in the space of the kernel.

        Parameters
        ----------
        X : array-like of shape (n, d), dask array or frame, Dataset, or URL
            With ``kernel="precomputed"``, the matrix (n, n_fit) of K(x, y) for rows y of the fit.
        output : str, optional
            URL of a Zarr array to stream labels to, chunk by chunk. It appears once it is complete.
        overwrite : bool
            Replace an existing output.
        storage_options : dict, optional
            For the output's file system.
        resume : bool
            Resume an interrupted call that wrote `output`, without computing its finished chunks again.
            If this call is interrupted in turn, finished chunks are preserved.

        Returns
        -------
        ndarray of int32, shape (n,)
            A lazy dask array for dask input; the output's URL with `output`.

        Notes
        -----
        Cost: one pass, with one Gram value per row and support.
        """
        params = self._params()
        if output is None:
            return self._map(X, label_by_gram, np.dtype(np.int32))
        dataset = fit_dataset(self, X, None, reset=False)
        save_rows(
            dataset,
            choose_engine(self.engine, dataset),
            params,
            output,
            overwrite=overwrite,
            storage_options=storage_options,
            resume=resume,
            fn=label_by_gram,
        )
        return output

    def transform(self, X: Any) -> Any:
        """Return the distance of every row to every centre in the space of the kernel, float64 (n, k).

        A precomputed matrix must be that of the fit, because K(x, x) of other rows is not known. Kernels
        of graphs have no `transform`.

        Notes
        -----
        Cost: one pass; the result takes 8 n k bytes.
        """
        refuse_distances(self._params().model)
        if self._centres.gram.is_precomputed:
            check_square(self, fit_dataset(self, X, None, reset=False))
        return self._map(X, gram_distance_rows, np.dtype(np.float64), len(self._centres.norms))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the weighted sum of squared distances of the rows to their nearest centres.

        Notes
        -----
        Cost: one pass.
        """
        centres = self._params().model
        refuse_distances(centres)
        dataset = fit_dataset(self, X, sample_weight, reset=False)
        if centres.gram.is_precomputed:
            check_square(self, dataset)
        with choose_engine(self.engine, dataset).place(dataset) as placement:
            return -float(measure_by_gram(placement, centres).inertia)

    def _params(self) -> GramRowParams:
        """Return the params of row methods: the centres, with the function of a callable kernel."""
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
        return GramRowParams.of(self._centres)

    def _map(self, X: Any, fn: Any, dtype: np.dtype[Any], width: int = 0) -> Any:
        X = with_features_of(self, X)
        if is_xarray(X):
            return map_cells(X, self._map, getattr(self, "scaling_", None), fn, dtype, width)
        params = self._params()
        dataset = fit_dataset(self, X, None, reset=False)
        if hasattr(X, "__dask_graph__"):
            if is_dask_frame(X):
                return map_frame(X, fn, params, dtype, width, scaling=self.scaling_)
            X = X if self.scaling_ is None else scaled_blocks(X, self.scaling_)
            return map_blocks(X, fn, params, dtype, width)
        with choose_engine(self.engine, dataset).place(dataset) as placement:
            return results_of_rows(placement, fn, params, dtype, width)

    # -- scikit-learn ------------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return len(self._centres.norms)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not callable(self.kernel)
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def _rows_of(self, X: Any, sample_weight: Any) -> Dataset:
        """Return the rows of a fit. Scaling is refused for precomputed values, which have no features."""
        precomputed = self.kernel == "precomputed"
        dataset = fit_dataset(self, X, sample_weight, scalable=not precomputed)
        check_enough_rows(dataset, self.n_clusters)
        if precomputed:
            check_square(self, dataset)
        return dataset

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.kernel_params and not callable(self.kernel):
            raise InvalidParameterError(
                f"kernel_params={self.kernel_params!r} are arguments of a callable kernel; for "
                f"kernel={self.kernel!r} set gamma, degree and coef0 instead."
            )

    # -- results -----------------------------------------------------------------------------------

    def _learn(
        self,
        result: KernelResult,
        found: Any,
        labels: np.ndarray | None,
        fit: Fit,
    ) -> None:
        dataset = fit.dataset
        self._centres = result.centres
        self.n_iter_, self.stop_reason_ = result.n_iter, str(result.stop_reason)
        self.history_ = result.history
        self.seeding_, self.passes_, self.bytes_read_ = fit.method, fit.passes, fit.bytes_read
        self.inertia_, self.cluster_sizes_ = found.inertia, found.sizes
        self.cluster_weights_ = found.cluster_weights(weighted=dataset.weights is not None)
        self.cluster_costs_ = found.costs.sum(axis=0)
        self.n_rows_ = dataset.n_rows
        self._show_centres()
        self.labels_: Any = labels
        if labels is None:
            params = GramRowParams.of(self._centres)
            self.labels_ = Labels(dataset, params, fit.engine, fn=label_by_gram).like_rows()
        distinct = int((found.sizes > 0).sum())
        if distinct < self.n_clusters:
            warnings.warn(
                f"Number of distinct clusters ({distinct}) found smaller than n_clusters "
                f"({self.n_clusters}). Possibly due to duplicate points in X, or to a kernel that hardly "
                "distinguishes them: check gamma.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _show_centres(self) -> None:
        sums = self._centres.sums
        self.gamma_ = sums.gram.gamma
        self.support_ = sums.points.indices
        self.support_clusters_ = sums.groups.astype(np.int32)
        self.support_coefficients_ = sums.factors

    def _examine(self, model: Any, dataset: Dataset, shown: int) -> Examination:
        return Examination.of(KernelJobs().evaluate(model, dataset, self.engine, ()), dataset)

    def to_model(self) -> KernelKMeansModel:
        """Return the fitted model with its support rows; a callable kernel is left out.

        With a graph's kernel, or after a fit on the full batch, it holds all rows.
        """
        centres, d = self._centres, self.n_features_in_
        if isinstance(centres, GraphCentres):
            return GraphKMeansModel(**graph_arrays(centres, d), **self._facts())
        return KernelKMeansModel(**support_arrays(centres, d), **self._facts())

    def _facts(self) -> dict[str, Any]:
        """Return the fields of a model other than its centres."""
        return {
            "weights": self.cluster_weights_,
            "sizes": self.cluster_sizes_,
            "costs": self.cluster_costs_,
            "inertia": self.inertia_,
            **provenance(self),
        }

    @classmethod
    def from_model(cls, model: KernelKMeansModel) -> Self:
        """Return a fitted estimator with the parameters of a model, without ``labels_``."""
        self = from_provenance(cls, model, n_clusters=model.n_clusters)
        self.scaling_, self._centres = model.scaling, model.gram_centres()
        self._show_centres()
        self.cluster_weights_, self.cluster_sizes_ = model.weights, model.sizes
        self.cluster_costs_, self.inertia_ = model.costs, model.inertia
        return self
