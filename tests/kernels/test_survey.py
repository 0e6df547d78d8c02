"""Extremes and bad rows."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.kernels.distance import sqdist_to_one
from daskcluster.kernels.survey import spread_and_sum, survey

KINDS = (np.float32, np.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d"), [(0, 3), (1, 1), (700, 3), (13, 700), (1000, 16)])
def test_extremes(kind: type, n: int, d: int) -> None:
    rows = np.random.default_rng(0).lognormal(0, 4, (n, d)).astype(kind) * kind(-1.0)
    most = np.full(d, 2.0**-30)
    assert survey(rows, most) == (-1, False)
    assert np.array_equal(most, np.abs(rows).max(axis=0, initial=2.0**-30).astype(np.float64))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("bad", "is_nan"), [(np.nan, True), (np.inf, False), (-np.inf, False)])
def test_first_bad_row(kind: type, bad: float, is_nan: bool) -> None:
    rows = np.ones((999, 5), kind)
    rows[998, 0], rows[400, 4] = np.nan, bad
    most = np.zeros(5)
    assert survey(rows, most) == (400, is_nan)
    assert not most.any()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (50, 7), (33, 40)])
def test_spread_and_sum_in_one_visit(kind: type, n: int, d: int) -> None:
    rows = np.random.default_rng(0).lognormal(size=(n, d)).astype(kind)
    shift = np.full(d, 1.5 * 2.0**40)
    sums, spread = np.zeros(d), np.empty(n)
    spread_and_sum(rows, rows[0], shift, sums, spread)
    expected = np.empty(n)
    sqdist_to_one(rows, rows[0], expected)
    assert (spread == expected).all()
    assert (sums == ((rows + shift) - shift).sum(axis=0)).all()
