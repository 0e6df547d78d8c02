"""Knees of curves whose bend is known, and of curves that have none."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.jobs.selection import LEAST_HEIGHT, find_knee


@pytest.mark.parametrize("bend", [4, 10, 25])
def test_a_bend_is_found_where_it_is(bend: int) -> None:
    ks = np.arange(1, 41)
    # A steep power up to the bend, a flat one beyond.
    costs = np.where(ks <= bend, 100.0 * ks**-1.5, 100.0 * bend**-1.5 * (ks / bend) ** -0.3)
    index, height = find_knee(ks, costs)
    assert ks[index] == bend
    assert height >= LEAST_HEIGHT


@pytest.mark.parametrize("power", [0.1, 0.5, 2.0])
def test_rows_without_clusters_have_no_knee(power: float) -> None:
    ks = np.arange(2, 60)
    assert find_knee(ks, 1e6 * ks**-power)[1] == pytest.approx(0.0, abs=1e-9)


def test_curves_without_a_knee() -> None:
    for costs in ([0.0, 0.0, 0.0], [1.0, 0.5], [3.0, 3.0, 3.0]):
        assert find_knee(np.arange(1, len(costs) + 1), np.array(costs)) == (0, 0.0)
    index, height = find_knee(np.arange(1, 6), np.array([9.0, 5.0, 0.0, 0.0, 0.0]))
    assert (index, height >= LEAST_HEIGHT) == (2, True)
