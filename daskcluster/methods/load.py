"""Load saved models as the estimators that were fitted."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from daskcluster.errors import ModelFormatError
from daskcluster.methods.catalogue import class_names, estimator_path
from daskcluster.methods.partition.partitioning import PartitionModel
from daskcluster.models.fitted import load_document


def load_model(url: str, *, storage_options: dict[str, Any] | None = None) -> Any:
    """Return the fitted estimator that was saved at `url`. Nothing in the file is executed.

    Parameters
    ----------
    url : str
        A path or an fsspec URL.
    storage_options : dict, optional
        Passed to the file system.

    Returns
    -------
    estimator
        An object of the class that was fitted, with its parameters, but without ``labels_``. For
        partitions, a `daskcluster.methods.partition.partitioning.PartitionModel`.

    Raises
    ------
    ModelFormatError
        Damaged, of an unknown format version, kind or estimator, or no model at all.

    Notes
    -----
    Cost: reads the whole model, which has the size of its arrays and a few kB; no pass over rows.

    Examples
    --------
    >>> import daskcluster as dc
    >>> fitted = dc.KMeans(2, random_state=0).fit([[0.0], [1.0], [9.0]])
    >>> fitted.save("memory://doctest/load.zarr", overwrite=True)
    >>> dc.load_model("memory://doctest/load.zarr").n_clusters
    2
    """
    model = load_document(url, storage_options)
    # A name in a file is looked up among our own, never imported.
    path = estimator_path(model.estimator)
    if isinstance(model, PartitionModel):
        return model
    if path is None:
        raise ModelFormatError(
            f"{url!r} is a model of the estimator {model.estimator[:40]!r}, known are "
            f"{', '.join(class_names())}; load it with a newer daskcluster."
        )
    estimator = resolve_name(path)
    if model.kind not in estimator.model_kinds:
        raise ModelFormatError(
            f"{url!r} is a model of kind {model.kind!r} that names {model.estimator}, whose models are of "
            f"kind {' or '.join(map(repr, estimator.model_kinds))}; save it again or restore a copy."
        )
    return estimator.from_model(model)
