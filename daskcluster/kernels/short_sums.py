"""Bounds whose sums have 16 bits: twice as many rows in a vector, and no instruction that widens sums.

See `daskcluster.kernels.dot_product.MADD_SHORT`. Sums wrap around, so only the whole sum must fit 16 bits.
By Cauchy-Schwarz, it does for rows up to some length; longer ones are searched in full. Where the levels
of 8 bits would allow only short rows, there are fewer levels.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from daskcluster.kernels.dot_product import LEVELS, MADD_SHORT, Levels
from daskcluster.kernels.panels import Tile, vector_width

MOST_SHORT = 1 << 16
"""With fewer centres, the numbers of their panels have 16 bits."""

_SPARE = 8
"""Sums that are not used, which covers the rounding of first terms."""
_FITTING = 0.98 * 2.0**16
"""Sums that long rows may have; levels are rounded."""
_LESS, _LEAST_SHARE = 0.97, 1 / 64
"""What is left of the levels if sums are too large, again and again, and the least that is tried."""
_HEIGHT = 5
"""Of the tile of AVX2: with more centres, LLVM spills sums."""


def integers_of(dot: int) -> np.dtype[Any]:
    """Return the type of the integers that an instruction multiplies and adds."""
    return np.dtype(np.int16 if dot == MADD_SHORT else np.int32)


def tile_of(tile: Tile, dot: int) -> Tile:
    """Return the tile of such integers."""
    short = dot == MADD_SHORT and tile.name == "avx2"
    height = min(tile.height, _HEIGHT) if short else tile.height
    return replace(tile, height=height, width=vector_width(integers_of(dot), tile.name))


def fitting_levels(dot: int, spread: float, extent: float, reach: float, n: int) -> Levels:
    """Return the levels of which sums fit the integers of an instruction.

    Parameters
    ----------
    dot : int
    spread, extent : float
        Range of the coordinates of rows, and the largest one of a centre.
    reach : float
        Length of a long row and of the longest centre, together.
    n : int
        Coordinates. Quantizing makes a row or centre longer, by a third of their root in steps at most.

    Examples
    --------
    >>> fitting_levels(MADD_SHORT, 8.0, 4.0, 8.0, 4), fitting_levels(MADD_SHORT, 8.0, 4.0, 32.0, 64)
    (Levels(row=127, centre=127, shift=0), Levels(row=61, centre=61, shift=0))
    """
    levels = LEVELS[dot]
    if dot != MADD_SHORT or not 0.0 < spread * extent * reach < np.inf:
        return levels
    share, root = 1.0, math.sqrt(n) / 3.0
    while share > _LEAST_SHARE:
        row, centre = max(2, int(levels.row * share)), max(1, int(levels.centre * share))
        step, step_c = spread / row, extent / centre
        length = reach + root * (step + 2.0 * step_c)
        if 0.5 * length * length <= _FITTING * step * step_c:
            break
        share *= _LESS
    return Levels(row, centre, 0)


def room_of(longest: float, lost: float, far: float, unit: float) -> tuple[float, int]:
    """Return the length of the longest row whose sums fit 16 bits, and what must be added to sums.

    A sum is ``(x.q - |c|^2 / 2) / unit``, x and q the quantized row and centre. So it is at least
    ``-|x| longest - far^2 / 2`` and at most ``|x|^2 / 2 + |x| lost``, over the unit.

    Parameters
    ----------
    longest, lost, far : float
        Length of the longest quantized centre, what quantizing takes from a centre, and length of the
        longest centre.
    unit : float

    Examples
    --------
    >>> room_of(4.0, 0.1, 4.0, 0.001)
    (7.382508436748481, 4771)
    """
    limits = np.iinfo(np.int16)
    room = (limits.max - limits.min - 2 * _SPARE) * unit
    half, below = longest + lost, 0.5 * far * far
    length = math.sqrt(max(half * half + 2.0 * (room - below), 0.0)) - half
    return length, limits.min + _SPARE + math.ceil((length * longest + below) / unit)
