"""Models on disk: sealed documents (`daskcluster.storage.document`), there whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.errors import OutputExistsError
from daskcluster.models.kinds import KINDS, Model, model_class
from daskcluster.storage.document import Document, Form, looks_like, sealed, unsealed
from daskcluster.storage.files import file_size
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging
from daskcluster.storage.staging import check_free as check_output_free
from daskcluster.storage.zarr_stores import HEAD

MODEL = Form("daskcluster-model", 1, "model")

_REPLACEABLE = ("group",)


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
    model : KMeansModel, or any other `daskcluster.models.kinds.Model`
    url : str
        A path or an fsspec URL.
    overwrite : bool
        Replace a model that is there. Anything that is not a model is never replaced.
    storage_options : mapping, optional
        Passed to the file system.

    Raises
    ------
    OutputExistsError
        Something is there that may not be replaced.

    Notes
    -----
    Cost: a few kB beyond the arrays.

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
    """Raise `OutputExistsError` now if `save_model` would refuse `url` later."""
    check_output_free(url, overwrite=overwrite, storage_options=storage_options, kinds=_REPLACEABLE)
    place = locate(url, storage_options)
    if overwrite and file_size(place, HEAD) >= 0 and not looks_like(MODEL, place):
        # Any other Zarr group may hold somebody's rows.
        raise OutputExistsError(
            f"The output {place.url!r} exists and is not a model, so overwrite=True does not touch "
            "it; choose another name, or remove it yourself."
        )


def is_model(url: str, *, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Whether a model, sound or damaged, stands under `url`."""
    return looks_like(MODEL, locate(url, storage_options))


def load_document(url: str, storage_options: Mapping[str, Any] | None = None) -> Model:
    """Load the model under `url`, checking all of it.

    Parameters
    ----------
    url : str
        A path or an fsspec URL.
    storage_options : mapping, optional
        Passed to the file system.

    Raises
    ------
    ModelNotFoundError
        Nothing readable is there.
    ModelFormatError
        What is there is no model, is damaged, or has a format version that this release does not
        know.
    """
    known = {kind: model_class(kind).array_names for kind in KINDS}
    document = unsealed(MODEL, locate(url, storage_options), known)
    return model_class(document.kind).from_parts(document.body, document.arrays)
