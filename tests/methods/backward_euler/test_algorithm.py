"""Stochastic backward Euler against the reference, and the invariants of the fixed-point iteration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import daskcluster as dc
from daskcluster.data.recipes import for_metric
from daskcluster.estimators.loop import Limits
from daskcluster.methods.backward_euler.algorithm import (
    BatchAssigner,
    DescentState,
    ImplicitSteps,
    backward_euler,
)
from daskcluster.methods.minibatch.batches import Batches
from daskcluster.models.fitted import FitResult
from tests.reference import backward_euler as truth

K = 4


def batches_of(rows, weights=None, size=60, seed=0, metric="euclidean"):
    return Batches(for_metric(dc.open_dataset(rows, weights=weights), metric), size, seed)


def drawn(rows, weights, size, n):
    """Return the rows of the first `n` batches."""
    with batches_of(rows, weights, size) as batches:
        found = [len(batches.next()) and [batches.row_of(i) for i in range(size)] for _ in range(n)]
    return [np.array(listed) for listed in found]


def descend(rows, weights, centres, steps, *, max_iter=6, size=60, metric="euclidean", **options):
    assign = BatchAssigner(centres.dtype)
    with batches_of(rows, weights, size, metric=metric) as batches:
        begin = DescentState.first(centres, steps)
        end = backward_euler(batches, assign, begin, steps, Limits(max_iter), **options)
        return FitResult.of(replace(end, centres=end.centres.astype(assign.dtype)))


def follow(rows, weights, centres, steps, n, *, max_iter=6, size=60, cosine=False):
    names = {"gamma": steps.step_size, "beta": steps.decay, "alpha": steps.averaging}
    batches = drawn(rows, weights, size, n)
    return truth.run(
        rows, weights, centres, batches, **names, imaxit=steps.inner_iter, omaxit=max_iter, cosine=cosine
    )  # fmt: skip


def test_cosine_and_sparse_rows_follow_the_reference():
    rows = np.abs(np.random.default_rng(1).normal(size=(300, 5)))
    rows[rows < 0.4] = 0.0
    rows[:, 0] += 0.1
    steps = ImplicitSteps(1.2 * K)
    for metric in ("euclidean", "cosine"):
        cosine = metric == "cosine"
        start = truth.unit(rows[:K]) if cosine else rows[:K].copy()
        centres, _, _ = follow(rows, None, start, steps, 60, cosine=cosine)
        for kind in (rows, sparse.csr_array(rows)):
            found = descend(kind, None, start, steps, metric=metric).centres
            np.testing.assert_allclose(found, centres, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gamma", [0.3, 0.9])
def test_one_cluster_with_all_rows_solves_the_implicit_step(gamma):
    rows = np.random.default_rng(0).normal(loc=3.0, size=(40, 3))
    start = np.full((1, 3), 7.0)
    steps = ImplicitSteps(gamma, decay=1.0, averaging=0.0, inner_iter=400)
    found = descend(rows, None, start, steps, max_iter=1, size=40)
    expected = (start + gamma * rows.mean(axis=0)) / (1 + gamma)
    np.testing.assert_allclose(found.centres, expected, rtol=1e-12)


def test_with_all_rows_a_step_of_fixed_clusters_is_the_proximal_point():
    random = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    rows = np.concatenate(
        [m + random.normal(size=(n, 2)) for m, n in zip(middles, (10, 20, 30), strict=True)]
    )
    gamma, start = 1.5, middles + 5.0
    steps = ImplicitSteps(gamma, averaging=0.0, inner_iter=300)
    found = descend(rows, None, start, steps, max_iter=1, size=60)
    share = np.array([10, 20, 30])[:, None] / 60
    means = np.array([rows[:10].mean(axis=0), rows[10:30].mean(axis=0), rows[30:].mean(axis=0)])
    expected = (start + gamma * share * means) / (1 + gamma * share)
    np.testing.assert_allclose(found.centres, expected, rtol=1e-10)


def test_a_step_that_runs_away_is_halved_and_the_next_begins_with_its_own():
    rows = np.random.default_rng(0).normal(size=(200, 3))
    steps = ImplicitSteps(40.0, decay=0.5, averaging=0.2, inner_iter=4)
    found = descend(rows, None, rows[:2].copy(), steps, max_iter=5, size=50)
    centres, _, halvings = follow(rows, None, rows[:2], steps, 200, max_iter=5, size=50)
    np.testing.assert_allclose(found.centres, centres, rtol=1e-9)
    records = found.history
    assert [record["n_halved"] for record in records] == halvings
    assert halvings[0] > 0
    assert halvings[-1] < halvings[0]
    for i, record in enumerate(records):
        assert record["step_size"] == 40.0 * 0.5**i / 2 ** record["n_halved"]
    assert np.isfinite(found.centres).all()


def test_rises_within_bounds_do_not_add_up():
    rows = np.random.default_rng(0).normal(size=(2000, 3))
    for gamma in (6.0, 10.0, 20.0):
        steps = ImplicitSteps(gamma, decay=1.0)
        found = descend(rows, None, rows[:4].copy(), steps, max_iter=80, size=200)
        costs = [record["inertia"] for record in found.history]
        assert max(costs) < 6 * costs[0]
    assert sum(record["n_halved"] for record in found.history) > 0


def test_a_step_size_out_of_all_bounds_leaves_centres_where_they_are():
    rows = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    found = descend(rows, None, rows[:2], ImplicitSteps(1e300), max_iter=2)
    assert np.array_equal(found.centres, rows[:2])
    assert [record["n_halved"] for record in found.history] == [30, 30]


def test_small_batches_are_not_taken_for_runaways():
    # A batch of one row may cost a thousand times the one before, which is no fault of the step.
    rows = np.random.default_rng(0).lognormal(sigma=2.0, size=(400, 1))
    found = descend(rows, None, rows[:3].copy(), ImplicitSteps(1e-4), max_iter=80, size=1)
    costs = [record["inertia"] for record in found.history]
    assert max(costs) > 1000 * np.median(costs)
    assert sum(record["n_halved"] for record in found.history) == 0


def test_clusters_without_rows_keep_their_centres_and_weightless_batches_move_nothing():
    rows = np.random.default_rng(0).normal(size=(100, 2))
    start = np.array([[0.0, 0.0], [1e6, 1e6]])
    found = descend(rows, None, start, ImplicitSteps(0.5), max_iter=3)
    assert np.array_equal(found.centres[1], start[1])
    assert not np.array_equal(found.centres[0], start[0])
    assert found.history[0]["n_empty"] == 1
    weights = np.zeros(100)
    weights[drawn(rows, None, 10, 3)[-1]] = 1.0
    still = descend(rows, weights, start, ImplicitSteps(0.5, inner_iter=1), max_iter=1, size=10)
    assert np.array_equal(still.centres, start)
