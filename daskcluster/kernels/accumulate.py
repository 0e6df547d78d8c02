"""Exact sums of rows and of values, by cluster or in total; see `daskcluster.kernels.sum_grid`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.jit import kernel, read_only, weights_or_none
from daskcluster.kernels.panels import Tile
from daskcluster.kernels.row_block import aligned, first_row, pack_rows
from daskcluster.kernels.row_ops import add_on_grid, add_on_grids, move_on_grid, move_on_grids
from daskcluster.kernels.search import FETCHING, place_winners, score_block, tile_shape
from daskcluster.kernels.sparse import CsrRows
from daskcluster.kernels.sum_grid import SumGrid, rounded, split


@kernel
def _add(rows, labels, shift, sums, counts):  # type: ignore[no-untyped-def]
    n, d = rows.shape
    x, s = rows.reshape(n * d), sums.reshape(sums.size)
    for i in range(n):
        counts[labels[i]] += 1
        add_on_grid(x, i * d, shift, s, labels[i] * d, d)


@kernel
def _add_weighted(rows, labels, weights, shift, low_shift, sums, low_sums):  # type: ignore[no-untyped-def]
    (n, d), grid = rows.shape, (shift, low_shift)
    x, s, low = rows.reshape(n * d), sums.reshape(sums.size), low_sums.reshape(sums.size)
    for i in range(n):
        w = weights[i] if weights.size else 1.0
        add_on_grids(x, i * d, w, grid, s, low, labels[i] * d, d)


@kernel
def _move(rows, which, old, new, shift, sums, counts):  # type: ignore[no-untyped-def]
    n, d = rows.shape
    x, s = rows.reshape(n * d), sums.reshape(sums.size)
    for i in range(which.shape[0]):
        counts[new[i]] += 1
        if old[i] < 0:
            add_on_grid(x, which[i] * d, shift, s, new[i] * d, d)
        else:
            counts[old[i]] -= 1
            move_on_grid(x, which[i] * d, shift, s, old[i] * d, new[i] * d, d)


@kernel
def _move_weighted(rows, which, old, new, weights, shift, low_shift, sums, low_sums):  # type: ignore[no-untyped-def]
    (n, d), grid = rows.shape, (shift, low_shift)
    x, s, low = rows.reshape(n * d), sums.reshape(sums.size), low_sums.reshape(sums.size)
    for i in range(which.shape[0]):
        at, w = which[i] * d, weights[i] if weights.size else 1.0
        if old[i] < 0:
            add_on_grids(x, at, w, grid, s, low, new[i] * d, d)
        else:
            move_on_grids(x, at, w, grid, s, low, old[i] * d, new[i] * d, d)


@kernel
def _add_sparse(data, indices, indptr, labels, shift, sums, counts):  # type: ignore[no-untyped-def]
    for i in range(labels.shape[0]):
        total = sums[labels[i]]
        counts[labels[i]] += 1
        for s in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            t = indices[s]
            total[t] += rounded(np.float64(data[s]), shift[t])


@kernel
def _add_weighted_sparse(data, indices, indptr, labels, weights, shift, low_shift, sums, low_sums):  # type: ignore[no-untyped-def]
    for i in range(labels.shape[0]):
        total, low_total = sums[labels[i]], low_sums[labels[i]]
        w = weights[i] if weights.size else 1.0
        for s in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            t = indices[s]
            high, low = split(np.float64(data[s]) * w, shift[t], low_shift[t])
            total[t] += high
            low_total[t] += low


@kernel
def _move_sparse(data, indices, indptr, which, old, new, shift, sums, counts):  # type: ignore[no-untyped-def]
    for i in range(which.shape[0]):
        a, b, r = old[i], new[i], which[i]
        counts[b] += 1
        if a >= 0:
            counts[a] -= 1
        for s in range(indptr[r] - indptr[0], indptr[r + 1] - indptr[0]):
            t = indices[s]
            value = rounded(np.float64(data[s]), shift[t])
            sums[b, t] += value
            if a >= 0:
                sums[a, t] -= value


@kernel
def _move_weighted_sparse(  # type: ignore[no-untyped-def]
    data, indices, indptr, which, old, new, weights, shift, low_shift, sums, low_sums
):
    for i in range(which.shape[0]):
        a, b, r = old[i], new[i], which[i]
        w = weights[i] if weights.size else 1.0
        for s in range(indptr[r] - indptr[0], indptr[r + 1] - indptr[0]):
            t = indices[s]
            high, low = split(np.float64(data[s]) * w, shift[t], low_shift[t])
            sums[b, t] += high
            low_sums[b, t] += low
            if a >= 0:
                sums[a, t] -= high
                low_sums[a, t] -= low


@kernel
def _move_count(old, new, counts):  # type: ignore[no-untyped-def]
    for i in range(new.shape[0]):
        if old[i] >= 0:
            counts[old[i]] -= 1
        counts[new[i]] += 1


@kernel
def _move_values(values, old, new, shift, low_shift, high, low):  # type: ignore[no-untyped-def]
    for i in range(new.shape[0]):
        h, r = split(values[i], shift, low_shift)
        high[new[i]] += h
        low[new[i]] += r
        if old[i] >= 0:
            high[old[i]] -= h
            low[old[i]] -= r


@kernel
def _count(labels, counts):  # type: ignore[no-untyped-def]
    for i in range(labels.shape[0]):
        counts[labels[i]] += 1


@kernel
def _add_values_by_label(values, labels, shift, low_shift, high, low):  # type: ignore[no-untyped-def]
    for i in range(labels.shape[0]):
        h, r = split(values[i], shift, low_shift)
        high[labels[i]] += h
        low[labels[i]] += r


@kernel
def _sum_on_grid(values, shift, low_shift):  # type: ignore[no-untyped-def]
    # Eight running sums, so that the loop is not one dependent chain; sums are exact, so order is free.
    high, low = np.zeros(8), np.zeros(8)
    n = values.shape[0]
    for i in range(0, n - 7, 8):
        for u in range(8):
            h, r = split(values[i + u], shift, low_shift)
            high[u] += h
            low[u] += r
    for i in range(n - n % 8, n):
        h, r = split(values[i], shift, low_shift)
        high[0] += h
        low[0] += r
    return high.sum(), low.sum()


Rows = np.ndarray | CsrRows
"""Dense rows, or CSR rows, whose sums have the same bits."""


def accumulate(
    X: Rows, labels: np.ndarray, shift: np.ndarray, sums: np.ndarray, counts: np.ndarray
) -> None:
    """Add rows to the sums of their clusters, on one grid; for float32 rows without weights.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, or CsrRows; float32 or float64
    labels : ndarray of shape (n,), int32
        In ``[0, k)``: not checked.
    shift : ndarray of shape (d,), float64
        M of the grid of each feature; no value may exceed the bound for which M was chosen.
    sums : ndarray of shape (k, d), float64, C-contiguous
        IN/OUT.
    counts : ndarray of shape (k,), int64
        IN/OUT.

    Examples
    --------
    >>> import numpy as np
    >>> sums, counts = np.zeros((2, 1)), np.zeros(2, np.int64)
    >>> rows = np.array([[1.0], [2.0], [4.0]], np.float32)
    >>> accumulate(rows, np.array([0, 1, 1], np.int32), np.array([1.5 * 2.0**20]), sums, counts)
    >>> sums.ravel(), counts
    (array([1., 6.]), array([1, 2]))
    """
    if isinstance(X, CsrRows):
        _add_sparse(*X, labels, shift, sums, counts)
    else:
        _add(read_only(X), labels, shift, sums, counts)


def accumulate_weighted(
    X: Rows,
    labels: np.ndarray,
    weights: np.ndarray | None,
    grid: SumGrid,
    sums: np.ndarray,
    residuals: np.ndarray,
    weight_grid: SumGrid,
    counts: np.ndarray,
    count_residuals: np.ndarray | None = None,
) -> None:
    """Add (weighted) rows to the sums of their clusters, on two grids.

    For float64 rows, weighted rows, and more rows than one grid can sum exactly.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, or CsrRows; float32 or float64
    labels : ndarray of shape (n,), int32
        In ``[0, k)``: not checked.
    weights : ndarray of shape (n,), float64, or None
    grid : SumGrid of ndarrays of shape (d,), float64
        Grid of w * x.
    sums, residuals : ndarray of shape (k, d), float64, C-contiguous
        IN/OUT. High and low part of the sums.
    weight_grid : SumGrid
        Grid of the weights.
    counts : ndarray of shape (k,)
        IN/OUT. int64 without weights; with weights, the high part in float64.
    count_residuals : ndarray of shape (k,), float64, optional
        IN/OUT. The low part; needed with weights.
    """
    weighted = labels, weights_or_none(weights), *grid, sums, residuals
    if isinstance(X, CsrRows):
        _add_weighted_sparse(*X, *weighted)
    else:
        _add_weighted(read_only(X), *weighted)
    if weights is None or count_residuals is None:
        _count(labels, counts)
    else:
        accumulate_values(weights, labels, weight_grid, counts, count_residuals)


def move(
    X: Rows,
    which: np.ndarray,
    old: np.ndarray,
    new: np.ndarray,
    shift: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Move some rows from the sums of one cluster to those of another, on one grid.

    Parameters
    ----------
    X, shift, sums, counts
        As in `accumulate`.
    which : ndarray of shape (m,), int64
        Rows of `X` that changed their label.
    old, new : ndarray of shape (m,), int32
        Their labels before and after. -1 before: the row was in no cluster.

    Examples
    --------
    >>> import numpy as np
    >>> sums, counts = np.array([[3.0], [0.0]]), np.array([2, 0])
    >>> rows, which = np.array([[1.0], [2.0]], np.float32), np.array([1])
    >>> old, new = np.array([0], np.int32), np.array([1], np.int32)
    >>> move(rows, which, old, new, np.array([1.5 * 2.0**20]), sums, counts)
    >>> sums.ravel(), counts
    (array([1., 2.]), array([1, 1]))
    """
    if isinstance(X, CsrRows):
        _move_sparse(*X, which, old, new, shift, sums, counts)
    else:
        _move(read_only(X), which, old, new, shift, sums, counts)


