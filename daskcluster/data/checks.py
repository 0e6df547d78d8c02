"""Checks of rows: shapes, dtypes, data frames and masked arrays, of which what is masked is missing."""

from __future__ import annotations

import math
import mmap
import os
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from daskcluster.data.spec import (
    AS_THEY_ARE,
    refuse_duplicates,
    warn_of_id_columns,
)
from daskcluster.errors import InvalidDataError

_NUMBERS = (Real, Decimal, np.bool_)


def check_shape(shape: tuple[int, ...], *, flatten: bool, what: str = "array") -> None:
    """Refuse shapes that are not rows by features.

    Raises
    ------
    InvalidDataError
        Fewer than two axes; more than two without `flatten`; no rows; no features.
    """
    if len(shape) < 2:
        kind = "scalar array" if not shape else "1D array"
        raise InvalidDataError(
            f"Expected 2D array, got {kind} instead: the {what} has shape={shape}.\n"
            "Reshape your data either using array.reshape(-1, 1) if your data has a single feature "
            "or array.reshape(1, -1) if it contains a single sample."
        )
    if len(shape) > 2 and not flatten:
        raise InvalidDataError(
            f"Found array with dim {len(shape)}. daskcluster expected <= 2: the {what} has "
            f"shape={shape}, rows by features is needed. {_how_to_reshape(shape)}"
        )
    if 0 in shape[:-1]:
        raise InvalidDataError(
            f"Found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required: the {what} "
            "has no rows; check that the right array was opened and that it was written."
        )
    if shape[-1] == 0:
        raise InvalidDataError(
            f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required: the {what} "
            "has no columns; check that the right array was opened."
        )


def _how_to_reshape(shape: tuple[int, ...]) -> str:
    pixels = (math.prod(shape[:-1]), shape[-1])
    samples = (shape[0], math.prod(shape[1:]))
    return (
        f"Use array.reshape({samples[0]}, {samples[1]}) if the first axis counts the samples, "
        f"flatten=True (rows {pixels[0]} x features {pixels[1]}) if the last axis holds the features, or "
        "open_grid(source, features=AXES), --features AXES on the command line, if others do, as the bands "
        "and dates of a raster."
    )


def check_dtype(dtype: Any, *, what: str = "array") -> None:
    """Refuse dtypes that are not real numbers of at most 64 bits.

    Raises
    ------
    InvalidDataError
        Complex, object, string, datetime, structured and extended-precision dtypes.
    """
    dtype = np.dtype(dtype)
    if dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8) or is_bfloat16(dtype):
        return
    fault = f"Rows of dtype={dtype} cannot be clustered."
    if dtype.kind in "cSUT":  # as scikit-learn has it
        fault = "dtype='numeric' is not compatible with arrays of bytes/strings."
        fault = "Complex data not supported" if dtype.kind == "c" else fault
    raise InvalidDataError(
        f"{fault}\nThe {what} has dtype={dtype}; float16, bfloat16, float32, float64, integers and bool "
        "are accepted. Convert your data to numeric values explicitly, e.g. with array.astype('float64'); "
        "fields of records, and parts of complex numbers, are features of their own."
    )


def is_bfloat16(dtype: Any) -> bool:
    """Return True for bfloat16 of the library ml_dtypes, without importing it."""
    return getattr(dtype, "name", "") == "bfloat16"


def is_frame(source: Any) -> bool:
    """Return True for a pandas DataFrame, without importing pandas."""
    return type(source).__module__.startswith("pandas") and hasattr(source, "columns")


def is_xarray(source: Any) -> bool:
    """Return True for a DataArray, Dataset or DataTree of xarray, without importing it."""
    return type(source).__module__.partition(".")[0] == "xarray" and hasattr(source, "coords")


def is_anndata(source: Any) -> bool:
    """Return True for an AnnData object, without importing its library."""
    return type(source).__module__.partition(".")[0] == "anndata" and hasattr(source, "obsm")


def is_sparse(source: Any) -> bool:
    """Return True for a scipy sparse matrix or array, without importing scipy."""
    return type(source).__module__.startswith("scipy.sparse") and hasattr(source, "tocsr")


def is_mapped_file(given: Any) -> bool:
    """Return True for a `numpy.memmap` that is the whole of its mapping."""
    # A slice keeps the offset of the whole, so it can only be described as an array.
    base: Any = getattr(given, "base", None)
    if not (isinstance(given, np.memmap) and isinstance(base, mmap.mmap)):
        return False
    contiguous = given.flags.c_contiguous or (given.ndim == 2 and given.flags.f_contiguous)
    return contiguous and given.mode != "c" and os.path.isfile(str(given.filename))


