"""Array arguments of kernels: one numba type per dtype, so that each kernel compiles once."""

from __future__ import annotations

import math

import numpy as np

_LINE = 64

NO_WEIGHTS = np.empty(0)
"""Stands for "all weights are one"."""


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view.

    Read-only arrays (memory maps, blocks from Dask) are another type for numba. If all inputs are passed as
    read-only, a kernel is compiled once, not twice.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def weights_or_none(weights: np.ndarray | None) -> np.ndarray:
    """Return weights for a kernel that takes an empty array as "all ones"."""
    return read_only(NO_WEIGHTS if weights is None else weights)


def aligned_zeros(*shape: int) -> np.ndarray:
    """Return float64 zeros that start at a cache line.

    For sums that are updated vector by vector. At an unaligned address, every vector straddles two cache
    lines, which makes `daskcluster.kernels.accumulate.accumulate` a fifth slower.
    """
    size = math.prod(shape)
    room = np.zeros(size + _LINE // 8)
    skip = -room.ctypes.data % _LINE // 8
    return room[skip : skip + size].reshape(shape)
