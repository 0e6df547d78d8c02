"""Rows of zeros under the cosine metric have no direction: a fit counts them."""

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
