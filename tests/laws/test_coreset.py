"""Laws 2, 3, 4 and 9 for coresets: unbiased, the same draws anywhere, weights are copies, two passes."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import zarr

import daskcluster as dc
from tests.data.test_sparse_zarr import put
from tests.laws.data import CASES, case, lognormal
from tests.laws.test_law_05_precision import sparse_case
from tests.reference import coreset as reference

N = 1500
SIZE = 120


def draw(source, w=None, *, size=SIZE, seed=3, engine="local"):
    return dc.LightweightCoreset(size, random_state=seed, engine=engine).fit(
        source, sample_weight=w
    )


def same_bits(one, other):
    assert np.array_equal(one.indices_, other.indices_)
    assert one.coreset_.weights.tobytes() == other.coreset_.weights.tobytes()
    assert one.coreset_.to_numpy().tobytes() == other.coreset_.to_numpy().tobytes()
    assert (one.total_weight_, one.spread_) == (other.total_weight_, other.spread_)
    assert one.mean_.tobytes() == other.mean_.tobytes()


@pytest.mark.parametrize("name", CASES)
def test_chunks_and_threads(tmp_path, name):
    X, w = case(name)
    expected = draw(X, w, engine=dc.LocalEngine(n_threads=1))
    assert np.array_equal(X[expected.indices_], expected.coreset_.to_numpy())
    for chunks in ((N,), (1, 700, 13, 86, 300, 399, 1), (50,) * 30):
        rows = da.from_array(X, chunks=(N, -1)).rechunk({0: chunks})
        same_bits(draw(rows, w), expected)
    empty = da.concatenate([rows[:500], rows[:0], rows[500:]])
    same_bits(draw(empty, w, engine=dc.LocalEngine(n_threads=3)), expected)
    array = zarr.create_array(tmp_path / "rows.zarr", shape=X.shape, chunks=(97, 2), dtype=X.dtype)
    array[:] = X
    same_bits(draw(str(tmp_path / "rows.zarr"), w), expected)


def test_one_row_per_chunk():
    X, w = case("weighted float32", n=90)
    same_bits(draw(da.from_array(X, chunks=(1, -1)), w, size=20), draw(X, w, size=20))


@pytest.mark.parametrize("name", CASES)
def test_cluster(tmp_path, client, name):
    X, w = case(name)
    array = zarr.create_array(tmp_path / "rows.zarr", shape=X.shape, chunks=(100, 5), dtype=X.dtype)
    array[:] = X
    same_bits(draw(str(tmp_path / "rows.zarr"), w, engine=client), draw(X, w))
    same_bits(draw(X, w, engine=client), draw(X, w))


@pytest.mark.parametrize("name", ["float32", "weighted float64"])
def test_sparse(tmp_path, client, name):
    _, rows, w = sparse_case(name, n=N)
    expected = draw(rows, w)
    put(zarr.open_group(tmp_path / "rows.zarr", mode="w"), rows, chunks=2000)
    url = str(tmp_path / "rows.zarr")
    same_bits(draw(url, w), expected)
    same_bits(draw(url, w, engine=client), expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_unbiased(weighted):
    """E[sum gamma] = W and E[sum gamma x] = sum w x, within 4 standard errors; gamma <= 2 W / m."""
    X = lognormal(400, 3, dtype=np.float64)
    w = np.random.default_rng(2).lognormal(size=400) if weighted else None
    W, mean, _ = reference.moments(X, w)
    runs = [
        draw(X, w, size=60, seed=seed, engine=dc.LocalEngine(1)).coreset_ for seed in range(250)
    ]
    weights = np.array([run.weights for run in runs])
    assert weights.max() <= 2 * W / 60 * (1 + 1e-9)
    totals = weights.sum(axis=1)
    assert abs(totals.mean() - W) <= 4 * totals.std() / len(runs) ** 0.5
    sums = np.array([run.weights @ run.to_numpy() for run in runs])
    assert (np.abs(sums.mean(axis=0) - W * mean) <= 4 * sums.std(axis=0) / len(runs) ** 0.5).all()


def test_merges_are_unbiased():
    X = lognormal(600, 2, dtype=np.float64)
    found = []
    for seed in range(200):
        parts = [
            dc.lightweight_coreset(part, 80, seed, engine=dc.LocalEngine(1))
            for part in np.array_split(X, 3)
        ]
        merged = dc.merge_coresets(*parts, size=70, random_state=seed, engine=dc.LocalEngine(1))
        assert merged.n_rows == 70
        found.append([merged.weights.sum(), *(merged.weights @ merged.to_numpy())])
    error = np.std(found, axis=0) / len(found) ** 0.5
    assert (np.abs(np.mean(found, axis=0) - [600, *X.sum(axis=0)]) <= 4 * error).all()


def test_weight_equals_copies():
    """Rows of weight w are drawn as w copies are, and stand for as much."""
    rng = np.random.default_rng(5)
    X, counts = rng.lognormal(size=(8, 2)), np.array([1, 3, 0, 2, 5, 1, 4, 2])
    copies = np.repeat(np.arange(8), counts)
    totals = np.zeros((2, 8))
    for seed in range(40):
        one = draw(X, counts, size=7, seed=seed)
        other = draw(X[copies], size=7, seed=seed)
        np.add.at(totals[0], one.indices_, one.coreset_.weights)
        np.add.at(totals[1], copies[other.indices_], other.coreset_.weights)
    q = reference.probabilities(X, reference.moments(X, counts)[1], counts)
    gamma = counts / np.where(q > 0, 7 * q, 1)
    error = gamma * np.sqrt(40 * 7 * q * (1 - q))
    for total in totals:
        assert (np.abs(total - 40 * counts) <= 4 * error).all()


def test_all_rows_when_the_size_suffices():
    X, w = case("weighted float32", n=200)
    found = draw(X, w, size=200)
    kept = np.flatnonzero(w > 0)
    assert np.array_equal(found.indices_, kept)
    assert np.array_equal(found.coreset_.weights, w[kept])
    start = X[kept][:5]
    one = dc.KMeans(5, init=start, tol=0).fit(X, sample_weight=w)
    other = dc.KMeans(5, init=start, tol=0).fit(found.coreset_)
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=1e-6)


@pytest.mark.parametrize("name", ["float32", "weighted float32"])
def test_two_passes(tmp_path, name):
    X, w = case(name)
    array = zarr.create_array(tmp_path / "rows.zarr", shape=X.shape, chunks=(100, 5), dtype=X.dtype)
    array[:] = X
    engine = dc.LocalEngine(n_threads=1, memory_limit=350 * 2**20)  # nothing stays resident
    found = draw(str(tmp_path / "rows.zarr"), w, engine=engine)
    assert found.passes_ == 2
    assert found.bytes_read_ == 2 * X.nbytes
