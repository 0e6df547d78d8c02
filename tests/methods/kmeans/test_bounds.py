"""Groups of centres, drift, gaps between centres, and the choice that `auto` makes."""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.methods.kmeans.algorithm import updated
from daskcluster.methods.kmeans.assignment import BoundedAssignment, FullAssignment
from daskcluster.methods.kmeans.bounds import BOUNDS, AutoAssignment, automatic
from daskcluster.methods.kmeans.chunkwise.grouped import ELKAN, balanced_groups
from daskcluster.methods.kmeans.chunkwise.kind import Drift, Gaps, half_gaps
from tests.tiles import BOUNDS_SPARE


@pytest.mark.parametrize(("k", "size"), [(1, 4), (4, 4), (5, 4), (23, 4), (100, 14)])
def test_groups_are_full_but_the_last(k, size):
    centres = np.random.default_rng(0).standard_normal((k, 6))
    groups = balanced_groups(centres, size)
    assert [len(group) for group in groups[:-1]] == [size] * (len(groups) - 1)
    assert sorted(np.concatenate(groups)) == list(range(k))
    assert all(np.all(np.diff(group) > 0) for group in groups)


def test_groups_lie_together():
    where = np.repeat(np.arange(5.0), 4)[:, None] * 100
    centres = np.random.default_rng(1).permutation(where + np.random.default_rng(2).random((20, 3)))
    for group in balanced_groups(centres, 4):
        assert np.ptp(centres[group, 0]) < 50


def test_groups_of_equal_centres():
    assert [len(group) for group in balanced_groups(np.ones((10, 3)), 4)] == [4, 4, 2]


