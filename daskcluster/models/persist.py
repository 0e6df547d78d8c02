"""Kinds of models, and saving and loading them as sealed documents."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, ClassVar, Protocol

import numpy as np

from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.data.features import FeatureSpec
from daskcluster.errors import OutputExistsError
from daskcluster.storage.document import Document, Form, looks_like, sealed, unsealed
from daskcluster.storage.files import file_size
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging
from daskcluster.storage.staging import check_free as check_output_free
from daskcluster.storage.zarr_stores import HEAD, MODEL_FORMAT


class Model(Protocol):
    """Interface of all models.

    Attributes
    ----------
    kind : str
        Name of the class in saved documents.
    array_names : frozenset of str
        Names of the arrays in every document of this kind.
    optional_arrays : frozenset of str
        Names of arrays that a document of this kind may have.
    estimator : str
        Class name of the estimator, as in the catalogue of algorithms.
    centres : ndarray of shape (k, d)
    weights : ndarray of shape (k,)
        Total row weight of each cluster.
    feature_names : tuple of str, or None
    """

    kind: ClassVar[str]
    array_names: ClassVar[frozenset[str]]
    optional_arrays: ClassVar[frozenset[str]]

    @property
    def estimator(self) -> str: ...
    @property
    def feature_names(self) -> tuple[str, ...] | None: ...
    @property
    def features(self) -> FeatureSpec: ...
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
        """Return everything else, as plain JSON values."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return the fields specific to this kind of model, for tables."""
        ...

    @classmethod
    def from_parts(cls, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Model:
        """Return the model that `body` and `arrays` describe; see `ModelFormatError`."""
        ...


KINDS: dict[str, str] = {
    "kmeans": "daskcluster.models.kmeans:KMeansModel",
    "hierarchical-kmeans": "daskcluster.methods.hierarchical.model:HierarchicalModel",
    "partitions": "daskcluster.methods.partition.partitioning:PartitionModel",
    "mixture": "daskcluster.methods.mixture.model:MixtureModel",
    "kernel-kmeans": "daskcluster.methods.kernel.model:KernelKMeansModel",
    "graph-kmeans": "daskcluster.methods.kernel.graph:GraphKMeansModel",
}
"""Import paths of the model classes, by their kind in saved documents."""


def model_class(kind: str) -> type[Model]:
    """Return the class of models of one of `KINDS`."""
    found: type[Model] = resolve_name(KINDS[kind])
    return found


MODEL = Form(MODEL_FORMAT, 1, "model")

_REPLACEABLE = ("group", "model")


def save_model(
    model: Model,
    url: str,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Save `model` under `url`.

    Parameters
    ----------
    model : KMeansModel, or any other `daskcluster.models.persist.Model`
    url : str
        A path or an fsspec URL.
    overwrite : bool
        Replace an existing model. Anything else is never replaced.
    storage_options : mapping, optional
        Passed to the file system.

    Raises
    ------
    OutputExistsError
        `url` exists and may not be replaced.

    Notes
    -----
    Cost: writes the arrays and a few kB.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.models.kmeans import KMeansModel
    >>> model = KMeansModel(np.eye(2), np.ones(2), n_rows=2)
    >>> save_model(model, "memory://doctest/model.zarr", overwrite=True)
    >>> load_document("memory://doctest/model.zarr").centres
    array([[1., 0.],
           [0., 1.]])
    """
    check_free(url, overwrite=overwrite, storage_options=storage_options)
    files = dict(sealed(MODEL, Document(model.kind, model.body(), model.arrays())))
    with Staging.begin(
        url, overwrite=overwrite, storage_options=storage_options, kinds=_REPLACEABLE
    ) as staging:
        staging.commit(files)


def check_free(
    url: str, *, overwrite: bool = False, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Raise `OutputExistsError` if `save_model` would refuse `url`."""
    check_output_free(url, overwrite=overwrite, storage_options=storage_options, kinds=_REPLACEABLE)
    place = locate(url, storage_options)
    if overwrite and file_size(place, HEAD) >= 0 and not looks_like(MODEL, place):
        # Any other Zarr group may hold data.
        raise OutputExistsError(
            f"The output {place.url!r} exists and is not a model, so overwrite=True does not replace it; "
            "choose another name, or remove it yourself."
        )


def is_model(url: str, *, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return whether there is a model, damaged or not, at `url`."""
    return looks_like(MODEL, locate(url, storage_options))


def load_document(url: str, storage_options: Mapping[str, Any] | None = None) -> Model:
    """Load the model at `url` and check all of it.

    Parameters
    ----------
    url : str
        A path or an fsspec URL.
    storage_options : mapping, optional
        Passed to the file system.

    Raises
    ------
    ModelNotFoundError
        There is no readable document at `url`.
    ModelFormatError
        It is not a model, is damaged, or has a format version unknown to this release.
    """
    classes = [model_class(kind) for kind in KINDS]
    known = {each.kind: (each.array_names, each.optional_arrays) for each in classes}
    document = unsealed(MODEL, locate(url, storage_options), known)
    return model_class(document.kind).from_parts(document.body, document.arrays)
