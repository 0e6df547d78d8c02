"""Labels of rows in memory or in a store, read block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.annotations import unannotated
from daskcluster.data.nodes import open_array, read_chunk
from daskcluster.data.sources import IN_PLACE, is_zarr
from daskcluster.errors import InvalidDataError
from daskcluster.storage.location import locate

BLOCK_ROWS = 1 << 20


_MISSING = (
    "{} contains NaN, or lacks values: every row needs a label; leave such rows out, of the data too, or "
    "give them a label of their own, e.g. -1."
)


@dataclass(frozen=True)
class LabelArray:
    """The label of every row: integers, strings, anything that numpy can sort.

    Attributes
    ----------
    n_rows : int
    read : callable
        ``read(start, stop)`` returns the labels of those rows, in memory.
    """

    n_rows: int
    read: Callable[[int, int], np.ndarray]


def open_labels(
    source: Any, what: str = "labels", *, storage_options: Mapping[str, Any] | None = None
) -> LabelArray:
    """Open labels without reading them.

    Parameters
    ----------
    source : array-like of shape (n,), str or path
        Labels in memory, a `daskcluster` Labels handle, a dask array or Series, a zarr.Array, or the path
        or URL of a 1-D Zarr array, as ``fit --labels`` and ``predict --output`` write it.
    what : str
        What errors call it.
    storage_options : dict, optional
        Options of the file system of a URL.

    Raises
    ------
    InvalidDataError
        Not one label for every row.
    DatasetNotFoundError
        There is no Zarr array at the URL.

    Examples
    --------
    >>> open_labels([3, 3, 5]).read(1, 3)
    array([3, 5])
    """
    location = None
    if isinstance(source, (str, os.PathLike)):
        location = locate(source, storage_options)
        if os.path.isfile(location.url) or location.url.lower().endswith(IN_PLACE):
            raise InvalidDataError(
                f"{what} are read from a Zarr array, and {location.url!r} is a file; load it and pass the "
                "array, e.g. numpy.load(file), or pandas.read_parquet(file)['label']."
            )
        source, what = open_array(location), f"{what} {location.url!r}"
    elif type(source).__module__.startswith("pandas") and hasattr(source, "isna"):
        if np.any(source.isna()):
            raise InvalidDataError(_MISSING.format(what))
        source = np.asarray(source)
    elif hasattr(source, "__dask_graph__"):
        source = _dask_array(source)
    elif not is_zarr(source):
        source = np.asanyarray(source)
    shape = tuple(source.shape)
    if len(shape) != 1:
        raise InvalidDataError(
            f"{what} of shape {shape} should be of shape (n,): give one label for every row."
        )
    if isinstance(source, np.ndarray):
        return LabelArray(shape[0], lambda start, stop: _complete(source[start:stop], what))

    def read(start: int, stop: int) -> np.ndarray:
        if hasattr(source, "__dask_graph__"):
            part = unannotated(_computed, source, start, stop)
            return _complete(np.asanyarray(part), what)
        return _complete(read_chunk(source, slice(start, stop), what, location), what)

    return LabelArray(shape[0], read)


def _dask_array(labels: Any) -> Any:
    """Return a dask array or Series as an array of known length, which is counted if need be."""
    from daskcluster.data.dask_array import with_known_chunks

    is_frame = hasattr(labels, "to_dask_array")
    return with_known_chunks(labels.to_dask_array() if is_frame else labels)


def _computed(source: Any, start: int, stop: int) -> Any:
    return source[start:stop].compute()


def _complete(labels: np.ndarray, what: str) -> np.ndarray:
    """Refuse labels that are masked, or not a number, which are equal to no label."""
    if np.ma.is_masked(labels):
        raise InvalidDataError(_MISSING.format(what))
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise InvalidDataError(_MISSING.format(what))
    if labels.dtype == object:
        _check_objects(labels, what)
    return np.asarray(labels)


def _check_objects(labels: np.ndarray, what: str) -> None:
    """Refuse objects that are missing values, and those that have no order."""
    if any(map(_is_missing, labels)):
        raise InvalidDataError(_MISSING.format(what))
    try:
        np.sort(labels)
    except TypeError as error:
        names = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise InvalidDataError(
            f"{what} has values of the types {names}, which cannot be compared; give labels of one type, "
            "e.g. as strings: labels.astype(str)."
        ) from error


def _is_missing(label: Any) -> bool:
    """Return True for None, for NaN, and for pandas' NA, which is neither equal to itself nor not."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True
