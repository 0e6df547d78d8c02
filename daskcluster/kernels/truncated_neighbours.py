"""Neighbourhoods of clusters: what their rows were told, turned into the nearest others."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.kernels.jit import STAMP, kernel


@kernel
def _place(members, start, stop, wanted):  # type: ignore[no-untyped-def]
    """Return where `wanted` stands in ``members[start:stop]``, -1 if it does not.

    All are looked at, without a branch: most of those that are asked for are on no list.
    """
    found = -1
    for j in range(start, stop):
        found = j if members[np.uint64(j)] == wanted else found
    return found


@kernel
def _insert(other, mean, c, found, best):  # type: ignore[no-untyped-def]
    """Insert a cluster into row c by its mean, ties by its number, behind the first."""
    g = found.shape[1]
    if mean > best[c, g - 1]:
        return
    for j in range(1, g):
        if mean < best[c, j] or (mean == best[c, j] and other < found[c, j]):
            for b in range(g - 1, j, -1):
                best[c, b], found[c, b] = best[c, b - 1], found[c, b - 1]
            best[c, j], found[c, j] = mean, other
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
        more, n_more = np.zeros(lists.size), np.zeros(lists.size, np.int64)
        members, width = lists.reshape(lists.size), lists.shape[1]
        for c in range(k):
            found[c, 0], best[c, 0] = c, -np.inf
        for at in range(table.shape[0]):
            key = table[at, 0]
            if key < 0:
                continue
            c = key // k
            other = np.int32(key - c * k)
            if other == c:
                continue
            start = c * width
            j = _place(members, start, start + width if counts[c] else start, other)
            if j < 0:
                _insert(other, table[at, 1] / table[at, 2], c, found, best)
            else:
                more[j], n_more[j] = table[at, 1], table[at, 2]
        for c in range(k):
            for j in range(sizes[c] if counts[c] else 0):
                if lists[c, j] != c:
                    at = c * width + j
                    mean = (sums[c, j] * unit + more[at]) / (counts[c] + n_more[at])
                    _insert(lists[c, j], mean, c, found, best)
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
