"""Agreement of a clustering with known classes or with other clusterings, by contingency tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from daskcluster.data.join import in_order_of
from daskcluster.data.label_files import BLOCK_ROWS, open_labels
from daskcluster.elementary import exp, log
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.invariance import varies_with


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


@varies_with()
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
    labels_pred = in_order_of(labels_true, labels_pred, "labels_pred")
    true, predicted = (
        open_labels(labels_true, "labels_true"),
        open_labels(labels_pred, "labels_pred"),
    )
    if true.n_rows != predicted.n_rows:
        raise InvalidDataError(
            "Found input variables with inconsistent numbers of samples: "
            f"{[true.n_rows, predicted.n_rows]}. labels_true and labels_pred should label the same rows."
        )
    counts: Counter[tuple[Any, Any]] = Counter()
    for start in range(0, true.n_rows, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, true.n_rows)
        here, rows = np.unique(true.read(start, stop), return_inverse=True)
        there, columns = np.unique(predicted.read(start, stop), return_inverse=True)
        codes, found = np.unique(rows * len(there) + columns, return_counts=True)
        one, other = np.divmod(codes, len(there))
        keys = zip(here[one].tolist(), there[other].tolist(), strict=True)
        counts.update(dict(zip(keys, found.tolist(), strict=True)))
    classes, clusters = (np.array(sorted({key[side] for key in counts})) for side in (0, 1))
    numbers = [{label: i for i, label in enumerate(side.tolist())} for side in (classes, clusters)]
    cells = sorted((numbers[0][a], numbers[1][b], n) for (a, b), n in counts.items())
    table = np.array(cells, np.int64).reshape(-1, 3)
    return Contingency(classes, clusters, table[:, :2], table[:, 2])


def table_of(labels_true: Any, labels_pred: Any) -> Contingency:
    """Return the `contingency` of two labellings, or `labels_true` if it already is one."""
    if isinstance(labels_true, Contingency) and labels_pred is None:
        return labels_true
    if labels_pred is None:
        raise InvalidParameterError(
            "labels_pred=None: give labels of both sides, or a Contingency alone."
        )
    return contingency(labels_true, labels_pred)


@varies_with()
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
    together, same_class, same_cluster = _same(table)
    only_class, only_cluster = same_class - together, same_cluster - together
    apart = table.n_rows * (table.n_rows - 1) - together - only_class - only_cluster
    if only_class == only_cluster == 0:
        return 1.0
    chance = (together + only_class) * (only_class + apart)
    chance += (together + only_cluster) * (only_cluster + apart)
    return 2 * (together * apart - only_class * only_cluster) / chance


@varies_with()
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


@varies_with()
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


_CELLS = 1 << 20
"""Terms computed at a time."""

_DEVIATIONS = 12.0
"""Half width of a sum around its mean, in standard deviations: omitted terms are below 1e-30."""


def expected_mutual_information(class_sizes: np.ndarray, cluster_sizes: np.ndarray) -> float:
    """Return the mean mutual information over all labellings with these sizes, in nats.

    Parameters
    ----------
    class_sizes, cluster_sizes : ndarray, int64
        Positive sizes with the same total n.

    Notes
    -----
    The number of rows that a class of size a and a cluster of size b share has a hypergeometric
    distribution (Vinh, Epps and Bailey 2010, equation 24a). Its probabilities are computed from their
    ratios, starting at the mode, and scaled to sum to one. Computed from factorials of large numbers, they
    would lose six digits at 1e8 rows.

    Examples
    --------
    >>> import numpy as np
    >>> round(expected_mutual_information(np.array([2, 2]), np.array([2, 2])), 6)
    0.231049
    """
    n = int(class_sizes.sum())
    others, times = np.unique(cluster_sizes, return_counts=True)
    total = 0.0
    for size, often in zip(*np.unique(class_sizes, return_counts=True), strict=True):
        total += float(often) * float((times * _expected(int(size), others, n)).sum())
    return total


def _expected(size: int, others: np.ndarray, n: int) -> np.ndarray:
    """Return the terms of a class of `size` with a cluster of each of `others`, shape (len(others),)."""
    # The first and last count with a relevant probability, for each cluster size.
    mean = size * (others / n)
    variance = mean * ((n - others) / n) * ((n - size) / max(1, n - 1))
    visibility = _DEVIATIONS * np.sqrt(variance) + 3.0 * _DEVIATIONS
    low = np.maximum(np.floor(mean - visibility), np.maximum(0, size + others - n)).astype(np.int64)
    high = np.minimum(np.ceil(mean + visibility), np.minimum(size, others)).astype(np.int64)
    found = np.empty(len(others))
    first = 0
    while first < len(others):
        width = int((high - low)[first:].max()) + 1
        last = first + max(1, _CELLS // width)
        found[first:last] = _block(size, others[first:last], low[first:last], high[first:last], n)
        first = last
    return found


def _block(size: int, others: np.ndarray, low: np.ndarray, high: np.ndarray, n: int) -> np.ndarray:
    counts = (low[:, None] + np.arange(int((high - low).max()) + 1)).astype(np.float64)
    there = counts <= high[:, None]
    wide = others[:, None].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = log(size - counts[:, :-1]) + log(wide - counts[:, :-1])
        steps -= log(counts[:, 1:]) + log(n - size - wide + counts[:, 1:])
        logs = np.concatenate((np.zeros((len(others), 1)), np.cumsum(steps, axis=1)), axis=1)
        logs = np.where(there, logs, -np.inf)
        weights = exp(logs - logs.max(axis=1, keepdims=True))
        terms = counts / n * (log(counts) + log(n) - log(wide) - log(size))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.where(there & (counts > 0), weights * np.nan_to_num(terms), 0.0).sum(axis=1)


_EPSILON = float(np.finfo(np.float64).eps)


@varies_with()
def homogeneity(labels_true: Any, labels_pred: Any = None) -> float:
    """Return how far each cluster has rows of one class only: 1 - H(class | cluster) / H(class).

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.

    Notes
    -----
    Rosenberg and Hirschberg 2007; `sklearn.metrics.homogeneity_score`. Cost: one pass over the labels.

    Examples
    --------
    >>> round(homogeneity([0, 0, 1, 1], [0, 1, 2, 2]), 6)
    1.0
    """
    table = table_of(labels_true, labels_pred)
    return _share(mutual_info(table), _entropy(table.class_sizes))


@varies_with()
def completeness(labels_true: Any, labels_pred: Any = None) -> float:
    """Return how far the rows of a class share one cluster: 1 - H(cluster | class) / H(cluster).

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.

    Notes
    -----
    Rosenberg and Hirschberg 2007; `sklearn.metrics.completeness_score`. Cost: one pass over the labels.

    Examples
    --------
    >>> round(completeness([0, 0, 1, 1], [0, 0, 0, 0]), 6)
    1.0
    """
    table = table_of(labels_true, labels_pred)
    return _share(mutual_info(table), _entropy(table.cluster_sizes))


def _share(information: float, entropy: float) -> float:
    return information / entropy if entropy else 1.0


@varies_with()
def v_measure(labels_true: Any, labels_pred: Any = None, *, beta: float = 1.0) -> float:
    """Return the harmonic mean of `homogeneity` and `completeness`.

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.
    beta : float, default 1.0
        Weight of completeness; above 1 it counts more than homogeneity.

    Notes
    -----
    Rosenberg and Hirschberg 2007; `sklearn.metrics.v_measure_score`. With ``beta=1`` it is
    `normalized_mutual_info` of the arithmetic mean. Cost: one pass over the labels.

    Examples
    --------
    >>> round(v_measure([0, 0, 1, 1], [0, 0, 1, 2]), 6)
    0.8
    """
    if not beta >= 0.0:
        raise InvalidParameterError(f"beta={beta!r} should be >= 0; 1 weights both equally.")
    table = table_of(labels_true, labels_pred)
    information = mutual_info(table)
    sides = table.class_sizes, table.cluster_sizes
    pure, complete = (_share(information, _entropy(sizes)) for sizes in sides)
    if pure + complete == 0.0:
        return 0.0
    return (1.0 + beta) * pure * complete / (beta * pure + complete)


@varies_with()
def mutual_info(labels_true: Any, labels_pred: Any = None) -> float:
    """Return the mutual information of two labellings in nats.

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.

    Notes
    -----
    `sklearn.metrics.mutual_info_score`. Cost: one pass over the labels.

    Examples
    --------
    >>> round(mutual_info([0, 0, 1, 1], [1, 1, 0, 0]), 6)
    0.693147
    """
    table = table_of(labels_true, labels_pred)
    if min(len(table.classes), len(table.clusters)) <= 1:
        return 0.0
    n, counts = table.n_rows, table.counts
    sizes = table.class_sizes[table.pairs[:, 0]], table.cluster_sizes[table.pairs[:, 1]]
    logs = log(counts) + log(n) - log(sizes[0]) - log(sizes[1])
    return max(0.0, float((counts / n * logs).sum()))


@varies_with()
def normalized_mutual_info(
    labels_true: Any, labels_pred: Any = None, *, average_method: str = "arithmetic"
) -> float:
    """Return the mutual information of two labellings, divided by a mean of their entropies.

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.
    average_method : {"arithmetic", "geometric", "min", "max"}, default "arithmetic"
        Type of that mean.

    Notes
    -----
    `sklearn.metrics.normalized_mutual_info_score`, including the case of a single label on one side. Cost:
    one pass over the labels.

    Examples
    --------
    >>> round(normalized_mutual_info([0, 0, 1, 1], [1, 1, 0, 0]), 6)
    1.0
    """
    table = table_of(labels_true, labels_pred)
    if len(table.classes) == len(table.clusters) <= 1:
        return 1.0
    information = mutual_info(table)
    mean = _mean_entropy(table, average_method)
    return information / mean if information > 0.0 else 0.0


@varies_with()
def adjusted_mutual_info(
    labels_true: Any, labels_pred: Any = None, *, average_method: str = "arithmetic"
) -> float:
    """Return the mutual information of two labellings, corrected for chance.

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.
    average_method : {"arithmetic", "geometric", "min", "max"}, default "arithmetic"
        Type of the mean of the entropies that normalises it.

    Notes
    -----
    Vinh, Epps and Bailey 2010; `sklearn.metrics.adjusted_mutual_info_score`. Each hypergeometric
    distribution in the expected information is summed only around its mean, where its mass is, so the cost
    hardly grows with the sizes of clusters. Cost: one pass over the labels, and time proportional to the
    number of distinct class sizes times that of distinct cluster sizes.

    Examples
    --------
    >>> round(adjusted_mutual_info([0, 0, 1, 1], [1, 1, 0, 0]), 6)
    1.0
    """
    table = table_of(labels_true, labels_pred)
    if len(table.classes) == len(table.clusters) <= 1:
        return 1.0
    mean = _mean_entropy(table, average_method)
    if min(len(table.classes), len(table.clusters)) == 1:
        return 0.0
    expected = expected_mutual_information(table.class_sizes, table.cluster_sizes)
    room = mean - expected
    room = min(room, -_EPSILON) if room < 0.0 else max(room, _EPSILON)
    gained = mutual_info(table) - expected
    return 1.0 if abs(gained - room) <= _EPSILON else gained / room


@varies_with()
def accuracy(labels_true: Any, labels_pred: Any = None) -> float:
    """Return the share of correct rows under the best one-to-one matching of clusters and classes.

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.

    Notes
    -----
    The matching is optimal (Hungarian algorithm, SciPy). If there are more clusters than classes, the rest
    match no class. Cost: one pass over the labels.

    Examples
    --------
    >>> accuracy([0, 0, 1, 1], [7, 7, 7, 3])
    0.75
    """
    table = table_of(labels_true, labels_pred)
    if table.n_rows == 0:
        return 1.0
    n, m = len(table.classes), len(table.clusters)
    # One extra column per class lets the class match no cluster.
    rows = np.concatenate((table.pairs[:, 0], np.arange(n)))
    columns = np.concatenate((table.pairs[:, 1], m + np.arange(n)))
    gains = np.concatenate((table.counts + 1, np.ones(n, np.int64))).astype(np.float64)
    graph = csr_array((gains, (rows, columns)), shape=(n, m + n))
    chosen = min_weight_full_bipartite_matching(graph, maximize=True)
    return (int(graph[chosen].sum()) - n) / table.n_rows


@varies_with()
def purity(labels_true: Any, labels_pred: Any = None) -> float:
    """Return the share of rows that belong to the most common class of their cluster.

    Parameters
    ----------
    labels_true, labels_pred : labels of shape (n,)
        As `contingency` takes them; or a `Contingency` alone.

    Notes
    -----
    Purity grows with the number of clusters, so compare it for equal numbers only. Cost: one pass over the
    labels.

    Examples
    --------
    >>> purity([0, 0, 1, 1], [7, 7, 7, 3])
    0.75
    """
    table = table_of(labels_true, labels_pred)
    if table.n_rows == 0:
        return 1.0
    commonest = np.zeros(len(table.clusters), np.int64)
    np.maximum.at(commonest, table.pairs[:, 1], table.counts)
    return int(commonest.sum()) / table.n_rows


# -- information ----------------------------------------------------------------------------------------


def _entropy(sizes: np.ndarray) -> float:
    """Return the entropy of a labelling in nats."""
    if len(sizes) <= 1:
        return 0.0
    shares = sizes / sizes.sum()
    return float(-(shares * log(shares)).sum())


def _mean_entropy(table: Contingency, average_method: str) -> float:
    one, other = _entropy(table.class_sizes), _entropy(table.cluster_sizes)
    means = {
        "arithmetic": (one + other) / 2,
        "geometric": float(np.sqrt(one * other)),
        "min": min(one, other),
        "max": max(one, other),
    }
    if average_method not in means:
        raise InvalidParameterError(
            f"average_method={average_method!r} should be one of {', '.join(means)}."
        )
    return means[average_method]


DISSOLVED = 0.5
"""Jaccard index below which a cluster counts as dissolved (Hennig, 2007)."""


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
