"""Centres projected onto axes, packed for the search by bounds, and its errors in the worst case.

See `daskcluster.kernels.pruned_search`. Coordinates are sums of products in any order: the errors cover all
orders, and labels are those of any axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import Tile

SEGMENT = 64
"""Features whose products are summed in one chain when points are projected; more would round more."""

_SECOND_ORDER = 1.01
"""Covers the products of errors, which bounds of the first order leave out."""

_SAFE_SHARE = 2.0**-8
"""Share of the largest number that squared lengths may have; beyond, bounds might overflow."""


class Errors(NamedTuple):
    """Worst-case errors of the search; X is the length of a row, and C that of the longest centre.

    Attributes
    ----------
    slack : float
        Of the squared length that the projection of a row or a centre leaves, over X^2.
    margin : float
        Of bounds against a score, over X C + C^2 / 2.
    rough : float
        Of a rough squared distance, over (X + C)^2.
    close : float
        Of two rough squared distances, beyond which their order is certain, over (X + C)^2.
    largest : float
        C.
    unit : float
        Unit of rounding.
    tiny : float
        What underflow may add.
    most : float
        Squared lengths from here on might overflow.
    """

    slack: float
    margin: float
    rough: float
    close: float
    largest: float
    unit: float
    tiny: float
    most: float


@dataclass(frozen=True)
class ProjectedCentres:
    """Centres and axes, packed for the search.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    offset : ndarray of shape (d,)
        See `daskcluster.kernels.panels.common_offset`.
    axes : ndarray of shape (n_segments, n_panels, (SEGMENT + 1) * height)
        Panels of the axes, for each segment of features. The first terms are zero.
    bounds : ndarray of shape (n_panels, (m + 2) * height)
        Panels of the projected centres: first terms -|c'|^2 / 2, m coordinates, and the length of the rest.
    first : ndarray of shape (k,)
        First terms -|c'|^2 / 2.
    errors : Errors
    m : int
    tile : Tile
    """

    centres: np.ndarray
    offset: np.ndarray
    axes: np.ndarray
    bounds: np.ndarray
    first: np.ndarray
    errors: Errors
    m: int
    tile: Tile


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
    errors = errors_of(axes, float(squares.max(initial=0.0)))
    first = (-0.5 * squares).astype(kind)
    kept = np.square(heads, dtype=np.float64).sum(axis=1)
    rest = np.sqrt(np.maximum(squares - kept, 0.0) + errors.slack * squares)
    features = np.column_stack([heads, _up(rest, kind)])
    bounds = _panels(features, first, tile.height)
    segments = -(-d // SEGMENT)
    packed = np.zeros((segments, -(-m // tile.height), (SEGMENT + 1) * tile.height), kind)
    for number in range(segments):
        part = axes[number * SEGMENT : (number + 1) * SEGMENT].T
        size = (part.shape[1] + 1) * tile.height
        packed[number, :, :size] = _panels(part, np.zeros(m, kind), tile.height)
    packed[np.isinf(packed)] = 0.0  # lanes without an axis
    return ProjectedCentres(centres, offset, packed, bounds, first, errors, m, tile)


def _panels(features: np.ndarray, first: np.ndarray, height: int) -> np.ndarray:
    """Return panels of points (k, d) with these first terms; lanes beyond k have -inf."""
    k, d = features.shape
    n_panels = -(-k // height)
    whole = np.zeros((n_panels * height, d + 1), features.dtype)
    whole[:, 0] = -np.inf
    whole[:k, 0], whole[:k, 1:] = first, features
    panels = whole.reshape(n_panels, height, d + 1).transpose(0, 2, 1)
    return np.ascontiguousarray(panels).reshape(n_panels, -1)


def _up(values: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    """Round up to a dtype."""
    return np.asarray(np.nextafter(values.astype(kind), np.array(np.inf, kind)))


def errors_of(axes: np.ndarray, largest: float) -> Errors:
    """Return what bounds may be off by, in the worst case.

    With u the unit of rounding, X = |x'| and C the largest |c'|:

    - the canonical score of d features errs by (d + 3) u (X C + C^2 / 2);
    - a bound of m + 1 features errs by (m + 6) u (X C + C^2 / 2), rounded comparisons included;
    - the axes A are not quite orthonormal, by D = |A'A - I|, and the projection of a row or a centre errs
      by e = (segment + n_segments + 2) u |A|, as a share of its length. What is left of them is then not
      quite orthogonal to the axes, by (3 D + 2 e) X C in all;
    - the squared length of the rest errs by (D + 2 e + 4 (d + m) u64) X^2;
    - a rough squared distance errs by (d / 16 + 48) u (X + C)^2, which includes the rounding of the shift
      and of first terms. Squared lengths, summed in float64, add (2 d + 4) u64 (X + C)^2.

    Examples
    --------
    >>> found = errors_of(np.eye(768, 64, dtype=np.float32), 4.0)
    >>> " ".join(f"{error:.0e}" for error in found[:5])
    '8e-05 2e-04 6e-06 1e-04 2e+00'
    """
    d, m = axes.shape
    u, wide = float(np.finfo(axes.dtype).eps) / 2, axes.astype(np.float64)
    gaps = wide.T @ wide - np.eye(m)
    gram = math.sqrt(float(np.sum(gaps * gaps))) + m * d * 2.0**-52
    head = (SEGMENT + -(-d // SEGMENT) + 2) * u * math.sqrt(m) * (1.0 + gram)
    slack = gram + 2.0 * head + 4 * (d + m) * 2.0**-53
    canonical, rough = (d + 3) * u, (d / 16 + 48) * u + (2 * d + 4) * 2.0**-53
    margin = 2.0 * canonical + (m + 6) * u + 3.0 * gram + 2.0 * head
    close = 2.0 * canonical + 2.0 * rough  # of squared distances; X C + C^2 / 2 <= (X + C)^2 / 2
    slack, margin, rough, close = (_SECOND_ORDER * error for error in (slack, margin, rough, close))
    limits = np.finfo(axes.dtype)
    tiny, most = d * float(limits.tiny), _SAFE_SHARE * float(limits.max)
    return Errors(slack, margin, rough, close, math.sqrt(largest), u, tiny, most)
