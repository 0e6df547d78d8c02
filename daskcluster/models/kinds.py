"""What every model is, and the kinds of models there are."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, ClassVar, Protocol

import numpy as np

from daskcluster.chunkwise.feature_scaling import FeatureScaling


class Model(Protocol):
    """What a fit leaves behind, whichever estimator made it.

    Attributes
    ----------
    kind : str
        Names the class in saved documents.
    array_names : frozenset of str
        The arrays that every document of the kind has.
    estimator : str
        Name of the class that was fitted, as the catalogue of algorithms has it.
    centres : ndarray of shape (k, d)
    weights : ndarray of shape (k,)
        Total row weight of each cluster.
    """

    kind: ClassVar[str]
    array_names: ClassVar[frozenset[str]]

    @property
    def estimator(self) -> str: ...
    @property
    def centres(self) -> np.ndarray: ...
    @property
    def weights(self) -> np.ndarray: ...
    @property
    def n_clusters(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def n_iter(self) -> int: ...
    @property
    def stop_reason(self) -> str: ...
    @property
    def seeding(self) -> str: ...
    @property
    def passes(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def history(self) -> tuple[dict[str, Any], ...]: ...
    @property
    def parameters(self) -> dict[str, Any]: ...
    @property
    def created_with(self) -> dict[str, str]: ...
    @property
    def scaling(self) -> FeatureScaling | None: ...
    @property
    def centres_of_data(self) -> np.ndarray: ...

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save, by name."""
        ...

    def body(self) -> dict[str, Any]:
        """Return all else, as plain JSON values."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what only this kind of model has to say, for tables."""
        ...

    @classmethod
    def from_parts(cls, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Model:
        """Return the model that `body` and `arrays` describe; see `ModelFormatError`."""
        ...


KINDS: dict[str, str] = {
    "kmeans": "daskcluster.models.kmeans:KMeansModel",
    "mixture": "daskcluster.methods.mixture.model:MixtureModel",
    "kernel-kmeans": "daskcluster.methods.kernel.model:KernelKMeansModel",
    "graph-kmeans": "daskcluster.methods.kernel.graph:GraphKMeansModel",
}
"""Where the classes of models are, by the kind that a saved document names."""


def model_class(kind: str) -> type[Model]:
    """Return the class of models of one of `KINDS`."""
    found: type[Model] = resolve_name(KINDS[kind])
    return found
