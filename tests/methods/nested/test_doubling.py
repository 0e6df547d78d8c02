"""The doubling rule: every guard, both definitions, and the bound that spares a look at the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskcluster.methods.nested.algorithm import (
    DoublingRule,
    doubling_ratio,
    effective_sizes,
    effective_votes,
    standard_error,
)


@pytest.mark.parametrize("definition", ["paper", "code"])
@pytest.mark.parametrize("votes", [0.0, 1.0, 1.999])
def test_less_than_two_votes_have_no_spread(definition, votes):
    assert standard_error(np.array([5.0]), np.array([votes]), definition)[0] == 0.0


def test_a_centre_that_does_not_move_does_not_prevent_a_doubling():
    assert doubling_ratio(np.array([0.0, 3.0]), np.array([0.0, 1.0])) == 3.0
    assert doubling_ratio(np.array([0.0, 0.0]), np.array([0.0, 0.0])) == np.inf


def test_a_centre_that_moves_without_spread_vetoes_any_rho():
    rule = DoublingRule(rho=0.0)
    ratio = rule.ratio(np.array([0.0, 8.0]), np.array([9.0, 9.0]), np.array([1e-300, 1e-9]))
    assert ratio == 0.0
    assert not rule.allows(ratio)


def test_an_empty_cluster_that_stands_still_does_not_hold_the_others_up():
    rule = DoublingRule(rho=1.0)
    assert rule.allows(
        rule.ratio(np.array([0.0, 90.0]), np.array([0.0, 10.0]), np.array([0.0, 0.5]))
    )


def test_sums_of_squares_that_rounding_made_negative_count_as_none():
    assert standard_error(np.array([-1e-18]), np.array([4.0]))[0] == 0.0


def test_votes_count_rows_whatever_the_unit_of_weights():
    weights = np.array([3.0, 1.0, 0.0])
    for unit in (1.0, 0.125, 1e6):
        votes, factor = effective_votes(weights * unit, 8)
        np.testing.assert_allclose(votes, [6.0, 2.0, 0.0])
        assert factor * unit == pytest.approx(2.0)


def test_no_weight_at_all_is_no_votes():
    votes, factor = effective_votes(np.zeros(3), 8)
    assert votes.tolist() == [0.0, 0.0, 0.0]
    assert factor == 0.0


def test_one_row_of_much_weight_has_no_spread():
    sizes = effective_sizes(np.array([9.0]), np.array([81.0]))
    assert standard_error(np.array([5.0]), np.array([9.0]), "paper", sizes)[0] == 0.0


@given(st.integers(0, 2**31), st.sampled_from(["paper", "code"]))
def test_the_bound_holds_for_uneven_weights(seed, definition):
    rng = np.random.default_rng(seed)
    labels, weights = rng.integers(0, 6, 40), rng.lognormal(sigma=2.0, size=40)
    total, squares = (np.bincount(labels, w, minlength=6) for w in (weights, weights**2))
    sse, moved = rng.lognormal(sigma=3, size=6), rng.lognormal(sigma=3, size=6)
    rule = DoublingRule(rho=1.0, definition=definition)
    most = rule.at_most(sse.sum(), 0.0, total, moved, total / weights.max())
    assert most >= rule.ratio(sse, total, moved, effective_sizes(total, squares))


@given(st.integers(0, 2**31), st.sampled_from(["paper", "code"]))
def test_the_bound_is_never_below_the_ratio(seed, definition):
    rng = np.random.default_rng(seed)
    sse, votes = rng.lognormal(sigma=3, size=6), rng.integers(0, 50, 6).astype(float)
    moved = rng.lognormal(sigma=3, size=6) * rng.integers(0, 2, 6)
    rule = DoublingRule(rho=1.0, definition=definition)
    assert rule.at_most(sse.sum(), 2 * sse.sum(), votes, moved) >= rule.ratio(sse, votes, moved)
