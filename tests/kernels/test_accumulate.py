"""Sums on a grid: any order, any split, and back again, to the same bits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskcluster.kernels.accumulate import (
    accumulate,
    accumulate_values,
    accumulate_weighted,
    sum_on_grid,
)
from daskcluster.kernels.sum_grid import SumGrid


def grid(most: np.ndarray | float, n: int) -> np.ndarray:
    """M = 1.5 * 2^52 * u with u = 2^(ceil(log2 most) + ceil(log2 n) - 52)."""
    exponent = np.frexp(np.asarray(most, np.float64))[1] + max(2, int(np.ceil(np.log2(max(n, 1)))))
    return np.ldexp(1.5, exponent)


def two_grids(most: np.ndarray | float, n: int) -> SumGrid:
    first = grid(most, n)
    return SumGrid(first, grid(np.ldexp(first / 1.5, -53), n))


def lognormal(n: int, d: int, kind: type, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0.0, 3.0, (n, d)).astype(kind)


class Sums:
    """Sums of one split of the rows, on one grid or on two."""

    def __init__(self, k: int, d: int, weighted: bool) -> None:
        self.sums, self.low = np.zeros((2, k, d))
        self.counts = np.zeros(k) if weighted else np.zeros(k, np.int64)
        self.counts_low = np.zeros(k)

    def parts(self) -> list[np.ndarray]:
        return [self.sums, self.low, self.counts, self.counts_low]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sums) and all(
            np.array_equal(a, b) for a, b in zip(self.parts(), other.parts(), strict=True)
        )


def add(rows, labels, weights, k, most, most_weight, n, *, two, into=None):
    into = into or Sums(k, rows.shape[1], weights is not None)
    if not two:
        accumulate(rows, labels, grid(most, n), into.sums, into.counts)
        return into
    accumulate_weighted(
        rows, labels, weights, two_grids(most * most_weight, n), into.sums, into.low,
        two_grids(most_weight, n), into.counts, into.counts_low,
    )  # fmt: skip
    return into


CASES = [(np.float32, False, False), (np.float32, True, True), (np.float64, False, True),
         (np.float64, True, True)]  # fmt: skip


@pytest.mark.parametrize(("kind", "weighted", "two"), CASES)
@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 200), d=st.integers(1, 27), k=st.integers(1, 6), seed=st.integers(0, 1 << 30)
)
def test_order_and_splits_do_not_matter(kind, weighted, two, n, d, k, seed) -> None:
    rng = np.random.default_rng(seed)
    rows = lognormal(n, d, kind, seed)
    labels = rng.integers(0, k, n).astype(np.int32)
    weights = rng.lognormal(0.0, 2.0, n) if weighted else None
    most, heaviest = np.abs(rows).max(axis=0), 1.0 if weights is None else weights.max()
    scale = (k, most, heaviest, n)
    whole = add(rows, labels, weights, *scale, two=two)

    order = rng.permutation(n)
    cut = int(rng.integers(0, n + 1))
    parts = None
    for piece in (order[:cut], order[cut:]):
        piece_weights = None if weights is None else weights[piece]
        parts = add(rows[piece], labels[piece], piece_weights, *scale, two=two, into=parts)
    assert parts == whole

    zero = Sums(k, d, weighted)
    for sum_, part in zip(whole.parts(), parts.parts(), strict=True):
        sum_ -= part  # subtraction undoes addition
    assert whole == zero


@pytest.mark.parametrize(("kind", "weighted", "two"), CASES)
def test_sums_are_accurate(kind, weighted, two) -> None:
    n, d, k = 500, 5, 3
    rng = np.random.default_rng(5)
    rows, labels = lognormal(n, d, kind), rng.integers(0, k, n).astype(np.int32)
    weights = rng.random(n) if weighted else None
    most, heaviest = np.abs(rows).max(axis=0), 1.0
    got = add(rows, labels, weights, k, most, heaviest, n, two=two)
    total = got.sums + got.low
    for j in range(k):
        for t in range(d):
            products = rows[labels == j, t].astype(np.float64)
            if weights is not None:
                products = products * weights[labels == j]
            exact = sum(map(Fraction, products.tolist()), Fraction(0))
            bound = 2.0**-60 if two else 2.0**-42  # of the largest value
            assert abs(float(exact - Fraction(total[j, t]))) <= bound * n * most[t] + 1e-15 * float(
                exact
            )
    sizes = np.bincount(labels, weights=weights, minlength=k)
    assert np.allclose(got.counts + got.counts_low, sizes, rtol=1e-15)


def test_values_by_label_and_in_all() -> None:
    rng = np.random.default_rng(1)
    values, labels = rng.lognormal(0, 3, 999), rng.integers(0, 4, 999).astype(np.int32)
    shifts = two_grids(values.max(), 999)
    assert SumGrid.of(values.max(), 999) == shifts
    high, low = np.zeros((2, 4))
    accumulate_values(values, labels, shifts, high, low)
    order = rng.permutation(999)
    total = sum_on_grid(values, shifts)
    assert sum_on_grid(values[order], shifts) == total
    assert (high.sum(), low.sum()) == total
    exact = float(sum(map(Fraction, values.tolist()), Fraction(0)))
    assert total[0] + total[1] == exact
    assert sum_on_grid(np.empty(0), SumGrid(1.5, 1.5)) == (0.0, 0.0)


def test_a_zero_grid_adds_zeros() -> None:
    rows, labels = np.zeros((4, 3), np.float32), np.zeros(4, np.int32)
    sums, counts = np.zeros((1, 3)), np.zeros(1, np.int64)
    accumulate(rows, labels, np.zeros(3), sums, counts)
    assert counts[0] == 4
    assert not sums.any()