def sum_relabelled(
    X: Rows,
    label: Callable[[np.ndarray], None],
    labels: np.ndarray,
    shift: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
    *,
    moving: bool,
) -> None:
    """Label rows with ``label(labels)``, and `accumulate` them; or `move` those whose label changes."""
    old = labels.copy() if moving else labels
    label(labels)
    if not moving:
        accumulate(X, labels, shift, sums, counts)
        return
    which = np.flatnonzero(labels != old)
    move(X, which, old[which], labels[which], shift, sums, counts)


def move_weighted(
    X: Rows,
    which: np.ndarray,
    old: np.ndarray,
    new: np.ndarray,
    weights: np.ndarray | None,
    grid: SumGrid,
    sums: np.ndarray,
    residuals: np.ndarray,
    weight_grid: SumGrid,
    counts: np.ndarray,
    count_residuals: np.ndarray | None = None,
) -> None:
    """Move some (weighted) rows, on two grids; see `move` and `accumulate_weighted`.

    `weights` are those of the moved rows, shape (m,).
    """
    weighted = which, old, new, weights_or_none(weights), *grid, sums, residuals
    if isinstance(X, CsrRows):
        _move_weighted_sparse(*X, *weighted)
    else:
        _move_weighted(read_only(X), *weighted)
    if weights is None or count_residuals is None:
        _move_count(old, new, counts)
    else:
        _move_values(read_only(weights), old, new, *weight_grid, counts, count_residuals)


