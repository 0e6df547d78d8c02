"""Axes for the search by bounds in few dimensions, and in how many of them it is cheapest.

Labels do not depend on the axes (`daskcluster.kernels.pruned_search`), so axes are computed from the
centres alone, wherever centres are prepared.
"""

from __future__ import annotations

import numpy as np

from daskcluster.chunkwise.bound_costs import (
    Left,
    Sample,
    count_left,
    expected_loss,
    search_cost,
)
from daskcluster.kernels.candidates import errors_of
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panel_maxima import WINNERS
from daskcluster.kernels.projected_centres import Projection, project_points

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

ORDERED_AXES = 24
"""Axes along which centres are ordered."""

_PROJECTED_AT_ONCE = 64
"""Axes onto which centres are projected in one go, because reading the centres takes as long."""

_PROJECTED = 2.0
"""Cost of a feature of a row for each axis."""


def most_axes(n_clusters: int, n_features: int) -> int:
    """Return the largest number of axes that is tried; 0 where projections never pay."""
    if n_clusters < _LEAST_CENTRES or n_features < _LEAST_FEATURES:
        return 0
    return min(n_features // 3, _MOST_AXES if n_clusters < _MANY_CENTRES else _SIZES[-1])


def plan_projection(
    sample: Sample, left: np.ndarray, height: int, dot: int
) -> tuple[float, Projection, np.ndarray] | None:
    """Return the cheapest projection, its cost, and an order of the centres; None without structure to use.

    Parameters
    ----------
    sample : Sample
    left : ndarray of shape (m, k), bool
        Centres that bounds of quantized features leave.
    height : int
        Centres of a panel.
    dot : int
        Instruction that multiplies quantized coordinates.

    Returns
    -------
    cost : float
        Of the search per row, see `daskcluster.chunkwise.bound_costs`.
    projection : Projection
    order : ndarray of shape (k,), int64
        An order in which the centres of a panel lie close together.

    Notes
    -----
    Cost: about the time of searching 32 + 2 m rows, m the number of axes (at most 256).
    """
    k, d = sample.centres.shape
    sizes = sorted({-(-m // height) * height for m in _SIZES if m <= most_axes(k, d)})
    if not sizes or not _has_structure(sample.shifted(_PROBED_CENTRES)):
        return None
    axes = principal_axes(sample.shifted(_SAMPLED_CENTRES), sizes[-1], _LEAST_SHARE)
    if axes is None:
        return None
    whole = Projection(axes, np.empty((k, sizes[-1]), axes.dtype), sample.squares)
    costs, order = _costs(sample, left, whole, sizes, height, dot)
    m = min(costs, key=lambda m: (costs[m], m))
    axes, heads = (np.ascontiguousarray(some[:, :m]) for some in (axes, whole.heads))
    return costs[m], Projection(axes, heads, sample.squares), order


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
    sample: Sample, left: np.ndarray, whole: Projection, sizes: list[int], height: int, dot: int
) -> tuple[dict[int, float], np.ndarray]:
    """Return the cost per row with each number of axes, up to the cheapest and beyond, and the order.

    OUT: whole.heads: the coordinates of the centres on the axes that were tried.
    """
    (k, d), kind = sample.centres.shape, whole.axes.dtype
    rest, about = sample.squares.copy(), sample.rows @ whole.axes
    coordinates, kept, lengths = about.copy(), np.zeros(len(about)), np.zeros(k)
    bounds = np.repeat((-0.5 * rest).astype(kind)[None], len(about), axis=0)
    known = 0
    largest = float(np.sqrt(rest.max()))
    limits = sample.limits(errors_of(d, kind, largest, extra=whole.slack().bound))
    costs, before, extent, order = dict[int, float](), 0, 0.0, np.arange(k)
    best, panels = sample.scores.max(axis=1), np.arange(k) // height
    for m in sizes:
        if known < m:
            here = slice(known, next(n for n in sizes[::-1] if n <= max(m, _PROJECTED_AT_ONCE)))
            axes, known = np.ascontiguousarray(whole.axes[:, here]), here.stop
            whole.heads[:, here] = project_points(sample.centres, axes, sample.offset)
        found, part = whole.heads[:, before:m], coordinates[:, before:m]
        mean = found.mean(axis=0)
        bounds += part @ found.T
        kept += np.square(part, dtype=np.float64).sum(axis=1)
        about[:, before:m] -= mean
        extent = max(extent, _move_lengths(found, mean, rest, lengths))
        if before == 0:
            order = close_together(found, height)
            panels[order] = np.arange(k) // height
        rests = tuple(
            np.sqrt(np.maximum(some, 0.0)).astype(kind) for some in (sample.lengths - kept, rest)
        )
        loss = expected_loss(about[:, :m], extent, float(np.sqrt(lengths.max())), dot)
        there = Left(*np.zeros((3, len(about))))
        count_left(
            bounds, rests, limits - loss, best, sample.scores, left, panels, WINNERS, there
        )  # fmt: skip
        costs[m] = search_cost(sample, there, m + 4, dot) + _PROJECTED * m * d
        before = m
        if costs[m] > 1.05 * min(costs.values()):
            break
    return costs, order


@kernel
def _move_lengths(found, mean, rest, lengths):  # type: ignore[no-untyped-def]
    """Take squared lengths of coordinates from `rest`, IN/OUT, and add those about the mean to `lengths`.

    Return the largest coordinate about the mean.
    """
    most = 0.0
    for j in range(len(found)):
        square, around = 0.0, 0.0
        for t in range(len(mean)):
            value, gap = np.float64(found[j, t]), np.float64(found[j, t] - mean[t])
            square += value * value
            around += gap * gap
            most = max(most, abs(gap))
        rest[j] -= square
        lengths[j] += around
    return most


def close_together(heads: np.ndarray, size: int) -> np.ndarray:
    """Return an order of points in which each run of `size` lies close together, (k,) int64.

    They are halved again and again along the axis with the largest variance, of the first few.

    Examples
    --------
    >>> import numpy as np
    >>> close_together(np.array([[0.0], [9.0], [1.0], [8.0]]), 2).tolist()
    [0, 2, 3, 1]
    """
    order = np.arange(len(heads))
    _halve(np.ascontiguousarray(heads[:, :ORDERED_AXES]), size, order)
    return order


@kernel
def _halve(points, size, order):  # type: ignore[no-untyped-def]
    # OUT: order. Halves of halves wait in a stack.
    waiting, n_waiting = np.empty((64, 2), np.int64), 1
    waiting[0] = 0, len(points)
    while n_waiting > 0:
        n_waiting -= 1
        first, last = waiting[n_waiting]
        n_runs = -(-(last - first) // size)
        if n_runs <= 1:
            continue
        here = order[first:last].copy()
        best, axis = -1.0, 0
        for t in range(points.shape[1]):
            total, square = 0.0, 0.0
            for i in here:
                total += points[i, t]
                square += points[i, t] * points[i, t]
            spread = square - total * total / len(here)
            best, axis = (spread, t) if spread > best else (best, axis)
        keys = np.empty(len(here), points.dtype)
        for i in range(len(here)):
            keys[i] = points[here[i], axis]
        order[first:last] = here[np.argsort(keys, kind="mergesort")]
        middle = first + n_runs // 2 * size
        waiting[n_waiting] = first, middle
        waiting[n_waiting + 1] = middle, last
        n_waiting += 2
