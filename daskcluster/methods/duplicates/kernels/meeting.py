"""Rows of two blocks that may be close, and the limits that bounds of their products have to reach."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.jit import kernel


@kernel
def sort_keys(squares, lengths, between, own, keys):  # type: ignore[no-untyped-def]
    """OUT: keys (n,): the distance to the bisector of two centres `between` apart; to the centre if `own`.

    `squares` are those of distances to the other centre, `lengths` are distances to the own one.
    """
    for r in range(squares.shape[0]):
        length = np.float64(lengths[r])
        keys[r] = length
        if not own and between > 0.0:
            keys[r] = (np.float64(squares[r]) - length * length) / (2.0 * between)


@kernel
def _windows(ours, theirs, gap, windows):  # type: ignore[no-untyped-def]
    """OUT: windows (2, n): first and end of the points that may be close to each row.

    Return the number of rows up to the last that meets a point, and of points up to the last that is met.

    On the line through two centres, a row and a point on different sides of the bisector are as far apart
    as the sum of their distances to it; in one cell, distances to its centre differ by no more than that
    of two rows.
    """
    n, m = ours.shape[0], theirs.shape[0]
    first, end = 0, m
    for r in range(n):
        if gap.own:
            end = 0 if r == 0 else end
            while first < m and theirs[first] < ours[r] - gap.slack:
                first += 1
            while end < m and theirs[end] <= ours[r] + gap.slack:
                end += 1
        elif gap.between > 0.0:
            while end > 0 and theirs[end - 1] > gap.slack - ours[r]:
                end -= 1
        windows[0, r], windows[1, r] = first, min(end, r) if gap.same else end
    n_rows, n_points = 0, 0
    for r in range(n):
        if windows[0, r] < windows[1, r]:
            n_rows, n_points = r + 1, max(n_points, windows[1, r])
    return n_rows, n_points


@kernel
def meet(ours, theirs, gap, windows, limits, firsts):  # type: ignore[no-untyped-def]
    """Return how many rows and points may be close, and the largest of the first limits and first terms.

    Parameters
    ----------
    ours, theirs : (members, squares, described)
        Rows that reach the other cell, by ascending key, their squared distances to its centre, and
        `Block.described`.
    gap : `daskcluster.methods.duplicates.pairs.Gap`
    windows : ndarray of shape (2, n), int64
        OUT. First and end of the points of each row.
    limits, firsts : ndarray of shape (2, n), (2, m), float64
        OUT. Of heads and of all features: the product plus the first term of the point has to reach the
        limit of the row.
    """
    (i, to_b, mine), (j, to_a, its) = ours, theirs
    near, close = np.empty(len(i)), np.empty(len(j))
    sort_keys(to_b, mine[3][i], gap.between, gap.own, near)
    sort_keys(to_a, its[3][j], gap.between, gap.own, close)
    n, m = _windows(near, close, gap, windows)
    most = 0.0
    for kind in range(2):
        # |u - u'| |v'| + |u| |v - v'|, and what the axes leave: |t| |s| <= (t^2 + s^2) / 2.
        first, left = 3 * kind, 1.0 - kind
        longest, quantized = 0.0, 0.0
        for r in range(n):
            longest = max(longest, mine[first, i[r]])
        for s in range(m):
            quantized = max(quantized, its[first + 1, j[s]])
        for r in range(n):
            wanted = 0.5 * (np.float64(to_b[r]) - gap.half) - gap.error
            taken = mine[first + 2, i[r]] * quantized + left * mine[6, i[r]]
            limits[kind, r] = wanted - taken
            most = max(most, abs(limits[kind, r]) * left)
        for s in range(m):
            added = its[first + 2, j[s]] * longest + left * its[6, j[s]]
            firsts[kind, s] = added - 0.5 * (np.float64(to_a[s]) - gap.half)
            most = max(most, abs(firsts[kind, s]) * left)
    return n, m, most
