"""Local search: it leaves local minima, keeps good centres, and gives the same for all kinds of rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from daskcluster.chunk import Chunk
from daskcluster.methods.kmeans.algorithm import swap_centres
from daskcluster.sparse_rows import SparseRows


def clouds(k=12, d=8, n=2400, seed=0, spread=2.0):
    rng = np.random.default_rng(seed)
    middles = spread * rng.normal(size=(k, d))
    return middles, middles[np.arange(n) % k] + 0.7 * rng.normal(size=(n, d))


def cost(rows, weights, centres):
    return float((((rows[:, None] - centres[None]) ** 2).sum(axis=2).min(axis=1) * weights).sum())


def as_csr(rows):
    found = sparse.csr_array(rows)
    return SparseRows(
        found.data, found.indices.astype(np.int32), found.indptr.astype(np.int64), rows.shape[1]
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(2))
def test_a_redundant_centre_moves_to_where_one_is_missing(seed, dtype):
    middles, rows = clouds()
    bad = middles.copy()
    bad[3], bad[7] = bad[4] + 0.1, bad[4] - 0.1  # three in one cloud, two clouds without
    ones = np.ones(len(rows))
    start, rows = bad.astype(dtype), rows.astype(dtype)
    found = swap_centres(Chunk(rows, weights=ones), start, seed)
    assert found.dtype == dtype
    assert cost(rows, ones, start) > 1.5 * cost(rows, ones, middles)
    assert cost(rows, ones, found) < 1.1 * cost(rows, ones, middles)
    assert 2 <= (found != start).any(axis=1).sum() <= 3  # numbers stay with their clusters


def test_good_centres_stay_except_for_the_trial_swap():
    middles, rows = clouds()
    chunk = Chunk(rows, weights=np.ones(len(rows)))
    found = swap_centres(chunk, middles, 0)
    assert (found != middles).any(axis=1).sum() == 1
    assert swap_centres(chunk, middles, 0, trial=False) is middles


def test_candidates_for_many_centres_are_drawn_in_groups():
    middles, rows = clouds(k=80, n=4000, d=3, spread=30.0)
    bad = middles.copy()
    bad[10:20] = bad[20:30] + 0.1
    ones = np.ones(len(rows))
    found = swap_centres(Chunk(rows, weights=ones), bad, 0)
    assert cost(rows, ones, bad) > 30 * cost(rows, ones, middles)
    assert cost(rows, ones, found) < 2 * cost(rows, ones, middles)
    assert 10 <= (found != bad).any(axis=1).sum() < 20


@pytest.mark.parametrize("normalize", [False, True])
def test_sparse_rows_give_the_same_as_dense_ones(normalize):
    _, rows = clouds(seed=3)
    rows = np.where(rows > 0.5, rows, 0.0)
    weights = np.random.default_rng(0).integers(0, 3, len(rows)).astype(float)
    start = rows[:12].copy()
    if normalize:
        start /= np.linalg.norm(start, axis=1, keepdims=True)
    one, two = (
        swap_centres(Chunk(each, 0, weights, normalize), start, 5) for each in (rows, as_csr(rows))
    )
    assert not np.array_equal(one, start)
    np.testing.assert_allclose(one, two, rtol=1e-12)
    if normalize:
        np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1.0)


def test_rows_without_weight_attract_nothing():
    rows = np.concatenate([np.zeros((50, 2)), np.ones((50, 2)), np.full((50, 2), 1000.0)])
    weights = np.repeat([1.0, 1.0, 0.0], 50)
    found = swap_centres(Chunk(rows, weights=weights), np.array([[0.0, 0.0], [0.1, 0.1]]), 0)
    assert sorted(found[:, 0]) == [0.0, 1.0]


@pytest.mark.parametrize("k", [1, 3])
def test_equal_rows(k):
    centres = np.zeros((k, 2))
    found = swap_centres(Chunk(np.zeros((20, 2)), weights=np.ones(20)), centres, 0)
    assert np.array_equal(found, centres)
