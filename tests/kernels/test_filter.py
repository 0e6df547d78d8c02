"""What is found is what is below its limit; sums are those of the grids."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.kernels.accumulate import sum_on_grid
from daskcluster.kernels.distance import sqdist_to_one
from daskcluster.kernels.sampling import filter_candidate_rows
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.sparse_rows import SparseRows


def limits_of(sqdist, weights, offset, slope):
    return (offset + slope * sqdist) * (1.0 if weights is None else weights)


@pytest.mark.parametrize("n", [1, 7, 5000])
@pytest.mark.parametrize("weighted", [False, True])
def test_candidates_of_sparse_rows_are_those_whose_rank_is_below_their_limit(n, weighted):
    rng = np.random.default_rng(n)
    rows = rng.lognormal(size=(n, 3)) * (rng.random((n, 3)) < 0.5)
    ranks = rng.integers(0, 1 << 16, n).astype(np.uint16)
    weights, point = rng.lognormal(size=n) if weighted else None, PreparedCentres(np.ones((1, 3)))
    sqdist, grid = np.empty((n, 1)), SumGrid(1.5 * 2.0**70, 1.5 * 2.0**20)
    point.sqdist_all(SparseRows.of(rows), sqdist)
    found, distances, *sums = point.filter_candidates(
        SparseRows.of(rows), weights, ranks, (5.0, 900.0), grid
    )
    sqdist = sqdist[:, 0]
    assert np.array_equal(found, np.flatnonzero(ranks < limits_of(sqdist, weights, 5.0, 900.0)))
    assert np.array_equal(distances, sqdist[found])
    masses = sqdist if weights is None else weights * sqdist
    assert tuple(sums) == sum_on_grid(masses, grid)


def test_rows_without_a_rate_are_no_candidates():
    ranks, grid = np.zeros(3, np.uint16), SumGrid(1.5 * 2.0**60, 1.5)
    weights = np.array([0.0, 1e-300, 1.0])
    found = filter_candidate_rows(np.ones((3, 1)), np.zeros(1), weights, ranks, 1.0, 0.0, grid)[0]
    assert found.tolist() == [1, 2]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d"), [(0, 2), (7, 3), (8, 16), (700, 29)])
def test_rows_are_measured_on_the_way(kind, weighted, n, d):
    rng = np.random.default_rng(n)
    rows, ranks = rng.lognormal(size=(n, d)).astype(kind), rng.integers(0, 1 << 16, n)
    ranks, point = ranks.astype(np.uint16), rng.normal(size=d).astype(kind)
    weights, sqdist = rng.lognormal(size=n) if weighted else None, np.empty(n)
    sqdist_to_one(rows, point, sqdist)
    grid = SumGrid(1.5 * 2.0**70, 1.5 * 2.0**20)
    for offset in (5.0, 9000.0):
        found = np.flatnonzero(ranks < limits_of(sqdist, weights, offset, 20.0))
        high, low = sum_on_grid(sqdist if weights is None else weights * sqdist, grid)
        other = filter_candidate_rows(rows, point, weights, ranks, offset, 20.0, grid)
        assert np.array_equal(other[0], found)
        assert np.array_equal(other[1], sqdist[found])
        assert other[2:] == (high, low)
