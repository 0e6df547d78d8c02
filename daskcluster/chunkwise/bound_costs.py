"""What the searches by bounds would cost for a sample of rows, in multiply-adds of the tile in float32.

The constants are times measured with AVX-512 and AVX2, divided by that of a multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.kernels.candidates import Errors
from daskcluster.kernels.panels import common_offset
from daskcluster.kernels.projected_centres import shift_centres

_SAMPLED_ROWS, _SAMPLED_BOUNDS = 32, 1 << 19
"""Most rows, and most bounds, of the sample."""

MEASURED, LOOKED = 20, 4000
"""Of a centre that is measured, for each feature; and of a panel that is looked through."""


@dataclass(frozen=True)
class Sample:
    """Some rows and all centres, less the offset of the centres, and the scores of both.

    Attributes
    ----------
    offset : ndarray of shape (d,)
    centres : ndarray of shape (k, d)
    squares : ndarray of shape (k,), float64
        |c'|^2.
    rows : ndarray of shape (m, d)
    lengths : ndarray of shape (m,), float64
        |x'|^2.
    scores : ndarray of shape (m, k)
    """

    offset: np.ndarray
    centres: np.ndarray
    squares: np.ndarray
    rows: np.ndarray
    lengths: np.ndarray
    scores: np.ndarray

    @property
    def is_finite(self) -> bool:
        """False if lengths or scores overflow, or a row is not finite."""
        return bool(np.isfinite(self.lengths).all() and np.isfinite(self.scores).all())

    def limits(self, errors: Errors) -> np.ndarray:
        """Return the bounds below which centres cannot be nearest to a row, without errors of bounds."""
        lengths = np.sqrt(self.lengths) + 0.5 * errors.largest
        return np.asarray(self.scores.max(axis=1) - errors.margin * errors.largest * lengths)


def sample_of(centres: np.ndarray, rows: np.ndarray) -> Sample:
    """Return a sample of rows, and the shifted centres.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    rows : ndarray of shape (n, d), dtype of the centres
    """
    k = len(centres)
    offset, shifted, squares = common_offset(centres), np.empty_like(centres), np.empty(k)
    shift_centres(centres, offset, shifted, squares)
    some = every_so_many(rows, max(1, min(_SAMPLED_ROWS, _SAMPLED_BOUNDS // k))) - offset
    scores = some @ shifted.T
    scores -= (0.5 * squares).astype(centres.dtype)
    lengths = np.square(some, dtype=np.float64).sum(axis=1)
    return Sample(offset, shifted, squares, some, lengths, scores)


def every_so_many(points: np.ndarray, most: int) -> np.ndarray:
    """Return every so many of the points, at most `most`."""
    count = min(len(points), most)
    return points[np.arange(count) * len(points) // count]


def survivors(upper: np.ndarray, limits: np.ndarray, height: int) -> tuple[float, float]:
    """Return how many centres, and panels with any of them, have bounds above the limit of a row."""
    left = upper >= limits[:, None]
    panels = np.add.reduceat(left, np.arange(0, left.shape[1], height), axis=1) > 0
    return float(left.sum(axis=1).mean()), float(panels.sum(axis=1).mean())
