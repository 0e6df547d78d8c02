"""Quotas against a brute-force oracle, and the levels that they are divided over."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daskcluster.models.balance import (
    divide_evenly,
    quotas_of_levels,
    sizes_of_levels,
)


def one_by_one(total: int, sizes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Give one row after the other to the child that has fewest of those that are not exhausted."""
    shares = np.zeros(len(sizes), np.int64)
    for _ in range(total):
        free = np.flatnonzero(shares < sizes)
        # Only the last round, which not all of them reach, goes by `order`.
        shares[min(free, key=lambda child: (shares[child], order[child]))] += 1
    return shares


FAMILIES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=14
)  # (parent, size) of each child


@given(children=FAMILIES, share=st.floats(0, 1), seed=st.integers(0, 99))
def test_shares_are_those_of_the_oracle(
    children: list[tuple[int, int]], share: float, seed: int
) -> None:
    parents, sizes = (np.array(column, np.int64) for column in zip(*children, strict=True))
    most = np.bincount(parents, weights=sizes, minlength=4).astype(np.int64)
    totals = np.floor(share * most).astype(np.int64)
    order = np.random.default_rng(seed).random(len(parents))
    found = divide_evenly(totals, sizes, parents, order)
    for parent in range(4):
        own = parents == parent
        assert found[own].tolist() == one_by_one(totals[parent], sizes[own], order[own]).tolist()


@given(data=st.data(), seed=st.integers(0, 99))
def test_quotas_of_levels(data: st.DataObject, seed: int) -> None:
    numbers = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    numbers = sorted(numbers, reverse=True)
    rng = np.random.default_rng(seed)
    # The last cluster of a level has a child, so that each level has as many clusters as it says.
    parents = [
        np.append(rng.integers(0, above, below - 1), above - 1)
        for below, above in pairwise(numbers)
    ]
    sizes = sizes_of_levels(rng.integers(0, 30, numbers[0]), parents)
    assert [len(each) for each in sizes] == numbers
    total = data.draw(st.integers(0, int(sizes[0].sum())))
    quotas = quotas_of_levels(sizes, parents, total, seed)
    for level, (quota, size) in enumerate(zip(quotas, sizes, strict=True)):
        assert quota.sum() == total
        assert (quota <= size).all()
        top = level == len(parents)
        above = np.zeros(len(quota), np.int64) if top else parents[level]
        for parent in np.unique(above):
            of_parent = above == parent
            wanted = total if top else quotas[level + 1][parent]
            assert quota[of_parent].sum() == wanted
            open_ones = quota[of_parent & (quota < size)]
            if len(open_ones):
                assert open_ones.max() - open_ones.min() <= 1
                assert quota[of_parent].max() <= open_ones.min() + 1


def test_remainders_are_distributed_by_the_seed() -> None:
    sizes = [np.full(10, 100)]
    found = {tuple(quotas_of_levels(sizes, [], 13, seed)[0].tolist()) for seed in range(20)}
    assert len(found) > 10


def test_clusters_without_children_in_a_level_between() -> None:
    parents = [np.array([0, 0, 1]), np.array([0, 0, 1])]  # the last cluster of level 2 has no child
    found = sizes_of_levels(np.array([5, 1, 2]), parents)
    assert [each.tolist() for each in found] == [[5, 1, 2], [6, 2, 0], [8, 0]]
