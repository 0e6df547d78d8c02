"""Law 4: weight w equals w copies; scaling changes only the inertia; zero weight is never a centre."""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
from tests.laws.data import lognormal

X = lognormal(600, 4, dtype=np.float64)
COUNTS = np.random.default_rng(5).integers(0, 4, 600)


@pytest.mark.parametrize("engine", ["local"])
def test_weight_equals_copies(engine):
    copies = np.repeat(X, COUNTS, axis=0)
    start = X[COUNTS > 0][::60][:7]
    one = dc.KMeans(7, init=start, tol=0, engine=engine).fit(X, sample_weight=COUNTS)
    other = dc.KMeans(7, init=start, tol=0, engine=engine).fit(copies)
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=1e-12)
    assert one.inertia_ == pytest.approx(other.inertia_, rel=1e-12)
    assert one.n_iter_ == other.n_iter_
    assert np.array_equal(np.repeat(one.labels_, COUNTS), other.labels_)


@pytest.mark.parametrize("init", ["random", "k-means++", "k-means||", "afk-mc2"])
def test_scaling_weights_changes_only_the_inertia(init):
    weights = COUNTS + 0.5
    one = dc.KMeans(6, init=init, random_state=1, n_init=1).fit(X, sample_weight=weights)
    other = dc.KMeans(6, init=init, random_state=1, n_init=1).fit(X, sample_weight=8 * weights)
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=1e-12)
    assert other.inertia_ == pytest.approx(8 * one.inertia_, rel=1e-12)


@pytest.mark.parametrize("init", ["random", "k-means++", "k-means||", "afk-mc2"])
@pytest.mark.parametrize("seed", range(5))
def test_unit_weights_equal_none(init, seed):
    one = dc.KMeans(6, init=init, random_state=seed, n_init=1).fit(X)
    other = dc.KMeans(6, init=init, random_state=seed, n_init=1).fit(X, sample_weight=np.ones(600))
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=1e-12)


@pytest.mark.parametrize("init", ["random", "k-means++", "k-means||", "afk-mc2"])
@pytest.mark.parametrize("seed", range(5))
def test_zero_weight_is_never_a_centre(init, seed):
    rows = np.concatenate([X, np.full((300, 4), 1e6)])  # far away, but of no weight
    weights = np.concatenate([np.ones(600), np.zeros(300)])
    model = dc.KMeans(6, init=init, max_iter=0, random_state=seed, n_init=1)
    assert model.fit(rows, sample_weight=weights).cluster_centers_.max() < 1e6


def test_zero_weight_is_no_relocation_target():
    rows = np.array([[0.0], [1.0], [2.0], [100.0]])
    model = dc.KMeans(2, init=[[0.5], [50.0]], max_iter=1).fit(rows, sample_weight=[1, 1, 1, 0])
    assert model.cluster_centers_.max() <= 2.0


@pytest.mark.parametrize("factor", [2.0**-660, 2.0**300])
@pytest.mark.parametrize(
    "make",
    [
        lambda: dc.KMeans(6, random_state=1),
        lambda: dc.MiniBatchKMeans(6, random_state=1, max_iter=3),
        lambda: dc.HierarchicalKMeans(6, random_state=1),
        lambda: dc.CoresetKMeans(6, coreset_size=100, random_state=1),
        lambda: dc.VariationalGaussianMixture(6, random_state=1, tol=0.1),
    ],
    ids=["kmeans", "minibatch", "hierarchical", "coreset", "mixture"],
)
def test_the_least_and_very_large_weights_change_nothing_else(make, factor):
    weights = COUNTS + 0.5
    one, other = make().fit(X, sample_weight=weights), make().fit(X, sample_weight=factor * weights)
    centres = "means_" if hasattr(one, "means_") else "cluster_centers_"
    np.testing.assert_array_equal(getattr(one, centres), getattr(other, centres))
    np.testing.assert_array_equal(one.predict(X), other.predict(X))


@pytest.mark.parametrize("exponent", [*range(0, 22, 3), 22, 24, 30, 100])
@pytest.mark.parametrize(
    "estimator", [dc.KMeans, dc.MiniBatchKMeans, dc.VariationalGaussianMixture]
)
def test_light_rows_have_their_mean_or_are_refused(estimator, exponent):
    rows, light = np.array([[0.0], [1e5], [100003.0]]), 10.0**-exponent
    if exponent >= 22:
        with pytest.raises(ValueError, match="differ too much: row 1 has"):
            estimator(2, random_state=0).fit(rows, sample_weight=[1.0, light, light])
    elif estimator is dc.KMeans:
        model = dc.KMeans(2, init=rows[:2], tol=0).fit(rows, sample_weight=[1.0, light, light])
        assert model.cluster_centers_[1, 0] == pytest.approx(100001.5, abs=1e-3)
