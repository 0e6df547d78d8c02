"""Law 6: labels_ == predict(X), always, also after an empty cluster was relocated."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskcluster as dc


@given(
    n=st.integers(2, 200),
    d=st.integers(1, 9),
    k=st.integers(1, 20),
    values=st.sampled_from([2, 5, 10**6]),
    max_iter=st.integers(0, 6),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([np.float32, np.float64, np.uint8]),
    shift=st.sampled_from([0, 10**4]),
)
def test_labels_equal_predict(n, d, k, values, max_iter, seed, dtype, shift):
    rng = np.random.default_rng(seed)
    X = (rng.integers(0, values, (n, d)) % 250 + (shift if dtype is not np.uint8 else 0)).astype(
        dtype
    )
    k = min(k, n)
    model = dc.KMeans(k, init="random", n_init=1, max_iter=max_iter, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct rows than clusters
        model.fit(X)
    assert np.array_equal(model.labels_, model.predict(X))
    # A first pass sums on a coarser grid: last digits of a figure may differ, no label does.
    assert model.inertia_ == pytest.approx(-model.score(X), rel=1e-12)
    assert model.inertia_ == pytest.approx(
        dc.quantization_error(X, model.cluster_centers_), rel=1e-12
    )


@pytest.mark.parametrize("max_iter", [1, 2, 300])
def test_after_relocation(max_iter):
    X = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    start = np.array([[0, 0], [50, 50], [60, 60], [70, 70]], np.float32)
    model = dc.KMeans(4, init=start, max_iter=max_iter).fit(X)
    assert model.history_[0]["n_empty"] == 3
    assert np.array_equal(model.labels_, model.predict(X))
    assert len(set(model.labels_.tolist())) == 4
