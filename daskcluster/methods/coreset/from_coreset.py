"""What estimators share that learn from a coreset: they have not seen all rows, so labels come later."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.labels import Labels


class LabelsLater:
    """Mixin, before `SharesEngine`: ``labels_`` when they are asked for, and pickles without the coreset.

    A fit ends with `_label_later`.
    """

    def _label_later(self, labels: Labels, *, in_memory: bool) -> None:
        """Remember how rows are labelled; as an array, if they were given in memory."""
        self._labels: Any = labels
        self._in_memory = in_memory

    @property
    def labels_(self) -> Any:
        """The label of every row, from a pass that is made when they are first asked for."""
        if not hasattr(self, "_labels"):
            raise AttributeError(
                f"this {type(self).__name__} has no labels_: it was not fitted, or was loaded without its "
                "rows; use predict(X)."
            )
        return np.asarray(self._labels) if self._in_memory else self._labels

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        state.pop("coreset_", None)
        labels = state.pop("_labels", None)
        if labels is not None and self._in_memory and getattr(labels, "is_computed", True):
            state["_labels"] = np.asarray(labels)
        return state


def check_coreset_size(size: int, unit: str, n_clusters: int) -> None:
    """Refuse a coreset of less rows than there are clusters; `unit` is what they are called."""
    if size < n_clusters:
        raise InvalidParameterError(
            f"coreset_size={size} should be >= n_{unit}s={n_clusters}; a few hundred rows for each {unit} "
            "are a good start."
        )
