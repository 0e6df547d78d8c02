"""Mini-batch steps against the reference, for every kind of rows and number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.chunkwise.centres import PreparedCentres, raise_max_abs
from daskcluster.methods.minibatch import chunkwise as minibatch
from daskcluster.methods.minibatch.chunkwise import Batch, MiniBatchStepper, MovingCentres
from daskcluster.sparse_rows import SparseRows
from tests.laws.data import CASES, case

RATES = ["count", "sqrt"]


def draws(n, b, steps, seed=3):
    random = np.random.default_rng(seed)
    return [random.permutation(n)[:b] for _ in range(steps)]


def stepped(rows, weights, centres, batches, rate, *, threads=1, normalize=False):
    """Return the state after some steps, their outcomes, and the last labels."""
    stepper = MiniBatchStepper(MovingCentres.start(centres), rate, threads)
    with stepper.threads():
        found = [stepper.step(Batch(rows, listed, weights, normalize)) for listed in batches]
    return stepper.state, found, stepper.labels


def same(one, other):
    assert np.array_equal(one[0].exact, other[0].exact)
    assert np.array_equal(one[0].centres, other[0].centres)
    assert np.array_equal(one[0].seen, other[0].seen)
    assert np.array_equal(one[2], other[2])
    assert one[1] == other[1]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", CASES)
def test_threads_do_not_matter(name, rate, monkeypatch):
    monkeypatch.setattr(minibatch, "_WORTH_A_THREAD", 0)
    X, w = case(name)
    for rows in (X, SparseRows.of(X)):
        one = stepped(rows, w, X[:7], draws(1500, 333, 5), rate)
        same(stepped(rows, w, X[:7], draws(1500, 333, 5), rate, threads=2), one)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", ["F order", "int16", "every other", "float16", "int64"])
def test_rows_are_converted_a_batch_at_a_time(kind, normalize):
    X = np.round(np.random.default_rng(0).normal(size=(300, 6)) * 20)
    rows = {
        "F order": np.asfortranarray(X, np.float32),
        "int16": X.astype(np.int16),
        "every other": np.repeat(X, 2, axis=0).astype(np.float32)[::2],
        "float16": X.astype(np.float16),
        "int64": X.astype(np.int64),
    }[kind]
    dtype = np.float64 if kind == "int64" else np.float32
    plain, start, batches = X.astype(dtype), X[:5].astype(dtype), draws(300, 50, 4)
    found = stepped(rows, None, start, batches, "count", normalize=normalize)
    same(found, stepped(plain, None, start, batches, "count", normalize=normalize))
    assert found[0].centres.dtype == dtype


def test_cosine_equals_steps_on_scaled_rows_then_scaled_centres():
    X = np.random.default_rng(0).normal(size=(200, 5))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    state, _, _ = stepped(X, None, unit[:4], [np.arange(200)], "count", normalize=True)
    plain, _, _ = stepped(unit, None, unit[:4], [np.arange(200)], "count")
    expected = plain.exact / np.linalg.norm(plain.exact, axis=1, keepdims=True)
    np.testing.assert_allclose(state.exact, expected, rtol=1e-12)


def test_a_running_mean_does_not_stall_in_float32():
    # A step of 1e-8 of the value is lost in float32, not in what the centres are computed from.
    rows = np.ones((10, 1), np.float32)
    stepper = MiniBatchStepper(MovingCentres.start(np.ones((1, 1), np.float32)))
    stepper.state.seen[:] = 1e9
    for _ in range(3):
        stepper.step(Batch(rows * 3, np.arange(10)))
    np.testing.assert_allclose(stepper.state.exact[0, 0] - 1.0, 6e-8, rtol=1e-6)


def test_rows_that_are_not_finite_are_found():
    X = np.ones((20, 3), np.float32)
    X[7, 1], X[12, 2] = np.inf, np.nan
    for rows in (X, SparseRows.of(X), X.astype(np.float16)):
        state = MovingCentres.start(np.ones((2, 3), np.float32))
        batch = Batch(rows, np.array([3, 12, 7]))
        assert not np.isfinite(MiniBatchStepper(state).step(batch).cost)
        assert raise_max_abs(batch.taken(), np.zeros(3)) == (1, True)
        assert raise_max_abs(Batch(rows, np.array([3, 5])).taken(), np.zeros(3)) == (-1, False)


def test_large_batches_of_many_centres_are_searched_by_bounds(monkeypatch):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((3000, 120)) * 0.95 ** np.arange(120)).astype(np.float32)
    start, batches, rows = X[:160].copy(), draws(3000, 2500, 3), []
    expected = stepped(X, None, start, batches, "count")
    monkeypatch.setattr(minibatch, "_REPAID_PRODUCTS", 0.0)

    def counted(self, some, labels):
        rows.append(len(some))
        nearest(self, some, labels)

    nearest = PreparedCentres.nearest
    monkeypatch.setattr(PreparedCentres, "nearest", counted)
    for threads in (1, 2):
        same(stepped(X, None, start, batches, "count", threads=threads), expected)
    assert sum(rows) == 2 * 3 * 2500
