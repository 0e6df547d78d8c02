"""Sums over pairs of clusters, sparse: a hash table with open addressing in plain arrays.

Keys are ``c * k + other``. Values are rounded to a grid before they are added, so the order in which
pairs are met does not show.
"""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.jit import kernel

_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def _slot(keys, key):  # type: ignore[no-untyped-def]
    mask = np.uint64(keys.shape[0] - 1)
    at = ((np.uint64(key) * _MIX) >> np.uint64(20)) & mask
    while keys[at] != key and keys[at] >= 0:
        at = (at + np.uint64(1)) & mask
    return np.int64(at)


@kernel
def add_pair(keys, sums, counts, used, key, value, count):  # type: ignore[no-untyped-def]
    """Add `value`, seen `count` times, to a key; `used` (1,) counts the keys. Needs a free slot."""
    at = _slot(keys, key)
    if keys[at] < 0:
        keys[at] = key
        used[0] += 1
    sums[at] += value
    counts[at] += count


@kernel
def with_room(keys, sums, counts, used, more):  # type: ignore[no-untyped-def]
    """Return the table with room for so many more keys: itself, or a larger copy."""
    size = keys.shape[0]
    if 2 * (used[0] + more) <= size:
        return keys, sums, counts
    while 2 * (used[0] + more) > size:
        size *= 2
    new_keys, new_sums = np.full(size, -1, np.int64), np.zeros(size)
    new_counts, fresh = np.zeros(size, np.int64), np.zeros(1, np.int64)
    for at in range(keys.shape[0]):
        if keys[at] >= 0:
            add_pair(new_keys, new_sums, new_counts, fresh, keys[at], sums[at], counts[at])
    return new_keys, new_sums, new_counts


@kernel
def merge_pairs(keys, sums, counts, used, more_keys, more_sums, more_counts):  # type: ignore[no-untyped-def]
    """Add all pairs of one table (which may be compact) to another that has the room."""
    for at in range(more_keys.shape[0]):
        if more_keys[at] >= 0:
            add_pair(keys, sums, counts, used, more_keys[at], more_sums[at], more_counts[at])
