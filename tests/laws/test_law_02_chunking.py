"""Law 2: chunking does not matter, to the bit."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import zarr

import daskcluster as dc
from tests.laws.data import CASES, case

INITS = ["array", "random", "k-means++", "k-means||", "afk-mc2"]
N = 1500
CHUNKINGS = {
    "one chunk": (N,),
    "seven uneven": (1, 700, 13, 86, 300, 399, 1),
    "zero-row chunk": (500, 0, 1000),
}


def fit(source, init, X, w, **kwargs):
    start = X[:: N // 9][:9] if init == "array" else init
    model = dc.KMeans(9, init=start, n_init=1, random_state=3, max_iter=25, tol=0, **kwargs)
    return model.fit(source, sample_weight=w)


def same_bits(one, other):
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    assert one.inertia_ == other.inertia_
    assert (one.n_iter_, one.stop_reason_) == (other.n_iter_, other.stop_reason_)
    assert np.array_equal(np.asarray(one.labels_), np.asarray(other.labels_))


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("name", CASES)
def test_dask_chunks(name, init):
    X, w = case(name)
    expected = fit(X, init, X, w, engine="local")
    for chunks in CHUNKINGS.values():
        rows = da.from_array(X, chunks=(N, -1)).rechunk({0: tuple(c for c in chunks if c)})
        if 0 in chunks:
            rows = da.concatenate([rows[:500], rows[:0], rows[500:]])
        same_bits(fit(rows, init, X, w, engine="local"), expected)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunks", [(N, 5), (97, 2), (1024, 5)])
def test_zarr_chunks(tmp_path, name, init, chunks):
    X, w = case(name)
    array = zarr.create_array(tmp_path / "rows.zarr", shape=X.shape, chunks=chunks, dtype=X.dtype)
    array[:] = X
    same_bits(
        fit(str(tmp_path / "rows.zarr"), init, X, w, engine="local"),
        fit(X, init, X, w, engine="local"),
    )


def test_one_row_per_chunk():
    X, w = case("weighted float32", n=90)
    rows = da.from_array(X, chunks=(1, -1))
    kwargs = {"random_state": 0, "tol": 0, "engine": "local", "init": "k-means||"}
    same_bits(
        dc.KMeans(4, **kwargs).fit(rows, sample_weight=w),
        dc.KMeans(4, **kwargs).fit(X, sample_weight=w),
    )


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("name", CASES)
def test_threads(name, n_threads):
    X, w = case(name)
    expected = fit(X, "k-means++", X, w, engine=dc.LocalEngine(n_threads=1))
    same_bits(fit(X, "k-means++", X, w, engine=dc.LocalEngine(n_threads=n_threads)), expected)


def test_row_order_of_sums():
    """Rows in another order have the same sums to the bit (the probe sees the same rows here)."""
    X, w = case("weighted float64")
    order = np.random.default_rng(0).permutation(N)
    start = X[:9]
    one = dc.KMeans(9, init=start, tol=0, max_iter=20, engine="local").fit(X, sample_weight=w)
    other = dc.KMeans(9, init=start, tol=0, max_iter=20, engine="local").fit(
        X[order], sample_weight=w[order]
    )
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    assert one.inertia_ == other.inertia_
    assert np.array_equal(one.labels_[order], other.labels_)
