"""The loops of all bounds share rows and their state, rounding to the safe side, and the margin.

A row keeps an upper bound of the distance to its own centre and lower bounds of the distances to groups of
centres, or to each. What differs from the papers: they are stored *less the drift that centres had
accumulated when they were set*, so that a row whose bounds hold is neither read nor written; and no bound
decides within the rounding error of the score (`margin`), so labels are those of the tile, always.

Bounds are float32, rounded to the safe side. All arithmetic on them is float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from daskcluster.kernels.jit import kernel

SAFE = 4.0 * 2.0**-24
"""Rounding a float64 to float32 errs by less than this, relatively."""
_LEAST = 2.0**-148


class Listed(NamedTuple):
    """Rows to reassign: the position of each in `rows`, and in the state; read only."""

    rows: np.ndarray
    at: np.ndarray
    which: np.ndarray


class State(NamedTuple):
    """Labels of all rows (-1 for none), and their bounds less the drift; IN/OUT."""

    labels: np.ndarray
    upper: np.ndarray
    lower: np.ndarray


class Centres(NamedTuple):
    """Centres as they are, and packed as `daskcluster.kernels.panels.Panels` has them."""

    centres: np.ndarray
    panels: np.ndarray
    offset: np.ndarray


class Moved(NamedTuple):
    """OUT: the rows that moved, as indices of the listed ones, and the labels they had."""

    which: np.ndarray
    old: np.ndarray


OWN, HALF = 0, 1
"""Rows of `drift`, (2, k), float64: the accumulated drift of each centre, and half the distance to the
nearest other one."""


@kernel
def raised(value):  # type: ignore[no-untyped-def]
    """Round to float32, never down."""
    return np.float32(value + abs(value) * SAFE + _LEAST)


@kernel
def lowered(value):  # type: ignore[no-untyped-def]
    """Round to float32, never up."""
    return np.float32(value - abs(value) * SAFE - _LEAST)


@kernel
def threshold(upper, margin):  # type: ignore[no-untyped-def]
    """Return the squared distance from which on a centre cannot win, even by rounding."""
    return upper * upper + margin[0] * upper + margin[1]
