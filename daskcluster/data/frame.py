"""Rows of data frames: numeric columns only, named when they are not."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.errors import InvalidDataError


def is_frame(source: Any) -> bool:
    """Return True for a pandas DataFrame, without importing pandas."""
    return type(source).__module__.startswith("pandas") and hasattr(source, "columns")


def check_columns(dtypes: Any) -> None:
    """Refuse a frame with columns that are no real numbers, naming them.

    Parameters
    ----------
    dtypes : mapping of column to dtype
        ``frame.dtypes``, of pandas or dask.
    """
    bad = [f"{name!r} ({dtype})" for name, dtype in dtypes.items() if not _is_real(dtype)]
    if bad:
        raise InvalidDataError(
            f"The frame has columns that are no real numbers: {', '.join(bad[:10])}. Drop or encode them, "
            "e.g. frame.select_dtypes('number')."
        )


def _is_real(dtype: Any) -> bool:
    kind = getattr(dtype, "kind", "O")
    return kind in "biuf" and not str(dtype).startswith("Sparse")


def frame_rows(frame: Any) -> np.ndarray:
    """Return the columns of a pandas frame as an array (n, d); a missing value becomes NaN.

    float32 where all columns are exact in it, else float64 (a frame of one dtype keeps it).
    """
    check_columns(frame.dtypes)
    kinds = {str(dtype) for dtype in frame.dtypes}
    if len(kinds) == 1 and isinstance(next(iter(frame.dtypes)), np.dtype):
        rows: np.ndarray = frame.to_numpy()
        return rows
    wanted = frame_dtype(frame.dtypes)
    try:
        rows = frame.to_numpy(dtype=wanted, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InvalidDataError(
            f"The frame cannot be made into numbers ({error}); convert its columns, e.g. with "
            "frame.astype('float64')."
        ) from error
    return rows


def frame_dtype(dtypes: Any) -> np.dtype[Any]:
    """Return the floating dtype that holds every column, wide enough for each."""
    exact = {"float32", "float16", "int8", "uint8", "int16", "uint16", "bool", "boolean"}
    names = {str(dtype).lower() for dtype in dtypes}
    return np.dtype(np.float32 if names <= exact else np.float64)
