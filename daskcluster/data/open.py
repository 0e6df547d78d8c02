"""The one door: whatever holds rows becomes a dataset, and what holds weights its weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import RowDataset, RowWeights
from daskcluster.data.sources import is_zarr, open_source
from daskcluster.data.weighted import array_weights, stored_weights
from daskcluster.data.zarr import ZarrRecipe, recipe_of
from daskcluster.errors import (
    DatasetNotFoundError,
    InvalidParameterError,
    WrongTypeError,
)
from daskcluster.storage.location import locate
from daskcluster.typing import Dataset


def open_chunk(chunk: Chunk) -> Dataset:
    """Return the rows of a chunk as a dataset in memory: normalized, if those of the chunk are."""
    dataset = open_dataset(chunk.rows, weights=chunk.weights)
    return dataset.normalized() if chunk.normalize else dataset


def open_dataset(
    source: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
) -> Dataset:
    """Open rows as they are; see `daskcluster.open_dataset`, which also scales them.

    Parameters
    ----------
    source, array, weights, storage_options, flatten
        As there.

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetNotFoundError, InvalidDataError, InvalidParameterError, MissingExtraError, WrongTypeError
        As there.

    Notes
    -----
    Cost: no pass over the rows; one pass over the weights, to check them.

    Examples
    --------
    >>> import numpy as np
    >>> dataset = open_dataset(np.zeros((10, 3), np.float32))
    >>> dataset.n_rows, dataset.n_features, dataset.dtype
    (10, 3, dtype('float32'))
    """
    if storage_options and not any(isinstance(x, (str, os.PathLike)) for x in (source, weights)):
        raise InvalidParameterError(
            f"storage_options say how to reach a URL, but source is a {type(source).__name__}; leave "
            "them out."
        )
    opened = open_source(source, array=array, storage_options=storage_options, flatten=flatten)
    if weights is None:
        return opened
    if opened.weights is not None:
        raise InvalidParameterError(
            "The dataset carries weights already and weights= was given too; give them once."
        )
    if not isinstance(opened, RowDataset):
        raise WrongTypeError(
            f"weights= cannot be added to a {type(opened).__name__}; give it weights of its own."
        )
    return opened.with_weights(_open_weights(weights, opened, source, array, storage_options))


def _open_weights(
    weights: Any,
    dataset: RowDataset,
    source: Any,
    name: str | None,
    options: Mapping[str, Any] | None,
) -> RowWeights:
    if not isinstance(weights, (str, os.PathLike)):
        if is_zarr(weights) and isinstance(recipe := recipe_of(weights), ZarrRecipe):
            return stored_weights(recipe.location, recipe.name, dataset.n_rows)
        return array_weights(weights[:] if is_zarr(weights) else weights, dataset.n_rows)
    if name is not None and "://" not in str(weights):
        group = locate(source, options)
        try:
            return stored_weights(group, str(weights), dataset.n_rows)
        except DatasetNotFoundError:
            if not os.path.exists(weights):
                raise
    if str(weights).lower().endswith(".npy"):
        return array_weights(np.load(locate(weights).url, mmap_mode="r"), dataset.n_rows)
    return stored_weights(locate(weights, options), "", dataset.n_rows)
