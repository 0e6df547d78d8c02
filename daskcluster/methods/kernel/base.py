"""Base of the kernel k-means estimators: predict, transform, score, and fitted attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskcluster.chunkwise.assign import RowFunction, ScoreStatistics
from daskcluster.engine.choose import choose_engine
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import ClusterEstimator
from daskcluster.estimators.examples import Examination
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.inputs import check_enough_rows, fit_dataset
from daskcluster.estimators.provenance import from_provenance, provenance
from daskcluster.events import Callback
from daskcluster.methods.kernel.chunkwise.centres import (
    GramCentres,
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
    callbacks: Any
    verbose: int
    max_iter: int
    tol: float
    max_time: float | None
    checkpoint: Any
    checkpoint_every: int
    model_kinds: tuple[str, ...] = (KernelKMeansModel.kind,)
    _centres: GramCentres

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
        self, dataset: Dataset, callbacks: Sequence[Callback] = ()
    ) -> ScoreStatistics:
        """Return size, weight and cost of every cluster on rows with the features of the fit. One pass."""
        centres = self._known_centres()
        refuse_distances(centres)
        if centres.gram.is_precomputed:
            check_square(self, dataset)
        with choose_engine(self.engine, dataset).place(dataset, callbacks=callbacks) as placement:
            return measure_by_gram(placement, centres)

    def examine(
        self, dataset: Dataset, shown: int, most: int, callbacks: Sequence[Callback] = ()
    ) -> Examination:
        """Return the figures of every cluster; its centre is no point in the space of the rows."""
        return Examination.of(self.cluster_scores(dataset, callbacks), dataset)

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
        self._centres = result.centres
        self._show_centres()
        self.learn_fit(
            fit, result, found, ", or to a kernel that hardly distinguishes them: check gamma"
        )
        self.learn_labels(fit.dataset, fit.engine, labels, in_memory=labels is not None)

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
