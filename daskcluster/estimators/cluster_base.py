"""What all k-means estimators share, in the space of a kernel or not: results of a fit, and the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from daskcluster.estimators.by_reference import SharesEngine
from daskcluster.estimators.labels import Labels
from daskcluster.models.persist import save_model


class ClusterEstimator(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, SharesEngine
):
    """Base of estimators that learn centres of some kind.

    Subclasses have ``fit``, ``transform`` and ``to_model``, and learn ``labels_``, ``cluster_sizes_``,
    ``cluster_weights_`` and ``cluster_costs_``.
    """

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit, and return the distances of every row to every centre; see `transform`."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit, and return the label of every row; see ``labels_``."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if isinstance(state.get("labels_"), Labels):
            del state["labels_"]
        return state

    def summary(self) -> dict[str, np.ndarray]:
        """Return ``size``, ``weight`` and ``cost`` of every cluster, as found by the fit."""
        check_is_fitted(self)
        return {
            "size": self.cluster_sizes_.copy(),
            "weight": self.cluster_weights_.copy(),
            "cost": self.cluster_costs_.copy(),
        }

    def save(
        self, url: str, *, overwrite: bool = False, storage_options: dict[str, Any] | None = None
    ) -> None:
        """Write the model to `url` (Zarr and JSON, no pickle): a few kB beyond what the centres are.

        Those of kernel k-means are support rows and their coefficients.

        Raises
        ------
        OutputExistsError
            There is something at `url` and `overwrite` is False.
        """
        check_is_fitted(self)
        save_model(self.to_model(), url, overwrite=overwrite, storage_options=storage_options)
