"""Compile (or load from the cache) the kernels that a fit needs, before the clock runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.kernels import accumulate, distance, sampling, survey, tile


def warm_up(n_clusters: int = 8, dtype: Any = np.float32) -> None:
    """Run every kernel of a k-means fit on a handful of rows.

    Parameters
    ----------
    n_clusters : int
        The shape of the register tile follows it.
    dtype : dtype
        float32 or float64.

    Notes
    -----
    Compiling takes some seconds once per machine; loading from the cache a fraction of one.
    """
    k = n_clusters
    rows, centres = np.zeros((4, 2), dtype), np.zeros((k, 2), dtype)
    labels, ones = np.zeros(4, np.int32), np.ones(4)
    sums, counts, shift, out = np.zeros((k, 2)), np.zeros(k, np.int64), np.zeros(2), np.zeros(4)
    tile.nearest(rows, tile.pack(centres), labels)
    accumulate.accumulate(rows, labels, shift, sums, counts)
    tile.nearest_and_sum(rows, tile.pack(centres), labels, shift, sums, counts)
    accumulate.accumulate_weighted(
        rows, labels, ones, shift, shift, sums, sums.copy(), 0.0, 0.0, np.zeros(k), np.zeros(k)
    )
    accumulate.sum_on_grid(ones, 0.0, 0.0)
    distance.sqdist_to_assigned(rows, centres, labels, out)
    distance.sqdist_to_one(rows, centres[0], out)
    accumulate.accumulate_values(ones, labels, 0.0, 0.0, np.zeros(k), np.zeros(k))
    survey.survey(rows, np.zeros(2))
    sampling.lower(rows, centres[0], out)
    sampling.potentials(rows, centres, out, None, 0.0, 0.0, np.zeros(k), np.zeros(k))
    sampling.cumulative_pick(out, None, 0.0, 0.0)
