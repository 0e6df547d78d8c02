"""Law 12 for kernel k-means: Algorithm 2 of the paper, and Lemma 3, on which its Theorem 1 rests.

Jourdan and Schwartzman, "Mini-batch kernel k-means" (2024). The public estimator draws batches with
replacement and seeds from one candidate per centre out of all rows, and leaves coefficients as in equation
(1). The stop has the sign of the paper's derivation, not of its pseudocode.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.methods.minibatch.batches import Batches
from tests.reference import kernel_kmeans as reference

K, N, B, SEED, GAMMA = 4, 400, 32, 7, 0.1


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    return rng.normal(size=(K, 3))[rng.integers(0, K, N)] * 3 + rng.normal(size=(N, 3))


@pytest.fixture(scope="module")
def matrix(rows):
    return reference.gram(rows, rows, gamma=GAMMA)


def fitted(rows, **changes):
    letter = {
        "gamma": GAMMA, "batch_size": B, "replacement": True, "normalize_truncated": False,
        "n_local_trials": 1, "init_size": N, "random_state": SEED,
    }  # fmt: skip
    return dc.MiniBatchKernelKMeans(K, **{**letter, **changes}).fit(rows)


def coefficients(model):
    found = np.zeros((K, N))
    np.add.at(found, (model.support_clusters_, model.support_), model.support_coefficients_)
    return found


def seeds(rows):
    return fitted(rows, max_iter=0).support_


def drawn(rows, n_steps):
    with Batches(dc.open_dataset(rows), B, SEED, replacement=True) as batches:
        return [batches.next().listed.copy() for _ in range(n_steps)]


def apart(matrix, one, other):
    """Return the distances of centres in the space of the kernel."""
    gaps = one - other
    return np.sqrt(np.maximum(np.einsum("jn,nm,jm->j", gaps, matrix, gaps), 0.0))


@pytest.mark.parametrize("truncation", [20, 100, None])
def test_algorithms_1_and_2(rows, matrix, truncation):
    expected, _, _ = reference.algorithm_2(matrix, seeds(rows), drawn(rows, 30), truncation)
    model = fitted(rows, truncation=truncation, max_iter=30)
    np.testing.assert_allclose(coefficients(model), expected, atol=1e-12)
    labels = reference.sqdist(matrix, expected).argmin(axis=1)
    np.testing.assert_array_equal(model.labels_, labels)


@pytest.mark.parametrize("eps", [0.1, 0.02])
@pytest.mark.parametrize("truncation", [100, None])
def test_the_early_stop(rows, matrix, truncation, eps):
    batches = drawn(rows, 200)
    expected, _, steps = reference.algorithm_2(matrix, seeds(rows), batches, truncation, eps)
    model = fitted(rows, truncation=truncation, tol=eps)
    assert model.n_iter_ == steps < 200
    assert model.stop_reason_ == "tolerance"
    np.testing.assert_allclose(coefficients(model), expected, atol=1e-12)


@pytest.mark.parametrize("eps", [1.0, 4.0])
def test_truncated_centres_stay_near_untruncated_ones(rows, matrix, eps):
    """Lemma 3: tau = ceil(b ln^2(28 gamma / eps)) keeps them within eps / 28 of each other."""
    longest = math.sqrt(np.diag(matrix).max())
    tau, first = math.ceil(B * math.log(28.0 * longest / eps) ** 2), seeds(rows)
    for n_steps in (5, 60, 120):
        model = fitted(rows, truncation=tau, max_iter=n_steps)
        expected, whole, _ = reference.algorithm_2(matrix, first, drawn(rows, n_steps), tau)
        np.testing.assert_allclose(coefficients(model), expected, atol=1e-12)
        assert apart(matrix, coefficients(model), whole).max() <= eps / 28.0
        untruncated = fitted(rows, truncation=None, max_iter=n_steps)
        assert apart(matrix, coefficients(model), coefficients(untruncated)).max() <= eps
    assert len(model.support_) <= K * (tau + B) < n_steps * B, "nothing was truncated"
    short = fitted(rows, truncation=1, max_iter=n_steps)
    assert apart(matrix, coefficients(short), coefficients(untruncated)).max() > eps / 28.0
