"""Kernels of seeding: potentials of candidates, minimum distances, draws in proportion to masses.

Distances are those of `daskcluster.kernels.distance`, sums those of `daskcluster.kernels.accumulate`, so a
seeding draws the same rows with any chunks. Most rows are nearer to a centre than to any new candidate,
which a rough distance can show: a tile of direct differences in the rows' own precision, with a known
relative error. Exact distances are computed only for the other rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.jit import kernel, read_only, tile_name, weights_or_none
from daskcluster.kernels.panels import fill_panels, vector_width
from daskcluster.kernels.register_tile import difference_tile
from daskcluster.kernels.row_block import aligned, first_row, lanes_of, pack_rows
from daskcluster.kernels.row_ops import (
    PREFETCH_DISTANCE,
    add_masses,
    any_below,
    fetch_row,
    measure_rows,
    squared_distance,
)
from daskcluster.kernels.sum_grid import SumGrid, split

_HEIGHT, _VECTORS = 4, 2
"""Shape of the tile for the few candidates; it fits any register file."""


@kernel
def _sum_block(x, d, c, rows, rough, safe, mind2, weights, grid, out):  # type: ignore[no-untyped-def]
    # `rows` is (first, skip, count, block): from `skip` to `count` of the block that begins at `first`.
    # The last column of `out` sums the masses without a candidate; a row that a candidate would lower adds
    # the difference to that candidate's column. On the grids this is exact.
    (first, skip, count, block), t = rows, out.shape[1] - 1
    for r in range(skip, count):
        if mind2[first + r] < np.inf:
            w = weights[first + r] if weights.size else 1.0
            high, low = split(w * mind2[first + r], grid.high, grid.low)
            out[0, t] += high
            out[1, t] += low
    for j in range(t):
        for r in range(skip, count):
            i = first + r
            # May the row be nearer, by its rough distance? If that overflows, it may.
            far = rough[j * block + r]
            if far < np.inf and far * safe >= mind2[i]:
                continue
            distance = squared_distance(x, i * d, c, j * d, d)
            if distance < mind2[i]:
                w = weights[i] if weights.size else 1.0
                high, low = split(w * distance, grid.high, grid.low)
                out[0, j] += high
                out[1, j] += low
                if mind2[i] < np.inf:
                    high, low = split(w * mind2[i], grid.high, grid.low)
                    out[0, j] -= high
                    out[1, j] -= low


@cache
def _sum_kernel(dtype: np.dtype[Any]) -> Any:
    width = vector_width(dtype, tile_name())
    block, shape = _VECTORS * width, (_VECTORS, width, lanes_of(dtype))

    def sum_masses(rows, candidates, panels, zero, safe, mind2, weights, grid, out):  # type: ignore[no-untyped-def]
        # OUT: out (2, t + 1), see `_sum_block`.
        n, d = rows.shape
        x, c = rows.reshape(n * d), candidates.reshape(candidates.size)
        panel, packed = panels.reshape(panels.size), aligned(d * block, zero)
        rough = aligned(panels.shape[0] * _HEIGHT * block, zero)
        prefetch_step = -(-block // panels.shape[0])
        for start in range(0, n, block):
            first = first_row(start, block, n)
            pack_rows(x, n, d, first, zero, packed, 0, shape)
            for p in range(panels.shape[0]):
                at, to = p * (d + 1) * _HEIGHT, p * _HEIGHT * block
                prefetch = (start + block + p * prefetch_step) * d
                difference_tile(
                    packed,
                    panel,
                    at,
                    d,
                    rough,
                    to,
                    _HEIGHT,
                    _VECTORS,
                    width,
                    x,
                    prefetch,
                    prefetch_step,
                )
            here = first, start - first, min(block, n), block
            _sum_block(x, d, c, here, rough, safe, mind2, weights, grid, out)

    return kernel(sum_masses)


@kernel
def _lower_rows(rows, centre, mind2):  # type: ignore[no-untyped-def]
    n, d = rows.shape
    x = rows.reshape(n * d)
    for i in range(n):
        mind2[i] = min(mind2[i], squared_distance(x, i * d, centre, 0, d))


def lower(X: np.ndarray, centre: np.ndarray, mind2: np.ndarray) -> None:
    """Set squared minimum distances to those to a new centre where it is nearer.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, float32 or float64
    centre : ndarray of shape (d,), dtype of X
    mind2 : ndarray of shape (n,), float64
        IN/OUT. Infinity if there is no centre so far.
    """
    _lower_rows(read_only(X), read_only(np.ascontiguousarray(centre)), mind2)


def potentials(
    X: np.ndarray,
    candidates: np.ndarray,
    mind2: np.ndarray,
    weights: np.ndarray | None,
    grid: SumGrid,
    out_high: np.ndarray,
    out_low: np.ndarray,
) -> None:
    """Add the potential after adding each candidate: the sum of w * min(mind2, d^2).

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, float32 or float64
    candidates : ndarray of shape (t, d), dtype of X
    mind2 : ndarray of shape (n,), float64
        Squared distances to the nearest centre so far; infinity if there is none.
    weights : ndarray of shape (n,), float64, or None
    grid : SumGrid
        Grid of the masses.
    out_high, out_low : ndarray of shape (t,), float64
        IN/OUT. High and low part of the sums.
    """
    t, d = candidates.shape
    candidates = np.ascontiguousarray(candidates, X.dtype)
    out, zero = np.zeros((2, t + 1)), np.zeros(d, X.dtype)
    panels = np.empty((-(-t // _HEIGHT), (d + 1) * _HEIGHT), X.dtype)
    fill_panels(candidates, zero, panels, _HEIGHT)
    safe = 1.0 - 2.0 * (d + 4) * float(np.finfo(X.dtype).eps)
    inputs = (read_only(X), read_only(candidates), panels, zero, safe, read_only(mind2))
    _sum_kernel(X.dtype)(*inputs, weights_or_none(weights), grid, out)
    out_high += out[0, :-1] + out[0, -1]
    out_low += out[1, :-1] + out[1, -1]


def cumulative_picks(
    values: np.ndarray, weights: np.ndarray | None, shift: float, targets: np.ndarray
) -> np.ndarray:
    """Return the first rows whose prefix sums of w * value, on the grid of `shift`, exceed the targets.

    Never returns a row without mass, if any has some: where no prefix sum exceeds the target, it is the
    last one that has.

    Examples
    --------
    >>> import numpy as np
    >>> masses, shift = np.array([0.0, 1.0, 0.0, 2.0, 0.0]), 1.5 * 2.0**40
    >>> cumulative_picks(masses, None, shift, np.array([0.0, 1.0, 2.9, 3.0])).tolist()
    [1, 3, 3, 3]
    """
    masses = values if weights is None else values * weights
    prefix = np.cumsum((masses + shift) - shift)  # exact, as the sums of `potentials`
    found = prefix.searchsorted(np.maximum(targets, 0.0), side="right")
    return np.minimum(found, prefix.searchsorted(prefix[-1]))


_GROUP = 8


@kernel
def _filter_rows(rows, point, weights, ranks, offset, slope, grid, totals, found, sqdist):  # type: ignore[no-untyped-def]
    # OUT: found and sqdist, as many as the number that is returned.
    n, d = rows.shape
    x, kept = rows.reshape(n * d), 0
    distance, mass, weight = np.zeros(_GROUP), np.zeros(_GROUP), np.ones(_GROUP)
    prefetch = _GROUP * max(1, PREFETCH_DISTANCE // (_GROUP * d))
    for start in range(0, n, _GROUP):
        count = min(_GROUP, n - start)
        fetch_row(x, (start + prefetch) * d, _GROUP * d)
        if count == _GROUP:
            measure_rows(4, x, start * d, point, d, distance, 0)
            measure_rows(4, x, (start + 4) * d, point, d, distance, 4)
        else:
            distance[:] = 0.0
            for u in range(count):
                measure_rows(1, x, (start + u) * d, point, d, distance, u)
        if weights.size:
            weight[:] = 0.0
            for u in range(count):
                weight[u] = weights[start + u]
            for u in range(_GROUP):
                mass[u] = weight[u] * distance[u]
            add_masses(mass, grid, totals, 0)
        else:
            add_masses(distance, grid, totals, 0)
        if count < _GROUP or any_below(ranks, start, weight, distance, offset, slope):
            for u in range(count):
                if ranks[start + u] < weight[u] * (offset + slope * distance[u]):
                    found[kept], sqdist[kept] = start + u, distance[u]
                    kept += 1
    return kept


def filter_candidate_rows(
    X: np.ndarray,
    point: np.ndarray,
    weights: np.ndarray | None,
    ranks: np.ndarray,
    offset: float,
    slope: float,
    grid: SumGrid,
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Find rows whose rank is below ``w (offset + slope * sqdist)``, and sum ``w * sqdist``, in one sweep.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, float32 or float64
    point : ndarray of shape (d,), dtype of X
        Squared distances to it are those of `daskcluster.kernels.distance.sqdist_to_one`.
    weights : ndarray of shape (n,), float64, or None
    ranks : ndarray of shape (n,), uint16
    offset, slope : float
    grid : SumGrid
        Grid of the sum.

    Returns
    -------
    found : ndarray of int64, shape (c,)
        Places of the rows, ascending.
    sqdist : ndarray of float64, shape (c,)
        Squared distances of these rows.
    high, low : float
        The sum over all rows, on two grids.

    Examples
    --------
    >>> import numpy as np
    >>> ranks, grid = np.array([5, 1, 9], np.uint16), SumGrid(1.5 * 2.0**52, 1.5)
    >>> X = np.array([[1.0], [2.0], [-2.0]])
    >>> filter_candidate_rows(X, np.zeros(1), None, ranks, 1.0, 0.5, grid)
    (array([1]), array([4.]), 9.0, 0.0)
    """
    found, sqdist = np.empty(len(X), np.int64), np.empty(len(X))
    totals = np.zeros((2, _GROUP))
    values = (read_only(X), read_only(point), weights_or_none(weights), read_only(ranks))
    limits = float(offset), float(slope)
    kept = _filter_rows(*values, *limits, grid, totals.reshape(-1), found, sqdist)
    high, low = totals.sum(axis=1)
    # Copy, so that the buffers can be freed.
    return found[:kept].copy(), sqdist[:kept].copy(), float(high), float(low)
