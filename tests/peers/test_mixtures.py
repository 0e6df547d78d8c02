"""Mixtures as scikit-learn's suite expects them, of all kinds that are here; the facts are theirs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import daskcluster as dc

KINDS = ("isotropic", "spherical", "diag", "tied", "full")
MATRICES = ("tied", "full")
K, D = 3, 4

kinds = pytest.mark.parametrize("kind", KINDS)
own = pytest.mark.parametrize("kind", KINDS[1:])
inits = pytest.mark.parametrize("init", ["afk-mc2", "given"])


def mixture(kind, k=K, **parameters):
    return dc.VariationalGaussianMixture(
        k, covariance_type=kind, **{"truncation": k, "random_state": 0, **parameters}
    )


def least_variances(mixture):
    """The least variance of each component in any direction."""
    found = np.asarray(mixture.covariances_)
    return np.linalg.eigvalsh(found) if mixture.covariance_type in MATRICES else found


@pytest.fixture(scope="module")
def drawn():
    """Rows of a mixture whose parameters are known, and the components that they were drawn from."""
    rng = np.random.default_rng(0)
    label = rng.choice(K, 3000, p=[0.5, 0.3, 0.2])
    means, spread = rng.uniform(-20, 20, (K, D)), rng.uniform(0.5, 2.0, (K, D))
    return means[label] + spread[label] * rng.normal(size=(3000, D)), label, means, spread


@kinds
@inits
def test_the_parameters_that_rows_were_drawn_with_come_back(drawn, kind, init):
    X, label, means, spread = drawn
    found = mixture(kind, init=means + 1.0 if init == "given" else init).fit(X)
    order = ((means[:, None] - found.means_) ** 2).sum(axis=2).argmin(axis=1)
    assert np.allclose(found.means_[order], means, atol=0.2)
    assert adjusted_rand_score(label, found.predict(X)) > 0.99
    if kind == "isotropic":
        expected = np.average(spread**2, axis=0, weights=[0.5, 0.3, 0.2]).mean()
        assert np.isclose(found.covariances_, expected, rtol=0.1)
        return
    assert np.allclose(found.weights_[order], [0.5, 0.3, 0.2], atol=0.03)
    if kind in MATRICES:
        truth = spread[:, :, None] ** 2 * np.eye(D)
        if kind == "tied":
            truth = (truth * np.array([0.5, 0.3, 0.2])[:, None, None]).sum(axis=0)
        found = found.covariances_ if kind == "tied" else found.covariances_[order]
        assert np.allclose(found, truth, rtol=0.15, atol=0.25)
        return
    expected = spread**2 if kind == "diag" else (spread**2).mean(axis=1)
    assert np.allclose(found.covariances_[order], expected, rtol=0.15)


@own
@pytest.mark.parametrize("k", [2, 5])
def test_it_ends_as_high_as_scikit_learn_from_the_same_means(drawn, kind, k):
    X = drawn[0]
    begin = dc.KMeans(k, random_state=0).fit(X).cluster_centers_
    start = begin
    if kind in MATRICES:  # their first covariances are those of the clusters of k-means
        start = GaussianMixture(
            k, covariance_type=kind, means_init=begin, max_iter=1, tol=1e9, random_state=0
        ).fit(X)
    ours = mixture(kind, k, init=start).fit(X)
    theirs = GaussianMixture(k, covariance_type=kind, means_init=begin, random_state=0).fit(X)
    assert ours.score(X) > theirs.score(X) - 0.01


@kinds
def test_posteriors_labels_and_densities_belong_together(drawn, kind):
    X = drawn[0]
    found = mixture(kind).fit(X)
    posteriors = found.predict_proba(X).toarray()
    assert np.allclose(posteriors.sum(axis=1), 1.0)
    assert np.array_equal(posteriors.argmax(axis=1), found.predict(X))
    assert np.isclose(found.score_samples(X).mean(), found.score(X))
    assert np.array_equal(found.fit_predict(X), found.predict(X))
    total, n = found.score(X) * len(X), found.n_parameters()
    assert np.isclose(found.aic(X), 2 * n - 2 * total)
    assert np.isclose(found.bic(X), n * np.log(len(X)) - 2 * total)
    if kind in MATRICES:
        assert np.allclose(found.precisions_ @ found.covariances_, np.eye(D), atol=1e-9)
    else:
        assert np.allclose(found.precisions_ * found.covariances_, 1.0)


@kinds
def test_every_iteration_raises_the_likelihood(drawn, kind):
    bounds = [
        mixture(kind, 6, tol=0.0, max_iter=n).fit(drawn[0]).lower_bound_ for n in (4, 6, 9, 15)
    ]
    assert (np.diff(bounds) >= 0.0).all()
    assert bounds[-1] > bounds[0]


@kinds
def test_criteria_choose_the_number_of_components(drawn, kind):
    bics = [
        mixture(kind, k, init="k-means++", n_random=0).fit(drawn[0]).bic(drawn[0])
        for k in (1, 2, 3)
    ]
    assert bics[2] < bics[1] < bics[0]


@kinds
def test_an_end_before_convergence_warns(drawn, kind):
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        short = mixture(kind, init="random", max_iter=1).fit(drawn[0])
    assert (short.converged_, short.n_iter_) == (False, 1)
    whole = mixture(kind, init="random").fit(drawn[0])
    assert whole.converged_
    assert whole.n_iter_ < 300
    assert whole.lower_bound_ > short.lower_bound_


@kinds
def test_types_of_numbers_give_the_same_mixture(drawn, kind):
    X = np.round(drawn[0] * 100.0).astype(np.int16)
    narrow = mixture(kind, init=X[:K]).fit(X)
    wide = mixture(kind, init=X[:K]).fit(X.astype(np.float64))
    assert narrow.means_.dtype == np.float32
    assert np.allclose(narrow.means_, wide.means_, rtol=1e-3)
    assert np.mean(narrow.predict(X) == wide.predict(X)) > 0.999


@kinds
def test_weights_are_copies(drawn, kind):
    X = drawn[0][:300]
    copies = 1 + np.arange(300) % 3
    weighted = mixture(kind, init=X[:K]).fit(X, sample_weight=copies)
    repeated = mixture(kind, init=X[:K]).fit(np.repeat(X, copies, axis=0))
    assert np.allclose(weighted.means_, repeated.means_, rtol=1e-6)
    assert np.allclose(weighted.weights_, repeated.weights_, rtol=1e-6)
    assert np.isclose(weighted.lower_bound_, repeated.lower_bound_, rtol=1e-9)


@kinds
@pytest.mark.parametrize("k", [1, 20])
def test_equal_rows_and_few_rows_are_survived(kind, k):
    for X in (np.full((20, 2), 3.0), np.repeat([[0.0, 1.0], [5.0, 2.0]], 10, axis=0)):
        found = mixture(kind, k, init="random").fit(X)
        for values in (found.means_, found.covariances_, found.weights_, found.score_samples(X)):
            assert np.isfinite(values).all()
        assert (least_variances(found) > 0.0).all()


@kinds
def test_a_wider_floor_is_kept(drawn, kind):
    found = mixture(kind, reg_covar=50.0).fit(drawn[0])
    assert (least_variances(found) >= 50.0 * (1.0 - 1e-12)).all()


@kinds
def test_rows_that_are_drawn_follow_the_mixture(drawn, kind):
    found = mixture(kind).fit(drawn[0])
    X, label = found.sample(6000)
    assert X.shape == (6000, D)
    assert np.allclose(np.bincount(label, minlength=K) / 6000, found.weights_, atol=0.03)
    again = mixture(kind, init=found).fit(X)
    assert np.allclose(again.means_, found.means_, atol=0.3)
    assert abs(again.score(X) - found.score(X)) < 0.05
