"""Agreement of two labellings by pairs of rows: together or apart in both of them.

In whole numbers, so that no number of rows overflows or rounds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from daskcluster.metrics.contingency_table import Contingency, table_of


def adjusted_rand_index(labels_true: Any, labels_pred: Any = None) -> float:
    """Return the share of row pairs on which two labellings agree, corrected for chance.

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.

    Returns
    -------
    float
        1 for equal partitions, about 0 for unrelated ones, at least -0.5.

    Notes
    -----
    Hubert and Arabie 1985; `sklearn.metrics.adjusted_rand_score`, in whole numbers, so that no number
    of rows overflows or rounds. Cost: one pass over the labels.

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 2], [0, 0, 1, 1])
    0.5714285714285714
    """
    table = table_of(labels_true, labels_pred)
    n = table.n_rows
    both = _sum_of_squares(table.counts)
    same_class, same_cluster = map(_sum_of_squares, (table.class_sizes, table.cluster_sizes))
    together = both - n
    only_class, only_cluster = same_class - both, same_cluster - both
    apart = n * n - together - only_class - only_cluster - n
    if only_class == only_cluster == 0:
        return 1.0
    chance = (together + only_class) * (only_class + apart)
    chance += (together + only_cluster) * (only_cluster + apart)
    return 2 * (together * apart - only_class * only_cluster) / chance


def rand_index(labels_true: Any, labels_pred: Any = None) -> float:
    """Return the share of row pairs on which two labellings agree.

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.

    Returns
    -------
    float
        In [0, 1]; unrelated labellings with many clusters come close to 1, see `adjusted_rand_index`.

    Notes
    -----
    Rand 1971; `sklearn.metrics.rand_score`. Cost: one pass over the labels.

    Examples
    --------
    >>> round(rand_index([0, 0, 1, 2], [0, 0, 1, 1]), 6)
    0.833333
    """
    table = table_of(labels_true, labels_pred)
    both, same_class, same_cluster = _same(table)
    pairs = table.n_rows * (table.n_rows - 1)
    return 1.0 - (same_class + same_cluster - 2 * both) / pairs if pairs else 1.0


def fowlkes_mallows(labels_true: Any, labels_pred: Any = None) -> float:
    """Return the geometric mean of precision and recall of row pairs that are together.

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.

    Returns
    -------
    float
        In [0, 1]; 0 where no pair is together in both labellings.

    Notes
    -----
    Fowlkes and Mallows 1983; `sklearn.metrics.fowlkes_mallows_score`. Cost: one pass over the labels.

    Examples
    --------
    >>> round(fowlkes_mallows([0, 0, 1, 2], [0, 0, 1, 1]), 6)
    0.707107
    """
    both, same_class, same_cluster = _same(table_of(labels_true, labels_pred))
    if both == 0:
        return 0.0
    return math.sqrt(both / same_class) * math.sqrt(both / same_cluster)


def _same(table: Contingency) -> tuple[int, int, int]:
    """Return ordered pairs of rows that are together: in both labellings, in one, in the other."""
    sides = table.counts, table.class_sizes, table.cluster_sizes
    both, same_class, same_cluster = (_sum_of_squares(side) - table.n_rows for side in sides)
    return both, same_class, same_cluster


def _sum_of_squares(counts: np.ndarray) -> int:
    return sum(count * count for count in counts.tolist())
