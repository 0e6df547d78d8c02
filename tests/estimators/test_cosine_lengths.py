"""Under the cosine metric lengths of rows do not matter, and rows of zeros are counted."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse

import daskcluster as dc

X = np.random.default_rng(0).normal(size=(400, 5))
X[[3, 70, 399]] = 0.0


@pytest.mark.parametrize("rows", [X, X.astype(np.float32), sparse.csr_array(X)])
@pytest.mark.parametrize("estimator", [dc.KMeans, dc.NestedMiniBatchKMeans, dc.BackwardEulerKMeans])
def test_rows_of_zeros_are_counted_under_cosine(estimator, rows):
    model = estimator(3, metric="cosine", random_state=0)
    with pytest.warns(UserWarning, match="3 of 400 rows are all zeros and have no direction"):
        model.fit(rows)
    weights = (np.abs(X).sum(axis=1) > 0).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(rows, sample_weight=weights)
        estimator(3, random_state=0).fit(rows)
    lengths = np.linalg.norm(model.cluster_centers_, axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-6)


def test_stored_zeros_of_sparse_rows_are_zeros():
    rows = sparse.csr_array(np.eye(4))
    rows.data[1] = 0.0
    with pytest.warns(UserWarning, match="1 of 4 rows are all zeros"):
        dc.KMeans(2, metric="cosine", random_state=0).fit(rows)


@pytest.mark.parametrize(
    ("estimator", "init"),
    [
        (dc.KMeans, "k-means++"),
        (dc.MiniBatchKMeans, "k-means++"),
        (dc.MiniBatchKMeans, "auto"),
        (dc.BackwardEulerKMeans, "random"),
        (dc.StreamingKMeans, "k-means++"),
    ],
)
@pytest.mark.parametrize(("dtype", "power"), [(np.float32, 60), (np.float64, 500)])
def test_long_rows_have_the_clusters_of_short_ones_under_cosine(estimator, init, dtype, power):
    rows = X[10:300].astype(dtype)
    short, long = (
        estimator(3, init=init, metric="cosine", random_state=0).fit(rows * factor)
        for factor in (dtype(1), dtype(2) ** power)
    )
    assert np.array_equal(short.cluster_centers_, long.cluster_centers_)
    assert np.array_equal(short.predict(rows), long.predict(rows * dtype(2) ** power))
