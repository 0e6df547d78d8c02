"""How many of k clusters each cell gets: in proportion to its weight, within limits.

Webster's divisor method with minimum requirements (Balinski and Young, "Fair Representation", 1982):
seats go one by one to the cell with the largest w / (2 s + 1), where s is what it has; every cell with a
weight starts with one. Unlike largest remainders it never takes a seat from a cell when there are more
of them, and limits do not disturb the proportions of the others.
"""

from __future__ import annotations

import heapq

import numpy as np


def apportion(weights: np.ndarray, seats: int, most: np.ndarray) -> np.ndarray:
    """Return how many seats each cell gets.

    Parameters
    ----------
    weights : ndarray of shape (c,)
        Finite and >= 0. Cells without weight get nothing; there are at most `seats` others.
    seats : int
    most : ndarray of shape (c,), int64
        What each cell can take.

    Returns
    -------
    ndarray of shape (c,), int64
        At least 1 and at most `most` for each cell with weight. The sum is `seats`, or that of `most`
        where it is less. Ties go to the lowest cell.

    Examples
    --------
    >>> import numpy as np
    >>> apportion(np.array([60.0, 30.0, 9.0, 1.0, 0.0]), 10, np.array([99, 2, 99, 99, 99])).tolist()
    [6, 2, 1, 1, 0]
    """
    given = ((weights > 0.0) & (most > 0)).astype(np.int64)
    open_cells = np.flatnonzero(given & (most > 1))
    heap = [(-float(weights[cell]) / 3.0, int(cell)) for cell in open_cells]
    heapq.heapify(heap)
    for _ in range(seats - int(given.sum())):
        if not heap:
            break
        cell = heap[0][1]
        given[cell] += 1
        if given[cell] < most[cell]:
            heapq.heapreplace(heap, (-float(weights[cell]) / (2.0 * given[cell] + 1.0), cell))
        else:
            heapq.heappop(heap)
    return given
