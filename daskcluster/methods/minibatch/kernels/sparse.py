"""The mini-batch step of `batch` for CSR rows, which stay where they lie too."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only, weights_or_none
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.row_ops import squared_distance
from daskcluster.kernels.sparse_distance import row_distance
from daskcluster.methods.minibatch.kernels.batch import learning_rate, scale_to_one

_COLUMNS = 512
"""Of a centre, which are moved at a time: they stay in the fastest cache."""


@kernel
def _blend(gained, keep, unit, exact, centre):  # type: ignore[no-untyped-def]
    """Move one centre as that of dense rows; return the squared length of the way.

    IN/OUT: gained (d,), alpha times the mean of its rows, zero afterwards; exact, centre (d,).
    """
    d, before, shift = exact.shape[0], np.empty(_COLUMNS, centre.dtype), 0.0
    if unit:
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
def _move(rows, listed, weights, grouped, rate, clusters, norms, state, out):  # type: ignore[no-untyped-def]
    # As of dense rows; norms (k,) are |c|^2 before the move.
    (data, indices, indptr), (order, starts), (first, last) = rows, grouped, clusters
    (exact, centres, seen), (costs, shifts) = state, out
    batch_weight, rule, unit = rate
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
            shifts[j] = _blend(gained, 1.0 - alpha, unit, exact[j], centres[j])


def move_centres_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    listed: np.ndarray,
    weights: np.ndarray | None,
    grouped: tuple[np.ndarray, np.ndarray],
    batch_weight: float,
    rule: int,
    clusters: tuple[int, int],
    norms: np.ndarray,
    state: tuple[np.ndarray, np.ndarray, np.ndarray],
    costs: np.ndarray,
    shifts: np.ndarray,
    *,
    unit: bool = False,
) -> None:
    """Do as `daskcluster.methods.minibatch.kernels.batch.move_centres` for CSR rows.

    Parameters
    ----------
    data, indices, indptr : ndarrays
        CSR rows, see `daskcluster.kernels.sparse`.
    listed : ndarray of shape (b,), int64
        In ``[0, n)``: not checked.
    norms : ndarray of shape (k,), float64
        |c|^2 of the centres before they move.
    weights, grouped, batch_weight, rule, clusters, state, costs, shifts, unit
        As in `daskcluster.methods.minibatch.kernels.batch.move_centres`.
    """
    rows = (read_only(data), read_only(indices), read_only(indptr))
    rate, out = (batch_weight, rule, unit), (costs, shifts)
    _move(rows, listed, weights_or_none(weights), grouped, rate, clusters, norms, state, out)
