"""Batches: every row once a pass, uniform in memory, from all over the dataset out of core."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster.data.writer import write_rows
from daskcluster.methods.minibatch.batches import LEAST_GROUPS, Batches, Pools
from daskcluster.randomness import Key

N = 2000
X = np.arange(N * 3, dtype=np.float32).reshape(N, 3)
W = np.random.default_rng(0).random(N)


ROOMS = {"memory": 1, "read once": X.nbytes, "pools": X.nbytes // 2, "few groups": X.nbytes // 10}


@pytest.fixture
def stored(tmp_path):
    """Return the URL of the rows in chunks of ten rows."""
    array = zarr.create_array(tmp_path / "rows.zarr", shape=X.shape, chunks=(10, 3), dtype=X.dtype)
    array[:] = X
    return str(tmp_path / "rows.zarr")


def drawn(batches, n):
    """Return the rows of `n` batches by their numbers, checking that they are what they should be."""
    found = []
    for _ in range(n):
        batch = batches.next()
        rows = batch.rows[batch.listed]
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        numbers = (rows[:, 1] - 1) // 3
        assert np.array_equal(rows, X[numbers.astype(int)])
        assert [batches.row_of(i) for i in range(len(batch))] == numbers.tolist()
        if batch.weights is not None:
            assert np.array_equal(batch.listed_weights(), W[numbers.astype(int)])
        found.append(numbers.astype(int))
    return found


def sources(stored):
    whole = dc.open_dataset(X)
    return {
        "memory": Batches(whole, 130, 0),
        "read once": Batches(dc.open_dataset(stored), 130, 0),
        "pools": Batches(dc.open_dataset(stored), 130, 0, room_bytes=X.nbytes // 2),
        "few groups": Batches(dc.open_dataset(stored), 130, 0, room_bytes=X.nbytes // 10),
    }


@pytest.mark.parametrize("kind", ROOMS)
def test_with_replacement_rows_are_drawn_independently(stored, kind):
    url = X if kind == "memory" else stored
    options = {"room_bytes": ROOMS[kind], "replacement": True}
    with Batches(dc.open_dataset(url), 130, 0, **options) as batches:
        found = drawn(batches, 4 * N // 130)
        assert "with replacement" in batches.notice or kind not in ("pools", "few groups")
    counts = np.bincount(np.concatenate(found), minlength=N)
    expected = N * np.exp(-4.0) * 4.0 ** np.arange(8) / np.array([1, 1, 2, 6, 24, 120, 720, 5040])
    share = np.bincount(counts, minlength=8)[:8]
    np.testing.assert_allclose(share, expected, atol=5 * np.sqrt(N) / 2)
    with Batches(dc.open_dataset(url), 130, 0, skipped=40, **options) as later:
        assert np.array_equal(drawn(later, 1)[0], found[40])


def test_with_replacement_a_batch_may_be_larger_than_the_dataset():
    with Batches(dc.open_dataset(X[:7]), 100, 0, replacement=True) as batches:
        assert len(batches.next()) == 100


@pytest.mark.parametrize("kind", ["memory", "read once", "pools", "few groups"])
def test_every_row_comes_once_a_pass(stored, kind):
    with sources(stored)[kind] as batches:
        numbers = np.concatenate(drawn(batches, 3 * N // 130 + 1))
    for epoch in range(3):
        assert np.array_equal(np.sort(numbers[epoch * N : (epoch + 1) * N]), np.arange(N))
    assert not np.array_equal(numbers[:N], numbers[N : 2 * N])


@pytest.mark.parametrize("kind", ["memory", "read once", "pools", "few groups"])
def test_batches_can_start_after_any_number_of_others(stored, kind):
    dataset = dc.open_dataset(X if kind == "memory" else stored)
    with sources(stored)[kind] as one:
        whole = drawn(one, 70)
    for skipped in (1, 16, 50):
        with Batches(dataset, 130, 0, room_bytes=ROOMS[kind], skipped=skipped) as other:
            assert all(map(np.array_equal, whole[skipped : skipped + 20], drawn(other, 20)))


def test_rows_that_fit_are_drawn_as_in_memory(stored):
    found = sources(stored)
    with found["memory"] as one, found["read once"] as other:
        assert all(map(np.array_equal, drawn(one, 20), drawn(other, 20)))
        assert other.bytes_read == X.nbytes
        assert one.notice == other.notice == ""


def test_batches_in_memory_copy_nothing():
    batches = Batches(dc.open_dataset(X), 100, 0)
    assert np.shares_memory(batches.next().rows, X)


def test_positions_in_a_batch_are_uniform():
    # Every row is in the first batch equally often: 49 degrees of freedom, 85.4 is the 0.1 % point.
    counts = np.zeros(50)
    for seed in range(2000):
        counts[Batches(dc.open_dataset(X[:50]), 10, seed).next().listed] += 1
    assert ((counts - 400) ** 2 / (400 * 0.8)).sum() < 85.4


def test_weights_are_read_with_their_rows(stored):
    for room in (1 << 28, X.nbytes // 2):
        with Batches(dc.open_dataset(stored, weights=W), 130, 0, room_bytes=room) as batches:
            assert batches.next().weights is not None
            drawn(batches, 20)


def test_a_pool_holds_groups_from_all_over(stored):
    pools = Pools.plan(dc.open_dataset(stored), 0, 0, X.nbytes, on_read=lambda _: None)
    assert pools.n_groups == 200
    assert pools.per_pool >= LEAST_GROUPS - 14  # 200 groups make four pools of equal size
    for epoch in range(3):
        groups = pools.groups(epoch)
        assert np.array_equal(np.sort(np.concatenate(groups)), np.arange(200))
        for pool in groups:
            # One group of each stratum of four.
            assert np.array_equal(pool // pools.n_pools, np.arange(pools.per_pool))


def test_each_group_is_as_likely_in_every_pool(stored):
    dataset, counts = dc.open_dataset(stored), np.zeros((4, 200))
    for seed in range(400):
        pools = Pools.plan(dataset, seed, 0, X.nbytes, on_read=lambda _: None)
        for number, groups in enumerate(pools.groups(0)):
            counts[number, groups] += 1
    # In 400 draws each group is in each pool 100 times; 600 degrees of freedom, 715 is the 0.1 % point.
    assert ((counts - 100) ** 2 / 100).sum() < 715


def test_pools_keep_within_their_room(stored):
    room = X.nbytes // 10
    pools = Pools.plan(dc.open_dataset(stored), 0, 0, room, on_read=lambda _: None)
    sizes = {len(groups) * 10 * X[0].nbytes for groups in pools.groups(0)}
    assert max(sizes) <= room / 3
    assert "6 of 200 row groups" in pools.notice()
    assert "daskcluster shuffle" in pools.notice()


def test_the_next_pool_is_read_while_one_is_used(stored):
    """Another thread refills without being asked, one pool ahead; then it waits for us."""
    readers, full, n_read = set(), threading.Event(), 0

    def on_read(n_bytes):
        nonlocal n_read
        readers.add(threading.get_ident())
        n_read += n_bytes
        if n_read >= 2 * pool:
            full.set()

    pool = X.nbytes // 4
    pools = Pools.plan(dc.open_dataset(stored), 0, 0, X.nbytes, on_read=on_read)
    assert pools.n_pools == 4
    segments = pools.read()
    first = next(segments)
    assert first.rows.nbytes == pool
    assert full.wait(60.0)
    assert readers
    assert threading.get_ident() not in readers
    assert n_read == 2 * pool
    assert next(segments).rows.nbytes == pool
    segments.close()


def test_inner_chunks_of_shards_are_groups(tmp_path):
    array = zarr.create_array(
        tmp_path / "sharded.zarr", shape=X.shape, shards=(500, 3), chunks=(10, 3), dtype=X.dtype
    )
    array[:] = X
    dataset = dc.open_dataset(str(tmp_path / "sharded.zarr"))
    with Batches(dataset, 130, 0, room_bytes=X.nbytes // 2) as batches:
        assert "of 200 row groups" in batches.notice
        drawn(batches, 20)


def test_mapped_files_are_read_in_pieces(tmp_path):
    np.save(tmp_path / "rows.npy", np.tile(X, (100, 1)))
    dataset = dc.open_dataset(str(tmp_path / "rows.npy"))
    with Batches(dataset, 50, 0, room_bytes=1 << 20) as batches:
        seen = np.concatenate([batches.next().listed for _ in range(3)])
        assert batches.notice
        assert batches.bytes_read < 100 * X.nbytes
    assert len(seen) == 150


def test_sparse_rows_in_pools(tmp_path):
    from scipy.sparse import csr_matrix

    rows = dc.open_dataset(csr_matrix(X))
    url = str(tmp_path / "sparse.zarr")
    write_rows(url, [rows.held], rows)
    dataset = dc.open_dataset(url)
    size = dataset.bytes_of((0, N))
    with Batches(dataset, 130, 0, room_bytes=size - 1) as batches:
        numbers = np.concatenate(drawn(batches, N // 130 + 1))[:N]
    assert np.array_equal(np.sort(numbers), np.arange(N))


def test_samples_are_distinct_rows_and_change_no_batch(stored):
    for batches, twin in zip(sources(stored).values(), sources(stored).values(), strict=True):
        with batches, twin:
            sample = batches.sample(300, Key(0, "sample"))
            numbers = (sample.rows[sample.listed][:, 1] - 1) // 3
            assert len(np.unique(numbers)) == len(numbers) == min(300, len(sample.rows))
            assert batches.row_of(7) == numbers[7]
            assert all(map(np.array_equal, drawn(batches, 5), drawn(twin, 5)))


def test_a_batch_is_never_larger_than_the_dataset():
    with Batches(dc.open_dataset(X[:7]), 100, 0) as batches:
        assert [len(batches.next()) for _ in range(3)] == [7, 7, 7]
