"""Which of the new centres is which of the old ones, so that clusters keep their numbers."""

from __future__ import annotations

import numpy as np


def matched(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the order in which to take `new`, so that each stands where its old centre stood.

    The assignment has the least sum of squared distances (Kuhn 1955; Jonker and Volgenant 1987).
    Centres beyond the number of the old ones come last, in their own order.

    Parameters
    ----------
    old : ndarray of shape (k, d)
    new : ndarray of shape (k', d)
        k' >= k.

    Returns
    -------
    ndarray of shape (k',), int64

    Notes
    -----
    Cost: k k' distances, and O(k^2 k') steps at most.

    Examples
    --------
    >>> import numpy as np
    >>> matched(np.array([[0.0], [9.0]]), np.array([[9.5], [4.0], [0.1]]))
    array([2, 0, 1])
    """
    from scipy.optimize import linear_sum_assignment

    _, order = linear_sum_assignment(squared_distances(old, new))
    others = np.setdiff1d(np.arange(len(new)), order)
    return np.concatenate([order, others]).astype(np.int64)


def is_the_same(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return for each of `new`, bool (k',), whether the old centre of its number is the nearest old one.

    Examples
    --------
    >>> import numpy as np
    >>> is_the_same(np.array([[0.0], [9.0]]), np.array([[1.0], [2.0], [8.0]]))
    array([ True, False, False])
    """
    same = np.zeros(len(new), bool)
    same[: len(old)] = squared_distances(old, new).argmin(axis=0)[: len(old)] == np.arange(len(old))
    return same


def squared_distances(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return |o - n|^2 for all pairs, float64 (k, k'), by direct differences."""
    found = np.empty((len(old), len(new)))
    wide = new.astype(np.float64)
    for number, centre in enumerate(old.astype(np.float64)):
        difference = wide - centre
        found[number] = (difference * difference).sum(axis=1)
    return found
