"""Whether several clusterings of the same rows have the same clusters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daskcluster.metrics.contingency_table import adjusted_rand_index, contingency

STABLE, DISSOLVED = 0.75, 0.5
"""Jaccard indices from which a cluster counts as stable, and below which as dissolved (Hennig, 2007)."""


@dataclass(frozen=True)
class Stability:
    """How far other clusterings of the same rows have the same clusters.

    Attributes
    ----------
    agreement : float
        Mean adjusted Rand index of the clustering and the others.
    by_cluster : ndarray of shape (k,), float64
        Mean Jaccard index of each cluster and the most similar one of the others; NaN without rows.
        Hennig, "Cluster-wise assessment of cluster stability", 2007, with other seeds instead of
        bootstrap samples.
    n_others, n_rows : int
    """

    agreement: float
    by_cluster: np.ndarray
    n_others: int
    n_rows: int

    @classmethod
    def of(cls, labels: np.ndarray, others: Iterable[Any], n_clusters: int) -> Self:
        """Compare the clustering `labels`, (n,), with at least one other.

        Examples
        --------
        >>> import numpy as np
        >>> found = Stability.of(np.array([0, 0, 1, 1]), [np.array([1, 1, 0, 2])], n_clusters=2)
        >>> found.by_cluster.tolist()
        [1.0, 0.5]
        """
        agreements, overlaps = [], []
        for other in others:
            found = contingency(labels, other)
            agreements.append(adjusted_rand_index(found))
            table = found.table()
            either = found.class_sizes[:, None] + found.cluster_sizes - table
            overlap = np.full(n_clusters, np.nan)
            overlap[found.classes] = (table / either).max(axis=1)
            overlaps.append(overlap)
        by_cluster = np.mean(overlaps, axis=0)
        return cls(float(np.mean(agreements)), by_cluster, len(overlaps), len(labels))