def test_drift_adds_up():
    start = np.zeros((3, 2), np.float32)
    drift = Drift(start, [np.array([0, 1]), np.array([2])])
    for step in ([[3, 4], [0, 0], [0, 1]], [[3, 4], [0, 2], [0, 1]]):
        drift.move(np.array(step, np.float32))
    own, _ = drift.table(Gaps())
    assert np.allclose(own, [5, 2, 1])
    assert np.allclose(drift.of_groups, [5 + 2, 1])
    assert np.all(own >= [5, 2, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_gaps_are_never_too_large(dtype, shift):
    rng = np.random.default_rng(3)
    centres = (shift + rng.standard_normal((60, 5))).astype(dtype)
    centres[7] = centres[3]
    centres[9] = np.nextafter(centres[11], dtype(np.inf))
    wide = centres.astype(float)
    true = np.sqrt(((wide[:, None] - wide[None]) ** 2).sum(axis=2))
    np.fill_diagonal(true, np.inf)
    found = half_gaps(centres)
    assert np.all(found <= true.min(axis=1) / 2)
    assert found[7] == found[3] == 0.0
    assert np.median(true.min(axis=1) / 2 - found) < 1e-2
    halves = Gaps().between(centres)
    assert np.all(halves[np.isfinite(halves)] <= true[np.isfinite(halves)] / 2)
    gaps = Gaps()
    assert np.array_equal(gaps.between(centres), halves)
    assert np.all(gaps.of(centres) <= true.min(axis=1) / 2)
    assert np.median(true.min(axis=1) / 2 - gaps.of(centres)) < 1e-2

    near = (centres + 1e-3 * rng.standard_normal(centres.shape)).astype(dtype)
    wide = near.astype(float)
    true = np.sqrt(((wide[:, None] - wide[None]) ** 2).sum(axis=2)) / 2
    np.fill_diagonal(true, np.inf)
    assert np.all(gaps.between(near) <= true)
    assert np.all(gaps.of(near) <= true.min(axis=1))
    assert np.median(true.min(axis=1) - gaps.of(near)) < 1e-2
    assert gaps.between(near) is gaps.between(near)


def test_gaps_are_measured_anew_once_rows_have_computed_more_distances():
    centres = np.random.default_rng(8).standard_normal((20, 6)).astype(np.float32)
    far, gaps = centres + np.float32(0.1) * centres[::-1], Gaps()
    gaps.of(centres)
    aged = gaps.of(far)
    assert np.all(aged < half_gaps(far))
    gaps.note(100_000)
    assert np.array_equal(gaps.of(far.copy()), half_gaps(far))


def test_gaps_of_a_single_centre_prove_nothing():
    alone = np.ones((1, 2), np.float32)
    assert half_gaps(alone).tolist() == [0.0]
    gaps = Gaps()
    gaps.between(alone)
    assert gaps.of(alone).tolist() == [0.0]


def fit_auto(X, k, max_iter=60):
    return dc.KMeans(k, init=X[:k], algorithm="auto", tol=0, max_iter=max_iter).fit(X).history_


def test_auto_looks_at_all_rows_of_noise_in_few_dimensions():
    X = np.random.default_rng(4).random((240_000, 8), dtype=np.float32)
    touched = [record["n_touched"] for record in fit_auto(X, 40)]
    assert touched[:15] == [240_000] * 15


def test_auto_keeps_bounds_of_separated_clusters():
    rng = np.random.default_rng(5)
    n, d, k = 200_000, 16, 100
    centres = 20 * rng.standard_normal((k, d))
    X = (centres[rng.integers(0, k, n)] + rng.standard_normal((n, d))).astype("f4")
    touched = [record["n_touched"] for record in fit_auto(X, k)]
    assert touched[0] == n
    assert min(touched) < n / 10 if BOUNDS_SPARE else set(touched) == {n}
    if BOUNDS_SPARE:  # which could not repay themselves in one more pass
        spared = next(number for number, count in enumerate(touched) if count < n)
        assert {record["n_touched"] for record in fit_auto(X, k, spared + 1)} == {n}


def test_auto_takes_bounds_of_single_centres_next_to_long_rows():
    rng = np.random.default_rng(7)
    n, d, k = 100_000, 200, 12
    sources = 0.3 * rng.standard_normal((k, d))
    X = (sources[rng.integers(0, k, n)] + rng.standard_normal((n, d))).astype(np.float32)
    kept, expected, kinds = np.empty(n, np.int32), np.empty(n, np.int32), set()
    with dc.LocalEngine(2).place(dc.open_dataset(X)) as placement:
        rows = ScaledPlacement(placement)
        rows.known()
        auto = AutoAssignment(rows, automatic(d, k, rows.dtype), kept)
        plain, centres = FullAssignment(rows, expected), X[:k]
        for _ in range(20):
            found, wanted = auto(centres).statistics, plain(centres).statistics
            assert np.array_equal(kept, expected)
            assert np.array_equal(found.sums, wanted.sums)
            kinds.add(auto.kind)
            centres = updated(wanted, centres, rows)
        auto.close()
    if BOUNDS_SPARE:  # else nothing is gained by them
        assert kinds == {None, ELKAN}


@pytest.mark.parametrize("kind", list(BOUNDS.values()), ids=str)
def test_bounds_that_were_left_alone_for_a_while(kind):
    """Plain passes in between change labels behind the bounds' back: back and forth, some of them."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((3000, 5)).astype(np.float32)
    kept, expected = np.empty(3000, np.int32), np.empty(3000, np.int32)
    with dc.LocalEngine(2).place(dc.open_dataset(X)) as placement:
        rows = ScaledPlacement(placement)
        rows.known()
        bounded, full = BoundedAssignment(rows, kind, kept), FullAssignment(rows, kept)
        plain = FullAssignment(rows, expected)
        a, b = X[:30], X[30:60]
        for centres, assign in [(a, bounded), (b, full), (a, bounded), (b, full), (b, bounded)]:
            if assign is bounded:
                bounded.resume()
            found, wanted = assign(centres).statistics, plain(centres).statistics
            assert np.array_equal(kept, expected)
            assert np.array_equal(found.sums, wanted.sums)
            assert np.array_equal(found.counts, wanted.counts)
        bounded.close()
