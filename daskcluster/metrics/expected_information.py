"""The mutual information that two labellings have by chance."""

from __future__ import annotations

import numpy as np

from daskcluster.elementary import exp, log

_CELLS = 1 << 20
"""Terms that are computed at a time."""

_DEVIATIONS = 12.0
"""Half width of the sum around a mean: what is left out is below 1e-30."""


def expected_mutual_information(class_sizes: np.ndarray, cluster_sizes: np.ndarray) -> float:
    """Return the mean mutual information over all labellings with these sizes, in nats.

    Parameters
    ----------
    class_sizes, cluster_sizes : ndarray, int64
        Positive, of the same total n.

    Notes
    -----
    Rows that a class of size a and a cluster of size b share follow a hypergeometric law (Vinh, Epps
    and Bailey 2010, equation 24a). Its probabilities come from their ratios, begun at the mode and
    scaled to the sum one: from factorials of large numbers they would lose six digits at 1e8 rows.

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
    """Return what pairs of a class of `size` and each cluster size add, (len(others),)."""
    low, high = _window(size, others, n)
    found = np.empty(len(others))
    first = 0
    while first < len(others):
        width = int((high - low)[first:].max()) + 1
        last = first + max(1, _CELLS // width)
        found[first:last] = _block(size, others[first:last], low[first:last], high[first:last], n)
        first = last
    return found


def _window(size: int, others: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last count that matter, for each cluster size."""
    mean = size * (others / n)
    variance = mean * ((n - others) / n) * ((n - size) / max(1, n - 1))
    reach = _DEVIATIONS * np.sqrt(variance) + 3.0 * _DEVIATIONS
    low = np.maximum(np.floor(mean - reach), np.maximum(0, size + others - n))
    high = np.minimum(np.ceil(mean + reach), np.minimum(size, others))
    return low.astype(np.int64), high.astype(np.int64)


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
