"""Bounds enclose the true distances, whatever is rounded; moved rows move sums exactly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.kernels.accumulate import accumulate, accumulate_weighted, move, move_weighted
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.panels import PORTABLE
from daskcluster.kernels.row_ops import rough_squared_distance
from daskcluster.kernels.sum_grid import grid_shift
from daskcluster.kernels.tile import group_size, nearest, pack, pack_groups
from daskcluster.methods.kmeans.kernels.bounds import (
    Centres,
    Listed,
    Moved,
    State,
    lowered,
    raised,
)
from daskcluster.methods.kmeans.kernels.elkan import probe_kernel, reassign, rough_error
from daskcluster.methods.kmeans.kernels.groups import Groups, filter_groups, reassign_groups_kernel

MARGIN = np.array([1e-3, 1e-2])


def problem(d, dtype, n=700, k=23, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(dtype)
    centres = rng.standard_normal((k, d)).astype(dtype)
    drift = np.abs(rng.standard_normal((2, k)))
    drift[1] = 0.0  # no row is settled by the gap between centres
    return X, centres, drift


def distances(X, centres):
    gaps = X[:, None].astype(float) - centres[None].astype(float)
    return np.sqrt((gaps * gaps).sum(axis=2))


def test_rounding_is_to_the_safe_side():
    for value in (0.0, 1e-300, -1e-300, 1.0, -3.7, 1e30, -1e-40, np.inf):
        assert float(raised(value)) >= value
        assert float(lowered(value)) <= value or value == np.inf
        if 1e-30 < abs(value) < np.inf:
            rounded = float(raised(value)), float(lowered(value))
            assert rounded == pytest.approx((value, value), rel=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("d", [2, 40])
@pytest.mark.parametrize("alone", [False, True])
def test_groups_give_the_labels_of_the_tile(d, share, alone):
    X, centres, drift = problem(d, np.float32, k=53)
    n, k = len(X), len(centres)
    size = k if alone else group_size(k, np.dtype(np.float32))
    groups = tuple(np.arange(j, min(j + size, k), dtype=np.int32) for j in range(0, k, size))
    panels, order, per_group = pack_groups(centres, groups)
    if panels.tile == PORTABLE:
        pytest.skip("bounds need a register tile")
    true = distances(X, centres)
    drifted = np.linspace(0.0, 1.0, len(groups))
    by_group = np.stack([true[:, group].min(axis=1) for group in groups], axis=1)
    rng = np.random.default_rng(1)
    # A random share of the groups has forgotten its bound; some labels are wrong.
    lower = np.where(rng.random(by_group.shape) < share, -np.inf, by_group - 1e-3 + drifted)
    lower = lower.astype(np.float32)
    expected = np.empty(n, np.int32)
    nearest(X, pack(centres), expected)
    labels = np.where(rng.random(n) < 0.5, expected, rng.integers(0, k, n)).astype(np.int32)
    before = labels.copy()
    upper = np.full(n, 1e3, np.float32)
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    failing = np.empty(n, np.int64)
    count = filter_groups(labels, upper, lower, drift, drifted, MARGIN, failing)
    assert count == n
    moved, old = np.empty(n, np.int64), np.empty(n, np.int32)
    _, n_moved = reassign_groups_kernel(panels.tile, panels.dtype)(
        Listed(X, failing, failing), State(labels, upper, lower),
        Centres(centres, panels.data, panels.offset), Groups(per_group, order, group_of),
        drift, drifted, MARGIN, 128, Moved(moved, old),
    )  # fmt: skip
    assert np.array_equal(labels, expected)
    assert np.array_equal(np.sort(moved[:n_moved]), np.flatnonzero(before != expected))
    assert np.array_equal(old[:n_moved], before[moved[:n_moved]])
    others = true.copy()
    others[np.arange(n), labels] = np.inf
    least = np.stack([others[:, group].min(axis=1) for group in groups], axis=1)
    assert np.all(lower - drifted <= least * (1 + 1e-6))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [3, 30, 70])
def test_bounds_of_every_centre(dtype, d):
    X, centres, drift = problem(d, dtype)
    n, k = len(X), len(centres)
    panels, error = pack(centres), rough_error(d, np.dtype(dtype))
    if panels.tile == PORTABLE:
        pytest.skip("bounds need a register tile")
    expected = np.empty(n, np.int32)
    nearest(X, panels, expected)
    labels = np.full(n, -1, np.int32)
    upper, lower = np.full(n, np.inf, np.float32), np.full((n, k), -np.inf, np.float32)
    # Every other row, so that places in the array and in the state differ.
    part, at = np.arange(0, n, 2), np.arange(len(X[::2]))
    look, halves = probe_kernel(panels.tile, panels.dtype), np.zeros((k, k), np.float32)
    near = Centres(centres, panels.data, panels.offset)
    known = State(labels, upper, lower), near, halves, drift, MARGIN, error
    moved, old = np.empty(n, np.int64), np.empty(n, np.int32)
    out = Moved(moved, old)
    assert look(Listed(X[::2].copy(), at, part), *known, out) == (len(at) * k, len(at))
    assert set(labels[1::2]) == {-1}
    assert np.array_equal(labels[::2], expected[::2])
    labels[1::2] = (expected[1::2] + np.arange(len(part))) % k
    before = labels.copy()
    _, n_moved = look(Listed(X, part + 1, part + 1), *known, out)
    assert np.array_equal(part[moved[:n_moved]] + 1, np.flatnonzero(before != expected))
    assert np.array_equal(old[:n_moved], before[before != expected])
    assert np.array_equal(labels, expected)
    true = distances(X, centres)
    others = true.copy()
    others[np.arange(n), labels] = np.inf
    assert np.array_equal(np.isinf(lower), np.isinf(others))
    finite = np.isfinite(lower)
    gaps = others[finite] - (lower - drift[0])[finite]
    assert gaps.min() >= 0.0
    assert np.median(gaps) < 0.1
    assert np.all(upper + drift[0][labels] >= true[np.arange(n), labels])
    # From the second nearest centre, with bounds, the way back is found without a tile.
    wrong = np.argsort(true, axis=1)[:, 1].astype(np.int32)
    lower[np.arange(n), labels] = -np.inf
    found, left, was = wrong.copy(), np.empty(n, np.int64), np.empty(n, np.int32)
    n_left, computed = reassign(
        Listed(X, np.arange(n), np.arange(n)), State(found, upper, lower), centres, halves, drift,
        np.zeros(2), error, left, was,
    )  # fmt: skip
    assert np.array_equal(was, wrong)
    decided = np.setdiff1d(np.arange(n), left[:n_left])
    assert len(decided) > n / 2
    assert computed < n * k / 2
    assert np.array_equal(found[decided], labels[decided])


@kernel
def _rough(x, y):
    return rough_squared_distance(x, 0, y, 0, len(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rough_distances_err_by_less_than_they_say(dtype):
    for d, size in itertools.product((1, 15, 16, 63, 64, 65, 130, 784), (1e-30, 1.0, 1e15)):
        x, y = (size * np.random.default_rng(d).standard_normal((2, d))).astype(dtype)
        relative, least = rough_error(d, np.dtype(dtype))
        true = np.sqrt(((x.astype(np.longdouble) - y) ** 2).sum())
        assert abs(np.sqrt(_rough(x, y)) - true) <= relative * true + least, (d, size)
        assert relative < 1e-5


def test_rows_within_their_bounds_are_skipped():
    labels = np.array([0, 0, 1, 1], np.int32)
    upper = np.array([1.0, 1.0, 1.0, np.inf], np.float32)
    lower = np.array([[2.0], [1.001], [0.0], [np.inf]], np.float32)
    failing = np.empty(4, np.int64)
    drift = np.array([[0.0, 0.0], [0.0, 5.0]])
    count = filter_groups(labels, upper, lower, drift, np.zeros(1), MARGIN, failing)
    assert failing[:count].tolist() == [1, 3]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 9, 40])
def test_moving_rows_equals_adding_them_anew(d, weighted):
    rng = np.random.default_rng(2)
    n, k = 300, 7
    X = rng.lognormal(sigma=3, size=(n, d))
    weights = rng.lognormal(size=n) if weighted else None
    scale = Scale(n, np.abs(X).max(axis=0), 50.0, weighted, wide=True)
    before, after = rng.integers(0, k, (2, n)).astype(np.int32)
    which = np.flatnonzero(before != after)

    def totals(labels):
        found = np.zeros((k, d)), np.zeros((k, d)), np.zeros(k), np.zeros(k)
        accumulate_weighted(X, labels, weights, scale.sums, *found[:2], scale.weights, *found[2:])
        return found

    kept = totals(before)
    move_weighted(
        X, which, before[which], after[which], None if weights is None else weights[which],
        scale.sums, *kept[:2], scale.weights, *kept[2:],
    )  # fmt: skip
    for one, other in zip(kept, totals(after), strict=True):
        assert np.array_equal(one, other)


def test_rows_of_no_cluster_are_added():
    X = np.random.default_rng(3).standard_normal((50, 4)).astype(np.float32)
    labels = np.random.default_rng(4).integers(0, 3, 50).astype(np.int32)
    shift = grid_shift(np.abs(X).max(axis=0).astype(float), 50)
    sums, counts = np.zeros((3, 4)), np.zeros(3, np.int64)
    accumulate(X, labels, shift, sums, counts)
    moved, members = np.zeros((3, 4)), np.zeros(3, np.int64)
    move(X, np.arange(50), np.full(50, -1, np.int32), labels, shift, moved, members)
    assert np.array_equal(sums, moved)
    assert np.array_equal(counts, members)
