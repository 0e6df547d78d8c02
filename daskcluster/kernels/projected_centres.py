"""Centres projected onto axes, packed for the search by bounds, and its errors in the worst case.

See `daskcluster.kernels.pruned_search`. Coordinates are sums of products in any order: the errors cover all
orders, and labels are those of any axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskcluster.kernels.candidates import SECOND_ORDER, Errors, errors_of, margins_of
from daskcluster.kernels.dot_product import NO_DOT
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import Tile, panels_of
from daskcluster.kernels.register_tile import all_scores_tile
from daskcluster.kernels.row_block import aligned

SEGMENT = 64
"""Features whose products are summed in one chain when points are projected; more would round more."""


class Slack(NamedTuple):
    """Number of axes, and worst-case errors of projections.

    Attributes
    ----------
    m : int
        Number of axes.
    square : float
        Of the squared length that a projection leaves, over that of the row or centre.
    unit : float
        Unit of rounding.
    """

    m: int
    square: float
    unit: float


@dataclass(frozen=True)
class ProjectedCentres:
    """Centres and axes, packed for the search.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    offset : ndarray of shape (d,)
        See `daskcluster.kernels.panels.common_offset`.
    basis : ndarray of shape (n_segments, n_panels, (SEGMENT + 1) * height)
        Panels of the axes, for each segment of features. The first terms are zero.
    bounds : ndarray of shape (n_panels, (m + 2) * height)
        Panels of the projected centres: first terms -|c'|^2 / 2, m coordinates, and the length of the rest.
    first : ndarray of shape (k,)
        First terms -|c'|^2 / 2.
    errors : Errors
    coding : Slack
    tile : Tile
    """

    centres: np.ndarray
    offset: np.ndarray
    basis: np.ndarray
    bounds: np.ndarray
    first: np.ndarray
    errors: Errors
    coding: Slack
    tile: Tile

    dot: ClassVar[int] = NO_DOT

    @property
    def features(self) -> int:
        """Features of a bound."""
        return self.coding.m + 1


@kernel
def shift_centres(centres, offset, shifted, squares):  # type: ignore[no-untyped-def]
    """OUT: c' = fl(c - o), and |c'|^2 in the order of `daskcluster.kernels.panels.fill_panels`."""
    k, d = centres.shape
    for j in range(k):
        total = 0.0
        for t in range(d):
            value = centres[j, t] - offset[t]
            shifted[j, t] = value
            wide = np.float64(value)
            total += wide * wide
        squares[j] = total


def project_points(points: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Return the coordinates of points (k, d) on axes (d, m), summed as those of rows are."""
    found = np.zeros((len(points), axes.shape[1]), axes.dtype)
    for first in range(0, len(axes), SEGMENT):
        part = slice(first, first + SEGMENT)
        found += points[:, part] @ axes[part]
    return found


