"""Law 5: dense equals sparse; float32 equals float64 to float32 accuracy, also far from the origin."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import daskcluster as dc
from tests.laws.data import CASES, weights
from tests.reference import kmeans as reference


def blobs(shift, n=3000, d=6, k=5):
    rng = np.random.default_rng(0)
    centres = 8 * rng.normal(size=(k, d))
    return centres[rng.integers(0, k, n)] + rng.normal(size=(n, d)) + shift


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_float32_equals_float64(shift):
    # Both see the same numbers: float64 rows that float32 holds exactly.
    X = blobs(shift).astype(np.float32)
    start = X[::600][:5]
    one = dc.KMeans(5, init=start, tol=0).fit(X)
    other = dc.KMeans(5, init=start.astype(float), tol=0).fit(X.astype(float))
    assert one.cluster_centers_.dtype == np.float32
    assert other.cluster_centers_.dtype == np.float64
    assert np.mean(one.labels_ == other.labels_) > 0.999
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=3e-6, atol=3e-6)
    assert one.inertia_ == pytest.approx(other.inertia_, rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_inertia_is_exact(dtype, shift):
    X = blobs(shift, n=400).astype(dtype)
    model = dc.KMeans(5, random_state=0, max_iter=3).fit(X)
    truth = reference.inertia(X, model.cluster_centers_)
    assert model.inertia_ == pytest.approx(truth, rel=2e-6 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.float16, bool])
def test_small_dtypes_equal_float32(dtype):
    X = (np.random.default_rng(0).integers(0, 100, (500, 7)) % 50).astype(dtype)
    start = X[:6].astype(np.float32) + np.arange(6, dtype=np.float32)[:, None] / 8
    one = dc.KMeans(6, init=start).fit(X)
    other = dc.KMeans(6, init=start).fit(X.astype(np.float32))
    assert one.cluster_centers_.dtype == np.float32
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_wide_integers_are_computed_in_float64(dtype):
    X = np.random.default_rng(0).integers(0, 10**6, (300, 3)).astype(dtype)
    assert dc.KMeans(3, random_state=0).fit(X).cluster_centers_.dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_lloyd_follows_the_reference(dtype, weighted):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 3)).astype(dtype)
    weights = rng.integers(0, 5, 150).astype(float) if weighted else None
    start = X[:6]
    centres, n_iter = reference.lloyd(X, start, weights)
    model = dc.KMeans(6, init=start, tol=0).fit(X, sample_weight=weights)
    np.testing.assert_allclose(
        model.cluster_centers_, centres, rtol=1e-5 if dtype == np.float32 else 1e-12
    )
    if dtype == np.float64:
        assert model.n_iter_ == n_iter


def sparse_case(name, n=900, d=60):
    """Lognormal rows of which nine in ten values are zero, as a dense array and as CSR."""
    dtype, weighted = CASES[name]
    rng = np.random.default_rng(3)
    groups = rng.random((12, d)) < 0.15
    kept = groups[rng.integers(0, 12, n)] & (rng.random((n, d)) < 0.7)
    dense = np.where(kept, rng.lognormal(size=(n, d)), 0.0).astype(dtype)
    return dense, sparse.csr_array(dense), (weights(n) if weighted else None)


@pytest.mark.parametrize("init", ["array", "random", "k-means++", "k-means||"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_dense_equals_sparse(name, init, metric):
    dense, rows, w = sparse_case(name)
    start = dense[:: 900 // 9][:9] if init == "array" else init
    model = dc.KMeans(9, init=start, metric=metric, random_state=1, tol=0, max_iter=30, n_init=1)
    one = clone(model).fit(dense, sample_weight=w)
    other = clone(model).fit(rows, sample_weight=w)
    # Scores and sums have the same bits; unit lengths and distances agree up to their rounding.
    assert np.array_equal(one.labels_, other.labels_)
    assert one.n_iter_ == other.n_iter_
    assert other.inertia_ == pytest.approx(one.inertia_, rel=1e-13 if metric != "cosine" else 1e-6)
    if metric == "euclidean":
        assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
        assert other.history_[-1]["inertia"] == pytest.approx(one.history_[-1]["inertia"])
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=1e-6)
    assert np.array_equal(other.predict(rows), other.labels_)
    assert np.array_equal(other.predict(dense), other.labels_)
    np.testing.assert_allclose(other.transform(rows), one.transform(dense), rtol=1e-5, atol=1e-6)
    assert other.score(rows, sample_weight=w) == pytest.approx(-other.inertia_, rel=1e-12)
    labels, distances = other.predict(rows, n_nearest=3, return_distance=True)
    dense_labels, dense_distances = other.predict(dense, n_nearest=3, return_distance=True)
    assert np.array_equal(labels, dense_labels)
    np.testing.assert_allclose(distances, dense_distances, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_empty_clusters_of_sparse_rows(name):
    dense, rows, w = sparse_case(name)
    start = np.concatenate([dense[:5], np.full((3, 60), 1e3, dense.dtype)])
    one = dc.KMeans(8, init=start, tol=0).fit(dense, sample_weight=w)
    other = dc.KMeans(8, init=start, tol=0).fit(rows, sample_weight=w)
    assert other.history_[0]["n_empty"] == 3
    assert np.array_equal(one.labels_, other.labels_)
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float16, bool])
def test_small_sparse_dtypes_equal_dense_ones(dtype):
    dense = (np.random.default_rng(0).integers(0, 40, (500, 30)) // 30 * 7).astype(dtype)
    rows = sparse.csr_array(dense.astype(np.float32))
    rows.data = rows.data.astype(dtype)  # scipy itself knows no float16
    start = dense[:6].astype(float) + np.arange(6)[:, None] / 8
    one = dc.KMeans(6, init=start, tol=0).fit(dense)
    other = dc.KMeans(6, init=start, tol=0, engine="local").fit(dc.open_dataset(rows))
    assert other.cluster_centers_.dtype == one.cluster_centers_.dtype
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "dask"])
def test_centres_in_float64_are_not_rounded_for_float32_rows(metric, kind):
    X = blobs(1e5, n=600).astype(np.float32)
    model = dc.KMeans(5, metric=metric, random_state=0, max_iter=5).fit(X.astype(float))
    given, wide = X, X.astype(float)
    if kind == "sparse":
        given, wide = sparse.csr_array(given), sparse.csr_array(wide)
    elif kind == "dask":
        da = pytest.importorskip("dask.array")
        given, wide = da.from_array(given, chunks=(250, 6)), da.from_array(wide, chunks=(250, 6))
    for function in (model.transform, model.predict):
        np.testing.assert_array_equal(np.asarray(function(given)), np.asarray(function(wide)))
    if kind != "dask":
        assert model.score(given) == model.score(wide)
        _, near = model.predict(given, return_distance=True)
        np.testing.assert_array_equal(near, np.asarray(model.transform(wide)).min(axis=1))


@pytest.mark.parametrize("covariance_type", ["isotropic", "diag", "tied", "full"])
def test_mixtures_in_float64_are_not_rounded_for_float32_rows(covariance_type):
    X = blobs(1e5, n=600).astype(np.float32)
    mixture = dc.VariationalGaussianMixture(
        5, covariance_type=covariance_type, random_state=0, max_iter=5
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(X.astype(float))
    for function in (mixture.predict, mixture.score_samples, mixture.score):
        np.testing.assert_array_equal(function(X), function(X.astype(float)))
    one, other = mixture.predict_proba(X), mixture.predict_proba(X.astype(float))
    np.testing.assert_array_equal(one.toarray(), other.toarray())
