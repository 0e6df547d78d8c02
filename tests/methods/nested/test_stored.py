"""Nested batches as datasets: which rows, in which order, read from where."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from scipy import sparse

from daskcluster import open_dataset
from daskcluster.data.csr import csr_of
from daskcluster.methods.nested.batches import GatheredBatches, NestedBatchDataset, NestedOrder
from daskcluster.randomness import Key

N = 3000
KEY = Key(7, "nested")


def rows(n=N, d=4):
    return np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)


def stored(tmp_path, X, chunk=170, weights=None):
    url = str(tmp_path / "rows.zarr")
    array = zarr.create_array(url, shape=X.shape, chunks=(chunk, X.shape[1]), dtype=X.dtype)
    array[:] = X
    return open_dataset(url, weights=weights)


@pytest.mark.parametrize("key", [KEY, None], ids=["random", "stored order"])
@pytest.mark.parametrize("b", [0, 1, 2, 1500, N - 1, N])
def test_a_limit_has_that_many_rows_before_it(key, b):
    order = NestedOrder(N, key)
    assert len(order.within(0, N, 0, order.limit(b))) == b


def test_batches_are_nested_and_do_not_depend_on_blocks():
    order = NestedOrder(N, KEY)
    small, large = order.limit(100), order.limit(900)
    inner, outer = order.within(0, N, 0, small), order.within(0, N, 0, large)
    assert set(inner) < set(outer)
    parts = [order.within(a, a + 100, 0, large) + a for a in range(0, N, 100)]
    np.testing.assert_array_equal(np.concatenate(parts), outer)


def test_a_batch_is_a_fair_sample():
    """Each half, and each residue, has its share within four standard deviations."""
    n, b = 100_000, 10_000
    order = NestedOrder(n, KEY)
    which = order.within(0, n, 0, order.limit(b))
    for part in (which < n // 2, which % 2 == 0):
        assert abs(part.mean() - 0.5) < 4 * 0.5 / np.sqrt(b)


def test_the_same_rows_come_from_memory_and_from_any_chunks(tmp_path):
    X = rows()
    order = NestedOrder(N, KEY)
    low, high = order.limit(200), order.limit(1500)
    expected = X[order.within(0, N, low, high)]
    for base in (open_dataset(X), stored(tmp_path, X)):
        nested_batch = NestedBatchDataset(base, order, low, high)
        assert nested_batch.n_rows == 1300 == sum(nested_batch.chunk_sizes)
        np.testing.assert_array_equal(nested_batch.to_numpy(), expected)
        np.testing.assert_array_equal(nested_batch.load((17, 900)).rows, expected[17:900])
        np.testing.assert_array_equal(
            nested_batch.take(np.array([5, 1299, 0])), expected[[5, 1299, 0]]
        )
        found = list(nested_batch.chunks([(3, 40), (40, 41), (500, 1300)]))
        np.testing.assert_array_equal(
            np.concatenate([c.rows for c in found]), expected[np.r_[3:41, 500:1300]]
        )
        assert next(c.start for c in found if c.start >= 500) == 500
        (unit,) = nested_batch.normalized().chunks([(0, 1300)])
        np.testing.assert_allclose(np.linalg.norm(unit.computed(), axis=1), 1.0, rtol=1e-6)


def test_weights_go_with_their_rows(tmp_path):
    X, weights = rows(), np.arange(1.0, N + 1)
    nested_batch = NestedBatchDataset(
        open_dataset(X, weights=weights), NestedOrder(N, KEY), 0, 1 << 62
    )
    which = NestedOrder(N, KEY).within(0, N, 0, 1 << 62)
    np.testing.assert_array_equal(np.asarray(nested_batch.weights), weights[which])
    np.testing.assert_array_equal(nested_batch.weights[5:90], weights[which[5:90]])
    np.testing.assert_array_equal(
        nested_batch.load((0, nested_batch.n_rows)).weights, weights[which]
    )
    assert nested_batch.weights.max() == weights[which].max()
    assert len(nested_batch.weights[4:4]) == 0


def test_a_nested_batch_without_rows_in_some_chunks(tmp_path):
    X = rows(400)
    order = NestedOrder(400, KEY)
    nested_batch = NestedBatchDataset(stored(tmp_path, X, chunk=5), order, 0, order.limit(11))
    assert len(nested_batch.chunk_sizes) <= 11
    np.testing.assert_array_equal(
        nested_batch.to_numpy(), X[order.within(0, 400, 0, order.limit(11))]
    )
    assert nested_batch.load((3, 3)).n_rows == 0


def test_sparse_rows_stay_sparse():
    X = sparse.random_array((N, 40), density=0.05, format="csr", rng=np.random.default_rng(1))
    order = NestedOrder(N, KEY)
    base = open_dataset(X)
    nested_batch = NestedBatchDataset(base, order, 0, order.limit(700))
    assert csr_of(nested_batch) is base.csr
    chunk = nested_batch.load((0, 700))
    which = order.within(0, N, 0, order.limit(700))
    np.testing.assert_array_equal(chunk.rows.toarray(), X.toarray()[which])


@pytest.mark.parametrize("make", ["memory", "store", "sparse", "weighted"])
def test_gathered_at_once_or_one_by_one_is_the_same_block(make, tmp_path):
    X = rows()
    base = {
        "memory": lambda: open_dataset(X),
        "store": lambda: stored(tmp_path, X),
        "sparse": lambda: open_dataset(sparse.csr_array(np.where(X > 0.5, X, 0))),
        "weighted": lambda: open_dataset(X, weights=np.arange(1.0, N + 1)),
    }[make]()
    order = NestedOrder(N, KEY)
    slowly, at_once = (GatheredBatches(base, order, [100, 200, 400]) for _ in range(2))
    at_once.gather(3)
    for number in (1, 2, 3):
        slowly.gather(number)
        one, other = slowly.batch(number), at_once.batch(number)
        np.testing.assert_array_equal(one.to_numpy(), other.to_numpy())
        assert one.n_rows == 100 * 2 ** (number - 1)
        if make == "weighted":
            np.testing.assert_array_equal(np.asarray(one.weights), np.asarray(other.weights))
    whole = base.to_numpy()
    last = slowly.batch(3).to_numpy()
    nested_batches = [
        order.within(0, N, order.limit(a), order.limit(b)) for a, b in [(0, 100), (100, 200)]
    ]
    np.testing.assert_array_equal(last[:200], whole[np.concatenate(nested_batches)])


def test_the_stored_order_reads_the_beginning_only(tmp_path):
    base = stored(tmp_path, rows())
    gathered, read = GatheredBatches(base, NestedOrder(N, None), [170, 340]), []
    gathered.gather(1, on_read=read.append)
    assert sum(read) == base.bytes_of((0, 170))
    np.testing.assert_array_equal(gathered.batch(1).to_numpy(), rows()[:170])
