"""Kernels of mini-batch steps against NumPy, and against the kernels of whole passes."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.chunkwise.centres import csr
from daskcluster.kernels import tile
from daskcluster.kernels.accumulate import group_by_label
from daskcluster.kernels.jit import weights_or_none
from daskcluster.kernels.panels import PORTABLE
from daskcluster.kernels.sparse import nearest_sparse, pack_sparse, squared_norms
from daskcluster.methods.minibatch.kernels import batch as minibatch
from daskcluster.methods.minibatch.kernels.batch import shuffle_next
from daskcluster.sparse_rows import SparseRows


def problem(n, d, k, dtype, seed=0):
    random = np.random.default_rng(seed)
    rows = (random.normal(size=(n, d)) * 3 + 5).astype(dtype)
    return rows, rows[random.permutation(n)[:k]].copy(), random


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "d", "k", "b"), [(50, 1, 3, 7), (200, 2, 5, 33), (300, 17, 30, 128), (90, 130, 65, 64)]
)
@pytest.mark.parametrize("portable", [False, True])
def test_listed_rows_have_the_labels_of_copied_rows(n, d, k, b, dtype, portable):
    rows, centres, random = problem(n, d, k, dtype)
    listed = random.permutation(n)[:b]
    panels = tile.pack(centres, tile=PORTABLE if portable else None)
    found, expected = np.full(b, -1, np.int32), np.empty(b, np.int32)
    minibatch.nearest_listed(rows, listed, panels, found)
    tile.nearest(rows[listed], tile.pack(centres), expected)
    assert np.array_equal(found, expected)


def test_panels_beyond_the_cache_give_the_same_labels(monkeypatch):
    rows, centres, random = problem(200, 20, 40, np.float32)
    listed = random.permutation(200)
    panels, labels = tile.pack(centres), np.empty((2, 200), np.int32)
    minibatch.nearest_listed(rows, listed, panels, labels[0])
    monkeypatch.setattr(minibatch, "_FUSED_BYTES", 0)
    minibatch.nearest_listed(rows, listed, panels, labels[1])
    assert np.array_equal(*labels)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d", "k"), [(60, 5, 4), (300, 40, 70)])
def test_listed_csr_rows_have_the_labels_of_copied_rows(n, d, k, dtype):
    rows, centres, random = problem(n, d, k, dtype)
    rows[random.random(rows.shape) < 0.7] = 0
    sparse, listed = SparseRows.of(rows), random.permutation(n)[: n // 2]
    panels = pack_sparse(centres)
    found, expected = np.full(len(listed), -1, np.int32), np.empty(len(listed), np.int32)
    nearest_sparse(csr(sparse), panels, found, listed=listed)
    nearest_sparse(csr(sparse[listed]), panels, expected)
    assert np.array_equal(found, expected)


def moved(rows, listed, weights, labels, centres, seen, rule, *, sparse=False, normalize=False):
    """Return state, costs and shifts after `move_centres`, in two parts."""
    k = len(centres)
    order, starts = np.empty(len(listed), np.int64), np.empty(k + 1, np.int64)
    group_by_label(labels, order, starts)
    state = centres.astype(np.float64), centres.copy(), seen.copy()
    costs, shifts = np.empty((2, k))
    b = float(len(listed)) if weights is None else float(weights[listed].sum())
    for part in ((0, k // 2), (k // 2, k)):
        given = listed, weights_or_none(weights), (order, starts), (b, rule, normalize), part
        if sparse:
            norms, out = squared_norms(centres), (costs, shifts)
            minibatch.move_centres_sparse(csr(SparseRows.of(rows)), *given, norms, state, out)
        else:
            minibatch.move_centres(rows, *given, state, (costs, shifts))
    return state, costs, shifts


@pytest.mark.parametrize("rule", [minibatch.COUNT, minibatch.SQRT])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_centres_move_by_the_definition(rule, weighted, sparse):
    rows, centres, random = problem(120, 9, 6, np.float64)
    listed, labels = random.permutation(120)[:50], random.integers(0, 5, 50).astype(np.int32)
    weights = random.random(120) if weighted else None
    seen = random.integers(0, 9, 6).astype(np.float64)
    state, costs, shifts = moved(rows, listed, weights, labels, centres, seen, rule, sparse=sparse)
    w = np.ones(50) if weights is None else weights[listed]
    for j in range(6):
        mine = labels == j
        b_j, x = w[mine].sum(), rows[listed[mine]]
        alpha = b_j / (seen[j] + b_j) if rule == minibatch.COUNT else np.sqrt(b_j / w.sum())
        if not mine.any():  # cluster 5
            assert np.array_equal(state[0][j], centres[j])
            assert (costs[j], shifts[j], state[2][j]) == (0, 0, seen[j])
            continue
        expected = (1 - alpha) * centres[j] + alpha * (w[mine] @ x / b_j)
        np.testing.assert_allclose(state[0][j], expected, rtol=1e-13)
        np.testing.assert_allclose(state[2][j], seen[j] + b_j)
        np.testing.assert_allclose(costs[j], w[mine] @ ((x - centres[j]) ** 2).sum(axis=1))
        np.testing.assert_allclose(shifts[j], ((expected - centres[j]) ** 2).sum(), rtol=1e-10)
    assert np.array_equal(state[0], state[1])


def test_rows_without_weight_move_nothing():
    rows, centres, _ = problem(20, 3, 2, np.float32)
    labels = np.zeros(20, np.int32)
    for rule in (minibatch.COUNT, minibatch.SQRT):
        state, costs, shifts = moved(
            rows, np.arange(20), np.zeros(20), labels, centres, np.zeros(2), rule
        )
        assert np.array_equal(state[1], centres)
        assert not costs.any()
        assert not shifts.any()


def test_drawing_in_parts_gives_the_same_permutation():
    uniforms = np.random.default_rng(0).random(100)
    whole, parts = np.arange(100), np.arange(100)
    shuffle_next(whole, 0, uniforms)
    for first in range(0, 100, 7):
        shuffle_next(parts, first, uniforms[first : first + 7])
    assert np.array_equal(whole, parts)
    assert np.array_equal(np.sort(whole), np.arange(100))
