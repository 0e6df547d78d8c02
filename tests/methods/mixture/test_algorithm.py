"""Variational EM against a plain reference, and its invariants."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster import open_dataset
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.loop import Limits
from daskcluster.events import StopReason
from daskcluster.methods.mixture.algorithm import EMSettings, first_neighbours, variational_em
from daskcluster.methods.mixture.chunkwise.e_step import first_sets
from daskcluster.randomness import Key
from tests.reference.mixture import var_gmm

MATRICES = ("tied", "full")
KINDS = ("isotropic", "spherical", "diag", *MATRICES)
N, D, K = 300, 3, 12


def mixture_rows(n=N, d=D, k=K, *, dtype=np.float64, seed=0, offset=100.0):
    rng = np.random.default_rng(seed)
    centres = 4.0 * rng.normal(size=(k, d)) + offset
    spread = rng.uniform(0.5, 2.0, size=d)
    return (centres[rng.integers(0, k, n)] + spread * rng.normal(size=(n, d))).astype(dtype)


def learn(X, centres, *, weights=None, engine=None, max_iter=300, **settings):
    with (engine or LocalEngine(2)).place(open_dataset(X, weights=weights)) as placement:
        rows, limits = ScaledPlacement(placement), Limits(max_iter)
        return variational_em(rows, centres, EMSettings(**settings), limits=limits)


def energies(result):
    return np.array([record["free_energy"] for record in result.history])


def some(X, k=K, seed=1):
    return X[np.random.default_rng(seed).choice(len(X), k, replace=False)]


def drawn(step, n=N, k=K):
    """What `EMSettings(n_random=1, warmup_steps=1)` draws: one key for each pass."""
    number = step if step <= 1 else step + 1
    words = Key(0, "mixture candidates", number).words(0, n)
    return [[int(word % np.uint64(k))] for word in words]


# -- against the reference ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.kernels)])
@pytest.mark.parametrize("rule", ["tile", "row", "alternate"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_iteration_matches_the_reference(kind, rule, dtype):
    X = mixture_rows(dtype=dtype)
    weights = np.random.default_rng(2).lognormal(size=N)
    centres = some(X)
    found = learn(
        X, centres, weights=weights, covariance_type=kind, rule=rule, truncation=3, n_neighbors=3,
        n_random=1, warmup_steps=1, tol=0.0, max_iter=6,
    )  # fmt: skip
    truth = var_gmm(
        X, weights, centres, first_sets(Key(0, "mixture sets"), 0, N, 3, K),
        first_neighbours(0, K, 3), n_iter=6, rule=rule, kind=kind, draw=drawn, warmup=1,
    )  # fmt: skip
    tolerance = 1e-11 if dtype == np.float64 else 1e-4
    variances = found.gaussians.variances
    shaped = variances[:, None] if variances.ndim == 1 else variances
    expected, shape = (truth.matrices, (K, D, D)) if kind in MATRICES else (truth.variances, (K, D))
    assert np.allclose(energies(found), truth.trace, rtol=min(tolerance, 1e-6))
    assert np.allclose(found.gaussians.means, truth.means, rtol=tolerance)
    least = tolerance if kind in MATRICES else 1e-8  # products of features may be near zero
    shaped = np.broadcast_to(shaped, shape)
    assert np.allclose(shaped, expected, rtol=max(tolerance, 1e-9), atol=least)


@pytest.mark.parametrize("kind", KINDS)
def test_all_clusters_in_every_set_is_exact_em(kind):
    X = mixture_rows()
    weights = np.random.default_rng(2).lognormal(size=N)
    found = learn(
        X, some(X), weights=weights, covariance_type=kind, truncation=K, tol=0.0, max_iter=6
    )
    truth = var_gmm(X, weights, some(X), [list(range(K))] * N, [[0]] * K, n_iter=6, kind=kind)
    assert np.allclose(energies(found), truth.trace, rtol=1e-6)
    assert np.allclose(found.gaussians.means, truth.means, rtol=1e-6)
    if kind != "isotropic":
        assert np.allclose(found.gaussians.weights, truth.weights, rtol=1e-6)


# -- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["tile", "row", "alternate"])
@pytest.mark.parametrize(("q", "g", "n_random"), [(5, 5, 0), (3, 3, 1), (1, 4, 0), (5, 2, 2)])
def test_the_free_energy_never_falls(rule, q, g, n_random):
    X = mixture_rows(2000, 8, 60, dtype=np.float32, seed=3)
    found = learn(
        X, some(X, 60), truncation=q, n_neighbors=g, n_random=n_random, rule=rule, tol=0.0,
        max_iter=25,
    )  # fmt: skip
    trace = energies(found)
    assert (np.diff(trace) >= -1e-6 * np.abs(trace[1:])).all()
    assert trace[-1] > trace[0]


@pytest.mark.parametrize("kind", ["spherical", "diag", *MATRICES])
def test_the_free_energy_never_falls_once_variances_are_learnt(kind):
    X = mixture_rows(2000, 5, 10, dtype=np.float64, seed=3)
    trace = energies(learn(X, some(X, 10), covariance_type=kind, tol=0.0, max_iter=25))
    assert (np.diff(trace[3:]) >= -1e-9 * np.abs(trace[4:])).all()


@pytest.mark.parametrize("q", [3, K])
def test_integer_weights_equal_repeated_rows(q):
    X = mixture_rows()
    copies = np.random.default_rng(5).integers(1, 4, N)
    many = np.repeat(X, copies, axis=0)
    settings = {"truncation": q, "n_neighbors": 12, "tol": 0.0, "max_iter": 8}
    # With all clusters as neighbours the random first sets, which belong to rows, do not show.
    weighted = learn(X, some(X), weights=copies.astype(np.float64), **settings)
    repeated = learn(many, some(X), **settings)
    assert np.allclose(energies(weighted)[3:], energies(repeated)[3:], rtol=1e-3)
    if q == K:
        assert np.allclose(weighted.gaussians.means, repeated.gaussians.means, rtol=1e-9)


@pytest.mark.parametrize(("q", "k"), [(1, 1), (2, 2), (1, 2), (4, 5)])
def test_few_clusters(q, k):
    X = mixture_rows(200, 3, 5, dtype=np.float32)
    found = learn(X, some(X, k), truncation=q, n_neighbors=5, max_iter=5)
    assert np.isfinite(found.gaussians.means).all()
    assert np.isfinite(energies(found)).all()


def test_one_cluster_is_the_mean():
    X = mixture_rows()
    found = learn(X, X[:1], truncation=5, max_iter=4)
    assert np.allclose(found.gaussians.means[0], X.mean(axis=0), rtol=1e-12)
    assert np.isclose(float(found.gaussians.variances), X.var(axis=0).mean(), rtol=1e-9)


def test_equal_rows_get_the_minimum_variance():
    X = np.ones((50, 3), np.float32)
    found = learn(X, np.ones((4, 3), np.float32), truncation=2, n_neighbors=2, floor=1e-6)
    assert np.isclose(float(found.gaussians.variances), 1e-6)
    assert np.array_equal(found.gaussians.means, np.ones((4, 3)))


def test_rows_without_weight_do_not_count():
    X = mixture_rows()
    weights = np.ones(N)
    weights[::2] = 0.0
    settings = {"truncation": K, "tol": 0.0, "max_iter": 5}
    some_count = learn(X, some(X), weights=weights, **settings)
    others_gone = learn(X[1::2], some(X), **settings)
    assert np.allclose(some_count.gaussians.means, others_gone.gaussians.means, rtol=1e-9)


def test_it_stops_when_the_free_energy_converges():
    X = mixture_rows(2000, 5, 10, dtype=np.float32)
    found = learn(X, some(X, 10), tol=1e-3, max_iter=200)
    trace = energies(found)
    changes = np.abs(np.diff(trace)) / X.size
    assert found.stop_reason is StopReason.TOLERANCE
    assert changes[-1] <= 1e-3
    assert (changes[:-1] > 1e-3).all()
