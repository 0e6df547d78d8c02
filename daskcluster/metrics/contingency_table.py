"""Contingency table of classes and clusters, and measures that count pairs of rows."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.label_arrays import BLOCK_ROWS, LabelArray, open_labels
from daskcluster.errors import InvalidDataError, InvalidParameterError


@dataclass(frozen=True, eq=False)
class Contingency:
    """Sparse contingency table: the number of rows of each pair of class and cluster that occurs.

    Attributes
    ----------
    classes, clusters : ndarray
        The distinct labels of each side, sorted.
    pairs : ndarray of shape (m, 2), int64
        Positions in `classes` and `clusters` of the pairs that occur.
    counts : ndarray of shape (m,), int64
        Number of rows of each pair, at least one.

    Notes
    -----
    Cost: memory for one count and two positions per pair of class and cluster that occurs; `table` takes 8
    bytes for each class times cluster.
    """

    classes: np.ndarray
    clusters: np.ndarray
    pairs: np.ndarray
    counts: np.ndarray

    @property
    def n_rows(self) -> int:
        return int(self.counts.sum())

    @property
    def class_sizes(self) -> np.ndarray:
        """Number of rows in each class, int64."""
        return _totals(self.pairs[:, 0], self.counts, len(self.classes))

    @property
    def cluster_sizes(self) -> np.ndarray:
        """Number of rows in each cluster, int64."""
        return _totals(self.pairs[:, 1], self.counts, len(self.clusters))

    def table(self) -> np.ndarray:
        """Return the dense table, int64 of shape (classes, clusters)."""
        table = np.zeros((len(self.classes), len(self.clusters)), np.int64)
        table[self.pairs[:, 0], self.pairs[:, 1]] = self.counts
        return table


def _totals(index: np.ndarray, counts: np.ndarray, size: int) -> np.ndarray:
    totals = np.zeros(size, np.int64)  # bincount with weights would compute in float64
    np.add.at(totals, index, counts)
    return totals


def contingency(labels_true: Any, labels_pred: Any) -> Contingency:
    """Count the rows of each pair of class and cluster, block by block.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,), str or path
        In memory, a Labels handle, a dask array, a zarr.Array, or the URL of a 1-D Zarr array.

    Returns
    -------
    Contingency
        Pass it to any agreement measure as `labels_true`, without `labels_pred`, so that several measures
        share one pass.

    Raises
    ------
    InvalidDataError
        The two sides do not have the same number of labels.

    Notes
    -----
    Cost: one pass over the labels in this process; memory for a million labels of each side and for the
    pairs that occur.

    Examples
    --------
    >>> from daskcluster import metrics
    >>> found = metrics.contingency(["a", "a", "b"], [1, 1, 0])
    >>> found.table()
    array([[0, 2],
           [1, 0]])
    >>> metrics.purity(found)
    1.0
    """
    true, predicted = (
        open_labels(labels_true, "labels_true"),
        open_labels(labels_pred, "labels_pred"),
    )
    if true.n_rows != predicted.n_rows:
        raise InvalidDataError(
            "Found input variables with inconsistent numbers of samples: "
            f"{[true.n_rows, predicted.n_rows]}. labels_true and labels_pred should label the same rows."
        )
    return _collected(_count(true, predicted))


def table_of(labels_true: Any, labels_pred: Any) -> Contingency:
    """Return the `contingency` of two labellings, or `labels_true` if it already is one."""
    if isinstance(labels_true, Contingency) and labels_pred is None:
        return labels_true
    if labels_pred is None:
        raise InvalidParameterError(
            "labels_pred=None: give labels of both sides, or a Contingency alone."
        )
    return contingency(labels_true, labels_pred)


def _count(true: LabelArray, predicted: LabelArray) -> Counter[tuple[Any, Any]]:
    counts: Counter[tuple[Any, Any]] = Counter()
    for start in range(0, true.n_rows, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, true.n_rows)
        classes, rows = np.unique(true.read(start, stop), return_inverse=True)
        clusters, columns = np.unique(predicted.read(start, stop), return_inverse=True)
        codes, found = np.unique(rows * len(clusters) + columns, return_counts=True)
        here, there = np.divmod(codes, len(clusters))
        keys = zip(classes[here].tolist(), clusters[there].tolist(), strict=True)
        counts.update(dict(zip(keys, found.tolist(), strict=True)))
    return counts


def _collected(counts: Counter[tuple[Any, Any]]) -> Contingency:
    classes = np.array(sorted({key[0] for key in counts}))
    clusters = np.array(sorted({key[1] for key in counts}))
    rows, columns = (
        {label: i for i, label in enumerate(side.tolist())} for side in (classes, clusters)
    )
    cells = sorted((rows[one], columns[other], n) for (one, other), n in counts.items())
    table = np.array(cells, np.int64).reshape(-1, 3)
    return Contingency(classes, clusters, table[:, :2], table[:, 2])


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
    Hubert and Arabie 1985; `sklearn.metrics.adjusted_rand_score`, computed in Python integers, which
    neither overflow nor round. Cost: one pass over the labels.

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
        In [0, 1]. Unrelated labellings with many clusters are close to 1; see `adjusted_rand_index`.

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
    """Return the geometric mean of precision and recall over pairs of rows in the same cluster.

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.

    Returns
    -------
    float
        In [0, 1]; 0 if no pair is together in both labellings.

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
    """Return the number of ordered pairs of rows together in both, the first, and the second labelling."""
    sides = table.counts, table.class_sizes, table.cluster_sizes
    both, same_class, same_cluster = (_sum_of_squares(side) - table.n_rows for side in sides)
    return both, same_class, same_cluster


def _sum_of_squares(counts: np.ndarray) -> int:
    return sum(count * count for count in counts.tolist())
