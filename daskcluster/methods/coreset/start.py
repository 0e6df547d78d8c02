"""First centres from a small sample in which rare far rows are not missed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.chunkwise.centres import nearest_with_distances
from daskcluster.data.csr import csr_of
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.estimators.loop import Limits
from daskcluster.methods.coreset.algorithm import draw_coreset
from daskcluster.methods.kmeans.algorithm import MOST_SWAPPED, CentresState, lloyd, swap_centres
from daskcluster.methods.kmeans.initial import placed
from daskcluster.randomness import Key
from daskcluster.seeding.methods import kmeans_plusplus
from daskcluster.sparse_rows import join_rows

SAMPLE_ROWS = 8192
"""Rows of a sample by default."""

_REFINEMENTS, _ROWS_A_CENTRE = 10, 20
"""Iterations on the sample, where it has so many rows for each centre: fewer tell little of its place."""
_LOOKED_ROWS, _LOOKED_BYTES = 1 << 17, 64 << 20


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
    rows: ScaledPlacement,
    n_clusters: int,
    size: int,
    seed: int,
    restarts: int = 1,
    *,
    looks: bool = True,
) -> SampledStart:
    """Return the first centres of a fit from a sample of its rows.

    The sample is a lightweight coreset: rows far from the mean are drawn more often and count less, so
    clusters that are small and far away, which carry most of the cost of heavy-tailed data, are in it.
    It is clustered by k-means++, a few iterations of Lloyd's algorithm, and local search. Of dense rows in
    memory, half of the sample is drawn by the cost under rough centres of the other half, since rows may be
    far from all others on several scales.

    Parameters
    ----------
    rows : ScaledPlacement
    n_clusters : int
    size : int
        Rows of the sample.
    seed : int
    restarts : int
        Number of starts, of which the best on the sample is returned.
    looks : bool
        False: do not draw again from rows in memory, so that it does not matter where the rows are.

    Notes
    -----
    Cost: two passes over `rows`, with one distance a row in the second, and up to 64 distances of up to
    131,072 rows in memory.
    """
    dataset, sparse = rows.placement.dataset, csr_of(rows.placement.dataset) is not None
    twice = looks and dataset.in_memory and not sparse and size < dataset.n_rows
    drawn = size // 2 if twice else size
    few = draw_coreset(rows, drawn, Key(seed, "sample").derived_seed())
    moments, weight = few.moments, size * few.moments.weight / dataset.n_rows
    variance = moments.spread / moments.weight / dataset.n_features
    best: tuple[float, SampledStart] | None = None
    for number in range(restarts):
        key = Key(seed, "start", number).derived_seed()
        chunk = rows.chunk(few.rows, few.weights)
        if twice:
            rough, _ = _clustered(chunk, min(n_clusters, MOST_SWAPPED), key)
            chunk = _with_costly_rows(rows, chunk, rough, Key(key, "costly rows"))
        centres, found = _clustered(chunk, n_clusters, key)
        weights = found.cluster_weights(weighted=True)
        share = weight / weights.sum()
        start = SampledStart(centres, weights * share, found.costs.sum(axis=0) * share, variance)
        if best is None or found.inertia < best[0]:
            best = found.inertia, start
    assert best is not None
    return best[1]


def _clustered(chunk: Chunk, n_clusters: int, seed: int) -> tuple[np.ndarray, ScoreStatistics]:
    """Return centres of weighted rows, and the weights and costs of their clusters."""
    with placed(chunk) as sample:

        def refined(centres: np.ndarray) -> np.ndarray:
            return lloyd(sample, CentresState(centres), Limits(_REFINEMENTS), tol=0.0).centres

        centres, _ = kmeans_plusplus(sample, n_clusters, seed)
        if chunk.n_rows >= _ROWS_A_CENTRE * n_clusters:
            centres = refined(centres)
            if 1 < n_clusters <= MOST_SWAPPED:
                centres = refined(swap_centres(chunk, centres, seed, trial=False))
        return centres, score_rows(sample, centres)


def _with_costly_rows(rows: ScaledPlacement, sample: Chunk, centres: np.ndarray, key: Key) -> Chunk:
    """Return the sample with as many rows again, half of them drawn by their cost under `centres`."""
    dataset = rows.placement.dataset
    size = max(1, dataset.bytes_of((0, dataset.n_rows)))
    n_looked = min(dataset.n_rows, _LOOKED_ROWS, _LOOKED_BYTES * dataset.n_rows // size)
    listed = np.arange(n_looked) * dataset.n_rows // n_looked
    weights = np.ones(n_looked) if dataset.weights is None else np.asarray(dataset.weights)[listed]
    looked = rows.chunk(rows.placement.take(listed))
    _, distances = nearest_with_distances(looked, centres)
    costs = weights * distances
    if not costs.any():
        return sample
    rates = costs / np.cumsum(costs)[-1] + weights / np.cumsum(weights)[-1]
    edges = np.cumsum(rates)
    targets = key.generator().random(sample.n_rows) * edges[-1]
    picked = np.minimum(np.searchsorted(edges, targets, side="right"), n_looked - 1)
    picked = picked[weights[picked] > 0.0]
    scale = edges[-1] * dataset.n_rows / n_looked / sample.n_rows
    both = np.concatenate([sample.weights, weights[picked] / rates[picked] * scale])
    return rows.chunk(join_rows([sample.rows, looked.rows[picked]]), both / 2.0)
