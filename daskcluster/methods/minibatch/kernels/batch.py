"""One mini-batch step on dense or CSR rows: draw rows, label them in place, move the centres."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.jit import kernel, read_only
from daskcluster.kernels.panels import PORTABLE, Panels, Tile
from daskcluster.kernels.row_block import aligned, lanes_of, pack_listed_rows
from daskcluster.kernels.row_ops import fetch_row, squared_distance
from daskcluster.kernels.search import list_lines, score_listed, tile_shape
from daskcluster.kernels.sparse import row_distance
from daskcluster.kernels.tile import nearest

COUNT, SQRT = 0, 1
"""Learning rates: alpha = b_j / (v_j + b_j), the running mean, and alpha = sqrt(b_j / b)."""

_FUSED_BYTES = 4 << 20
"""Panels up to this size are compared with a block of rows one after the other; larger ones in groups."""


@cache
def _listed_search(tile: Tile, lanes: int) -> Any:
    shape = tile_shape(tile, lanes, 1)
    vectors, width, lanes = shape[:3]
    block, line = vectors * width, 4 * lanes

    def search(rows, listed, panels, offset, labels):  # type: ignore[no-untyped-def]
        # OUT: labels (b,).
        n, d = rows.shape
        b = listed.shape[0]
        flat, panel = rows.reshape(n * d), panels.reshape(panels.size)
        packed, best = aligned(d * block, offset), aligned(block, offset)
        index, taken = aligned(block, labels), np.empty(block, np.int64)
        places = np.empty(panels.shape[0] * d, np.int64)
        fetched = 0
        for start in range(0, b, block):
            for r in range(block):
                taken[r] = listed[min(start + r, b - 1)]
            pack_listed_rows(flat, taken, d, offset, packed, shape)
            fetched = list_lines(
                listed, max(start + block, fetched), start + 3 * block, d, line, places
            )
            score_listed(packed, panel, (0, panels.shape[0]), d, best, index, flat, places, shape)
            for r in range(min(block, b - start)):
                labels[start + r] = max(index[r], 0)  # NaN rows have no winner: centre 0

    return kernel(search)


@kernel
def learning_rate(weight, batch_weight, rule, seen):  # type: ignore[no-untyped-def]
    """Return alpha of a cluster with so much weight in the batch; IN/OUT: seen (1,)."""
    before = seen[0]
    seen[0] += weight
    if rule == COUNT:
        return weight / (before + weight)
    return math.sqrt(min(1.0, weight / batch_weight))


@kernel
def scale_to_one(centre):  # type: ignore[no-untyped-def]
    """Scale a centre to length one, unless it is the origin."""
    length = 0.0
    for t in range(centre.shape[0]):
        length += centre[t] * centre[t]
    if length > 0.0:
        length = 1.0 / math.sqrt(length)
        for t in range(centre.shape[0]):
            centre[t] *= length


@kernel
def blend(total, weight, batch_weight, rule, normalize, exact, centre, seen, before):  # type: ignore[no-untyped-def]
    """Move one centre towards the mean of its rows; return the squared distance moved.

    IN/OUT: exact (d,) float64, centre (d,) in the rows' dtype, seen (1,): weight of all rows so far.
    OUT: before (d,), the centre as it was.
    """
    d, alpha = exact.shape[0], learning_rate(weight, batch_weight, rule, seen)
    keep = 1.0 - alpha
    for t in range(d):
        exact[t] = keep * exact[t] + alpha * (total[t] / weight)
    if normalize:
        scale_to_one(exact)
    for t in range(d):
        before[t], centre[t] = centre[t], exact[t]
    return squared_distance(centre, 0, before, 0, d)


@kernel
def move_centres(rows, listed, weights, grouped, rate, clusters, state, out):  # type: ignore[no-untyped-def]
    """Move some centres towards the means of their rows in a batch.

    c_j becomes (1 - alpha) c_j + alpha m_j, with m_j the weighted mean of its b_j (weighted) rows. A
    cluster without weight in the batch stays where it is.

    Parameters
    ----------
    rows, listed
        As in `nearest_listed`; read only.
    weights : ndarray of shape (n,), float64
        Weights of the rows, listed or not; see `daskcluster.kernels.jit.weights_or_none`.
    grouped : (order, starts)
        Result of `group_by_label`.
    rate : (batch_weight, rule, normalize)
        b, of the whole batch; `COUNT` or `SQRT`; whether centres are scaled to length one.
    clusters : (first, last)
        Which centres; threads take disjoint ranges.
    state : (exact, centres, seen)
        IN/OUT. Centres (k, d) in float64, and rounded to the rows' dtype; v_j, the weight that each
        cluster has seen so far, float64 (k,).
    out : (costs, shifts)
        OUT. Weighted sum of squared distances of each cluster's rows to its centre before it moves, and
        squared length of each centre's way, float64 (k,).
    """
    (order, starts), (first, last) = grouped, clusters
    (exact, centres, seen), (costs, shifts) = state, out
    batch_weight, rule, normalize = rate
    n, d = rows.shape
    x, c = rows.reshape(n * d), centres.reshape(centres.size)
    total, before = np.empty(d), np.empty(d, centres.dtype)
    for j in range(first, last):
        costs[j], shifts[j] = 0.0, 0.0
        if starts[j] == starts[j + 1]:
            continue
        total[:] = 0.0
        weight, cost = 0.0, 0.0
        for s in range(starts[j], starts[j + 1]):
            fetch_row(x, listed[order[min(s + 2, order.shape[0] - 1)]] * d, d)
            i = listed[order[s]]
            w = weights[i] if weights.size else 1.0
            row = rows[i]
            for t in range(d):
                total[t] += w * row[t]
            weight += w
            cost += w * squared_distance(x, i * d, c, j * d, d)
        costs[j] = cost
        if weight > 0.0:
            shifts[j] = blend(
                total, weight, batch_weight, rule, normalize,
                exact[j], centres[j], seen[j : j + 1], before,
            )  # fmt: skip


def nearest_listed(
    rows: np.ndarray, listed: np.ndarray, panels: Panels, labels: np.ndarray
) -> None:
    """Label listed rows with their nearest centres, where they lie.

    Parameters
    ----------
    rows : ndarray of shape (n, d), C-contiguous, dtype of the panels
    listed : ndarray of shape (b,), int64
        In ``[0, n)``: not checked.
    panels : Panels
    labels : ndarray of shape (b,), int32
        OUT. What `daskcluster.kernels.tile.nearest` gives for ``rows[listed]``.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.kernels.tile import pack
    >>> labels, rows = np.empty(2, np.int32), np.array([[0.1], [2.9], [5.0]])
    >>> nearest_listed(rows, np.array([2, 0]), pack(np.array([[0.0], [3.0]])), labels)
    >>> labels
    array([1, 0], dtype=int32)
    """
    if panels.tile == PORTABLE or panels.data.nbytes > _FUSED_BYTES:
        nearest(rows[listed], panels, labels)
        return
    search = _listed_search(panels.tile, lanes_of(panels.dtype))
    search(read_only(rows), listed, panels.data, panels.offset, labels)


@kernel
def shuffle_next(order, first, uniforms):  # type: ignore[no-untyped-def]
    """Draw the next rows of a random permutation (Fisher and Yates), from the front on.

    Parameters
    ----------
    order : ndarray of shape (n,), int64
        IN/OUT. Rows; those before `first` are drawn already. ``order[first:first + m]`` will be `m` of
        the others, each order of them equally likely.
    first : int
    uniforms : ndarray of shape (m,), float64
        Numbers in [0, 1), with m at most n - first.

    Examples
    --------
    >>> import numpy as np
    >>> order = np.arange(4)
    >>> shuffle_next(order, 0, np.array([0.5, 0.0]))
    >>> order
    array([2, 1, 0, 3])
    """
    n = order.shape[0]
    for s in range(uniforms.shape[0]):
        i = first + s
        # A uniform number has 53 bits: its product with what is left may round up to all of it.
        j = min(i + np.int64(uniforms[s] * (n - i)), n - 1)
        order[i], order[j] = order[j], order[i]


_COLUMNS = 512
"""Features of a centre that are moved at a time: they stay in the fastest cache."""


@kernel
def _blend(gained, keep, normalize, exact, centre):  # type: ignore[no-untyped-def]
    """Move one centre as for dense rows; return the squared distance moved.

    IN/OUT: gained (d,), alpha times the mean of its rows, zero afterwards; exact, centre (d,).
    """
    d, before, shift = exact.shape[0], np.empty(_COLUMNS, centre.dtype), 0.0
    if normalize:
        for t in range(d):
            exact[t] = keep * exact[t] + gained[t]
            gained[t] = 0.0
        scale_to_one(exact)
        keep = 1.0
    for start in range(0, d, _COLUMNS):
        count = min(_COLUMNS, d - start)
        wide, near = exact[start : start + count], centre[start : start + count]
        more = gained[start : start + count]
        for t in range(count):
            before[t] = near[t]
            wide[t] = keep * wide[t] + more[t]
        for t in range(count):
            near[t] = wide[t]
        more[:] = 0.0
        shift += squared_distance(near, 0, before, 0, count)
    return shift


@kernel
def move_centres_sparse(rows, listed, weights, grouped, rate, clusters, norms, state, out):  # type: ignore[no-untyped-def]
    """Do as `move_centres` for CSR rows.

    Parameters
    ----------
    rows : (data, indices, indptr)
        See `daskcluster.kernels.sparse`; read only.
    norms : ndarray of shape (k,), float64
        |c|^2 of the centres before they move.
    listed, weights, grouped, rate, clusters, state, out
        As in `move_centres`.
    """
    (data, indices, indptr), (order, starts), (first, last) = rows, grouped, clusters
    (exact, centres, seen), (costs, shifts) = state, out
    batch_weight, rule, normalize = rate
    d, origin = centres.shape[1], indptr[0]
    total, gained = np.zeros(d), np.zeros(d)
    for j in range(first, last):
        costs[j], shifts[j] = 0.0, 0.0
        if starts[j] == starts[j + 1]:
            continue
        weight, cost = 0.0, 0.0
        for s in range(starts[j], starts[j + 1]):
            i = listed[order[s]]
            begin, end = indptr[i] - origin, indptr[i + 1] - origin
            w = weights[i] if weights.size else 1.0
            for e in range(begin, end):
                total[indices[e]] += w * data[e]
            weight += w
            cost += w * row_distance(data, indices, begin, end, centres[j], norms[j])
        costs[j] = cost
        alpha = 0.0
        if weight > 0.0:
            alpha = learning_rate(weight, batch_weight, rule, seen[j : j + 1])
        # Most columns are in no row of the cluster: those that are, are visited once more.
        for s in range(starts[j], starts[j + 1]):
            i = listed[order[s]]
            for e in range(indptr[i] - origin, indptr[i + 1] - origin):
                t = indices[e]
                if weight > 0.0 and total[t] != 0.0:
                    gained[t] = alpha * (total[t] / weight)
                total[t] = 0.0
        if weight > 0.0:
            shifts[j] = _blend(gained, 1.0 - alpha, normalize, exact[j], centres[j])