def accumulate_values(
    values: np.ndarray, labels: np.ndarray, grid: SumGrid, high: np.ndarray, low: np.ndarray
) -> None:
    """Add one value per row (a weight, a cost) to its cluster, on two grids.

    Parameters
    ----------
    values : ndarray of shape (n,), float64
    labels : ndarray of shape (n,), int32
    grid : SumGrid
    high, low : ndarray of shape (k,), float64
        IN/OUT.
    """
    _add_values_by_label(read_only(values), labels, *grid, high, low)


def sum_on_grid(values: np.ndarray, grid: SumGrid) -> tuple[float, float]:
    """Return the sum of scalars on two grids: high part and low part.

    Examples
    --------
    >>> import numpy as np
    >>> sum_on_grid(np.array([1.0, 2.0**-60]), SumGrid(1.5 * 2.0**52, 1.5 * 2.0**-20))
    (1.0, 8.673617379884035e-19)
    """
    high, low = _sum_on_grid(read_only(values), *grid)
    return high, low


@kernel
def group_by_label(labels, order, starts):  # type: ignore[no-untyped-def]
    """List rows by cluster, by a counting sort.

    Parameters
    ----------
    labels : ndarray of shape (n,), int32
    order : ndarray of shape (n,), int64
        OUT. Rows, ascending within a cluster.
    starts : ndarray of shape (k + 1,), int64
        OUT. Cluster j has ``order[starts[j]:starts[j + 1]]``.

    Examples
    --------
    >>> import numpy as np
    >>> order, starts = np.empty(3, np.int64), np.empty(3, np.int64)
    >>> group_by_label(np.array([1, 0, 1], np.int32), order, starts)
    >>> order, starts
    (array([1, 0, 2]), array([0, 1, 3]))
    """
    # Unsigned indices avoid the check for negative ones.
    starts[:] = 0
    for i in range(labels.shape[0]):
        starts[np.uint64(labels[i] + 1)] += 1
    for j in range(starts.shape[0] - 1):
        starts[j + 1] += starts[j]
    for i in range(labels.shape[0]):
        label = np.uint64(labels[i])
        at = starts[label]
        order[np.uint64(at)] = i
        starts[label] = at + 1
    # Every start has advanced to the next one; shift them back.
    for j in range(starts.shape[0] - 1, 0, -1):
        starts[j] = starts[j - 1]
    starts[0] = 0


