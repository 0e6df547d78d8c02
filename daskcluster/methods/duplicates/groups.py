"""Groups of near-duplicates from their pairs, and the row of each group that is kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from daskcluster.methods.duplicates.kernels.rows import assign_keepers


@dataclass(frozen=True)
class Groups:
    """Group and kept row of every row.

    Attributes
    ----------
    group : ndarray of shape (n,), int64
        The first row of the group; the row itself if it has no near-duplicate.
    keeper : ndarray of shape (n,), int64
        The row of the group that is kept.
    """

    group: np.ndarray
    keeper: np.ndarray


def connected_groups(pairs: np.ndarray, leaders: np.ndarray, scores: np.ndarray | None) -> Groups:
    """Return the connected components of pairs.

    Parameters
    ----------
    pairs : ndarray of shape (m, 2), int64
    leaders : ndarray of shape (n,), int64
        The first row that equals each row.
    scores : ndarray of shape (n,), float64, or None
        The row with the largest score is kept, the first one of equals; None keeps the first row.

    Examples
    --------
    >>> found = connected_groups(np.array([[0, 3], [3, 1]]), np.arange(5), np.arange(5.0))
    >>> found.group.tolist(), found.keeper.tolist()
    ([0, 0, 2, 0, 4], [3, 3, 2, 3, 4])
    """
    n = len(leaders)
    copies = np.flatnonzero(leaders != np.arange(n))
    rows = np.concatenate([pairs[:, 0], copies])
    columns = np.concatenate([pairs[:, 1], leaders[copies]])
    graph = coo_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(n, n))
    labels = connected_components(graph, directed=False)[1]
    _, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    group = first[labels].astype(np.int64)
    if scores is None:
        return Groups(group, group)
    keeper = np.arange(n)
    several = np.flatnonzero(sizes[labels] > 1)
    best = _best(several, group[several], scores)
    keeper[several] = best[np.searchsorted(group[best], group[several])]
    return Groups(group, keeper)


def _best(rows: np.ndarray, group: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the best row of each group, by ascending group."""
    ordered = rows[np.lexsort((rows, -scores[rows], group))]
    kinds = np.sort(group)
    is_first = np.ones(len(rows), bool)
    is_first[1:] = kinds[1:] != kinds[:-1]
    return np.asarray(ordered[is_first])


def covered_groups(pairs: np.ndarray, leaders: np.ndarray, scores: np.ndarray | None) -> Groups:
    """Return groups in which every row is a near-duplicate of the kept one.

    Rows are visited by descending score; a row that is no near-duplicate of a kept row is kept, and covers
    the rows close to it that no earlier one covers.

    Parameters
    ----------
    pairs, leaders, scores
        As for `connected_groups`; all pairs.

    Examples
    --------
    >>> found = covered_groups(np.array([[0, 1], [1, 2]]), np.arange(3), None)
    >>> found.keeper.tolist()
    [0, 0, 2]
    """
    n = len(leaders)
    scores = np.zeros(n) if scores is None else scores
    # Equal rows are covered by the same rows: one of them stands for all, the best one.
    best = np.arange(n)
    which = np.unique(leaders)
    best[which] = _best(np.arange(n), leaders, scores)
    order = which[np.lexsort((best[which], -scores[best[which]]))]
    both = np.concatenate([pairs, pairs[:, ::-1]])
    graph = coo_array((np.ones(len(both), np.int8), (both[:, 0], both[:, 1])), shape=(n, n)).tocsr()
    kept = np.empty(n, np.int64)
    assign_keepers(graph.indptr.astype(np.int64), graph.indices.astype(np.int64), order, kept)
    keeper = best[kept[leaders]]
    group = np.full(n, n)
    np.minimum.at(group, keeper, np.arange(n))
    return Groups(group[keeper], keeper)
