"""What the searches by bounds would cost for a sample of rows, in multiply-adds of the tile in float32.

The constants are measured times, divided by that of a multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from daskcluster.kernels.candidates import Errors
from daskcluster.kernels.dot_product import MADD, MADD_SHORT, QUAD, SDOT, VNNI
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.projected_centres import shifted_blocks, squared_lengths
from daskcluster.kernels.short_sums import fitting_levels

_SAMPLED_ROWS, _SAMPLED_BOUNDS = 128, 1 << 22
"""Most rows, and most bounds, of the sample. Of few rows, some have many centres left."""
_BOUNDS_AT_ONCE = 5
"""Numbers for each bound of the sample, at most: scores, bounds of coordinates, and what is computed."""

_PRODUCT = {MADD: 0.48, MADD_SHORT: 0.26, VNNI: 0.24, SDOT: 0.3}
"""Of a product, in each instruction."""
_BOUND, _ROW, _FEATURE = 1.0, 3300, 30
"""Of a bound, a row, and a feature of a row, besides products."""
_LOOKED, _LOOKED_FEATURE = 1500, 14
_BOUNDED, _BOUNDED_FEATURE = 420, 0.55
_MEASURED, _MEASURED_FEATURE = 800, 17
"""Of a panel that is looked through, of a centre that needs a second bound, and of one that is measured."""

_CACHE, _FAR = 1 << 25, 2.0
"""Bytes of quantized features that a cache has room for. Reading more takes longer, by up to so much."""

MOST_LEFT = 20
"""Rows for which more than one centre of so many is left are searched in full."""

_RANGE = 1.3
"""The range of the coordinates of most rows, over that of a typical row."""
_UNEVEN = 1.25
"""The largest loss of a centre, over what is expected of losses that are uniform."""


@dataclass(frozen=True)
class Sample:
    """Some rows, less the offset of the centres, and their scores with all centres.

    Attributes
    ----------
    offset : ndarray of shape (d,)
    centres : ndarray of shape (k, d)
        As they are: less the offset, they would fill as much memory again.
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

    def shifted(self, most: int) -> np.ndarray:
        """Return every so many of the centres, at most `most`, less the offset."""
        return np.asarray(every_so_many(self.centres, most) - self.offset)

    def limits(self, errors: Errors) -> np.ndarray:
        """Return the bounds below which centres cannot be nearest to a row, without errors of bounds."""
        total = np.square(np.sqrt(self.lengths) + errors.largest)
        return np.asarray(self.scores.max(axis=1) - 0.5 * errors.margin * total)


def sample_of(centres: np.ndarray, rows: np.ndarray, offset: np.ndarray) -> Sample:
    """Return a sample of rows, and their scores.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    rows : ndarray of shape (n, d), dtype of the centres
    offset : ndarray of shape (d,)
        See `daskcluster.kernels.panels.common_offset`.
    """
    k = len(centres)
    some = every_so_many(rows, _sampled_rows(k)) - offset
    squares, scores = np.empty(k), np.empty((len(some), k), centres.dtype)
    for part, shifted in shifted_blocks(centres, offset):
        squared_lengths(shifted, squares[part])
        scores[:, part] = some @ shifted.T
    scores -= (0.5 * squares).astype(centres.dtype)
    lengths = np.square(some, dtype=np.float64).sum(axis=1)
    return Sample(offset, centres, squares, some, lengths, scores)


def sample_bytes(n_clusters: int, itemsize: int) -> int:
    """Return the most memory of scores and bounds of a sample."""
    return _sampled_rows(n_clusters) * n_clusters * _BOUNDS_AT_ONCE * itemsize


