"""The one door: whatever holds rows becomes a dataset."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from daskcluster.data.anndata import anndata_rows, is_anndata
from daskcluster.data.array import ArrayDataset, mapped_file, mapped_npy
from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.converted import ROWS, WEIGHTS
from daskcluster.data.dataset import RowDataset, RowWeights
from daskcluster.data.frame import frame_rows, is_frame
from daskcluster.data.nodes import (
    metadata_digest,
    not_an_array,
    open_node,
    warn_of_missing_chunks,
)
from daskcluster.data.sparse_memory import MemorySparseDataset, is_sparse, open_sparse
from daskcluster.data.sparse_zarr import is_csr, open_csr
from daskcluster.data.weighted import array_weights, stored_weights
from daskcluster.data.weighted_store import holds_weighted_rows
from daskcluster.data.zarr import ZarrDataset, ZarrRecipe, recipe_of
from daskcluster.errors import (
    DatasetNotFoundError,
    InvalidDataError,
    InvalidParameterError,
    WrongTypeError,
)
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.location import Location, locate
from daskcluster.typing import Dataset

_CONVERTIBLE = (".npz", ".csv", ".tsv", ".parquet", ".csv.gz", ".pq")


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
    opened = _open_rows(source, array, storage_options, flatten)
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


def _open_rows(
    source: Any, name: str | None, options: Mapping[str, Any] | None, flatten: bool
) -> Dataset:
    if isinstance(source, (str, os.PathLike)):
        return _open_url(locate(source, options), name or "", flatten)
    if name is not None and not is_anndata(source):
        raise InvalidParameterError(
            f"array={name!r} names an array of a Zarr group, but source is a {type(source).__name__}; "
            "leave array= out."
        )
    if isinstance(source, Dataset):
        return source
    if isinstance(source, SparseRows):
        return MemorySparseDataset(source)
    if is_anndata(source):
        return _open_rows(anndata_rows(source, name), None, None, flatten)
    if _package(source) == "zarr":
        return _open_zarr_object(source, flatten)
    if hasattr(source, "__dask_graph__"):
        # Imports dask, which nobody else needs here.
        from daskcluster.data.dask_array import open_dask

        return open_dask(source, flatten=flatten)
    return open_sparse(source) if is_sparse(source) else _open_in_memory(source, flatten)


def _package(source: Any) -> str:
    return type(source).__module__.partition(".")[0]


def _open_url(location: Location, name: str, flatten: bool) -> RowDataset:
    lower = location.url.lower()
    if lower.endswith(".npy"):
        return _open_npy(location, name, flatten)
    if lower.endswith(_CONVERTIBLE):
        raise InvalidDataError(
            f"{location.url!r} is not read in place; turn it into Zarr once with: daskcluster convert "
            f"{location.url} OUTPUT.zarr"
        )
    node: Any = open_node(location, name)
    if not name and holds_weighted_rows(node):
        rows = _open_url(location, ROWS, flatten)
        return rows.with_weights(stored_weights(location, WEIGHTS, rows.n_rows))
    place = location.child(name) if name else location
    if is_csr(node):
        for part in ("data", "indices"):
            if part in node:
                warn_of_missing_chunks(node[part], place.child(part))
        return open_csr(node, location, name)
    if not hasattr(node, "chunks"):
        raise not_an_array(node, location, name)
    array = node
    what = f"array at {location.url!r}"
    check_shape(array.shape, flatten=flatten, what=what)
    check_dtype(array.dtype, what=what)
    warn_of_missing_chunks(array, place)
    return ZarrDataset(array, ZarrRecipe(location, name, metadata_digest(array)))


def _open_npy(location: Location, name: str, flatten: bool) -> RowDataset:
    if name:
        raise InvalidParameterError(
            f"array={name!r} names an array of a Zarr group, but {location.url!r} is a .npy file; leave "
            "array= out."
        )
    if not location.is_local:
        raise InvalidDataError(
            f"{location.url!r}: a .npy file is mapped into memory, which needs a local path; turn it into "
            f"Zarr with: daskcluster convert {location.url} OUTPUT.zarr"
        )

    def check(array: np.ndarray) -> None:
        check_shape(array.shape, flatten=flatten, what=f"array in {location.url!r}")
        check_dtype(array.dtype, what=f"array in {location.url!r}")

    return mapped_npy(location.url, check).open()


def _open_zarr_object(array: Any, flatten: bool) -> RowDataset:
    if is_csr(array):
        return open_csr(array)
    if not hasattr(array, "shape"):
        raise InvalidDataError(
            f"source is a Zarr {type(array).__name__}, not an array; pick one, e.g. group['X']."
        )
    check_shape(array.shape, flatten=flatten, what="Zarr array")
    check_dtype(array.dtype, what="Zarr array")
    return ZarrDataset(array, recipe_of(array))


def _open_in_memory(source: Any, flatten: bool) -> RowDataset:
    if isinstance(source, np.memmap) and _is_whole_file(source):
        check_shape(source.shape, flatten=flatten)
        check_dtype(source.dtype)
        source.flush()
        return mapped_file(source, str(source.filename)).open()
    rows = frame_rows(source) if is_frame(source) else _as_array(source)
    check_shape(rows.shape, flatten=flatten)
    check_dtype(rows.dtype)
    return ArrayDataset(rows.reshape(-1, rows.shape[-1]) if rows.ndim > 2 else rows)


def _is_whole_file(array: np.memmap) -> bool:
    # A slice of a memmap keeps the offset of the whole, so it can only be described as an array.
    base: Any = array.base
    contiguous = array.flags.c_contiguous or (array.ndim == 2 and array.flags.f_contiguous)
    readable = array.mode != "c" and os.path.isfile(str(array.filename))
    return isinstance(base, mmap.mmap) and contiguous and readable


def _as_array(source: Any) -> np.ndarray:
    if hasattr(source, "toarray") and hasattr(source, "nnz"):
        raise WrongTypeError(
            f"source is a {type(source).__module__}.{type(source).__qualname__}; sparse rows are taken "
            "from scipy, e.g. scipy.sparse.csr_array(source)."
        )
    if source is None or isinstance(source, (dict, set, bytes)) or callable(source):
        raise WrongTypeError(
            f"source is a {type(source).__name__}, which holds no rows; give a path, a URL, an array, "
            "a frame or a dataset."
        )
    try:
        array = np.asarray(source)
    except (ValueError, TypeError) as error:
        raise InvalidDataError(
            f"The rows cannot be made into one array ({error}); every row needs the same number of numbers."
        ) from error
    if array.dtype == object and array.ndim < 2 and not np.isscalar(source):
        raise WrongTypeError(
            f"source is a {type(source).__name__}, which is no table of numbers; give a path, a URL, an "
            "array of shape (n, d), a frame or a dataset."
        )
    return array


def _open_weights(
    weights: Any,
    dataset: RowDataset,
    source: Any,
    name: str | None,
    options: Mapping[str, Any] | None,
) -> RowWeights:
    if not isinstance(weights, (str, os.PathLike)):
        package = _package(weights)
        if package == "zarr" and isinstance(recipe := recipe_of(weights), ZarrRecipe):
            return stored_weights(recipe.location, recipe.name, dataset.n_rows)
        return array_weights(weights[:] if package == "zarr" else weights, dataset.n_rows)
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
