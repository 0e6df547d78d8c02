"""Mixtures that start from parameters or another mixture, several starts, and means from a sample."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import daskcluster as dc
from daskcluster.errors import CheckpointError, InvalidParameterError
from daskcluster.events import EMStepEnded, StopFit
from tests.estimators.interruption import killed

MATRICES = ("tied", "full")
KINDS = ("spherical", "diag", *MATRICES)
K, D = 4, 3


@pytest.fixture(scope="module")
def rows():
    """Overlapping clusters of different sizes and spreads."""
    rng = np.random.default_rng(0)
    label = rng.choice(K, 1500, p=[0.5, 0.25, 0.15, 0.1])
    centres, spreads = rng.normal(0, 2, (K, D)), rng.uniform(0.3, 2.0, (K, D))
    return centres[label] + spreads[label] * rng.normal(size=(1500, D))


def mixture(kind, **parameters):
    given = {"covariance_type": kind, "truncation": K, "random_state": 0, **parameters}
    return dc.VariationalGaussianMixture(K, **given)


def theirs(kind, rows, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GaussianMixture(K, covariance_type=kind, random_state=0, **parameters).fit(rows)


def same(ours, other, rtol=1e-9, atol=1e-9):
    for name in ("means_", "covariances_", "weights_", "precisions_"):
        assert np.allclose(getattr(ours, name), getattr(other, name), rtol=rtol, atol=atol), name


def some_precisions(kind, rng):
    if kind not in MATRICES:
        return rng.uniform(0.2, 3.0, (K, D) if kind == "diag" else K)
    factors = rng.normal(size=(D, D) if kind == "tied" else (K, D, D))
    return factors @ np.swapaxes(factors, -1, -2) + 0.2 * np.eye(D)


def start(kind, means, precisions, weights=None):
    """Return what looks like a mixture with these parameters."""
    inverse = np.linalg.inv if kind in MATRICES else np.reciprocal
    return SimpleNamespace(
        covariance_type=kind, means_=means, covariances_=inverse(np.asarray(precisions, float)),
        weights_=np.full(K, 1 / K) if weights is None else weights,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_iter", [2, 7])
def test_every_iteration_matches_scikit_learn(rows, kind, n_iter):
    rng = np.random.default_rng(1)
    weights, precisions = rng.dirichlet(np.ones(K)), some_precisions(kind, rng)
    given = {"weights_init": weights, "precisions_init": precisions, "means_init": rows[:K]}
    fixed = {"max_iter": n_iter, "tol": 0.0, "reg_covar": 0.0}
    other = theirs(kind, rows, **given, **fixed)
    first = start(kind, rows[:K], precisions, weights)
    same(mixture(kind, init=first, **fixed).fit(rows), other)
    del given["means_init"]
    same(mixture(kind, init=rows[:K], **given, **fixed).fit(rows), other)


@pytest.mark.parametrize("kind", KINDS)
def test_it_stays_at_scikit_learns_optimum(rows, kind):
    other = theirs(kind, rows, tol=1e-10, max_iter=1000)
    found = mixture(kind, init=other).fit(rows)
    assert found.converged_
    assert found.n_iter_ == 2  # the second iteration says that nothing has changed
    same(found, other, rtol=1e-3, atol=1e-3)
    assert np.isclose(found.score(rows), other.score(rows), rtol=1e-7)
    assert np.mean(found.predict(rows) == other.predict(rows)) > 0.999


@pytest.mark.parametrize("truncation", [2, K])
@pytest.mark.parametrize("kind", ["isotropic", *KINDS])
def test_a_mixture_continues_from_another_mixture(rows, kind, truncation, tmp_path):
    model = mixture(kind, truncation=truncation, n_neighbors=K, tol=1e-9, max_iter=3000)
    first = clone(model).fit(rows)
    first.save(str(tmp_path / "model"))
    for init in (first, str(tmp_path / "model"), dc.load_model(str(tmp_path / "model"))):
        again = clone(model).set_params(init=init).fit(rows)
        assert again.n_iter_ <= 3
        assert np.isclose(again.lower_bound_, first.lower_bound_, rtol=1e-7)


@pytest.mark.parametrize("source", ["isotropic", *KINDS])
def test_a_mixture_of_another_covariance_type_gives_its_means(rows, source):
    first = mixture(source, max_iter=5, tol=0.0).fit(rows)
    for kind in ("isotropic", *KINDS):
        again = mixture(kind, init=first, max_iter=0).fit(rows)
        means = mixture(kind, init=first.means_, max_iter=0).fit(rows)
        assert np.array_equal(again.means_, first.means_), kind
        same(again, first if kind == source else means, rtol=1e-12)


@pytest.mark.parametrize("spread", [(1e-6, 1.0, 1e6), (1.0, 1e-3, 1e9)])
def test_features_may_have_different_scales(rows, spread):
    spread = np.array(spread)
    first = mixture("diag").fit(rows)
    wide = first.means_ * spread, first.precisions_ / spread**2, first.weights_
    fixed = {"tol": 0.0, "max_iter": 20}
    plain = mixture("diag", init=first, **fixed).fit(rows)
    stretched = mixture("diag", init=start("diag", *wide), **fixed).fit(rows * spread)
    assert stretched.n_iter_ == plain.n_iter_ == 20
    assert np.isclose(stretched.lower_bound_, plain.lower_bound_ - np.log(spread).sum(), rtol=1e-9)
    assert np.allclose(stretched.means_ / spread, plain.means_, rtol=1e-8)
    assert np.allclose(stretched.covariances_ / spread**2, plain.covariances_, rtol=1e-8)
    assert np.array_equal(stretched.predict(rows * spread), plain.predict(rows))


def test_with_weights_alone_the_initial_variance_is_shared(rows):
    weights = np.array([0.4, 0.3, 0.2, 0.1])
    given = mixture("diag", init=rows[:K], weights_init=weights, max_iter=0).fit(rows)
    assert np.array_equal(given.weights_, weights)
    assert len(np.unique(given.covariances_)) == 1


@pytest.mark.parametrize(
    ("kind", "parameters", "text"),
    [
        ("diag", {"weights_init": np.ones(3) / 3}, r"weights_init should have the shape \(4,\)"),
        ("diag", {"weights_init": [0.9, 0.9, -0.4, -0.4]}, "should be at least 0 with the sum 1"),
        ("diag", {"weights_init": np.full(K, 0.2)}, "the sum 0.8; divide it by its sum"),
        ("isotropic", {"weights_init": np.full(K, 0.25)}, "have equal weights"),
        ("spherical", {"precisions_init": np.ones((K, D))}, r"shape \(4,\), but has \(4, 3\)"),
        ("isotropic", {"precisions_init": np.ones(K)}, r"shape \(\), but has \(4,\)"),
        ("spherical", {"precisions_init": -np.ones(K)}, "should be positive and finite"),
        ("isotropic", {"precisions_init": np.nan}, "should be positive and finite"),
        ("tied", {"precisions_init": np.ones((K, D))}, r"shape \(3, 3\), but has \(4, 3\)"),
        ("tied", {"precisions_init": np.ones((D, D))}, "symmetric and positive-definite"),
        ("tied", {"precisions_init": np.triu(np.ones((D, D)))}, "symmetric and positive-definite"),
        ("full", {"precisions_init": np.full((K, D, D), np.inf)}, "positive and finite"),
    ],
)
def test_invalid_initial_values_are_refused(rows, kind, parameters, text):
    with pytest.raises(InvalidParameterError, match=text):
        mixture(kind, **parameters).fit(rows)


@pytest.mark.parametrize("by_parameters", [False, True])
def test_initial_values_apply_to_coresets_and_resumed_fits(rows, tmp_path, by_parameters):
    precisions = np.full((K, D), 0.7)
    given = {"init": start("diag", rows[:K], precisions), "tol": 0.0}
    if by_parameters:
        given |= {"init": rows[:K], "precisions_init": precisions}
    whole = mixture("diag", coreset_size=len(rows), max_iter=5, **given).fit(rows)
    same(whole, mixture("diag", max_iter=5, **given).fit(rows), rtol=1e-6)
    kept = {**given, "checkpoint": str(tmp_path), "checkpoint_every": 1}
    mixture("diag", max_iter=2, **kept).fit(rows)
    resumed = mixture("diag", max_iter=5, **kept).fit(rows, resume=True)
    same(resumed, mixture("diag", max_iter=5, **given).fit(rows), rtol=0)


def test_precisions_need_a_fit():
    assert not hasattr(mixture("diag"), "precisions_")


# -- several starts ---------------------------------------------------------------------------------


def starts(**parameters):
    given = {"init": "random", "n_init": 4, "random_state": 3, "truncation": 3, **parameters}
    return dc.VariationalGaussianMixture(6, covariance_type="diag", n_neighbors=3, **given)


def test_the_best_of_several_starts_is_kept(rows):
    bounds = [starts(n_init=n).fit(rows).lower_bound_ for n in (1, 2, 4, 8)]
    assert (np.diff(bounds) >= 0.0).all()
    assert bounds[-1] > bounds[0]
    same(starts(n_init=8).fit(rows), starts(n_init=8).fit(rows), rtol=0)


@pytest.mark.parametrize("size", [None, 700])
def test_a_killed_fit_of_several_starts_resumes(rows, tmp_path, size):
    limits = {"tol": 0.0, "max_iter": 4, "n_init": 3, "coreset_size": size}
    whole = starts(**limits).fit(rows)
    for n_commits in (2, 7, 12):
        kept = {**limits, "checkpoint": str(tmp_path / str(n_commits)), "checkpoint_every": 1}
        assert killed(lambda k=kept: starts(**k).fit(rows), n_commits)
        resumed = starts(**kept).fit(rows, resume=True)
        for name in ("means_", "covariances_", "component_weights_", "lower_bound_", "n_iter_"):
            assert np.array_equal(getattr(resumed, name), getattr(whole, name)), (n_commits, name)


def test_given_means_are_used_for_one_start(rows):
    with pytest.warns(RuntimeWarning, match="performing only one init"):
        starts(init=rows[:6], n_init=3).fit(rows)


def test_a_callback_stops_all_starts(rows):
    heard = []

    def stop(event):
        if isinstance(event, EMStepEnded):
            heard.append(event.iteration)
            raise StopFit

    assert starts(callbacks=[stop]).fit(rows).stop_reason_ == "callback"
    assert heard == [1]


# -- means from a sample --------------------------------------------------------------------------


def groups(n_rows, shares=(0.6, 0.37, 0.03)):
    """Three groups of unequal shapes, far from each other; the last one is small."""
    rng = np.random.default_rng(0)
    label = rng.choice(3, n_rows, p=shares)
    shapes = np.array(
        [[[1.0, 0.9], [0.0, 0.4]], [[2.0, 0.0], [0.0, 0.3]], [[0.4, -0.2], [0.0, 0.5]]]
    )
    means = np.array([[0.0, 0.0], [40.0, 15.0], [-10.0, 35.0]])
    return means[label] + np.einsum("nij,nj->ni", shapes[label], rng.normal(size=(n_rows, 2)))


@pytest.mark.parametrize("kind", ["isotropic", *KINDS])
@pytest.mark.parametrize("n_rows", [900, 5000])  # fewer and more rows than a sample has
def test_clear_groups_are_found_from_every_seed(kind, n_rows):
    X = groups(n_rows)
    bounds = [
        dc.VariationalGaussianMixture(3, covariance_type=kind, random_state=seed)
        .fit(X)
        .lower_bound_
        for seed in range(10)
    ]
    assert max(bounds) - min(bounds) < 0.01


def test_exact_fits_learn_variances_of_their_own_at_once_and_truncated_fits_do_not():
    X = groups(900)
    for truncation, n_iter in ((3, 2), (2, 4)):
        fit = dc.VariationalGaussianMixture(
            3,
            covariance_type="full",
            truncation=truncation,
            n_neighbors=2,
            tol=10.0,
            random_state=0,
        ).fit(X)
        assert fit.n_iter_ == n_iter  # the first at which `tol` is tested


@pytest.mark.parametrize(("k", "method"), [(64, "sample"), (65, "afk-mc2")])
def test_many_components_start_from_afk_mc2(k, method):
    X = groups(400)
    fits = [
        dc.VariationalGaussianMixture(k, random_state=3, max_iter=2, tol=0.0, **given).fit(X)
        for given in ({}, {"init": "afk-mc2"})
    ]
    assert [fit.seeding_ for fit in fits] == [method, "afk-mc2"]
    assert np.array_equal(fits[0].means_, fits[1].means_) == (method == "afk-mc2")


def test_zero_weights_and_equal_rows_leave_too_few_rows_for_a_sample():
    X, weights = groups(50), np.zeros(50)
    weights[:2] = 1.0
    for rows, given in ((X, weights), (np.ones((50, 2)), None)):
        found = dc.VariationalGaussianMixture(5, random_state=0).fit(rows, sample_weight=given)
        assert np.isfinite(found.means_).all()


@pytest.mark.parametrize("given", [{"weights_init": [0.7, 0.3]}, {"precisions_init": [4.0, 4.0]}])
def test_a_checkpoint_of_other_initial_values_is_refused(given, tmp_path):
    rows = np.random.default_rng(0).normal(size=(200, 3))
    fit = {"covariance_type": "spherical", "max_iter": 2, "tol": 0, "random_state": 0}
    fit |= {"init": rows[:2], "checkpoint": tmp_path}
    one = {"weights_init": [0.5, 0.5], "precisions_init": [1.0, 1.0]}
    dc.VariationalGaussianMixture(2, **fit, **one).fit(rows)
    with pytest.raises(CheckpointError, match=next(iter(given))):
        dc.VariationalGaussianMixture(2, **fit, **(one | given)).fit(rows, resume=True)
