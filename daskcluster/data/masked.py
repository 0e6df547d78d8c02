"""Masked arrays of numpy, and dask arrays of them: what is masked is missing, as NaN is."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.data.checks import is_bfloat16


def is_masked(source: Any) -> bool:
    """Return True for a masked array of numpy, also one without masked values, and for a list of them."""
    if isinstance(source, (list, tuple)):
        return any(isinstance(row, np.ma.MaskedArray) for row in source)
    return isinstance(source, np.ma.MaskedArray)


def without_mask(values: Any) -> np.ndarray:
    """Return the values of an array with NaN where it is masked; the same memory if nothing is masked.

    Integers with masked values become floating, see `floating`.

    Examples
    --------
    >>> without_mask(np.ma.masked_equal(np.array([[3, -9]], np.int16), -9))
    array([[ 3., nan]], dtype=float32)
    """
    data, mask = np.ma.getdata(values), np.ma.getmask(values)
    wanted = floating(data.dtype)
    if mask is np.ma.nomask or wanted is None or not mask.any():
        return np.asarray(data)
    found = np.array(data, wanted, subok=False)
    found[mask] = np.nan
    return found


def floating(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the floating dtype that holds numbers of a dtype and NaN; None if they are no real numbers."""
    if dtype.kind == "f" or is_bfloat16(dtype):
        return dtype
    if dtype.kind not in "biu":
        return None
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def has_masks(array: Any) -> bool:
    """Return True for a dask array of masked blocks, by its metadata."""
    from dask.array.utils import meta_from_array

    return isinstance(meta_from_array(array), np.ma.MaskedArray)


def without_masks(array: Any) -> Any:
    """Return a dask array of masked blocks as one of plain blocks, with NaN where they are masked.

    Integers become floating in all blocks, since any of them may have masked values.
    """
    wanted = floating(array.dtype)
    if wanted is None or not has_masks(array):
        return array
    empty = np.empty((0,) * array.ndim, wanted)
    return array.map_blocks(_plain, wanted, dtype=wanted, meta=empty)


def _plain(block: Any, dtype: np.dtype[Any]) -> np.ndarray:
    return without_mask(block).astype(dtype, copy=False)
