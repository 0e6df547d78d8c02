"""Webster's method within limits: its inequalities, its limits, and what sums to what."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daskcluster.methods.hierarchical.cells import apportion

CELLS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)), min_size=1, max_size=12)


@given(cells=CELLS, more=st.integers(0, 150))
def test_no_seat_could_go_to_a_better_cell(cells: list[tuple[int, int]], more: int) -> None:
    weights = np.array([float(w) for w, _ in cells])
    most = np.array([m for _, m in cells])
    takers = (weights > 0) & (most > 0)
    seats = int(takers.sum()) + more
    found = apportion(weights, seats, most)
    assert (found[~takers] == 0).all()
    assert (found[takers] >= 1).all()
    assert (found <= most).all()
    assert found.sum() == min(seats, most[takers].sum())
    lost = [w / (2 * s - 1) for w, s in zip(weights, found, strict=True) if s > 1]
    wanted = [w / (2 * s + 1) for w, s, m in zip(weights, found, most, strict=True) if 0 < s < m]
    if lost and wanted:
        assert min(lost) >= max(wanted) * (1 - 1e-12)


def test_more_seats_leave_every_cell_its_seats() -> None:
    weights = np.random.default_rng(0).lognormal(sigma=2.0, size=40)
    before = apportion(weights, 40, np.full(40, 99))
    for seats in range(41, 300):
        after = apportion(weights, seats, np.full(40, 99))
        assert (after >= before).all()
        before = after


def test_ties_go_to_the_lowest_cell() -> None:
    assert apportion(np.ones(4), 6, np.full(4, 9)).tolist() == [2, 2, 1, 1]
