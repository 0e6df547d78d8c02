"""Rows in memory, dense: arrays, frames, lists of numbers."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from daskcluster.data.array import ArrayDataset, mapped_file
from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.dataset import RowDataset
from daskcluster.data.frame import frame_rows, is_frame
from daskcluster.errors import InvalidDataError, WrongTypeError


def open_array_like(source: Any, *, flatten: bool = False) -> RowDataset:
    """Open an array, a frame, a memmap, or whatever numpy makes an array of."""
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
