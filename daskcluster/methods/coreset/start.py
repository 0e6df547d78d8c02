"""First centres from a small sample in which rare far rows are not missed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.data.open import open_chunk
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.methods.coreset.algorithm import lightweight_coreset
from daskcluster.methods.kmeans.algorithm import lloyd
from daskcluster.methods.kmeans.local_search import swap_centres
from daskcluster.randomness import Key
from daskcluster.seeding.kmeans_plusplus import kmeans_plusplus

SAMPLE_ROWS = 6144
"""Rows of a sample by default."""

_REFINEMENTS, _ROWS_A_CENTRE = 10, 20
"""Iterations on the sample, where it has so many rows for each centre: fewer tell little of its place."""
_MOST_SWAPPED = 64
"""Up to so many centres, a local search on the sample is cheap."""


@dataclass(frozen=True)
class SampledStart:
    """First centres, and what the sample knows of their clusters.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        In the dtype that rows are computed in.
    weights, costs : ndarray of shape (k,), float64
        Weight and cost of every cluster, as if the sample were so many rows of mean weight.
    mean_variance : float
        Mean variance of the features of all rows.
    """

    centres: np.ndarray
    weights: np.ndarray
    costs: np.ndarray
    mean_variance: float


def sampled_start(
    rows: ScaledPlacement, n_clusters: int, size: int, seed: int, restarts: int = 1
) -> SampledStart:
    """Return the first centres of a fit from a sample of its rows.

    The sample is a lightweight coreset: rows far from the mean are drawn more often and count less, so
    clusters that are small and far away, which carry most of the cost of heavy-tailed data, are in it.
    It is clustered by k-means++, a few iterations of Lloyd's algorithm, and local search.

    Parameters
    ----------
    rows : ScaledPlacement
    n_clusters : int
    size : int
        Rows of the sample.
    seed : int
    restarts : int
        Number of starts, of which the best on the sample is returned.

    Notes
    -----
    Cost: two passes over `rows`, with one distance a row in the second.
    """
    few = lightweight_coreset(rows, size, Key(seed, "sample").derived_seed())
    chunk = rows.chunk(few.rows, few.weights)
    best: tuple[float, SampledStart] | None = None
    with LocalEngine().place(open_chunk(chunk)) as placement:
        sample = ScaledPlacement(placement)
        variance = few.moments.spread / few.moments.weight / rows.placement.dataset.n_features
        weight = len(few.rows) * few.moments.weight / rows.placement.dataset.n_rows
        for number in range(restarts):
            start = Key(seed, "start", number).derived_seed()
            centres, _ = kmeans_plusplus(sample, n_clusters, start)
            if len(few.rows) >= _ROWS_A_CENTRE * n_clusters:
                centres = _refined(sample, centres)
                if 1 < n_clusters <= _MOST_SWAPPED:
                    centres = _refined(sample, swap_centres(chunk, centres, start, trial=False))
            found = score_rows(sample, centres)
            weights = found.cluster_weights(weighted=True)
            share = weight / weights.sum()
            costs = found.costs.sum(axis=0) * share
            if best is None or found.inertia < best[0]:
                best = found.inertia, SampledStart(centres, weights * share, costs, variance)
    assert best is not None
    return best[1]


def _refined(sample: ScaledPlacement, centres: np.ndarray) -> np.ndarray:
    return lloyd(sample, centres, max_iter=_REFINEMENTS, tol=0.0).centres
