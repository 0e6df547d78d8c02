"""What is found is what is below its limit; sums are those of the grids."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.kernels.accumulate import sum_on_grid
from daskcluster.kernels.screen import screen


@pytest.mark.parametrize("n", [0, 1, 7, 5000])
@pytest.mark.parametrize("weighted", [False, True])
def test_screen(n, weighted):
    rng = np.random.default_rng(n)
    sqdist, ranks = rng.lognormal(size=n), rng.integers(0, 1 << 16, n).astype(np.uint16)
    weights = rng.lognormal(size=n) if weighted else None
    masses = sqdist if weights is None else weights * sqdist
    limits = (5.0 + 900.0 * sqdist) * (1.0 if weights is None else weights)
    shifts = 1.5 * 2.0**70, 1.5 * 2.0**20
    found, high, low = screen(sqdist, weights, ranks, 5.0, 900.0, shifts)
    assert np.array_equal(found, np.flatnonzero(ranks < limits))
    assert (high, low) == sum_on_grid(masses, *shifts)


def test_rank_zero_needs_some_rate():
    ranks, shifts = np.zeros(3, np.uint16), (1.5 * 2.0**60, 1.5)
    weights = np.array([0.0, 1e-300, 1.0])
    found, _, _ = screen(np.ones(3), weights, ranks, 1.0, 0.0, shifts)
    assert found.tolist() == [1, 2]
