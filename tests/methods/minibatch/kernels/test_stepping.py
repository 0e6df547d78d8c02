"""Steps of single rows, scored ahead, against the same steps one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.kernels import tile
from daskcluster.kernels.panels import PORTABLE
from daskcluster.methods.minibatch import chunkwise as drifting
from daskcluster.methods.minibatch.chunkwise import Batch, DriftingCentres, label_batch
from daskcluster.methods.minibatch.kernels import stepping
from daskcluster.sparse_rows import SparseRows
from tests.reference.variance_reduced import sgd


def problem(n, d, k, dtype, *, shift=0.0, seed=0):
    """Rows, and centres of which two are near duplicates: their winners change with every step."""
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(n, d)) * 3 + shift).astype(dtype)
    centres = rows[rng.permutation(n)[:k]].copy()
    centres[-1] = centres[0] * dtype(1 + 1e-6)
    return rows, centres, rng


def plainly(rows, centres, listed, table, rate):
    """Take steps one by one, each row labelled under the centres as they are, rounded."""
    start, now = centres.astype(np.float64), centres.astype(np.float64)
    offset, winners = tile.pack(centres).offset, []
    label = np.empty(1, np.int32)
    for i, b in zip(listed, table, strict=True):
        tile.nearest(rows[i : i + 1], tile.pack(now.astype(rows.dtype), offset), label)
        a, x = int(label[0]), rows[i].astype(np.float64)
        winners.append(a)
        before = now.copy()
        if a == b:
            now[b] -= rate * (before[b] - start[b])
        else:
            now[a] -= rate * (before[a] - x)
            now[b] += rate * (start[b] - x)
    return now, sum(a != b for a, b in zip(winners, table, strict=True))


@pytest.mark.kernels
@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "k", "rate", "shift", "dtype"),
    [
        (300, 2, 3, 0.01, 0.0, np.float32),
        (300, 17, 20, 0.05, 0.0, np.float32),
        (300, 17, 20, 0.6, 1e4, np.float32),
        (300, 40, 6, 0.002, 1e4, np.float64),
        (300, 5, 1, 0.1, 0.0, np.float64),
    ],
)
def test_rows_scored_ahead_take_the_steps_of_rows_one_by_one(
    monkeypatch, n, d, k, rate, shift, dtype, portable
):
    rows, centres, rng = problem(n, d, max(k, 2), dtype, shift=shift)
    centres = centres[:k]
    listed = rng.integers(0, n, 700)
    table = label_batch(Batch(rows, listed), tile.pack(centres[::-1].copy()))
    expected, n_switched = plainly(rows, centres, listed, table, rate)
    if portable:
        monkeypatch.setattr(
            drifting.stepping, "pack_for_steps", lambda start: tile.pack(start, tile=PORTABLE)
        )
    moving = DriftingCentres(centres)
    for part, labels in zip(np.array_split(listed, 3), np.array_split(table, 3), strict=True):
        moving.run_steps(Batch(rows, part), labels, rate)
    assert moving.n_switched == n_switched
    np.testing.assert_allclose(moving.now(), expected, rtol=1e-12, atol=1e-9)


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_portable_tile_gives_the_same_bits(monkeypatch, dtype):
    rows, centres, rng = problem(400, 21, 12, dtype)
    listed = rng.integers(0, 400, 900)
    table = label_batch(Batch(rows, listed), tile.pack(centres[::-1].copy()))
    found = []
    for choose in (stepping.pack_for_steps, lambda start: tile.pack(start, tile=PORTABLE)):
        monkeypatch.setattr(drifting.stepping, "pack_for_steps", choose)
        moving = DriftingCentres(centres)
        moving.run_steps(Batch(rows, listed), table, 0.1)
        found.append(moving.drift())
    np.testing.assert_array_equal(*found)


def test_sparse_rows_take_the_steps_of_dense_ones():
    rows, centres, rng = problem(300, 30, 8, np.float64)
    rows[rng.random(rows.shape) < 0.8] = 0.0
    listed = rng.integers(0, 300, 900)
    table = rng.integers(0, 8, 900).astype(np.int32)
    dense, thin = DriftingCentres(centres), DriftingCentres(centres, sparse=True)
    dense.run_steps(Batch(rows, listed), table, 0.02)
    thin.run_steps(Batch(SparseRows.of(rows), listed), table, 0.02)
    assert dense.n_switched == thin.n_switched > 0
    np.testing.assert_allclose(dense.now(), thin.now(), rtol=1e-10)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_that_shrink_with_what_a_centre_has_seen(weighted, sparse):
    rows, centres, rng = problem(300, 6, 8, np.float64)
    if sparse:
        rows[rng.random(rows.shape) < 0.5] = 0.0
    weights = rng.integers(0, 3, 300).astype(float) if weighted else None
    listed, seen = rng.permutation(300), np.ones(8)
    centres, counts = centres.copy(), np.ones(8)
    centres[-1] += 1.0
    expected, v = sgd(rows, weights, centres, seen, listed)
    moving = DriftingCentres(centres, seen=counts, sparse=sparse)
    moving.run_steps(Batch(SparseRows.of(rows) if sparse else rows, listed, weights))
    np.testing.assert_allclose(moving.now(), expected, rtol=1e-10)
    np.testing.assert_array_equal(counts, v)
    assert moving.cost > 0.0


def test_a_centre_that_goes_too_far_is_lost():
    rows, centres, rng = problem(300, 4, 5, np.float64)
    listed = rng.integers(0, 300, 5000)
    table = rng.integers(0, 5, 5000).astype(np.int32)
    fast, slow = DriftingCentres(centres, limit=20.0), DriftingCentres(centres, limit=20.0)
    fast.run_steps(Batch(rows, listed), table, 5.0)
    slow.run_steps(Batch(rows, listed), table, 1e-4)
    assert fast.lost
    assert not slow.lost
