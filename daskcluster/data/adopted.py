"""Chunks of Zarr arrays as they were decoded, without the copy that Zarr makes of them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import zarr
from zarr.abc.buffer import BufferPrototype
from zarr.abc.buffer import NDBuffer as AnyNDBuffer
from zarr.buffer.cpu import Buffer, NDBuffer

from daskcluster.sparse_rows import owned_rows


class Adopted(NDBuffer):
    """What a selection is read into: takes over a decoded chunk that is all of it.

    Zarr copies each decoded chunk to its place, in the one thread of its event loop. Until then a chunk
    takes its memory twice, and chunks that are decoded wait for each other.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, AnyNDBuffer):
            decoded = value.as_numpy_array()
            if self._is_all(decoded):
                super().__init__(cast("Any", decoded))
                return
        super().__setitem__(key, value)

    def _is_all(self, decoded: np.ndarray) -> bool:
        # The last chunk is stored whole: its rows alone are copied, for they are to keep no more alive.
        return (
            decoded.shape == self.shape
            and decoded.dtype == self.dtype
            and decoded.flags.c_contiguous
            and owned_rows(decoded) is decoded
        )


_ADOPTED = BufferPrototype(buffer=Buffer, nd_buffer=Adopted)


def read_adopted(array: zarr.Array[Any], index: Any) -> np.ndarray:
    """Return ``array[index]`` for slices and numbers; read-only where it is one chunk as decoded.

    Parameters
    ----------
    array : zarr.Array
    index : slice, or tuple of slices and int

    Examples
    --------
    >>> import zarr
    >>> rows = zarr.array(np.arange(6.0).reshape(3, 2), chunks=(2, 2))
    >>> read_adopted(rows, slice(0, 2)).tolist(), read_adopted(rows, slice(1, 3)).tolist()
    ([[0.0, 1.0], [2.0, 3.0]], [[2.0, 3.0], [4.0, 5.0]])
    """
    if array.shards is not None:  # Zarr knows no prototype within shards
        return np.asarray(array[index])
    return np.asarray(array.get_basic_selection(index, prototype=_ADOPTED))
