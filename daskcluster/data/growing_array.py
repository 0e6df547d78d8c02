"""One number for each row of an array that grows, written as its rows come."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.errors import DaskClusterError, OutputExistsError
from daskcluster.storage.location import Location, explain
from daskcluster.storage.zarr_stores import open_store

UNKNOWN = {"i": -1, "f": np.nan}
"""What rows show that were not written yet."""


def write_rows_at(place: Location, start: int, values: np.ndarray, chunk_rows: int) -> None:
    """Write the values of rows `start` onwards; the array is made, or grows, as far as needed.

    Doing it again does no harm. One writer at a time.

    Parameters
    ----------
    place : Location
        Of a 1-D Zarr array.
    start : int
    values : ndarray of shape (n,)
    chunk_rows : int
        Of the array, if it is not there yet.

    Raises
    ------
    OutputExistsError
        Something else is there.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> from daskcluster.storage.location import locate
    >>> place = locate("memory://growing-array")
    >>> for start in (0, 2, 2):
    ...     write_rows_at(place, start, np.arange(start, start + 3, dtype=np.int32), 2)
    >>> zarr.open_array("memory://growing-array", mode="r")[:].tolist()
    [0, 1, 2, 3, 4]
    """
    try:
        array = _opened(place, values.dtype, chunk_rows)
        if array.ndim != 1 or array.dtype != values.dtype:
            raise OutputExistsError(
                f"{place.url!r} is an array of {array.ndim} axes and dtype {array.dtype}, where one number "
                f"a row of dtype {values.dtype} is to be written; choose another URL."
            )
        stop = start + len(values)
        if array.shape[0] < stop:
            array.resize((stop,))
        array[start:stop] = values
    except DaskClusterError:
        raise
    except Exception as error:  # clouds' clients have error classes of their own
        raise explain(error, place, "output") from error


def _opened(place: Location, dtype: Any, chunk_rows: int) -> Any:
    import zarr

    store = open_store(place, read_only=False)
    try:
        return zarr.open_array(store, mode="r+")
    except (FileNotFoundError, zarr.errors.NodeNotFoundError):
        return zarr.create_array(
            store,
            shape=(0,),
            chunks=(max(1, chunk_rows),),
            dtype=dtype,
            fill_value=UNKNOWN[np.dtype(dtype).kind],
            zarr_format=3,
        )
