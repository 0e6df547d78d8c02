"""Sums over pairs of clusters, sparse: a hash table with open addressing in one plain array.

A slot is four int64: the key of (c, other) (-1 where it is free), a sum, a count, and nothing; so it never
lies across two cache lines. Values are whole steps of a grid, hence the order in which pairs are met does
not show.
"""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.jit import kernel

SLOT = 4
HALF = 32
_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def pair_key(c, other):  # type: ignore[no-untyped-def]
    """Return the key of a pair of clusters: c in the upper half, so that no division takes them apart."""
    return (np.int64(c) << np.int64(HALF)) | np.int64(other)


@kernel
def slot_of(key, mask):  # type: ignore[no-untyped-def]
    """Return where the search for a key begins: by those bits of a product that depend on both clusters."""
    return ((np.uint64(key) * _MIX) >> np.uint64(HALF)) & mask


@kernel
def add_pair(table, used, key, value, count):  # type: ignore[no-untyped-def]
    """Add `value`, seen `count` times, to a key; `used` (1,) counts the keys. Needs a free slot."""
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
    """Return a free table of `size` slots, a power of two."""
    table = np.zeros((size, SLOT), np.int64)
    table[:, 0] = -1
    return table


@kernel
def merge_pairs(table, used, more):  # type: ignore[no-untyped-def]
    """Add all pairs of one table (which may be compact) to another that has the room."""
    for at in range(more.shape[0]):
        if more[at, 0] >= 0:
            add_pair(table, used, more[at, 0], more[at, 1], more[at, 2])


@kernel
def with_room(table, used, more):  # type: ignore[no-untyped-def]
    """Return the table with room for so many more keys: itself, or a larger copy."""
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
    """Copy all pairs of a table to ``pairs[start:]``; `pairs` has a row more than it needs."""
    # No branch: it would go wrong at every other slot.
    at = start
    for slot in range(table.shape[0]):
        for j in range(3):
            pairs[np.uint64(at), j] = table[np.uint64(slot), j]
        at += 1 if table[np.uint64(slot), 0] >= 0 else 0
