"""Sizes of clusters: their balance, the largest, levels of clusters, and even shares of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from daskcluster.errors import InvalidParameterError
from daskcluster.randomness import Key


@dataclass(frozen=True)
class Balance:
    """Summary figures of cluster sizes.

    Attributes
    ----------
    n_clusters, empty : int
        Number of clusters, and of clusters without rows.
    smallest, largest : int
    median, mean : float
        Rows per cluster.
    variation : float
        Coefficient of variation: standard deviation over mean.
    gini : float
        Gini coefficient: 0 if all clusters have the same size, near 1 if one has all rows.
    """

    n_clusters: int
    empty: int
    smallest: int
    median: float
    mean: float
    largest: int
    variation: float
    gini: float

    @classmethod
    def of(cls, sizes: np.ndarray) -> Balance:
        """Return the balance of clusters of these sizes, (k,).

        Examples
        --------
        >>> import numpy as np
        >>> found = Balance.of(np.array([4, 4, 4, 4]))
        >>> found.median, found.variation, found.gini
        (4.0, 0.0, 0.0)
        >>> Balance.of(np.array([0, 0, 0, 8])).gini
        0.75
        """
        ordered = np.sort(np.asarray(sizes, np.int64))
        k, total = len(ordered), int(ordered.sum())
        mean = total / k
        ranks = 2.0 * np.arange(1, k + 1) - k - 1.0
        return cls(
            n_clusters=k,
            empty=int((ordered == 0).sum()),
            smallest=int(ordered[0]),
            median=float(np.median(ordered)),
            mean=mean,
            largest=int(ordered[-1]),
            variation=float(ordered.std() / mean) if total else 0.0,
            gini=float((ranks * ordered).sum() / (k * total)) if total else 0.0,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.n_clusters:,} clusters of {self.smallest:,} to {self.largest:,} rows, median "
            f"{self.median:g}, variation {self.variation:.3g}, Gini {self.gini:.3g}, "
            f"{self.empty:,} empty"
        )


def largest_first(weights: np.ndarray) -> np.ndarray:
    """Return the numbers of all clusters by decreasing weight, ties by number.

    Examples
    --------
    >>> import numpy as np
    >>> largest_first(np.array([1.0, 5.0, 0.0, 5.0]))
    array([1, 3, 0, 2])
    """
    return np.argsort(-np.asarray(weights), kind="stable")


def largest(weights: np.ndarray, most: int) -> list[int]:
    """Return the numbers of the `most` heaviest clusters with positive weight, heaviest first.

    Examples
    --------
    >>> import numpy as np
    >>> largest(np.array([1.0, 5.0, 0.0, 5.0]), most=4)
    [1, 3, 0]
    """
    return [int(j) for j in largest_first(weights)[:most] if weights[j] > 0]


def ancestors(parents: Sequence[np.ndarray], level: int) -> np.ndarray | None:
    """Return the cluster of `level` that each cluster of the first level belongs to, int32 (k,).

    Parameters
    ----------
    parents : sequence of ndarray of int
        For each level but the last, the cluster of the next level that each cluster belongs to.
    level : int
        From 1, for which the result is None: every cluster is its own.

    Raises
    ------
    InvalidParameterError
        There is no such level.

    Examples
    --------
    >>> import numpy as np
    >>> ancestors([np.array([0, 1, 2, 1]), np.array([5, 6, 6])], 3)
    array([5, 6, 6, 6], dtype=int32)
    """
    if not 1 <= level <= len(parents) + 1:
        raise InvalidParameterError(
            f"level={level} should be in [1, {len(parents) + 1}], the levels of the model."
        )
    found: np.ndarray | None = None
    for above in parents[: level - 1]:
        found = np.asarray(above if found is None else above[found], np.int32)
    return found


def check_labels_alone(level: int, *, n_nearest: int | None, distances: bool) -> None:
    """Refuse nearest centres and distances of a level above the first.

    Raises
    ------
    InvalidParameterError
    """
    if level > 1 and (n_nearest is not None or distances):
        raise InvalidParameterError(
            f"level={level} gives labels alone, nearest centres and distances are of the first level; "
            "leave out n_nearest and distances, or the level."
        )


def sizes_of_levels(sizes: np.ndarray, parents: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the rows of the clusters of every level, int64, from the first level on.

    Parameters
    ----------
    sizes : ndarray of shape (k,), int64
        Rows of the clusters of the first level.
    parents : sequence of ndarray of int
        As in `ancestors`.

    Examples
    --------
    >>> import numpy as np
    >>> [found.tolist() for found in sizes_of_levels(np.array([5, 1, 2]), [np.array([1, 0, 1])])]
    [[5, 1, 2], [1, 7]]
    """
    found = [np.asarray(sizes, np.int64)]
    for level, above in enumerate(parents):
        is_last = level == len(parents) - 1
        total = np.zeros(int(above.max()) + 1 if is_last else len(parents[level + 1]), np.int64)
        np.add.at(total, above, found[-1])
        found.append(total)
    return found


