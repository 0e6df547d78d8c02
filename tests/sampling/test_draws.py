"""Draws follow q, are independent of each other, and moments are those of the reference."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from scipy import sparse, stats

from daskcluster import open_dataset, sampling
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.randomness import Key
from daskcluster.sampling import draw_about, measure
from tests.laws.data import CASES, case
from tests.reference import coreset as reference


@contextmanager
def measured(X, weights):
    """Yield rows on one thread, and their moments."""
    with LocalEngine(n_threads=1).place(open_dataset(X, weights=weights)) as placement:
        rows = ScaledPlacement(placement)
        yield rows, measure(rows)


def drawn(X, weights, size, seed):
    with measured(X, weights) as (rows, moments):
        about = moments.mean.astype(rows.dtype)
        found = draw_about(rows, about, moments, size, Key(seed, "test"))
        return found, moments, rows.placement.traffic.passes


@pytest.mark.parametrize("name", CASES)
def test_moments(name):
    X, w = case(name)
    _, found, passes = drawn(X, w, 10, 0)
    weight, mean, spread = reference.moments(X, w)
    assert passes == 2
    assert found.weight == pytest.approx(weight, rel=1e-12)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
    assert found.spread == pytest.approx(spread, rel=1e-9)
    point = X[3].astype(np.float64)
    masses = ((X.astype(np.float64) - point) ** 2).sum(axis=1)
    true = (masses if w is None else w * masses).sum()
    assert found.spread_about(point) == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, 40, 3000])
def test_draws_follow_the_distribution(weighted, size):
    """Few rows drawn often, many times over: chi-square against q, for few and for many draws a row."""
    rng = np.random.default_rng(7)
    X = rng.lognormal(sigma=1.0, size=(12, 2))
    w = np.array([0.0, 1, 2, 0.5, 5, 1, 1, 0.1, 3, 1, 0, 4]) if weighted else None
    counts = np.zeros(12)
    with measured(X, w) as (rows, moments):
        for seed in range(max(2, 6000 // size)):
            found = draw_about(rows, moments.mean, moments, size, Key(seed, "test"))
            assert found.picked.shape == (size,)
            counts += np.bincount(found.indices[found.picked], minlength=12)
    q = reference.probabilities(X, moments.mean, w)
    assert (counts[q == 0] == 0).all()
    used = q > 0
    assert stats.chisquare(counts[used], counts.sum() * q[used]).pvalue > 1e-3
    np.testing.assert_allclose(found.rates * found.weights, q[found.indices], rtol=1e-9)


def test_successive_draws_are_independent():
    """Also those of one row: pairs of neighbours follow q times q."""
    X = np.array([[0.0], [1.0], [2.0], [6.0]])
    found, moments, _ = drawn(X, None, 20_000, 3)
    q = reference.probabilities(X, moments.mean)
    rows = found.indices[found.picked].reshape(-1, 2)
    counts = np.bincount(rows[:, 0] * 4 + rows[:, 1], minlength=16)
    assert stats.chisquare(counts, len(rows) * np.outer(q, q).ravel()).pvalue > 1e-3


def test_the_beginning_is_a_sample_too():
    """Draws come in random order, not in that of the rows."""
    X = np.random.default_rng(0).normal(size=(1000, 1))
    found, _, _ = drawn(X, None, 900, 1)
    rows = found.indices[found.picked]
    assert stats.kstest(rows[:300] / 1000, "uniform").pvalue > 1e-3


def test_rows_are_those_of_the_source():
    X = np.random.default_rng(0).integers(0, 255, size=(2000, 3)).astype(np.uint8)
    found, _, _ = drawn(X, None, 100, 1)
    assert found.rows.dtype == np.uint8
    assert np.array_equal(found.rows, X[found.indices])


def test_sparse_rows_are_drawn_as_dense_ones():
    X = sparse.random_array((1500, 60), density=0.1, rng=np.random.default_rng(0), format="csr")
    one, _, _ = drawn(X, None, 200, 1)
    other, _, _ = drawn(X.toarray(), None, 200, 1)
    assert np.array_equal(one.picked, other.picked)
    assert np.array_equal(one.indices, other.indices)
    np.testing.assert_allclose(one.rows.toarray(), other.rows)


def test_identical_rows_are_drawn_by_weight():
    found, moments, _ = drawn(np.full((5, 2), 3.25), np.array([1.0, 2, 3, 4, 0]), 5000, 0)
    assert moments.spread == 0.0
    counts = np.bincount(found.indices[found.picked], minlength=5)
    assert counts[4] == 0
    assert stats.chisquare(counts[:4], [500, 1000, 1500, 2000]).pvalue > 1e-3


def test_one_row_of_nearly_all_the_weight():
    X, w = np.arange(100.0)[:, None], np.ones(100)
    w[17] = 1e9
    found, _, _ = drawn(X, w, 2000, 0)
    assert np.count_nonzero(found.indices[found.picked] == 17) > 900


def test_a_spread_that_rounding_spoilt_is_found_out(monkeypatch):
    """The pass learns the true spread and is repeated with it."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    expected, moments, _ = drawn(X, None, 50, 4)
    with LocalEngine(n_threads=1).place(open_dataset(X)) as placement:
        rows = ScaledPlacement(placement)
        wrong = type(moments)(moments.weight, moments.mean, moments.spread * 1e-6)
        measure(rows)
        found = draw_about(rows, moments.mean, wrong, 50, Key(4, "test"))
        assert placement.traffic.passes == 3
    np.testing.assert_allclose(found.rates, expected.rates, rtol=1e-9)


def test_too_few_arrivals_are_drawn_anew(monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 2))
    seen = []
    first_arrivals = sampling._first_arrivals

    def fewer(found, params, size):
        seen.append(params.key)
        return None if len(seen) == 1 else first_arrivals(found, params, size)

    monkeypatch.setattr(sampling, "_first_arrivals", fewer)
    found, _, passes = drawn(X, None, 50, 4)
    assert (len(found.picked), passes, len(set(seen))) == (50, 3, 2)
