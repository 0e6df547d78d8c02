"""Covariance matrices: linear algebra, distances, floors, memory, engines, and what takes mixtures."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

import daskcluster as dc
from daskcluster.errors import MemoryLimitError, ModelFormatError
from daskcluster.methods.mixture.chunkwise import statistics
from daskcluster.methods.mixture.chunkwise.statistics import Gaussians
from daskcluster.methods.mixture.fit import matrices_bytes, plan_fit
from daskcluster.methods.mixture.model import MixtureModel

KINDS = ("tied", "full")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def tilted(n=1500, k=5, d=3, seed=0, dtype=np.float64):
    """Rows of clusters that are ellipsoids in different directions."""
    rng = np.random.default_rng(seed)
    factors, centres = rng.normal(size=(k, d, d)), rng.uniform(-8, 8, (k, d))
    label = rng.integers(0, k, n)
    noise = (factors[label] * rng.normal(size=(n, 1, d))).sum(axis=2)
    return (centres[label] + noise).astype(dtype)


def mixture(kind, k=5, **parameters):
    given = {"truncation": k, "n_neighbors": 3, "random_state": 0, **parameters}
    return dc.VariationalGaussianMixture(k, covariance_type=kind, **given)


def some_matrices(n=4, d=5, seed=0):
    factors = np.random.default_rng(seed).normal(size=(n, d, d))
    return factors @ factors.transpose(0, 2, 1) + 0.1 * np.eye(d)


# -- small linear algebra ---------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 7, 20])
def test_factors_and_inverses_match_lapack(d):
    matrices = some_matrices(d=d)
    lower = statistics.cholesky(matrices)
    np.testing.assert_allclose(lower, np.linalg.cholesky(matrices), atol=1e-9)
    packed = statistics.whitening(lower)
    assert packed.shape == (4, statistics.packed_size(d))
    inverse = np.linalg.inv(matrices)
    np.testing.assert_allclose(statistics.precisions(packed, d), inverse, rtol=1e-6, atol=1e-7)
    bounds = statistics.steepest(packed, d)
    gaps = np.random.default_rng(1).normal(size=(100, d))
    for own in inverse:
        costs = ((gaps @ own) * gaps).sum(axis=1)
        assert (costs <= (gaps * gaps) @ bounds * (1 + 1e-9)).all()


@pytest.mark.parametrize("d", [1, 2, 4, 9])
def test_floors_raise_eigenvalues_in_units_of_the_floors(d):
    rng = np.random.default_rng(d)
    floors = rng.uniform(0.5, 2.0, d)
    thin = rng.normal(size=(3, d, max(1, d - 2)))  # of lower rank
    given = np.concatenate([thin @ thin.transpose(0, 2, 1), some_matrices(2, d) + 3 * np.eye(d)])
    found = statistics.raised(given, floors)
    assert np.array_equal(found[3:], given[3:])  # not changed where the floor is kept
    root = np.sqrt(floors)
    for one, was in zip(found[:3], given[:3], strict=True):
        values, vectors = np.linalg.eigh(was / np.outer(root, root))
        truth = (vectors * np.maximum(values, 1.0)) @ vectors.T * np.outer(root, root)
        np.testing.assert_allclose(one, truth, rtol=1e-9, atol=1e-9)
        assert np.array_equal(one, one.T)


def test_a_matrix_without_rank_gets_a_factor():
    """Even with no floor to speak of, because float64 resolves only so much."""
    for d in (2, 10, 40):
        line = np.ones((1, d, d)) * 5.0
        found = statistics.raised(line, np.full(d, 1e-30))
        assert statistics.is_positive_definite(found)
        np.testing.assert_allclose(found, line, rtol=1e-9)


# -- distances and densities ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 5, 19])
def test_densities_match_scikit_learn(d, kind, dtype):
    X = tilted(400, d=d, dtype=dtype)
    fitted = mixture(kind, max_iter=4, tol=0.0).fit(X)
    twin = fitted.to_sklearn()
    wide = X.astype(np.float64)
    tolerance = {"rtol": 1e-5, "atol": 1e-3} if dtype == np.float32 else {"rtol": 1e-9}
    np.testing.assert_allclose(fitted.score_samples(X), twin.score_samples(wide), **tolerance)
    np.testing.assert_allclose(
        fitted.precisions_cholesky_, twin.precisions_cholesky_, rtol=1e-12, atol=0
    )
    product = fitted.precisions_ @ fitted.covariances_
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(d), product.shape), atol=1e-8)
    assert fitted.n_parameters() == twin._n_parameters()


@pytest.mark.parametrize("kind", KINDS)
def test_one_feature_has_variances(kind):
    X = tilted(d=1)
    start = {"init": X[:5], "tol": 0.0, "max_iter": 9}
    found = mixture(kind, **start).fit(X)
    if kind == "full":
        plain = mixture("diag", **start).fit(X)
        np.testing.assert_allclose(found.covariances_[:, :, 0], plain.covariances_, rtol=1e-9)
        assert np.isclose(found.lower_bound_, plain.lower_bound_, rtol=1e-12)
    else:
        assert found.covariances_.shape == (1, 1)


def test_strongly_correlated_features_keep_their_digits():
    """Float32 rows, whose distances are computed in float64."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(2000, 1))
    X = (shared + 1e-3 * rng.normal(size=(2000, 3))).astype(np.float32)
    found = mixture("full", 1, reg_covar=0.0).fit(X)
    np.testing.assert_allclose(found.covariances_[0], np.cov(X.T.astype(float), ddof=0), rtol=1e-5)
    own = GaussianMixture(1, reg_covar=0.0).fit(X.astype(float))
    assert np.isclose(found.score(X), own.score(X.astype(float)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_are_whitened_once_keep_their_digits(dtype):
    """With one matrix for all, rows are whitened from an origin, not from each mean."""
    rng = np.random.default_rng(0)
    offsets = rng.uniform(-1e3, 1e3, (6, 4))
    shared = rng.normal(size=(3000, 1)) + 1e-3 * rng.normal(size=(3000, 4))
    X = (offsets[rng.integers(0, 6, 3000)] + shared + 5e3).astype(dtype)
    for truncation in (3, 6):
        start = {"init": X[:6], "truncation": truncation, "max_iter": 2, "tol": 0.0}
        found = mixture("tied", 6, reg_covar=1e-9, **start).fit(X)
        wide = X.astype(np.float64)
        gaps = (wide[:, None, :] - found.means_.astype(np.float64)) @ found.precisions_cholesky_
        log_weights = np.log(np.maximum(found.weights_, 1e-30))
        log_joint = log_weights - 0.5 * (gaps**2).sum(axis=2)
        log_joint += np.log(np.diag(found.precisions_cholesky_)).sum() - 2 * np.log(2 * np.pi)
        expected = log_joint.max(axis=1)
        expected += np.log(np.exp(log_joint - expected[:, None]).sum(axis=1))
        rtol = 1e-5 if dtype == np.float32 else 1e-9
        np.testing.assert_allclose(found.score_samples(X), expected, rtol=rtol, atol=1e-3)
        np.testing.assert_array_equal(found.predict(X), log_joint.argmax(axis=1))


# -- fits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("search", "truncation"), [("tile", 1), ("row", 2), ("alternate", 4)])
def test_the_free_energy_never_falls_under_truncation(kind, search, truncation):
    X = tilted(3000, k=30, dtype=np.float32)
    found = mixture(
        kind, 30, truncation=truncation, search=search, n_random=1, reg_covar=0.0, tol=0.0, max_iter=25,
    ).fit(X)  # fmt: skip
    trace = np.array([record["free_energy"] for record in found.history_])[3:]
    assert (np.diff(trace) >= -1e-6 * np.abs(trace[1:])).all()
    assert found.lower_bound_ <= found.score(X) + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_and_equal_rows_have_a_density(kind):
    X = np.concatenate([np.zeros((50, 3)), np.arange(9.0).reshape(3, 3)])
    found = mixture(kind, 4, init=X[-4:], tol=0.0, max_iter=9).fit(X)
    assert np.isfinite(found.score_samples(X)).all()
    assert (np.linalg.eigvalsh(found.covariances_) > 0.0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_linear_maps_of_the_rows_do_not_matter(kind):
    """The densities follow any map, which they do not with variances by feature."""
    X = tilted()
    turned = X @ np.array([[2.0, 1.0, 0.0], [0.0, 1.0, -3.0], [0.5, 0.0, 1.0]])
    labels = []
    for rows in (X, turned):
        one = np.cov(rows.T)
        first = SimpleNamespace(
            covariance_type=kind, means_=rows[:5], weights_=np.full(5, 0.2),
            covariances_=one if kind == "tied" else np.tile(one, (5, 1, 1)),
        )  # fmt: skip
        found = mixture(kind, max_iter=30, tol=0.0, reg_covar=0.0, init=first).fit(rows)
        labels.append(found.predict(rows))
    assert np.mean(labels[0] == labels[1]) > 0.999


def test_rows_that_are_drawn_have_the_covariances():
    X = tilted(4000, k=2)
    for kind in KINDS:
        found = mixture(kind, 2).fit(X)
        rows, label = found.sample(40_000)
        for c in range(2):
            truth = found.covariances_ if kind == "tied" else found.covariances_[c]
            near = np.cov(rows[label == c].T)
            np.testing.assert_allclose(near, truth, atol=0.06 * np.abs(truth).max())


def test_models_with_invalid_matrices_are_refused():
    half = np.array([0.5, 0.5])
    bad = np.array([[1.0, 2.0], [2.0, 1.0]])
    for matrix in (bad, np.array([[1.0, 0.5], [0.0, 1.0]]), np.full((2, 2), np.nan)):
        with pytest.raises(ModelFormatError, match="symmetric and positive definite"):
            MixtureModel(np.zeros((2, 2)), matrix[None], half, half, covariance_type="tied")
    with pytest.raises(ModelFormatError, match="should have shape"):
        MixtureModel(np.zeros((2, 2)), np.eye(2)[None], half, half, covariance_type="full")


# -- memory -----------------------------------------------------------------------------------------


def test_matrices_beyond_the_memory_limit_are_refused():
    X = np.random.default_rng(0).normal(size=(300, 200))
    engine = dc.LocalEngine(2, memory_limit=600_000_000)
    with pytest.raises(MemoryLimitError, match=r"covariance_type='full' \('tied' has one\)"):
        mixture("full", 250, truncation=3, engine=engine).fit(X)
    mixture("tied", 250, truncation=3, engine=engine, max_iter=1, tol=0.0).fit(X)


def test_the_plan_states_the_memory_of_matrices():
    dataset = dc.open_dataset(np.zeros((1000, 50)))
    given = dc.VariationalGaussianMixture(100).get_params()
    plain, full, tied = (
        plan_fit(dataset, {**given, "covariance_type": kind}) for kind in ("diag", "full", "tied")
    )
    of_thread, of_process = matrices_bytes(100, 50, "full")
    assert full.footprint.thread_bytes > plain.footprint.thread_bytes + of_thread // 2
    assert full.footprint.process_bytes >= of_process
    assert tied.footprint.process_bytes < full.footprint.process_bytes
    assert full.commit_bytes - plain.commit_bytes >= 8 * 100 * 50 * 49
    assert full.flop > 20 * plain.flop
    # The steps that a worker may have to repeat.
    assert full.footprint.worker_bytes >= 8 * (8 * 100 * 50 * 50 + 8 * 100 * 50)
    assert full.footprint.of_workers().process_bytes >= of_process + full.footprint.worker_bytes
    exact = plan_fit(dataset, {**given, "covariance_type": "full", "truncation": 100})
    assert exact.footprint.worker_bytes == 0
    assert matrices_bytes(100, 50, "diag") == (0, 0)


def test_pickled_mixtures_have_no_factors():
    import pickle

    gaussians = Gaussians(np.zeros((4, 5)), some_matrices(), np.full(4, 0.25))
    before = len(pickle.dumps(gaussians))
    costs = gaussians.costs
    assert len(pickle.dumps(gaussians)) == before
    again = pickle.loads(pickle.dumps(gaussians)).costs
    assert all(np.array_equal(a, b) for a, b in zip(costs, again, strict=True))
