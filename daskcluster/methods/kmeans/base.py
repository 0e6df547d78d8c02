"""The base of the k-means estimators: checks of rows, attributes of a fit, and their model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from daskcluster.chunkwise.assign import RowParams, ScoreStatistics, nearest_function
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Placement
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.estimators.base import CentreEstimator
from daskcluster.estimators.examples import Examination
from daskcluster.estimators.export import faiss_index
from daskcluster.estimators.fit import Fit, all_callbacks
from daskcluster.estimators.inputs import check_enough_rows, fit_dataset
from daskcluster.estimators.provenance import from_provenance, provenance
from daskcluster.estimators.rows import results_of_rows
from daskcluster.events import Callback
from daskcluster.methods.kmeans.assignment import few_rows, search_for
from daskcluster.methods.kmeans.stability import stability
from daskcluster.models.fitted import FitResult
from daskcluster.models.kmeans import KMeansModel
from daskcluster.typing import Dataset

LABELS_SHARE = 1 / 16
"""Share of the room for state that labels may take if nobody has asked for them yet."""

OneFit = TypeVar("OneFit", bound=Fit)


@dataclass
class KMeansRun:
    """One restart: the result of its loop, the final figures, and labels if there was room for them.

    `search` is that of the final centres, None if none pays.
    """

    result: FitResult
    found: ScoreStatistics
    labels: np.ndarray | None
    search: FixedSearch | None = None


def measure_run(
    rows: ScaledPlacement,
    result: FitResult,
    labels: np.ndarray | None = None,
    *,
    labelled: bool,
) -> KMeansRun:
    """Compute the final inertia and cluster figures, and labels, row by row: one pass.

    Parameters
    ----------
    rows : ScaledPlacement
    result : FitResult
    labels : ndarray of shape (n,), int32, optional
        OUT. Room for labels in this process, or those of ``result.centres`` already
        (``result.labelled``).
    labelled : bool
        Labels are requested; without room for them, that takes one more pass. If they are not, they are
        kept where the pass can write them to this process and they take little of its memory.
    """
    centres, known = result.centres, labels is not None and result.labelled
    if labels is None and _has_room(rows.placement):
        labels = np.empty(rows.placement.dataset.n_rows, np.int32)
    search = search_for(centres, rows, partial(few_rows, rows))
    found = score_rows(rows, centres, labels, labelled=known, search=search)
    if labelled and labels is None:
        params = RowParams(centres, search=search)
        labels = results_of_rows(rows.placement, nearest_function(params))
    return KMeansRun(result, found, labels, search if search is not None and search.pays else None)


def _has_room(placement: Placement) -> bool:
    size = np.dtype(np.int32).itemsize * placement.dataset.n_rows
    return placement.shares_memory and size <= LABELS_SHARE * placement.state_room()


class KMeansEstimator(CentreEstimator):
    """Base of the k-means estimators.

    Subclasses have the parameters ``n_clusters``, ``verbose`` and those of `CentreEstimator`.
    """

    n_clusters: int
    verbose: int
    model_kinds: tuple[str, ...] = (KMeansModel.kind,)

    def __sklearn_is_fitted__(self) -> bool:
        # Features are known before a fit may fail.
        return hasattr(self, "cluster_centers_")

    def _check_rows(self, dataset: Dataset) -> None:
        check_enough_rows(dataset, self.n_clusters)

    def begin_fit(self, kind: type[OneFit], X: Any, sample_weight: Any, **options: Any) -> OneFit:
        """Return one call of fit on `X`, ready to run; its parameters are checked."""
        dataset = fit_dataset(self, X, sample_weight, scalable=True)
        self._check_rows(dataset)
        engine = choose_engine(self.engine, dataset)
        callbacks = all_callbacks(self)
        labelled = dataset.in_memory
        return kind(self, X, dataset, engine, callbacks, labelled=labelled, **options)

    # -- what was learnt --------------------------------------------------------------------------

    def _learn(self, best: KMeansRun, fit: Fit) -> None:
        self._centres, self._search = best.result.centres, best.search
        self._n_init = fit.restarts
        self.learn_fit(fit, best.result, best.found)
        self.learn_labels(fit.dataset, fit.engine, best.labels, in_memory=fit.labelled)

    def examine(
        self, dataset: Dataset, shown: int, most: int, callbacks: Sequence[Callback] = ()
    ) -> Examination:
        """Return figures, nearest and farthest rows, and the stability of clusters. One pass."""
        found = super().examine(dataset, shown, most, callbacks)
        if found.sample is None:
            return found
        return replace(found, stability=stability(found.sample, len(self._centres)))

    def to_model(self) -> KMeansModel:
        """Return the model: the learnt attributes, without the data."""
        return KMeansModel(
            centres=self._centres,
            weights=self.cluster_weights_,
            sizes=self.cluster_sizes_,
            costs=self.cluster_costs_,
            metric=self.metric,
            inertia=self.inertia_,
            **provenance(self),
        )

    def to_sklearn(self) -> Any:
        """Return a fitted `sklearn.cluster.KMeans` with these centres, which predicts the same labels.

        For the cosine metric it stands behind a `sklearn.preprocessing.Normalizer` in a pipeline. It has
        ``labels_`` where they are in memory. Rows that are as near to two centres, up to rounding, may get
        the other label.
        """
        # Imports half of scikit-learn, which nothing else needs.
        from daskcluster.estimators.export import sklearn_kmeans

        return sklearn_kmeans(self)

    def to_faiss(self) -> Any:
        """Return a flat Faiss index of the centres, in float32 (``pip install "daskcluster[faiss]"``).

        Of inner products for the cosine metric, else of squared distances.

        Raises
        ------
        MissingExtraError
            Faiss is not installed.
        """
        return faiss_index(self)

    @classmethod
    def from_model(cls, model: KMeansModel) -> Self:
        """Return the fitted estimator that a model describes (without ``labels_``)."""
        known = {"n_clusters": model.n_clusters, "metric": model.metric}
        self = from_provenance(cls, model, **known)
        self.scaling_, self._centres, self._search = model.scaling, model.centres, model.search
        self.cluster_weights_ = model.weights
        self.cluster_sizes_ = model.sizes
        self.cluster_costs_ = model.costs
        self.inertia_ = model.inertia
        return self
