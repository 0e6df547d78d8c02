"""Law 5: float32 equals float64 to float32 accuracy, also far from the origin."""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
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
