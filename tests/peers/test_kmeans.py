"""k-means as the suites of Spark, cuML, Faiss, dask-ml and scikit-learn expect it, for every estimator.

The facts are theirs: what has to come out for small inputs that anyone can check. Where one of ours
promises less than they do (it draws batches, or a coreset), the case leaves it out and says why.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import daskcluster as dc

EXACT = {
    "lloyd": lambda k, **more: dc.KMeans(k, algorithm="lloyd", **more),
    "elkan": lambda k, **more: dc.KMeans(k, algorithm="elkan", **more),
    "hamerly": lambda k, **more: dc.KMeans(k, algorithm="hamerly", **more),
    "yinyang": lambda k, **more: dc.KMeans(k, algorithm="yinyang", **more),
    "nested": lambda k, **more: dc.NestedMiniBatchKMeans(k, **more),
    "backward-euler": lambda k, **more: dc.BackwardEulerKMeans(k, **more),
    "hierarchical": lambda k, **more: dc.HierarchicalKMeans(k, **more),
}
"""Those that end at the means of their clusters where clusters are plain."""
MORE = {
    "mini-batch": lambda k, **more: dc.MiniBatchKMeans(k, **more),
    "variance-reduced": lambda k, **more: dc.VarianceReducedKMeans(k, **more),
    "coreset": lambda k, **more: dc.CoresetKMeans(k, **more),
    "streaming": lambda k, **more: dc.StreamingKMeans(k, **more),
}
ALL = {**EXACT, **MORE}

pytestmark = pytest.mark.filterwarnings("ignore:algorithm='elkan':RuntimeWarning")

every = pytest.mark.parametrize("name", ALL)
exact = pytest.mark.parametrize("name", EXACT)


def made(name, k, **more):
    return ALL[name](k, random_state=0, **more)


def blobs(n=600, k=4, d=5, seed=0, dtype=np.float64):
    """Return rows of k round clusters that lie far apart, and whose they are."""
    rng = np.random.default_rng(seed)
    label = np.arange(n) % k
    return (100.0 * np.eye(k, d)[label] + rng.normal(size=(n, d))).astype(dtype), label


# -- one cluster ----------------------------------------------------------------------------------

FEW = np.array([[1.0, 2.0, 6.0], [1.0, 3.0, 0.0], [1.0, 4.0, 6.0]])


@exact
@pytest.mark.parametrize(("max_iter", "init"), [(1, "random"), (50, "k-means||")])
def test_one_cluster_ends_at_the_mean_from_any_start(name, max_iter, init):
    found = made(name, 1, init=init, max_iter=max_iter).fit(FEW)
    assert np.allclose(found.cluster_centers_, [[1.0, 3.0, 4.0]], atol=1e-12)
    assert np.isclose(found.inertia_, 26.0)
    assert (np.asarray(found.labels_) == 0).all()


@exact
@pytest.mark.parametrize("weights", [[1.0, 1.0, 2.0], [0.0, 1.0, 0.0]])
def test_one_cluster_of_weighted_rows_ends_at_their_mean(name, weights):
    found = made(name, 1).fit(FEW, sample_weight=weights)
    assert np.allclose(found.cluster_centers_[0], np.average(FEW, axis=0, weights=weights))


@exact
def test_one_cluster_of_many_rows_ends_at_the_mean(name):
    X = np.random.default_rng(0).normal(size=(5000, 3)) + 7.0
    assert np.allclose(made(name, 1).fit(X).cluster_centers_[0], X.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("name", ["lloyd", "elkan", "nested", "backward-euler"])
def test_one_cluster_of_directions_is_their_mean_direction(name):
    X = np.array([[1.0, 0.0], [10.0, 10.0], [0.0, 0.2]])
    centre = made(name, 1, metric="cosine").fit(X).cluster_centers_[0]
    assert np.allclose(centre, np.sqrt([0.5, 0.5]), atol=1e-7)


# -- plain clusters -------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clusters_that_lie_far_apart_are_found(name, dtype):
    X, label = blobs(dtype=dtype)
    found = made(name, 4).fit(X)
    assert adjusted_rand_score(label, found.predict(X)) == 1.0
    truth = np.array([X[label == c].mean(axis=0) for c in range(4)])
    nearest = found.cluster_centers_[found.predict(truth)]
    close = 1e-4 if name in EXACT and name not in ("backward-euler", "hierarchical") else 0.6
    assert np.abs(nearest - truth).max() < close


@every
def test_labels_inertia_distances_and_scores_belong_together(name):
    X, _ = blobs(k=3)
    found = made(name, 3).fit(X)
    distances = found.transform(X)
    squares = ((X[:, None] - found.cluster_centers_) ** 2).sum(axis=2)
    assert np.allclose(distances**2, squares, atol=1e-5)
    assert np.array_equal(found.predict(X), squares.argmin(axis=1))
    assert np.isclose(-found.score(X), squares.min(axis=1).sum(), rtol=1e-6)
    if name in EXACT:
        assert np.isclose(found.inertia_, squares.min(axis=1).sum(), rtol=1e-6)
        assert np.array_equal(np.asarray(found.labels_), found.predict(X))


@exact
def test_more_clusters_cost_less(name):
    X = np.random.default_rng(0).normal(size=(800, 4))
    costs = [made(name, k).fit(X).inertia_ for k in (1, 2, 4)]
    assert (np.diff(costs) < 0).all()


@pytest.mark.parametrize("name", ["lloyd", "elkan", "hamerly", "yinyang", "nested"])
def test_as_many_clusters_as_rows_cost_nothing(name):
    X = np.random.default_rng(0).permutation(40).reshape(-1, 1).astype(float)
    found = made(name, 40, init="k-means++").fit(X)
    assert found.inertia_ == 0.0
    assert len(np.unique(found.labels_)) == 40


@every
def test_more_clusters_than_distinct_rows(name):
    X = np.repeat(np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]]), 30, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = made(name, 5).fit(X)
    assert found.cluster_centers_.shape == (5, 2)
    assert np.isfinite(found.cluster_centers_).all()
    assert -found.score(X) < 1e-9


@pytest.mark.parametrize("name", ["lloyd", "elkan", "nested", "backward-euler", "mini-batch"])
def test_given_centres_are_kept_without_iterations(name):
    X, _ = blobs()
    found = made(name, 4, init=X[:4], max_iter=0).fit(X)
    assert np.array_equal(found.cluster_centers_, X[:4])
