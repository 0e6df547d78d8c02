"""Compile (or load from the cache) the kernels that a fit needs, before the clock runs.

Those of bounds are left to their first use: only some fits have bounds, and from the cache a kernel
comes in a few hundredths of a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.kernels import (
    accumulate,
    distance,
    inertia,
    sampling,
    sparse,
    sparse_distance,
    sparse_search,
    survey,
    tile,
)


def warm_up(n_clusters: int = 8, dtype: Any = np.float32, *, is_sparse: bool = False) -> None:
    """Run the kernels of Lloyd's algorithm and its seedings on a handful of rows.

    Parameters
    ----------
    n_clusters : int
        The shape of the register tile follows it.
    dtype : dtype
        In which rows are computed: float32 or float64.
    is_sparse : bool
        Rows are CSR.

    Notes
    -----
    Compiling takes some seconds once per machine; loading from the cache a fraction of one.
    """
    centres = np.zeros((n_clusters, 2), dtype)
    (_warm_up_sparse if is_sparse else _warm_up_dense)(centres)
    ones, shift = np.ones(4), 0.0
    sums = np.zeros(n_clusters), np.zeros(n_clusters)
    distance.sqdist_to_assigned(centres, centres, np.zeros(n_clusters, np.int32), sums[0])
    inertia.inertia_terms(np.zeros((n_clusters, 2)), None, sums[1], centres, np.zeros(2))
    accumulate.sum_on_grid(ones, shift, shift)
    accumulate.accumulate_values(ones, np.zeros(4, np.int32), shift, shift, *sums)
    sampling.cumulative_pick(ones, None, shift, shift)


def _warm_up_dense(centres: np.ndarray) -> None:
    k, dtype = len(centres), centres.dtype
    rows, labels, ones = np.zeros((4, 2), dtype), np.zeros(4, np.int32), np.ones(4)
    sums, counts, shift, out = np.zeros((k, 2)), np.zeros(k, np.int64), np.zeros(2), np.zeros(4)
    tile.nearest(rows, tile.pack(centres), labels)
    accumulate.accumulate(rows, labels, shift, sums, counts)
    tile.nearest_and_sum(rows, tile.pack(centres), labels, shift, sums, counts)
    grids = shift, shift, sums, sums.copy(), 0.0, 0.0
    accumulate.accumulate_weighted(rows, labels, ones, *grids, np.zeros(k), np.zeros(k))
    accumulate.accumulate_weighted(rows, labels, None, *grids, counts, None)
    which = np.arange(4)
    accumulate.move(rows, which, labels, labels, shift, sums, counts)
    accumulate.move_weighted(rows, which, labels, labels, ones, *grids, np.zeros(k), np.zeros(k))
    accumulate.move_weighted(rows, which, labels, labels, None, *grids, counts, None)
    distance.sqdist_to_one(rows, centres[0], out)
    survey.survey(rows, np.zeros(2))
    survey.look(rows, centres[0], None, shift, np.zeros((3, 2)), np.zeros(2), np.zeros(2))
    sampling.lower(rows, centres[0], out)
    sampling.potentials(rows, centres, out, None, 0.0, 0.0, np.zeros(k), np.zeros(k))


def _warm_up_sparse(centres: np.ndarray) -> None:
    k, dtype = len(centres), centres.dtype
    data, indices = np.zeros(4, dtype), np.zeros(4, np.int32)
    rows = data, indices, np.arange(5, dtype=np.int64)
    labels, shift, out = np.zeros(4, np.int32), np.zeros(2), np.zeros(4)
    sums, counts = np.zeros((k, 2)), np.zeros(k, np.int64)
    panels, norms = sparse_search.pack_sparse(centres), sparse_search.squared_norms(centres)
    sparse.first_fault(indices, rows[2], 2)
    sparse.raise_max_abs(data, indices, np.zeros(2))
    sparse_search.nearest_sparse(*rows, panels, labels)
    sparse.add_sparse(*rows, labels, shift, sums, counts)
    sparse.add_sparse_weighted(*rows, labels, None, shift, shift, sums, sums.copy())
    sparse_distance.sqdist_to_assigned_sparse(*rows, centres, norms, labels, out)
    sparse_distance.look_sparse(*rows, centres[0], float(norms[0]), shift, np.zeros(2), out)
    sparse_distance.lower_sparse(*rows, centres[0], float(norms[0]), out)
    totals = np.zeros(k), np.zeros(k)
    sparse_distance.potentials_sparse(*rows, panels, out, None, 0.0, 0.0, *totals)