@cache
def fused_kernel(tile: Tile, lanes: int, *, two_stage: bool = False) -> Any:
    """Build the loop for a tile; `lanes` elements fill 128 bits; `two_stage` as in `search_kernel`."""
    shape = tile_shape(tile, lanes, 0 if two_stage else 1)
    block = tile.rows

    def label_and_add(rows, panels, offset, labels, shift, sums, counts, moving):  # type: ignore[no-untyped-def]
        # OUT: labels (n,). IN/OUT: sums (k, d), counts (k,). With `moving` labels are IN/OUT, and only rows
        # whose label changes are moved, from the cluster that they were in.
        n, d = rows.shape
        flat, panel, s = rows.reshape(n * d), panels.reshape(panels.size), sums.reshape(sums.size)
        packed, best = aligned(d * block, offset), aligned(block, offset)
        index = aligned(block, labels)
        fetching = min(panels.shape[0], FETCHING)
        share, part = -(-block // fetching), (0, panels.shape[0])
        for start in range(0, n, block):
            first = first_row(start, block, n)
            pack_rows(flat, n, d, first, offset, packed, 0, shape)
            best[:] = -np.inf
            index[:] = 0  # NaN rows have no winner: centre 0
            prefetched = (start + block) * d, share, fetching
            score_block(packed, 0, panel, part, d, best, index, flat, prefetched, shape)
            if two_stage:
                place_winners(packed, 0, panel, d, best, index, shape)
            for r in range(start - first, min(block, n)):
                j, i = index[r], first + r
                old = labels[i]
                if moving and old == j:
                    continue
                labels[i] = j
                counts[j] += 1
                if moving:
                    counts[old] -= 1
                    move_on_grid(flat, i * d, shift, s, old * d, j * d, d)
                else:
                    add_on_grid(flat, i * d, shift, s, j * d, d)

    return kernel(label_and_add)
