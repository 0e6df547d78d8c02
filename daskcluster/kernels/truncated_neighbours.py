"""Neighbourhoods of clusters: what their rows were told, turned into the nearest others."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.kernels.jit import STAMP, kernel


@kernel
def _place(members, size, wanted):  # type: ignore[no-untyped-def]
    """Return where `wanted` stands among the first `size` members, -1 if it does not."""
    for j in range(size):
        if members[j] == wanted:
            return j
    return -1


@kernel
def _insert(other, mean, found, best):  # type: ignore[no-untyped-def]
    """Insert a cluster by its mean, ties by its number, behind the first."""
    g = found.shape[0]
    for j in range(1, g):
        if mean < best[j] or (mean == best[j] and other < found[j]):
            for b in range(g - 1, j, -1):
                best[b], found[b] = best[b - 1], found[b - 1]
            best[j], found[j] = mean, other
            return


@kernel
def _fill(found, old):  # type: ignore[no-untyped-def]
    """Fill the places that hold -1 with members of `old` that are not there yet."""
    for j in range(found.shape[0]):
        if found[j] >= 0:
            continue
        for b in range(old.shape[0]):
            if not (found == old[b]).any():
                found[j] = old[b]
                break


def _build_learn(stamp: int) -> Any:
    def learn_neighbours(lists, sizes, sums, counts, unit, table, old):  # type: ignore[no-untyped-def]
        """Return the clusters (k, g) with the least mean keys, each cluster itself first.

        ``sums[c, j] / counts[c]`` is the mean over rows that stayed with c, in steps of 1 / `unit`; the
        table has pairs of rows that came to it. A cluster without rows, and what is missing in a row of
        the result, keeps `old`.
        """
        _ = stamp
        k, g = old.shape
        found, best = np.full((k, g), -1, np.int32), np.full((k, g), np.inf)
        more, n_more = np.zeros(lists.shape), np.zeros(lists.shape, np.int64)
        for c in range(k):
            found[c, 0], best[c, 0] = c, -np.inf
        for at in range(table.shape[0]):
            c, other = table[at, 0] // k, np.int32(table[at, 0] % k)
            if table[at, 0] < 0 or other == c:
                continue
            j = _place(lists[c], sizes[c] if counts[c] else 0, other)
            if j < 0:
                _insert(other, table[at, 1] / table[at, 2], found[c], best[c])
            else:
                more[c, j], n_more[c, j] = table[at, 1], table[at, 2]
        for c in range(k):
            for j in range(sizes[c] if counts[c] else 0):
                if lists[c, j] != c:
                    mean = (sums[c, j] * unit + more[c, j]) / (counts[c] + n_more[c, j])
                    _insert(lists[c, j], mean, found[c], best[c])
            _fill(found[c], old[c])
        return found

    return kernel(learn_neighbours)


@kernel
def neighbour_lists(neighbours, lists, sizes):  # type: ignore[no-untyped-def]
    """List the neighbours' neighbours of each cluster; OUT: lists (k, width), sizes (k,).

    The neighbours themselves come first: the nearest are met first, and others then seldom enter.
    Beyond its size a list repeats the cluster itself.
    """
    k, g = neighbours.shape
    mark = np.full(k, -1, np.int64)
    for c in range(k):
        lists[c] = c
        size = 0
        for a in range(-1, g):
            for b in range(g):
                other = neighbours[c, b] if a < 0 else neighbours[neighbours[c, a], b]
                if mark[other] != c:
                    mark[other] = c
                    lists[c, size] = other
                    size += 1
        sizes[c] = size


learn_neighbours = _build_learn(STAMP)
