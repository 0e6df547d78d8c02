"""Groups of centres that lie together, all of one size."""

from __future__ import annotations

import numpy as np

_POWER_STEPS = 20


def balanced_groups(centres: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    """Cut centres into groups of `size` (the last one may be smaller).

    Halved again and again along the direction of their largest spread, at a multiple of `size`.

    Parameters
    ----------
    centres : ndarray of shape (k, d)
    size : int

    Returns
    -------
    tuple of ndarray of int32
        Ascending within each group.

    Examples
    --------
    >>> import numpy as np
    >>> balanced_groups(np.array([[0.0], [9.0], [1.0], [8.0]]), 2)
    (array([0, 2], dtype=int32), array([1, 3], dtype=int32))
    """
    wide = centres.astype(np.float64)
    found: list[np.ndarray] = []
    _halve(wide, np.arange(len(wide), dtype=np.int32), size, found)
    # A group that is not full must be the last one: the others fill whole panels.
    found.sort(key=lambda group: (-len(group), int(group[0])))
    return tuple(found)


def _halve(centres: np.ndarray, members: np.ndarray, size: int, found: list[np.ndarray]) -> None:
    n_groups = -(-len(members) // size)
    if n_groups == 1:
        found.append(np.sort(members))
        return
    points = centres[members] - centres[members].mean(axis=0)
    along = (points * _main_direction(points)).sum(axis=1)
    order = np.argsort(along, kind="stable")
    cut = n_groups // 2 * size
    _halve(centres, members[order[:cut]], size, found)
    _halve(centres, members[order[cut:]], size, found)


def _main_direction(points: np.ndarray) -> np.ndarray:
    """Return roughly the first principal direction, by power iteration from the longest point."""
    direction, room = points[np.argmax((points * points).sum(axis=1))], np.empty_like(points)
    for _ in range(_POWER_STEPS):
        along = np.multiply(points, direction, out=room).sum(axis=1)
        grown = np.multiply(points, along[:, None], out=room).sum(axis=0)
        length = np.sqrt((grown * grown).sum())
        if not 0.0 < length < np.inf:
            break
        direction = grown / length
    return direction
