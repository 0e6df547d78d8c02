"""The kernels of truncated EM: tiles, selection, posteriors, pairs, neighbourhoods."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from daskcluster.kernels.jit import kernel
from daskcluster.kernels.row_block import aligned
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.methods.mixture.kernels import candidates as truncated_apart
from daskcluster.methods.mixture.kernels import candidates as truncated_tile
from daskcluster.methods.mixture.kernels import posteriors as truncated_keep
from daskcluster.methods.mixture.kernels.candidates import (
    Costs,
    Space,
    add_pair,
    learn_neighbours,
    list_pairs,
    listed_tile_for,
    merge_pairs,
    neighbour_lists,
    new_table,
    pair_key,
    with_room,
)
from daskcluster.methods.mixture.kernels.sums import MomentGrids, Moments
from daskcluster.methods.mixture.kernels.truncated import NeighbourSums, draw_sets, step_kernel
from daskcluster.randomness import Key

DTYPES = [np.float32, np.float64]
GRID = 1.5 * 2.0**30


def fixed(values):
    """Return a read-only view, which is what fits pass, so that kernels compile once for both."""
    view = values.view()
    view.flags.writeable = False
    return view


def plain_costs(means):
    k, flat = len(means), fixed(means.reshape(-1))
    return Costs(flat, flat, np.ones(k, means.dtype), np.zeros(k, means.dtype))


def step(X, means, sets, neighbours, *, sharpness=0.5, learn=True, drawn=None, row=False):
    """Run one step; return bounds, moments, what was given, the pairs, and the number of distances."""
    n, d = X.shape
    order = np.argsort(sets[:, 0], kind="stable")  # rows are visited by their nearest clusters
    k, g = neighbours.shape
    height = listed_tile_for(X.dtype).height
    width = -(-g * g // height) * height
    lists, sizes = np.empty((k, width), np.int32), np.empty(k, np.int32)
    neighbour_lists(neighbours, lists, sizes)
    near = np.empty((k, 0), np.int32)
    if row:
        near, lists, sizes = neighbours, np.empty((k, 0), np.int32), np.zeros(k, np.int32)
    drawn = np.empty((n, 0), np.int32) if drawn is None else drawn
    moments = Moments(np.zeros(k * d), np.zeros(k * d), np.zeros((2, 0)), np.zeros(4 * k))
    low = GRID / 2**40
    grids = MomentGrids(*(SumGrid(np.full(size, GRID), np.full(size, low)) for size in (d, 0, 2)))
    learned = NeighbourSums(
        np.zeros((k, lists.shape[1])), np.zeros(k, np.int64), np.array([GRID]), np.array([True]),
        np.array([False]),
    )  # fmt: skip
    bounds, used, nearest = np.empty(n), np.zeros(1, np.int64), sets[:, 0].copy()
    table, computed, n_moved = step_kernel(X.dtype, scaled=False)(
        (fixed(X), fixed(np.empty(0))), sets, plain_costs(means), (sharpness, 0.0),
        Space(lists, sizes, near, drawn), learned, (new_table(64), used), (grids, moments), bounds, learn,
    )  # fmt: skip
    assert n_moved == (sets[:, 0] != nearest).sum()
    by_row = np.empty(n)
    by_row[order] = bounds
    return by_row, moments, learned, table, computed


def searched(held, neighbours, drawn, row):
    if row:
        found = {c for own in held for c in neighbours[own]}
    else:
        found = {c for near in neighbours[held[0]] for c in neighbours[near]} | set(held)
    return sorted(found | set(drawn))


def problem(n=203, d=5, k=40, q=4, g=3, *, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X, means = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(k, d)).astype(dtype)
    sets = np.array([rng.choice(k, q, replace=False) for _ in range(n)], np.int32)
    others = np.array(
        [rng.choice(np.delete(np.arange(k), c), g - 1, replace=False) for c in range(k)]
    )
    return X, means, sets, np.c_[np.arange(k), others].astype(np.int32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("d", "row"), [(1, True), (3, False), (16, True), (37, False)])
def test_a_step_keeps_the_nearest_of_the_search_space(dtype, d, row):
    X, means, sets, neighbours = problem(d=d, dtype=dtype)
    drawn = np.random.default_rng(1).integers(0, 40, (len(X), 2)).astype(np.int32)
    before = sets.copy()
    _, _, _, _, computed = step(X, means, sets, neighbours, drawn=drawn, row=row)
    total = 0
    for x, old, new, more in zip(X, before, sets, drawn, strict=True):
        space = searched(old, neighbours, more, row)
        total += len(space)
        distances = ((x.astype(float) - means[space].astype(float)) ** 2).sum(axis=1)
        expected = [space[i] for i in np.argsort(distances)[:4]]
        assert len(set(new)) == 4
        assert set(new) <= set(space)
        assert np.allclose(
            ((x - means[new]).astype(float) ** 2).sum(axis=1),
            ((x - means[expected]).astype(float) ** 2).sum(axis=1),
            rtol=1e-4,
        )
    assert computed == total


def test_moments_and_bounds_are_those_of_the_posteriors():
    X, means, sets, neighbours = problem(d=(d := 43))
    bounds, moments, _, _, _ = step(X, means, sets, neighbours, sharpness=0.7)
    squared = ((X[:, None] - means[sets]) ** 2).sum(axis=2)
    terms = np.exp(-0.7 * squared)
    assert np.allclose(bounds, np.log(terms.sum(axis=1)), rtol=1e-12)
    q = terms / terms.sum(axis=1, keepdims=True)
    mass, first, second = np.zeros(40), np.zeros((40, d)), np.zeros(40)
    np.add.at(mass, sets, q)
    np.add.at(first, sets, q[:, :, None] * X[:, None])
    np.add.at(second, sets, q * squared)
    totals = moments.totals.reshape(40, 4)
    assert np.allclose(totals[:, 0] + totals[:, 2], mass, rtol=1e-10)
    assert np.allclose(totals[:, 1] + totals[:, 3], second, rtol=1e-10)
    assert np.allclose((moments.firsts + moments.low_firsts).reshape(40, d), first, atol=1e-10)


# -- pieces ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keeper():
    _, vectors, width = listed_tile_for(np.dtype(np.float32))

    @njit
    def keep(near, number, first, count, best, index, q):
        truncated_keep.keep_least(near, number, first, count, best, index, q, vectors, width)

    return keep


@pytest.mark.parametrize("q", [1, 2, 5, 6, 7, 12])  # in registers, and where those do not suffice
def test_ties_keep_the_earlier_candidate_first(keeper, q):
    rng, block, n_seen = np.random.default_rng(q), truncated_tile.BLOCK, 40
    near = aligned(n_seen * block, np.empty(0, np.float32))
    near[:] = rng.integers(0, 9, n_seen * block)
    near[::7] = np.inf
    number = np.arange(n_seen * block, dtype=np.int32)
    best = aligned(q * block, near)
    best[:] = np.inf
    index = np.full(q * block, -1, np.int32)
    keeper(near, number, 0, 30, best, index, q)
    keeper(near, number, 30, 10, best, index, q)
    costs, names = near.reshape(n_seen, block), number.reshape(n_seen, block)
    order = np.argsort(costs, axis=0, kind="stable")[:q]
    expected = np.take_along_axis(costs, order, axis=0)
    assert np.array_equal(best.reshape(q, block), expected)
    found = np.where(np.isinf(expected), -1, np.take_along_axis(names, order, axis=0))
    assert np.array_equal(index.reshape(q, block), found)


def test_first_sets_are_distinct_and_uniform():
    sets = np.empty((20_000, 3), np.int32)
    draw_sets(Key(0, "test").words(0, 60_000).reshape(-1, 3), 7, sets)
    assert (np.sort(sets, axis=1)[:, 1:] > np.sort(sets, axis=1)[:, :-1]).all()
    counts = np.bincount(sets.ravel(), minlength=7)
    expected = 60_000 / 7
    assert ((counts - expected) ** 2 / expected).sum() < 22.5  # chi-square of 6, 0.1 %
    draw_sets(Key(0, "test").words(0, 21).reshape(-1, 7), 7, all_of := np.empty((3, 7), np.int32))
    assert (np.sort(all_of, axis=1) == np.arange(7)).all()


def test_pairs_grow_and_merge_in_any_order():
    rng = np.random.default_rng(0)
    keys, values = rng.integers(0, 10**12, 500), rng.integers(-100, 100, 3000)
    picks = rng.integers(0, 500, 3000)

    def filled(order):
        table, used = new_table(4), np.zeros(1, np.int64)
        for at in order:
            table = with_room(table, used, 1)
            add_pair(table, used, keys[picks[at]], values[at], 1)
        return table, used

    one, used = filled(range(1500))
    other, _ = filled(range(2999, 1499, -1))
    one = with_room(one, used, len(other))
    merge_pairs(one, used, other)
    there = one[one[:, 0] >= 0]
    assert used[0] == len(there) == len(np.unique(keys[picks]))
    for key, value, count, _ in there:
        mask = keys[picks] == key
        assert (value, count) == (values[mask].sum(), mask.sum())
    list_pairs(one, pairs := np.empty((len(there) + 1, 3), np.int64))
    assert np.array_equal(pairs[:-1], there[:, :3])


def test_neighbours_are_the_nearest_on_average():
    k, g = 6, 3
    old = np.array([[c, (c + 1) % k, (c + 2) % k] for c in range(k)], np.int32)
    lists, sizes = np.zeros((k, 8), np.int32), np.full(k, 4, np.int32)
    lists[:, :4] = (np.arange(k)[:, None] + np.arange(4)) % k
    sums, counts = np.zeros((k, 8)), np.zeros(k, np.int64)
    counts[0] = 2
    sums[0, :4] = [0.0, 8.0, 2.0, 4.0]  # means of 0's rows: 1 at 4, 2 at 1, 3 at 2
    pairs = np.array([
        [pair_key(1, 4), 7, 1],  # 1 has but this
        [pair_key(0, 5), 3, 2],  # 5 at 1.5, of rows that came
        [pair_key(0, 3), 0, 8],  # 3 at (4 + 0) / (2 + 8) = 0.4
        [pair_key(0, 0), 0, 1],
    ])  # fmt: skip
    found = learn_neighbours(lists, sizes, sums, counts, 1.0, pairs, old)
    assert found[0].tolist() == [0, 3, 2]
    assert found[1].tolist() == [1, 4, 2]  # the rest is kept
    assert np.array_equal(found[2:], old[2:])
    assert (found[:, 0] == np.arange(k)).all()
    assert g == found.shape[1]


def test_ties_of_neighbours_are_broken_by_number():
    k = 6
    old = np.array([[c, (c + 1) % k, (c + 2) % k] for c in range(k)], np.int32)
    lists, sizes = np.zeros((k, 8), np.int32), np.zeros(k, np.int32)
    others = [4, 1, 5, 2, 3, 1]  # of 0: 1 at (6 + 2) / 2, so all are at 4
    sums = [4, 6, 4, 4, 4, 2]
    pairs = np.array([[other, total, 1] for other, total in zip(others, sums, strict=True)])
    learned = np.zeros((k, 8)), np.zeros(k, np.int64)
    assert learn_neighbours(lists, sizes, *learned, 1.0, pairs, old)[0].tolist() == [
        0,
        1,
        2,
    ]
    pairs[0, 1] = 3
    assert learn_neighbours(lists, sizes, *learned, 1.0, pairs, old)[0].tolist() == [
        0,
        4,
        1,
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiled_and_pairwise_distances_agree(dtype):
    height, vectors, width = listed_tile_for(np.dtype(dtype))
    rng = np.random.default_rng(0)
    tile, apart = truncated_tile.listed_distances, truncated_apart.pair_distances

    @kernel
    def both(packed, rows, means, scales, listed, taken, pairs, d, out, some):
        tile(packed, means, scales, listed, 0, height, d, out, height, vectors, width, 1)
        apart(rows, taken, d, means, scales, pairs, 5, some, 16, 1)

    for d in (1, 7, 16, 35):
        X, means = rng.normal(size=(16, d)).astype(dtype), rng.normal(size=(9, d)).astype(dtype)
        scales = rng.uniform(0.5, 2, size=(9, d)).astype(dtype)
        listed = rng.integers(0, 9, height).astype(np.int32)
        packed, out = aligned_like(X.T.ravel()), aligned_like(np.zeros(16 * height, dtype))
        some, rows = np.zeros(64, dtype), np.array([3, 0, 3, 15, 7, 0, 0, 0])
        clusters, runs = np.array([8, 1, 2, 0, 5, 0, 0, 0]), np.array([0, 1, 1, 2, 0, 3, 3, 3])
        places = 16 * runs + rows
        both(
            packed,
            X.ravel(),
            means.ravel(),
            scales.ravel(),
            listed,
            np.arange(16),
            places << truncated_apart.SLOT_BITS | clusters,
            d,
            out,
            some,
        )
        exact = (((X[:, None] - means) * scales).astype(float) ** 2).sum(axis=2)
        assert np.allclose(out.reshape(height, 16), exact[:, listed].T, rtol=1e-5)
        assert np.allclose(some[places[:5]], exact[rows, clusters][:5], rtol=1e-5)
        assert np.isin(some, [0.0, *some[places]]).all()


def aligned_like(values):
    room = np.zeros(values.size + 64, values.dtype)
    skip = -room.ctypes.data % 64 // values.itemsize
    room[skip : skip + values.size] = values
    return room[skip : skip + values.size]
