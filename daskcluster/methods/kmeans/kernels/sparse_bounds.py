"""Bounds of CSR rows: the same as those of dense rows, from distances over the stored values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from daskcluster.kernels.jit import kernel
from daskcluster.kernels.sparse_distance import row_distance
from daskcluster.methods.kmeans.kernels.bounds import (
    HALF,
    OTHERS,
    OWN,
    SAFE,
    lowered,
    proves,
    raised,
    second_bound,
    threshold,
)


class SparseListed(NamedTuple):
    """CSR rows to reassign: the position of each in the rows, and in the state; read only."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    at: np.ndarray
    which: np.ndarray


class SparseCentres(NamedTuple):
    """Centres (k, d), |c|^2 of each, and the most by which a squared distance to one may err."""

    centres: np.ndarray
    norms: np.ndarray
    error: float


@kernel
def _upper(some, r, a, near):  # type: ignore[no-untyped-def]
    """Return an upper bound of the distance of row `r` to centre `a`."""
    first, stop = some.indptr[r] - some.indptr[0], some.indptr[r + 1] - some.indptr[0]
    squared = row_distance(some.data, some.indices, first, stop, near.centres[a], near.norms[a])
    return math.sqrt(squared + near.error)


@kernel
def tighten_sparse(some, state, near, drift, margin, failing, distances):  # type: ignore[no-untyped-def]
    """Measure listed rows against their own centres.

    Returns
    -------
    int
        How many rows still fail; OUT: `failing`, their indices in the list, and `distances`.
    """
    count = 0
    for s in range(some.which.shape[0]):
        i = some.which[s]
        a, u, holds = state.labels[i], np.inf, False
        if a >= 0:
            u = _upper(some, some.at[s], a, near)
            state.upper[i] = raised(u - drift[OWN, a])
            low = max(state.lower[i] - drift[OTHERS, a], drift[HALF, a])
            holds = proves(low, threshold(u * (1.0 + SAFE), margin))
        distances[count], failing[count] = u, s
        count += not holds
    return count


@kernel
def renew_sparse(some, state, near, drift, margin, failing, distances, labels, scores, out):  # type: ignore[no-untyped-def]
    """Give the listed rows at `failing` the labels and bounds of a search.

    Returns
    -------
    int
        How many rows have moved; OUT: `out`.
    """
    n_moved, k = 0, near.norms.shape[0]
    for q in range(failing.shape[0]):
        s, a, u = failing[q], labels[q], distances[q]
        i = some.which[s]
        if state.labels[i] != a:
            out.which[n_moved], out.old[n_moved] = s, state.labels[i]
            n_moved += 1
            state.labels[i] = a
            u = _upper(some, some.at[s], a, near)
        state.upper[i] = raised(u - drift[OWN, a])
        low = second_bound(u, scores[q, 0], scores[q, 1], k, margin)
        state.lower[i] = lowered(low + drift[OTHERS, a])
    return n_moved
