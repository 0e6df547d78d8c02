"""k-means|| (Bahmani et al., "Scalable K-Means++", VLDB 2012): a few passes instead of k.

As in the paper, the first candidate is a random row, each round draws every row independently with
probability min(1, l w d^2 / phi), and the candidates, weighted by the rows nearest to them, are reduced to
k by weighted k-means++. Differences: l = 2k and five rounds, as is common. A round costs one pass, not two:
the rows with the smallest ratios u / (w d^2) are kept, and the threshold l / phi is applied when phi is
known. The reduction is followed by the given refinement.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from daskcluster.chunkwise.seeding import FIRST_ROUND, ROUND, RoundParams, RoundStatistics
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.randomness import Key
from daskcluster.seeding.uniform import draw_rows, take_centres
from daskcluster.sparse_rows import Rows, SparseRows, dense_rows, join_rows

OVERSAMPLING, N_ROUNDS = 2.0, 5

Reduce = Callable[[Rows, np.ndarray, int], np.ndarray]
"""(candidates (m, d), weights (m,), k) -> centres (k, d)."""


def kmeans_parallel(
    rows: ScaledPlacement,
    n_clusters: int,
    seed: int,
    *,
    reduce_candidates: Reduce,
    oversampling: float = OVERSAMPLING,
    n_rounds: int = N_ROUNDS,
) -> np.ndarray:
    """Choose `n_clusters` centres in ``n_rounds + 1`` passes.

    Parameters
    ----------
    rows : ScaledPlacement
    n_clusters : int
    seed : int
    reduce_candidates : callable
        Weighted clustering of the candidates in memory.
    oversampling : float
        l / k.
    n_rounds : int

    Returns
    -------
    ndarray of shape (k, d)

    Notes
    -----
    Cost: ``n_rounds + 1`` passes, the first of which also gathers data statistics; 2k distances per row in
    each but the first. 4 bytes of state per row. Each task returns at most about 2k rows.
    """
    rows.placement.drop_state(ROUND.name)  # left by an earlier restart
    dataset = rows.placement.dataset
    wanted = max(1.0, oversampling * n_clusters)
    most = most_drawn(n_clusters, oversampling)
    indices = draw_rows(dataset, 1, Key(seed, "first centre"))
    candidates: Rows = take_centres(rows, indices)
    known = 0
    rounds: tuple[tuple[int, int], ...] = ()
    for number in range(n_rounds + 1):
        last = number == n_rounds
        key = Key(seed, "k-means||", number)
        drawn = 0 if last else most
        found = _round(rows, candidates, known, rounds, key, drawn, n_clusters)
        rounds = (*rounds, (known, len(candidates)))
        if last:
            break
        phi = found.cost.value
        if phi <= 0.0:
            break
        sampled = found.ratios < wanted / phi
        known = len(candidates)
        fresh = found.rows[np.flatnonzero(sampled)]
        if isinstance(fresh, SparseRows) and not isinstance(candidates, SparseRows):
            candidates = SparseRows.of(candidates)  # smaller to send in every round
        candidates = join_rows([candidates, fresh])
        if len(fresh) == 0:
            known -= (
                1  # nothing was drawn: process the last candidate again, with new random numbers
            )
    kept = found.weights > 0.0  # a duplicate of another candidate has no rows
    candidates, weights = candidates[kept], found.weights[kept]
    if len(candidates) < n_clusters:
        candidates, weights = _fill(rows, candidates, weights, n_clusters, seed)
    if len(candidates) == n_clusters:
        return dense_rows(candidates)
    return reduce_candidates(candidates, weights, n_clusters)


def most_drawn(n_clusters: int, oversampling: float = OVERSAMPLING) -> int:
    """Return a bound on the rows drawn in a round: six standard deviations above the mean."""
    wanted = max(1.0, oversampling * n_clusters)
    return math.ceil(wanted + 6.0 * math.sqrt(wanted) + 16.0)


def most_candidates(n_clusters: int) -> int:
    """Return a bound on the number of candidates after all rounds."""
    return 1 + N_ROUNDS * most_drawn(n_clusters)


def _round(
    rows: ScaledPlacement,
    candidates: Rows,
    known: int,
    rounds: tuple[tuple[int, int], ...],
    key: Key,
    most: int,
    n_clusters: int,
) -> RoundStatistics:
    found: RoundStatistics
    first = dense_rows(candidates[:1])  # its cost is an upper bound of all later ones
    if known == 0:
        found = rows.reduce(
            FIRST_ROUND,
            lambda scale: RoundParams(
                candidates,
                0,
                key,
                most,
                scale.distances(first),
                scale.weights.high,
                n_clusters,
            ),
        )
        return found
    scale = rows.scale
    found = rows.placement.map_state(
        ROUND,
        RoundParams(
            candidates,
            known,
            key,
            most,
            scale.distances(first),
            scale.weights.high,
            n_clusters,
            rounds,
        ),
    )
    return found


def _fill(
    rows: ScaledPlacement, few: Rows, weights: np.ndarray, n_clusters: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Add random rows if there are too few candidates (few rows, or duplicates)."""
    candidates = dense_rows(few)
    dataset = rows.placement.dataset
    missing = n_clusters - len(candidates)
    drawn = draw_rows(dataset, n_clusters, Key(seed, "fill"), fewer=True)
    more = take_centres(rows, drawn)
    fresh = [row for row in more if not (candidates == row).all(axis=1).any()]
    fresh += [candidates[0]] * (missing - len(fresh))
    return np.concatenate([candidates, np.array(fresh[:missing])]), np.append(
        weights, np.ones(missing)
    )