def is_arrow(given: Any) -> bool:
    """Return True for an Arrow table, or what gives one: polars, DuckDB, pyarrow; pandas apart."""
    module = type(given).__module__.partition(".")[0]
    if module in ("pandas", "numpy", "dask"):
        return False
    return hasattr(given, "__arrow_c_stream__") or (
        module == "polars" and hasattr(given, "collect")
    )


def is_huggingface(given: Any) -> bool:
    """Return True for a dataset of the library ``datasets``."""
    return type(given).__module__.partition(".")[0] == "datasets" and hasattr(given, "data")


def has_list_column(frame: Any) -> bool:
    """Return True for a pandas DataFrame with a column whose first value is a list or an array."""
    return is_frame(frame) and any(_holds_lists(column) for _, column in frame.items())


def _holds_lists(column: Any) -> bool:
    if column.dtype == "object":
        return isinstance(next(iter(column.dropna()), None), (list, tuple, np.ndarray))
    return str(column.dtype).partition("<")[0] in ("list", "large_list", "fixed_size_list")


def warn_of_ids_in_frame(frame: Any) -> None:
    """Warn of columns of a pandas DataFrame whose names look like those of ids.

    Raises
    ------
    InvalidDataError
        Columns of one name.
    """
    refuse_duplicates(frame.columns, AS_THEY_ARE, "the DataFrame")
    if len(frame.columns) > 1:
        numbers = [
            name for name, kind in frame.dtypes.items() if getattr(kind, "kind", "O") in "biuf"
        ]
        warn_of_id_columns(numbers, lambda name: _counts(frame[name]))  # others are refused


def _counts(column: Any) -> bool:
    if getattr(getattr(column, "dtype", None), "kind", "") not in "iu" or len(column) < 3:
        return False
    return bool(column.is_unique and column.is_monotonic_increasing)


def check_columns(dtypes: Any) -> None:
    """Refuse a frame with columns that are no real numbers, naming them.

    Parameters
    ----------
    dtypes : mapping of column to dtype
        ``frame.dtypes``, of pandas or dask.
    """
    kinds = ((name, dtype, getattr(dtype, "kind", "O")) for name, dtype in dtypes.items())
    bad = [f"{name!r} ({dtype})" for name, dtype, kind in kinds if kind not in "biuf"]
    if bad:
        raise InvalidDataError(
            f"The frame has columns that are no real numbers: {', '.join(bad[:10])}. Choose the features "
            "with columns=[...], leave these out with drop=[...], name an id with id_column= of "
            "open_dataset, or encode them, e.g. times with astype('int64') and categories with "
            "pandas.get_dummies."
        )


def numeric_frame(frame: Any) -> Any:
    """Return a pandas frame of real numbers: numbers and None as float64, sparse columns dense.

    Raises
    ------
    InvalidDataError
        Columns that are no real numbers.
    """
    columns = [_numbers_of(column) for _, column in frame.items()]
    if any(column.dtype != dtype for column, dtype in zip(columns, frame.dtypes, strict=True)):
        frame = type(frame)(dict(enumerate(columns))).set_axis(frame.columns, axis=1)
    check_columns(frame.dtypes)
    return frame


def _numbers_of(column: Any) -> Any:
    """Return a column of objects as float64 if all are real numbers or missing; another column as it is.

    Decimals and nulls of Arrow are such objects. A sparse column becomes dense.
    """
    if str(column.dtype).startswith("Sparse"):
        return column.sparse.to_dense()
    holds_objects = str(column.dtype).startswith(("object", "decimal", "null"))
    if not holds_objects or not all(isinstance(x, _NUMBERS) for x in column.dropna()):
        return column
    return column.mask(column.isna(), np.nan).astype(np.float64)


def frame_rows(frame: Any) -> np.ndarray:
    """Return the columns of a pandas frame as an array (n, d); a missing value becomes NaN.

    float32 where all columns are exact in it, else float64 (a frame of one dtype keeps it).
    """
    frame = numeric_frame(frame)
    kinds = {str(dtype) for dtype in frame.dtypes}
    if len(kinds) == 1 and isinstance(next(iter(frame.dtypes)), np.dtype):
        rows: np.ndarray = frame.to_numpy()
        return rows
    found: np.ndarray = frame.to_numpy(dtype=frame_dtype(frame.dtypes), na_value=np.nan)
    return found


def frame_dtype(dtypes: Any) -> np.dtype[Any]:
    """Return the floating dtype that holds every column and NaN, wide enough for each."""
    exact = {"float32", "float16", "int8", "uint8", "int16", "uint16", "bool"}
    names = {str(getattr(dtype, "numpy_dtype", dtype)) for dtype in dtypes}
    return np.dtype(np.float32 if names <= exact else np.float64)


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
