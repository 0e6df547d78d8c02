"""Neighbourhoods of clusters: the nearest other clusters, estimated from distances of rows."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.accumulate import group_by_label
from daskcluster.kernels.jit import kernel

SLOT = 4
HALF = 32
_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def pair_key(c, other):  # type: ignore[no-untyped-def]
    """Return the key of a pair of clusters: `c` in the upper half of the word, `other` in the lower."""
    return (np.int64(c) << np.int64(HALF)) | np.int64(other)


@kernel
def slot_of(key, mask):  # type: ignore[no-untyped-def]
    """Return the first slot to probe for a key: a hash of the bits that depend on both clusters."""
    return ((np.uint64(key) * _MIX) >> np.uint64(HALF)) & mask


@kernel
def add_pair(table, used, key, value, count):  # type: ignore[no-untyped-def]
    """Add `value` and `count` to the sums of a key; `used` (1,) counts the keys. Needs a free slot."""
    mask = np.uint64(table.shape[0] - 1)
    at = slot_of(key, mask)
    while table[at, 0] != key:
        if table[at, 0] < 0:
            table[at, 0] = key
            used[0] += 1
            break
        at = (at + np.uint64(1)) & mask
    table[at, 1] += value
    table[at, 2] += count


@kernel
def new_table(size):  # type: ignore[no-untyped-def]
    """Return an empty table of `size` slots; `size` is a power of two."""
    table = np.zeros((size, SLOT), np.int64)
    table[:, 0] = -1
    return table


@kernel
def merge_pairs(table, used, more):  # type: ignore[no-untyped-def]
    """Add all pairs of table `more`, which may be compact, to `table`, which needs room for them."""
    for at in range(more.shape[0]):
        if more[at, 0] >= 0:
            add_pair(table, used, more[at, 0], more[at, 1], more[at, 2])


@kernel
def with_room(table, used, more):  # type: ignore[no-untyped-def]
    """Return `table` if it has room for `more` keys, else a larger copy."""
    size = table.shape[0]
    if 3 * (used[0] + more) <= 2 * size:
        return table
    while 3 * (used[0] + more) > 2 * size:
        size *= 2
    larger, fresh = new_table(size), np.zeros(1, np.int64)
    merge_pairs(larger, fresh, table)
    return larger


@kernel
def list_pairs(table, start, pairs):  # type: ignore[no-untyped-def]
    """Copy all pairs of a table to ``pairs[start:]``, which needs one extra row."""
    # Without a branch, which would be mispredicted at every other slot.
    at = start
    for slot in range(table.shape[0]):
        for j in range(3):
            pairs[np.uint64(at), j] = table[np.uint64(slot), j]
        at += 1 if table[np.uint64(slot), 0] >= 0 else 0


_OTHER = np.uint64((1 << HALF) - 1)


@kernel
def _select(members, means, count, c, near, nearest):  # type: ignore[no-untyped-def]
    """Select c itself, then those of the first `count` clusters with the least means; ties by number.

    OUT: near (g,) means and nearest (g,) cluster numbers, -1 where there are too few.
    """
    g = near.shape[0]
    near[0], near[1:] = -np.inf, np.inf
    nearest[0], nearest[1:] = c, -1
    for j in range(count):
        mean, other, last = means[np.uint64(j)], members[np.uint64(j)], near[g - 1]
        if other == c or not (mean < last or (mean == last and other < nearest[g - 1])):
            continue
        at = g - 1
        while at > 1 and not near[at - 1] < mean:
            if near[at - 1] == mean and nearest[at - 1] < other:
                break
            near[at], nearest[at] = near[at - 1], nearest[at - 1]
            at -= 1
        near[at], nearest[at] = mean, other


@kernel
def _fill(found, old):  # type: ignore[no-untyped-def]
    """Replace each -1 in `found` by a member of `old` that is not in it yet."""
    for j in range(found.shape[0]):
        if found[j] >= 0:
            continue
        for b in range(old.shape[0]):
            if not (found == old[b]).any():
                found[j] = old[b]
                break


@kernel
def learn_neighbours(lists, sizes, sums, counts, step, pairs, old):  # type: ignore[no-untyped-def]
    """Return the neighbourhoods (k, g): each cluster itself, then the clusters with the least mean keys.

    ``sums[c, j]`` is the sum of keys over the ``counts[c]`` rows that stayed with c, for the j-th cluster
    of its list; `step` is the number of grid steps in a key of one. `pairs` has the sums, in grid steps,
    over rows that moved to c; a pair may occur several times. Clusters without rows, and places without
    a candidate, keep the members of `old`.
    """
    # One cluster at a time, so that `place` maps each other cluster directly to its sums.
    k, g = old.shape
    n = pairs.shape[0]
    found, near, nearest = np.empty((k, g), np.int32), np.empty(g), np.empty(g, np.int64)
    home, order = np.empty(n, np.int32), np.empty(n, np.int64)
    starts = np.empty(k + 1, np.int64)
    for at in range(n):
        home[at] = pairs[np.uint64(at), 0] >> HALF
    group_by_label(home, order, starts)
    members, place = np.zeros(k + 1, np.int64), np.zeros(k, np.int64)
    more, n_more, means = np.zeros(k + 1, np.int64), np.zeros(k + 1, np.int64), np.empty(k)
    for c in range(k):
        n_listed = np.int64(sizes[c]) if counts[c] else 0
        for j in range(n_listed):
            members[j], more[j], n_more[j] = lists[c, j], 0, 0
            place[lists[c, j]] = j
        size = n_listed
        for i in range(starts[c], starts[c + 1]):
            # Without a branch, which would often be mispredicted. A place is valid if its member matches.
            pair = np.uint64(order[np.uint64(i)])
            other = np.uint64(pairs[pair, 0]) & _OTHER
            spot = np.uint64(place[other])
            known = (spot < np.uint64(size)) & (members[spot] == np.int64(other))
            spot = spot if known else np.uint64(size)
            size += np.int64(not known)
            sum_before, count_before = more[spot], n_more[spot]
            members[spot], place[other] = other, spot
            more[spot] = (sum_before if known else 0) + pairs[pair, 1]
            n_more[spot] = (count_before if known else 0) + pairs[pair, 2]
        for j in range(n_listed):
            means[j] = (sums[c, j] * step + more[j]) / (counts[c] + n_more[j])
        for j in range(n_listed, size):
            means[j] = more[j] / n_more[j]
        _select(members, means, size, c, near, nearest)
        for j in range(g):
            found[c, j] = nearest[j]
        _fill(found[c], old[c])
    return found


@kernel
def neighbour_lists(neighbours, lists, sizes):  # type: ignore[no-untyped-def]
    """List the neighbours' neighbours of each cluster; OUT: lists (k, width), sizes (k,).

    The neighbours themselves come first, so that later candidates seldom enter the sets of rows. Beyond
    its size, a list repeats the cluster itself.
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
