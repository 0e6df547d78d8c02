"""Potentials, running minima and picks by mass."""

from __future__ import annotations

from math import fsum

import numpy as np
import pytest

from daskcluster.kernels.distance import sqdist_all
from daskcluster.kernels.sampling import cumulative_picks, lower, potentials
from daskcluster.kernels.sum_grid import SumGrid

SHIFT, LOW = 1.5 * 2.0**40, 1.5 * 2.0**-5
GRID = SumGrid(SHIFT, LOW)


def table(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    out = np.empty((len(rows), len(centres)))
    sqdist_all(rows, centres, out)
    return out


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("d", "weighted"), [(1, False), (4, True), (9, False), (30, True)])
def test_potentials(kind: type, d: int, weighted: bool) -> None:
    rng = np.random.default_rng(d)
    rows, candidates = rng.standard_normal((301, d)).astype(kind), rng.standard_normal((7, d))
    candidates = candidates.astype(kind)
    weights = rng.random(301) if weighted else None
    mind2 = np.full(301, np.inf)
    lower(rows, rows[5], mind2)
    assert np.array_equal(mind2, table(rows, rows[5:6])[:, 0])
    high, low = np.zeros((2, 7))
    potentials(rows, candidates, mind2, weights, GRID, high, low)
    masses = np.minimum(mind2[:, None], table(rows, candidates))
    masses = masses if weights is None else masses * weights[:, None]
    on_grid = (masses + SHIFT) - SHIFT
    assert np.array_equal(high, on_grid.sum(axis=0))
    assert np.array_equal(low, (((masses - on_grid) + LOW) - LOW).sum(axis=0))

    again, again_low = np.zeros((2, 7))
    for part in (slice(100, 301), slice(0, 100)):
        part_weights = None if weights is None else weights[part]
        potentials(rows[part], candidates, mind2[part], part_weights, GRID, again, again_low)
    assert np.array_equal(again, high)
    assert np.array_equal(again_low, low)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d"), [(0, 2), (1, 17), (15, 2), (16, 17), (33, 2), (401, 17)])
def test_rough_distances_decide_nothing_wrong(kind: type, n: int, d: int) -> None:
    rng = np.random.default_rng(d)
    rows = (rng.standard_normal((801, d)) + 1e4 + 8 * rng.integers(0, 3, (801, 1))).astype(kind)
    rows[300:320] = rows[:20]  # duplicates: distances of zero, and ties
    rows[320:340] = np.nextafter(rows[20:40], np.inf, dtype=kind)
    centres, candidates = rows[:30], rows[[3, 25, 320, 325, 700]]
    rows, mind2 = rows[-n:] if n else rows[:0], np.full(n, np.inf)
    for centre in centres:
        lower(rows, centre, mind2)
    assert np.array_equal(mind2, table(rows, centres).min(axis=1))
    high, low = np.zeros((2, 5))
    potentials(rows, candidates, mind2, None, GRID, high, low)
    masses = np.minimum(mind2[:, None], table(rows, candidates))
    on_grid = (masses + SHIFT) - SHIFT
    assert np.array_equal(high, on_grid.sum(axis=0))
    assert np.array_equal(low, (((masses - on_grid) + LOW) - LOW).sum(axis=0))


def test_rough_distances_may_overflow() -> None:
    rows = np.array([[0.0], [3e38], [2e38]], np.float32)
    mind2 = np.full(3, np.inf)
    lower(rows, rows[0], mind2)
    lower(rows, rows[1], mind2)
    expected = table(rows, rows[:2]).min(axis=1)
    assert np.isfinite(expected).all()
    assert np.array_equal(mind2, expected)


def test_picks_never_take_a_row_without_mass() -> None:
    masses = np.array([0.0, 1.0, 0.0, 2.0, 0.0])
    weights = np.array([1.0, 1.0, 1.0, 0.0, 1.0])
    targets = np.array([-1.0, 0.0, 0.999, 1.0, 2.999, 3.0, 1e9])
    assert cumulative_picks(masses, None, SHIFT, targets).tolist() == [1, 1, 1, 3, 3, 3, 3]
    assert cumulative_picks(masses, weights, SHIFT, targets).tolist() == [1] * 7


def test_picks_add_masses_as_the_sums_do() -> None:
    rng = np.random.default_rng(3)
    masses = rng.lognormal(0, 3, 100)
    on_grid = (masses + SHIFT) - SHIFT
    prefix = [fsum(on_grid[: end + 1]) for end in range(100)]
    targets = rng.random(50) * prefix[-1]
    expected = [next(i for i in range(100) if prefix[i] > target) for target in targets]
    assert cumulative_picks(masses, None, SHIFT, targets).tolist() == expected