def _sampled_rows(n_clusters: int) -> int:
    return max(1, min(_SAMPLED_ROWS, _SAMPLED_BOUNDS // n_clusters))


def every_so_many(points: np.ndarray, most: int) -> np.ndarray:
    """Return every so many of the points, at most `most`."""
    count = min(len(points), most)
    return points[np.arange(count) * len(points) // count]


def panels_with(left: np.ndarray, panels: np.ndarray) -> np.ndarray:
    """Return how many panels have any centre that is left, (m,).

    Examples
    --------
    >>> panels_with(np.array([[True, True, False, False, True]]), np.arange(5) // 2)
    array([2])
    """
    found = np.zeros(len(left), np.int64)
    _count_panels(left, panels, found)
    return found


@kernel
def _count_panels(left, panels, found):  # type: ignore[no-untyped-def]
    # OUT: found. `met` has the last row that left each panel.
    met = np.full(panels.max() + 1, -1)
    for i in range(len(left)):
        for j in range(len(panels)):
            if left[i, j] and met[panels[j]] != i:
                met[panels[j]] = i
                found[i] += 1


@kernel
def count_left(bounds, rests, limits, best, scores, left, panels, n_groups, found):  # type: ignore[no-untyped-def]
    """Count what bounds of coordinates leave; OUT: found (`Left`).

    `bounds` lack the product of `rests`, those of the rows and those of the centres. Rows begin with lower
    limits, since the centres with the largest bound in each of some groups are measured first. On average,
    they raise them halfway: what both limits leave is averaged.
    """
    (of_rows, of_centres), (m, k) = rests, bounds.shape
    size, upper = k // n_groups, np.empty(k, bounds.dtype)
    met, met_first = np.full(panels.max() + 1, -1), np.full(panels.max() + 1, -1)
    for i in range(m):
        for j in range(k):
            upper[j] = bounds[i, j] + of_rows[i] * of_centres[j]
        start = -np.inf
        for g in range(n_groups):
            place = g * size
            for j in range(g * size, (g + 1) * size):
                place = j if upper[j] > upper[place] else place
            start = max(start, scores[i, place])
        first = limits[i] - best[i] + start
        for j in range(k):
            if upper[j] >= first:
                p, sure = panels[j], upper[j] >= limits[i]
                found.bounded[i] += 1.0 if sure else 0.5
                if met_first[p] != i:
                    met_first[p] = i
                    found.looked[i] += 0.5
                if sure:
                    found.measured[i] += left[i, j]
                    if met[p] != i:
                        met[p] = i
                        found.looked[i] += 0.5


class Left(NamedTuple):
    """What bounds leave of each row of a sample, (m,) each.

    Attributes
    ----------
    looked : ndarray
        Panels that are looked through.
    bounded, measured : ndarray
        Centres that need a second bound, and that are measured.
    """

    looked: np.ndarray
    bounded: np.ndarray
    measured: np.ndarray


def search_cost(sample: Sample, left: Left, n: int, dot: int) -> float:
    """Return the cost of the search per row, with n coordinates in the first bounds."""
    k, d = sample.centres.shape
    cost = (
        left.looked * (_LOOKED + _LOOKED_FEATURE * n * _distance(k * n))
        + left.bounded * (_BOUNDED + _BOUNDED_FEATURE * d * _distance(k * d))
        + left.measured * (_MEASURED + _MEASURED_FEATURE * d)
    )
    # A row with more centres left is given up.
    cost = np.where(left.measured > k // MOST_LEFT, np.minimum(cost, k * d) + k * d, cost)
    multiplied = QUAD * -(-n // QUAD)
    return _ROW + _FEATURE * d + k * (_PRODUCT[dot] * multiplied + _BOUND) + float(cost.mean())


def _distance(size: int) -> float:
    return 1.0 + min(size / _CACHE, _FAR)


def expected_loss(about: np.ndarray, extent: float, longest: float, dot: int) -> np.ndarray:
    """Return by how much quantizing may lower bounds, for rows about the mean of the centres, (m,).

    `extent` is the largest coordinate of a centre about the mean, and `longest` the length of the longest.
    """
    spread = np.sqrt(about.shape[1] / 12)
    reach = _RANGE * float(np.median(about.max(axis=1)) - np.median(about.min(axis=1)))
    lengths = np.sqrt(np.square(about, dtype=np.float64).sum(axis=1))
    n, far = about.shape[1], float(lengths.max()) + longest
    levels = fitting_levels(dot, reach, extent, far, n)
    lost, rest = spread * reach / levels.row, _UNEVEN * spread * extent / levels.centre
    return np.asarray(lost * (longest + rest) + lengths * rest)
