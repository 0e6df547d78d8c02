"""Direct differences: accurate, and the same in every function that gives a distance."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from daskcluster.kernels.distance import sqdist_all, sqdist_to_assigned, sqdist_to_one
from tests.kernels.chain import fma64


def data(n: int, d: int, k: int, kind: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(d)
    rows = (rng.standard_normal((n, d)) + 1e4).astype(kind)
    centres = (rng.standard_normal((k, d)) + 1e4).astype(kind)
    return rows, centres, rng.integers(0, k, n).astype(np.int32)


def canonical(row: np.ndarray, centre: np.ndarray) -> float:
    """The order that the docstring of `squared_distance` states."""
    gaps = row.astype(np.float64) - centre.astype(np.float64)
    lanes = np.zeros((2, 8))
    whole = len(gaps) // 8 * 8
    for number, at in enumerate(range(0, whole, 8)):
        group = gaps[at : at + 8]
        lanes[number % 2] = fma64(group, group, lanes[number % 2])
    total = lanes[0] + lanes[1]
    while len(total) > 1:
        total = total[: len(total) // 2] + total[len(total) // 2 :]
    rest = np.zeros(1)
    for gap in gaps[whole:]:
        rest = fma64(np.array([gap]), np.array([gap]), rest)
    return float(total[0] + rest[0])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_canonical_order(kind: type) -> None:
    for d in (1, 7, 8, 9, 16, 24, 40, 43):
        rows, centres, labels = data(6, d, 4, kind)
        out = np.empty(6)
        sqdist_to_assigned(rows, centres, labels, out)
        expected = [canonical(x, centres[j]) for x, j in zip(rows, labels, strict=True)]
        assert out.tolist() == expected, d


def test_one_distance_in_all_functions() -> None:
    rows, centres, labels = data(50, 21, 9, np.float32)
    table, assigned, one = np.empty((50, 9)), np.empty(50), np.empty(50)
    sqdist_all(rows, centres, table)
    sqdist_to_assigned(rows, centres, labels, assigned)
    sqdist_to_one(rows, centres[4], one)
    assert np.array_equal(table[np.arange(50), labels], assigned)
    assert np.array_equal(table[:, 4], one)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_accuracy_close_to_a_far_centre(kind: type) -> None:
    rows, _, labels = data(20, 33, 1, kind)
    centres = np.nextafter(rows[:1], np.inf, dtype=kind)
    out = np.empty(20)
    sqdist_to_assigned(rows, centres, np.zeros_like(labels), out)
    for row, value in zip(rows, out, strict=True):
        exact = sum(
            (Fraction(float(a)) - Fraction(float(b))) ** 2
            for a, b in zip(row, centres[0], strict=True)
        )
        assert abs(value - float(exact)) <= 1e-14 * float(exact)
