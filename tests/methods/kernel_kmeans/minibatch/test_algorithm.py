"""Mini-batch kernel k-means against explicit coefficients, plain mini-batches, and its own cost."""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.methods.minibatch.batches import Batches
from tests.reference import kernel_kmeans as reference

GAMMA = 0.2
FIRST = np.array([3, 50, 101, 170])


def blobs(n=300, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(6, d))[rng.integers(0, 6, n)] * 2 + rng.normal(size=(n, d))


def drawn(X, b, steps, seed=7, *, replacement=False):
    with Batches(dc.open_dataset(X), b, seed, replacement=replacement) as batches:
        return [batches.next().listed.copy() for _ in range(steps)]


def fitted(X, steps, *, b=64, weights=None, **parameters):
    options = {"gamma": GAMMA, "init": X[FIRST], "random_state": 7, **parameters}
    model = dc.MiniBatchKernelKMeans(4, batch_size=b, max_iter=steps, **options)
    return model.fit(X, sample_weight=weights)


def coefficients(model, n):
    """Coefficients as (k, n); given centres count at the rows that they were copied from."""
    rows, given = model.support_.copy(), model.support_ < 0
    rows[given] = FIRST[-1 - rows[given]]
    found = np.zeros((4, n))
    np.add.at(found, (model.support_clusters_, rows), model.support_coefficients_)
    return found


CASES = {
    "recursion": {"truncation": None},
    "recursion, count": {"truncation": None, "learning_rate": "count"},
    "window": {"truncation": 40},
    "window, count": {"truncation": 40, "learning_rate": "count"},
    "window as printed": {"truncation": 40, "normalize_truncated": False},
    "a window of one batch": {"truncation": 1},
    "with replacement": {"truncation": 40, "replacement": True},
    "recursion with replacement": {"truncation": None, "replacement": True},
    "a window that never fills": {"truncation": 10_000},
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_centres_have_the_coefficients_of_the_definition(name, weighted):
    X, options = blobs(), CASES[name]
    weights = np.random.default_rng(1).integers(0, 4, len(X)).astype(float) if weighted else None
    model = fitted(X, 9, weights=weights, **options)
    wanted = reference.minibatch(
        reference.gram(X, X, gamma=GAMMA),
        FIRST,
        drawn(X, 64, 9, replacement=options.get("replacement", False)),
        options.get("learning_rate", "sqrt"),
        weights,
        options["truncation"],
        options.get("normalize_truncated", True),
    )
    np.testing.assert_allclose(coefficients(model, len(X)), wanted, atol=1e-12)
    squares = reference.sqdist(reference.gram(X, X, gamma=GAMMA), wanted)
    np.testing.assert_array_equal(model.labels_, squares.argmin(axis=1))
    cost = squares.min(axis=1) @ (np.ones(len(X)) if weights is None else weights)
    assert model.inertia_ == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize("rate", ["sqrt", "count"])
def test_the_linear_kernel_without_truncation_is_plain_mini_batch(rate):
    X = blobs()
    model = fitted(X, 12, kernel="linear", truncation=None, learning_rate=rate)
    plain = dc.MiniBatchKMeans(
        4,
        init=X[FIRST],
        n_init=1,
        learning_rate=rate,
        reassignment_ratio=0,
        random_state=7,
    )
    for rows in drawn(X, 64, 12):
        plain.partial_fit(X[rows])
    np.testing.assert_allclose(coefficients(model, len(X)) @ X, plain.cluster_centers_, atol=1e-9)
    np.testing.assert_array_equal(model.labels_, plain.predict(X))


def test_a_batch_with_replacement_may_have_more_rows_than_there_are():
    X = blobs(40)
    first, options = X[:4], {"replacement": True, "random_state": 7, "gamma": GAMMA}
    model = dc.MiniBatchKernelKMeans(4, batch_size=100, init=first, max_iter=3, **options).fit(X)
    assert [record["batch_size"] for record in model.history_] == [100] * 3
    assert model.passes_ == pytest.approx(8 + 1), "300 rows of steps, and the pass for labels"


def test_the_cost_of_a_step_does_not_depend_on_the_number_of_rows():
    def values(n):
        X = blobs(n)
        model = fitted(X, 6, truncation=50)
        b, k, tau = 64, 4, 50
        counted = [record["n_distances"] for record in model.history_]
        assert max(counted) <= b * k * (tau + b) + b * (tau + b) + b * b
        return sum(counted)

    few, many = values(400), values(6400)
    assert 0.5 * few <= many <= 2 * few


def test_early_stopping_waits_for_a_step_that_improves_too_little():
    X = blobs(600)
    assert fitted(X, 200, tol=1e-9, truncation=None).stop_reason_ in ("tolerance", "max_iter")
    eager = fitted(X, 200, tol=1e-1, truncation=None)
    assert eager.stop_reason_ == "tolerance"
    assert eager.n_iter_ < 10
    assert fitted(X, 5, tol=0.0).n_iter_ == 5


@pytest.mark.parametrize(("tau", "b"), [(40, 64), (150, 32)])
def test_fitted_centres_hold_between_tau_and_tau_plus_b_rows(tau, b):
    model = fitted(blobs(600), 60, b=b, truncation=tau)
    held = np.bincount(model.support_clusters_, minlength=4)
    assert (held >= tau).all()
    assert (held <= tau + b).all()