def quotas_of_levels(
    sizes: Sequence[np.ndarray], parents: Sequence[np.ndarray], total: int, seed: int
) -> list[np.ndarray]:
    """Divide `total` among the clusters of the last level, and each share among the clusters below.

    Parameters
    ----------
    sizes, parents
        As in `sizes_of_levels`, which returns the sizes of all levels.
    total : int
        At most the number of rows.
    seed : int
        Decides which clusters get one more where shares cannot be equal.

    Returns
    -------
    list of ndarray, int64
        Quotas of the clusters of every level, from the first on. They sum to `total` in each.

    Examples
    --------
    >>> import numpy as np
    >>> parents = [np.array([0, 0, 1])]
    >>> sizes = sizes_of_levels(np.array([9, 1, 50]), parents)
    >>> [found.tolist() for found in quotas_of_levels(sizes, parents, 12, seed=0)]
    [[5, 1, 6], [6, 6]]
    """
    found, shares = [], np.array([total], np.int64)
    for level in range(len(sizes) - 1, -1, -1):
        top = level == len(sizes) - 1
        above = np.zeros(len(sizes[level]), np.int64) if top else parents[level]
        order = Key(seed, "quotas", level).uniforms(0, len(above))
        shares = divide_evenly(shares, sizes[level], above, order)
        found.append(shares)
    return found[::-1]


def divide_evenly(
    totals: np.ndarray, sizes: np.ndarray, parents: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Divide the total of every parent among its children, none of which gets more than its size.

    Children that get less than their size differ by at most one: water-filling.

    Parameters
    ----------
    totals : ndarray of shape (p,), int64
        At most the sum of the children's sizes.
    sizes : ndarray of shape (k,), int64
        Sizes of the children.
    parents : ndarray of shape (k,), int
    order : ndarray of shape (k,), float64
        Children with the smallest numbers get one more where a share is not whole.

    Returns
    -------
    ndarray of shape (k,), int64

    Examples
    --------
    >>> import numpy as np
    >>> one_parent = np.zeros(4, int)
    >>> divide_evenly(np.array([11]), np.array([2, 9, 9, 9]), one_parent, np.arange(4)).tolist()
    [2, 3, 3, 3]
    """
    parents, sizes = np.asarray(parents, np.int64), np.asarray(sizes, np.int64)
    by_size = np.lexsort((sizes, parents))
    family, ordered = parents[by_size], sizes[by_size]
    n_children = np.bincount(family, minlength=len(totals))
    firsts = np.cumsum(n_children) - n_children
    running = np.concatenate([[0], np.cumsum(ordered)])
    smaller = running[:-1] - running[firsts[family]]
    n_left = n_children[family] - (np.arange(len(family)) - firsts[family])
    # A child is taken whole if its size for itself and for all larger ones is there.
    is_whole = np.empty(len(sizes), bool)
    is_whole[by_size] = smaller + ordered * n_left <= totals[family]
    taken = np.zeros(len(totals), np.int64)
    np.add.at(taken, parents[is_whole], sizes[is_whole])
    n_open = np.bincount(parents[~is_whole], minlength=len(totals))
    even, over = np.divmod(totals - taken, np.maximum(n_open, 1))
    some = np.flatnonzero(~is_whole)
    some = some[np.lexsort((order[some], parents[some]))]
    rank = np.arange(len(some)) - (np.cumsum(n_open) - n_open)[parents[some]]
    shares = sizes.copy()
    shares[some] = even[parents[some]] + (rank < over[parents[some]])
    return shares
