"""Axes for the search by bounds in few dimensions, and in how many of them it is cheapest.

Labels do not depend on the axes (`daskcluster.kernels.pruned_search`), so axes are computed from the
centres alone, wherever centres are prepared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunkwise.bound_costs import LOOKED, MEASURED, Sample, every_so_many, survivors
from daskcluster.kernels.panels import Tile
from daskcluster.kernels.projected_centres import (
    ProjectedCentres,
    pack_projected,
    project_points,
    projection_errors,
)

_LEAST_CENTRES, _LEAST_FEATURES = 512, 48
"""Below these, another search is always faster."""
_SIZES = (16, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of axes that are tried, rounded up to whole panels."""
_MOST_AXES, _MANY_CENTRES = 128, 8192
"""Finding more axes pays for many centres only."""
_SAMPLED_CENTRES, _PROBED_CENTRES, _PROBED_AXES = 1024, 256, 24
_OVERSAMPLED = 8
"""Of the randomised subspace iteration (Halko, Martinsson, Tropp 2011, algorithm 4.4); it has one step."""
_LEAST_PROBED, _LEAST_SHARE = 0.3, 0.5
"""Centres whose axes hold less of their squared lengths have no structure to use: first of the few axes of
a probe, which costs little, and then of all axes."""

_ROW, _PROJECTED, _SCANNED = 100, 2, 3
"""Of a feature of a row, besides projecting it on each axis, and of the bound of a centre."""


@dataclass(frozen=True)
class ProjectionPlan:
    """The cheapest number of axes.

    Attributes
    ----------
    cost : float
        Of a row, see `daskcluster.chunkwise.bound_costs`.
    axes : ndarray of shape (d, m)
    heads : ndarray of shape (k, m)
        Coordinates of the centres on the axes.
    """

    cost: float
    axes: np.ndarray
    heads: np.ndarray

    def pack(self, centres: np.ndarray, sample: Sample, suited: Tile) -> ProjectedCentres:
        """Return the centres packed for the search."""
        return pack_projected(centres, sample.offset, self.axes, self.heads, sample.squares, suited)


def most_axes(n_clusters: int, n_features: int) -> int:
    """Return the largest number of axes that is tried; 0 where projections never pay."""
    if n_clusters < _LEAST_CENTRES or n_features < _LEAST_FEATURES:
        return 0
    return min(n_features // 3, _MOST_AXES if n_clusters < _MANY_CENTRES else _SIZES[-1])


def plan_projection(sample: Sample, suited: Tile) -> ProjectionPlan | None:
    """Return the cheapest number of axes; None if the centres have no structure to use.

    Parameters
    ----------
    sample : Sample
    suited : Tile

    Notes
    -----
    Cost: about the time of searching 32 + 2 m rows, m the number of axes (at most 256).
    """
    k, d = sample.centres.shape
    sizes = sorted({-(-m // suited.height) * suited.height for m in _SIZES if m <= most_axes(k, d)})
    if not sizes or not _has_structure(every_so_many(sample.centres, _PROBED_CENTRES)):
        return None
    axes = principal_axes(every_so_many(sample.centres, _SAMPLED_CENTRES), sizes[-1], _LEAST_SHARE)
    if axes is None:
        return None
    heads = np.empty((k, sizes[-1]), axes.dtype)
    costs = _costs(sample, axes, sizes, suited.height, heads)
    m = min(costs, key=lambda m: (costs[m], m))
    return ProjectionPlan(costs[m], np.ascontiguousarray(axes[:, :m]), heads[:, :m])


def _has_structure(shifted: np.ndarray) -> bool:
    return principal_axes(shifted, _PROBED_AXES, _LEAST_PROBED) is not None


def principal_axes(points: np.ndarray, most: int, least: float) -> np.ndarray | None:
    """Return the axes of the largest second moments, (d, most), if they hold a share `least` of all.

    The moments are about zero, as scores are, and not about the mean.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(99, 9)) * 0.5 ** np.arange(9)
    >>> axes = principal_axes(points, 2, 0.5)
    >>> bool(abs(axes[0, 0]) > 0.9), principal_axes(points, 2, 0.99) is None
    (True, True)
    """
    d = points.shape[1]
    total = float(np.square(points, dtype=np.float64).sum())
    if not 0.0 < total < np.inf:
        return None
    start = np.random.default_rng(0).standard_normal((d, min(d, most + _OVERSAMPLED)))
    basis = np.linalg.qr(points.T @ (points @ start.astype(points.dtype)))[0]
    inside = points @ basis
    values, turn = np.linalg.eigh((inside.T @ inside).astype(np.float64))
    if not values[::-1][:most].sum() >= least * total:
        return None
    return (basis.astype(np.float64) @ turn[:, ::-1][:, :most]).astype(points.dtype)


def _costs(
    sample: Sample, axes: np.ndarray, sizes: list[int], height: int, heads: np.ndarray
) -> dict[int, float]:
    """Return the cost per row of the search with each number of axes, up to the cheapest and beyond.

    OUT: heads: the coordinates of the centres on the axes that were tried.
    """
    (k, d), kind = sample.centres.shape, axes.dtype
    coordinates, kept, rest = sample.rows @ axes, np.zeros(len(sample.rows)), sample.squares.copy()
    bounds = np.repeat((-0.5 * rest).astype(kind)[None], len(kept), axis=0)
    limits = sample.limits(projection_errors(axes, float(rest.max()))[0])
    costs, before = dict[int, float](), 0
    for m in sizes:
        found = project_points(sample.centres, np.ascontiguousarray(axes[:, before:m]))
        heads[:, before:m], part = found, coordinates[:, before:m]
        bounds += part @ found.T
        kept += np.square(part, dtype=np.float64).sum(axis=1)
        rest -= np.square(found, dtype=np.float64).sum(axis=1)
        left = np.sqrt(np.maximum(sample.lengths - kept, 0.0)).astype(kind)[:, None]
        upper = bounds + left * np.sqrt(np.maximum(rest, 0.0)).astype(kind)
        measured, looked = survivors(upper, limits, height)
        costs[m] = d * (_ROW + _PROJECTED * m) + k * (m + 1 + _SCANNED)
        costs[m] += measured * MEASURED * d + looked * LOOKED
        before = m
        if costs[m] > 1.2 * min(costs.values()):
            break
    return costs
