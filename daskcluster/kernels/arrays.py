"""Arrays as compiled code takes them: one type per dtype, so that each kernel compiles once."""

from __future__ import annotations

import math

import numpy as np

_LINE = 64

NO_WEIGHTS = np.empty(0)
"""Stands for "all weights are one"."""


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view.

    Read-only arrays (memory maps, blocks from Dask) are a type of their own to numba. Inputs that
    always go in as such need one compilation, not two.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def weights_or_none(weights: np.ndarray | None) -> np.ndarray:
    """Return weights for a kernel that takes an empty array as "all ones"."""
    return read_only(NO_WEIGHTS if weights is None else weights)


def aligned_zeros(*shape: int) -> np.ndarray:
    """Return float64 zeros that start at a cache line.

    Sums that are added to vector by vector: at an odd address every vector straddles two lines, which
    costs a fifth of `daskcluster.kernels.accumulate.accumulate`.
    """
    size = math.prod(shape)
    room = np.zeros(size + _LINE // 8)
    skip = -room.ctypes.data % _LINE // 8
    return room[skip : skip + size].reshape(shape)
