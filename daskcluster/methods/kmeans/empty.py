"""Clusters that ran empty move to the rows farthest from their centres (scikit-learn's rule)."""

from __future__ import annotations

import numpy as np

from daskcluster.chunkwise.assign import FARTHEST, AssignParams
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import FarthestRows, KMeansStatistics
from daskcluster.engine.scaled import ScaledPlacement


def relocate_empty(
    rows: ScaledPlacement,
    centres: np.ndarray,
    statistics: KMeansStatistics,
    scale: Scale,
    labels: np.ndarray | None = None,
) -> int:
    """Give each empty cluster, lowest index first, the farthest row that is left.

    The row leaves its old cluster's sums, exactly. Rows without weight are never chosen, ties go
    to the lowest row. Where every row sits on its centre there is nothing to gain and nothing moves.

    Parameters
    ----------
    rows : ScaledPlacement
    centres : ndarray of shape (k, d)
        Those that `statistics` were computed under.
    statistics : KMeansStatistics
        Changed in place.
    scale : Scale
        That of `statistics`.
    labels : ndarray of shape (n,), int32, optional
        Labels under `centres`, where they were kept.

    Returns
    -------
    int
        How many clusters were empty.

    Notes
    -----
    Cost: no pass if no cluster is empty, else one.
    """
    empty = np.flatnonzero(statistics.weights <= 0.0)
    if len(empty) == 0:
        return 0
    far: FarthestRows = rows.reduce(
        FARTHEST,
        lambda scale: AssignParams(
            centres, scale, labels, labelled=labels is not None, most=len(empty)
        ),
    )
    if len(far.distances) and far.distances[0] > 0.0:
        for cluster, pick in zip(empty, range(len(far.indices)), strict=False):
            _move(scale, statistics, far, pick, int(cluster))
    return len(empty)


def _move(scale: Scale, into: KMeansStatistics, far: FarthestRows, pick: int, cluster: int) -> None:
    weight, old = far.weights[pick], far.labels[pick]
    addend = far.rows[pick].astype(np.float64)
    if scale.weighted:
        addend = addend * weight
    high, low = scale.sums.split(addend)
    into.sums[old] -= high
    into.sums[cluster] += high
    if into.sums_low is not None:
        into.sums_low[old] -= low
        into.sums_low[cluster] += low
    if into.counts_low is None:
        into.counts[old] -= 1
        into.counts[cluster] += 1
        return
    part, rest = scale.weights.split(weight)
    into.counts[old] -= part
    into.counts[cluster] += part
    into.counts_low[old] -= rest
    into.counts_low[cluster] += rest
