"""Extremes, bad rows, and everything in one visit."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.kernels.accumulate import sum_on_grid
from daskcluster.kernels.data_statistics import data_statistics, look
from daskcluster.kernels.distance import sqdist_to_one
from daskcluster.kernels.sum_grid import SumGrid

KINDS = (np.float32, np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_extremes(kind: type) -> None:
    for n, d in ((0, 3), (1, 1), (700, 3), (13, 700), (1000, 16)):
        rows = np.random.default_rng(0).lognormal(0, 4, (n, d)).astype(kind) * kind(-1.0)
        most = np.full(d, 2.0**-30)
        assert data_statistics(rows, most) == (-1, False)
        assert np.array_equal(most, np.abs(rows).max(axis=0, initial=2.0**-30)), (n, d)


@pytest.mark.parametrize("kind", KINDS)
def test_first_bad_row(kind: type) -> None:
    for bad, is_nan in ((np.nan, True), (np.inf, False), (-np.inf, False)):
        rows, most = np.ones((999, 5), kind), np.zeros(5)
        rows[998, 0], rows[400, 4] = np.nan, bad
        assert data_statistics(rows, most) == (400, is_nan), bad
        assert not most.any(), bad


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d"), [(0, 3), (1, 1), (8, 16), (50, 7), (33, 40), (21, 66)])
def test_one_pass_has_all_statistics(kind: type, weighted: bool, n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    rows, weights = rng.lognormal(0, 2, (n, d)).astype(kind), rng.lognormal(size=n)
    rows *= rng.choice([-1, 1], (n, d)).astype(kind)
    origin, shift = rng.normal(size=d).astype(kind), np.full(d, 1.5 * 2.0**40)
    grids = tuple(SumGrid(1.5 * 2.0**e, 1.5 * 2.0 ** (e - 40)) for e in (60, 65, 50))
    sums, most, expected = np.zeros(d), np.full(d, 2.0**-30), np.full(d, 2.0**-30)
    given = weights if weighted else None
    bad, is_nan, masses = look(rows, origin, given, shift, grids, sums, most)
    assert (bad, is_nan) == data_statistics(rows, expected) == (-1, False)
    assert np.array_equal(most, expected)
    assert (sums == ((rows + shift) - shift).sum(axis=0)).all()
    spread = np.empty(n)
    sqdist_to_one(rows, origin, spread)
    assert tuple(masses[0]) == sum_on_grid(spread, grids[0])
    if weighted:
        assert tuple(masses[1]) == sum_on_grid(spread * weights, grids[1])
        assert tuple(masses[2]) == sum_on_grid(weights, grids[2])
    else:
        assert not masses[1:].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("bad", "is_nan"), [(np.nan, True), (-np.inf, False)])
@pytest.mark.parametrize("column", [0, 9])
def test_one_pass_finds_bad_rows(kind: type, bad: float, is_nan: bool, column: int) -> None:
    rows = np.ones((43, 10), kind)
    rows[41, 0], rows[17, column] = np.inf, bad
    most, shift = np.zeros(10), np.full(10, 1.5 * 2.0**40)
    grids = (SumGrid(1.5 * 2.0**40, 1.5 * 2.0**40),) * 3
    assert look(rows, rows[0], None, shift, grids, np.zeros(10), most)[:2] == (17, is_nan)
    assert not most.any()