def pack_projected(
    centres: np.ndarray,
    offset: np.ndarray,
    axes: np.ndarray,
    heads: np.ndarray,
    squares: np.ndarray,
    tile: Tile,
) -> ProjectedCentres:
    """Pack centres and axes.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64, C-contiguous
    offset : ndarray of shape (d,)
    axes : ndarray of shape (d, m), dtype of the centres
        Nearly orthonormal columns.
    heads : ndarray of shape (k, m), dtype of the centres
        c' on the axes, from `project_points`.
    squares : ndarray of shape (k,), float64
        |c'|^2, from `shift_centres`.
    tile : Tile
    """
    d, m, kind = centres.shape[1], axes.shape[1], centres.dtype
    errors, slack = projection_errors(axes, float(squares.max(initial=0.0)))
    first = (-0.5 * squares).astype(kind)
    kept = np.square(heads, dtype=np.float64).sum(axis=1)
    rest = np.sqrt(np.maximum(squares - kept, 0.0) + slack.square * squares)
    features = np.column_stack([heads, _up(rest, kind)])
    bounds = panels_of(features, first, tile.height, -np.inf)
    segments = -(-d // SEGMENT)
    packed = np.zeros((segments, -(-m // tile.height), (SEGMENT + 1) * tile.height), kind)
    for number in range(segments):
        part = axes[number * SEGMENT : (number + 1) * SEGMENT].T
        size = (part.shape[1] + 1) * tile.height
        packed[number, :, :size] = panels_of(part, np.zeros(m, kind), tile.height, 0.0)
    return ProjectedCentres(centres, offset, packed, bounds, first, errors, slack, tile)


def _up(values: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    """Round up to a dtype."""
    return np.asarray(np.nextafter(values.astype(kind), np.array(np.inf, kind)))


def projection_errors(axes: np.ndarray, largest: float) -> tuple[Errors, Slack]:
    """Return what bounds may be off by, in the worst case; `largest` is that of |c'|^2.

    With u the unit of rounding, X = |x'| and C the largest |c'|, beyond `errors_of`:

    - a bound of m + 1 features errs by (m + 6) u (X C + C^2 / 2), rounded comparisons included;
    - the axes A are not quite orthonormal, by D = |A'A - I|, and the projection of a row or a centre errs
      by e = (segment + n_segments + 2) u |A|, as a share of its length. What is left of them is then not
      quite orthogonal to the axes, by (3 D + 2 e) X C in all;
    - the squared length of the rest errs by (D + 2 e + 4 (d + m) u64) X^2.

    Examples
    --------
    >>> errors, slack = projection_errors(np.eye(768, 64, dtype=np.float32), 4.0)
    >>> f"{slack.square:.0e}", f"{errors.margin:.0e}", errors.largest
    ('8e-05', '2e-04', 2.0)
    """
    d, m = axes.shape
    unit, wide = float(np.finfo(axes.dtype).eps) / 2, axes.astype(np.float64)
    gaps = wide.T @ wide - np.eye(m)
    gram = math.sqrt(float(np.sum(gaps * gaps))) + m * d * 2.0**-52
    head = (SEGMENT + -(-d // SEGMENT) + 2) * unit * math.sqrt(m) * (1.0 + gram)
    square = SECOND_ORDER * (gram + 2.0 * head + 4 * (d + m) * 2.0**-53)
    extra = (m + 6) * unit + 3.0 * gram + 2.0 * head
    return errors_of(d, axes.dtype, math.sqrt(largest), extra), Slack(m, square, unit)


@kernel
def project_block(packed, d, axes, heads, at, described, errors, slack, shape):  # type: ignore[no-untyped-def]
    """Project a packed block of rows; OUT: heads from `at` on, described.

    `described` are the lengths, margins and reach of `daskcluster.kernels.candidates.BlockState`.
    """
    (lengths, margins, reach), (vectors, width, _, height, _) = described, shape
    block = vectors * width
    (_, n_panels, size), m = axes.shape, slack.m
    flat, places = axes.reshape(axes.size), np.zeros(SEGMENT, np.int64)
    part = aligned(n_panels * height * block, packed)
    heads[at : at + m * block] = 0.0
    lengths[:] = 0.0
    for s in range(axes.shape[0]):
        count = min(SEGMENT, d - s * SEGMENT)
        rows = packed[s * SEGMENT * block :]
        for p in range(n_panels):
            all_scores_tile(
                rows, flat, (s * n_panels + p) * size, count, part, p * height * block,
                height, vectors, width, packed, places, 0,
            )  # fmt: skip
        for i in range(m * block):
            heads[at + i] += part[i]
        for t in range(count):
            for r in range(block):
                value = np.float64(rows[t * block + r])
                lengths[r] += value * value
    left = np.zeros(block)
    for t in range(m):
        for r in range(block):
            value = np.float64(heads[at + t * block + r])
            left[r] += value * value
    for r in range(block):
        rest = math.sqrt(max(lengths[r] - left[r], 0.0) + slack.square * lengths[r])
        # Rounding up: a factor of more than 1 + 2 u of either dtype.
        heads[at + m * block + r] = rest * (1.0 + 3.0 * slack.unit)
    margins_of(lengths, errors, margins, reach)
